"""The figure of the comparison: what each model gains with its size, and in the course of its training."""

from pathlib import Path

import matplotlib
import numpy as np

from examples.image_models.table import MODELS, has_converged, mean_and_sem

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

#: How lines and points of each method of training look.
STYLES = {"closed form": ("-", "o"), "EM": ("-", "o"), "chains": ("-", "o"), "flow": ("--", "^")}
#: By how much neighbours stand apart, as a factor of the size, and as a share of training.
APART, APART_IN_TIME = 1.018, 0.008


def draw(rows: list[dict], path: Path) -> None:
    """Draw the gain over the best Gaussian; training that has not converged is not drawn."""
    rows = [row for row in rows if has_converged(row)]
    curves = [row for row in rows if row["way"]]
    n_panels = 2 if curves else 1
    size = (2.6 + 4.5 * n_panels, 4.8)
    figure, axes = plt.subplots(1, n_panels, figsize=size, layout="constrained", squeeze=False)
    draw_sizes(axes[0, 0], rows)
    axes[0, 0].set_ylabel("nats a row above the best Gaussian")
    if curves:
        draw_training(axes[0, 1], curves)
    for ax in axes.ravel():
        ax.axhline(0.0, color="0.85", linewidth=1, zorder=0)
        ax.spines[["top", "right"]].set_visible(False)
    if rows:
        figure.legend(handles=explain(rows), loc="outside lower center", ncols=2 + n_panels, frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    print(f"Saved {path}.")


def explain(rows: list[dict]) -> list[Line2D]:
    """Return a line for each model that is drawn, and one for the other method of training."""
    drawn = {row["model"] for row in rows}
    lines = [Line2D([], [], color=color, marker="o", label=name) for name, color in MODELS.items() if name in drawn]
    if any(row["method"] == "flow" for row in rows):
        line, marker = STYLES["flow"]
        lines.append(Line2D([], [], color="0.4", linestyle=line, marker=marker, label="by probability flow"))
    return lines


def draw_sizes(ax, rows: list[dict]) -> None:
    """Draw gains against size, with their errors over rows; points of one size stand side by side."""
    drawn = [(name, method) for name in MODELS for method in STYLES]
    drawn = [one for one in drawn if one in {(row["model"], row["method"]) for row in rows}]
    for i, (name, method) in enumerate(drawn):
        own = [row for row in rows if (row["model"], row["method"]) == (name, method)]
        own.sort(key=lambda row: row["size"])
        means, sems = zip(*(mean_and_sem(row["gain"]) for row in own), strict=True)
        errors = np.hypot(sems, [row["mcse"] for row in own])
        sizes = np.array([row["size"] for row in own]) * APART ** (i - 0.5 * (len(drawn) - 1))
        line, marker = STYLES[method]
        look = {"color": MODELS[name], "linestyle": line, "marker": marker, "markersize": 5, "capsize": 3}
        ax.errorbar(sizes, means, errors, **look)
    ticks = sorted({row["size"] for row in rows})
    ax.set_xscale("log", base=2)
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.minorticks_off()
    ax.set(xlabel="size of the model (causes, experts or hidden units)")


def draw_training(ax, rows: list[dict]) -> None:
    """Draw gains, of the rows that all models were scored with on the way, against the share of the steps."""
    n = min(len(row["way"][0]["gain"]) for row in rows)
    for i, row in enumerate(rows):
        way = [*row["way"], {"step": row["n_steps"], "gain": row["gain"], "mcse": row["mcse"]}]
        shares = np.array([one["step"] / row["n_steps"] for one in way]) + APART_IN_TIME * (i - 0.5 * (len(rows) - 1))
        line, marker = STYLES[row["method"]]
        look = {"color": MODELS[row["model"]], "linestyle": line, "marker": marker, "markersize": 5, "capsize": 3}
        ax.errorbar(shares, [np.mean(one["gain"][:n]) for one in way], [one["mcse"] for one in way], **look)
    ax.set(xlabel=f"share of the steps of training (smallest models, the first {n} rows)")
