"""The figure of the comparison: what each model gains with its size, and in the course of its training."""

from pathlib import Path

import matplotlib
import numpy as np

from examples.image_models.table import MODELS, has_converged, mean_and_sem

matplotlib.use("Agg")
import matplotlib.pyplot as plt

#: How lines and points of each method of training look.
STYLES = {"closed form": ("-", "o"), "EM": ("-", "o"), "chains": ("-", "o"), "flow": ("--", "^")}


def draw(rows: list[dict], path: Path) -> None:
    """Draw the gain over the best Gaussian; training that has not converged is not drawn against size."""
    curves = [row for row in rows if row["way"]]
    n_panels = 2 if curves else 1
    figure, axes = plt.subplots(
        1, n_panels, figsize=(1.6 + 5.0 * n_panels, 4.8), layout="constrained", squeeze=False, sharey=True
    )
    draw_sizes(axes[0, 0], [row for row in rows if has_converged(row)])
    if curves:
        draw_training(axes[0, 1], curves)
    for ax in axes.ravel():
        ax.spines[["top", "right"]].set_visible(False)
    if axes[0, 0].get_legend_handles_labels()[0]:
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    print(f"Saved {path}.")


def draw_sizes(ax, rows: list[dict]) -> None:
    """Draw gains against size, with their errors over rows."""
    for name, color in MODELS.items():
        for method, (line, marker) in STYLES.items():
            own = [row for row in rows if (row["model"], row["method"]) == (name, method)]
            own.sort(key=lambda row: row["size"])
            if own:
                means, sems = zip(*(mean_and_sem(row["gain"]) for row in own), strict=True)
                errors = np.hypot(sems, [row["mcse"] for row in own])
                label = name if method != "flow" else f"{name}, by probability flow"
                look = {"color": color, "linestyle": line, "marker": marker, "markersize": 5, "capsize": 3}
                ax.errorbar([row["size"] for row in own], means, errors, label=label, **look)
    ticks = sorted({row["size"] for row in rows})
    ax.set_xscale("log", base=2)
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.minorticks_off()
    ax.set(xlabel="size of the model (causes, experts or hidden units)", ylabel="nats a row above the best Gaussian")


def draw_training(ax, rows: list[dict]) -> None:
    """Draw gains, of those rows that were scored on the way, against the share of the steps of training."""
    for row in rows:
        n = len(row["way"][0]["gain"])
        way = [*row["way"], {"step": row["n_steps"], "gain": row["gain"][:n], "mcse": row["mcse"]}]
        shares = [one["step"] / row["n_steps"] for one in way]
        look = {"color": MODELS[row["model"]], "linestyle": STYLES[row["method"]][0], "capsize": 3}
        ax.errorbar(shares, [np.mean(one["gain"]) for one in way], [one["mcse"] for one in way], **look)
    ax.set(xlabel="share of the steps of training")
