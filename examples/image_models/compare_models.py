"""Compare six models of natural images by their log-likelihood of held-out patches.

Table 1 and Figure 5 of Sohl-Dickstein & Culpepper (2012), arXiv:1205.1925, on photographs that ship with scikit-learn
and scikit-image.  From the root of the repository::

    python -m examples.image_models.compare_models            # 16x16 patches, 36 components, 100 rows
    python -m examples.image_models.compare_models --small    # 8x8 patches, 16 components, 20 rows

The second takes a few minutes on two cores.  Results go into compare_models.csv in the working folder, or where
``--csv`` says, in place of those that it holds of the same models and sizes; ``--draw`` only draws what it holds.
``--data vanhateren`` takes prepared patches of a van Hateren image, where there are any.
"""

import argparse
import csv
import json
import logging
import time
from pathlib import Path
from types import ModuleType

import matplotlib
import numpy as np
import pymc as pm

import pymc_hais
from examples.image_models import bilinear, linear_gaussian, linear_laplace, mcrbm, poe_laplace, poe_student
from examples.image_models.patches import Patches, load_patches, load_van_hateren

matplotlib.use("Agg")
import matplotlib.pyplot as plt

MODELS = {
    "linear, Gaussian": (linear_gaussian, "#666666"),
    "linear, Laplace": (linear_laplace, "#0072B2"),
    "bilinear": (bilinear, "#E69F00"),
    "experts, Laplace": (poe_laplace, "#009E73"),
    "experts, Student-t": (poe_student, "#CC79A7"),
    "mcRBM": (mcrbm, "#D55E00"),
}
#: Sizes as multiples of the number of components; a bilinear model counts causes and intensities together.
SIZES = {
    "linear, Gaussian": (1,),
    "linear, Laplace": (1, 2),
    "bilinear": (1.25,),
    "experts, Laplace": (1, 2, 4),
    "experts, Student-t": (1, 2, 4),
    "mcRBM": (2, 4),
}
SMALL_SIZES = {name: sizes[:2] if "experts" in name else sizes[:1] for name, sizes in SIZES.items()}
#: A row's error of 0.3 nats is far below the spread between rows.
SETTINGS = {"small": {"target_se": 0.5, "max_temperatures": 500}, "full": {"target_se": 0.3, "max_temperatures": 2000}}
COLUMNS = ("model", "size", "mean", "mcse", "sem", "gain", "gain_sem", "exact", "findings", "seconds")


def train(module: ModuleType, patches: Patches, size: int, n_steps: int) -> tuple[pm.Model, list[str]]:
    """Return a trained model of one row, and the names of what training has to report."""
    if hasattr(module, "maximise_likelihood"):
        return module.build_model(module.maximise_likelihood(patches.train, size)), []
    model = module.build_model(module.initialise(patches.train, size))
    rows = {"x": patches.train}
    result = pymc_hais.fit(
        model, rows, module.LEARNT, module.METHOD, n_steps=n_steps, random_seed=2012, progressbar=False
    )
    return model, names_of_findings(result["learning"])


def names_of_findings(group) -> list[str]:
    return [finding["name"] for finding in json.loads(group.attrs["findings"])]


def gaussian_log_likelihood(patches: Patches) -> np.ndarray:
    """Return log p(x) of each held-out row under the best Gaussian of full size: what the others have to beat."""
    parameters = linear_gaussian.maximise_likelihood(patches.train, patches.train.shape[1])
    return linear_gaussian.exact_log_likelihood(parameters, patches.test)


def exact_mean(module: ModuleType, parameters: dict, patches: Patches, result) -> float:
    """Return the exact mean log-likelihood where it is known, else NaN."""
    if hasattr(module, "exact_log_likelihood"):
        return float(module.exact_log_likelihood(parameters, patches.test).mean())
    if hasattr(module, "exact_log_z") and len(set(parameters["phi"].shape)) == 1:
        return float(result["mean"] + result["log_z"]) - module.exact_log_z(parameters)
    return float("nan")


def measure(name: str, patches: Patches, size: int, n_steps: int, settings: dict) -> dict:
    """Train a model of one size and score the held-out rows."""
    module, begin = MODELS[name][0], time.perf_counter()
    model, findings = train(module, patches, size, n_steps)
    parameters = {name: model[name].get_value() for name in module.LEARNT}
    result = pymc_hais.log_likelihood(model, {"x": patches.test}, random_seed=2012, progressbar=False, **settings)[
        "held_out"
    ]
    gain = result["value"].values - gaussian_log_likelihood(patches)
    return {
        "model": name,
        "size": size,
        **{key: float(result[key]) for key in ("mean", "mcse", "sem")},
        "gain": gain.mean(),
        "gain_sem": gain.std(ddof=1) / np.sqrt(len(gain)),
        "exact": exact_mean(module, parameters, patches, result),
        "findings": " ".join(findings + names_of_findings(result)),
        "seconds": time.perf_counter() - begin,
    }


def show(row: dict) -> None:
    exact = "" if np.isnan(row["exact"]) else f"{row['exact']:.2f}"
    print(
        f"{row['model']:20s}{row['size']:5d}{row['mean']:9.2f} ± {row['mcse']:4.2f} ± {row['sem']:5.2f}"
        f"{row['gain']:+9.2f} ± {row['gain_sem']:4.2f}{exact:>9s}{row['seconds']:6.0f} s  {row['findings']}",
        flush=True,
    )


def show_head(patches: Patches) -> None:
    print(f"{patches.source}: {len(patches.test)} held-out rows, {patches.test.shape[1]} components, nats per row")
    print("Errors: Monte Carlo, then the spread over test sets; the gain is over the best Gaussian, row by row.")
    print(f"{'model':20s}{'size':>5s}{'log-likelihood':>24s}{'gain':>16s}{'exact':>9s}")


def conclude(rows: list[dict]) -> None:
    """Say what has not converged, and which models beat the Gaussian by more than twice the error of the difference."""
    if unfinished := [f"{row['model']} ({row['size']})" for row in rows if "not_converged" in row["findings"]]:
        print(f"Training has not converged, and more --steps would change the numbers: {', '.join(unfinished)}.")
    for name in dict.fromkeys(row["model"] for row in rows):
        best = max((row for row in rows if row["model"] == name), key=lambda row: row["gain"])
        if name != "linear, Gaussian":
            beats = best["gain"] > 2.0 * np.hypot(best["gain_sem"], best["mcse"])
            print(f"{name} {'beats' if beats else 'does NOT beat'} the Gaussian: {best['gain']:+.2f} nats a row.")


def draw(rows: list[dict], path: Path) -> None:
    """Draw log-likelihood against size; bars are Monte Carlo errors, the dotted line the Gaussian."""
    fig, ax = plt.subplots(figsize=(6.6, 4.6), layout="constrained")
    for name, (_, color) in MODELS.items():
        points = sorted((row["size"], row["mean"], row["mcse"]) for row in rows if row["model"] == name)
        if points:
            sizes, means, errors = zip(*points, strict=True)
            ax.errorbar(sizes, means, errors, color=color, marker="o", markersize=5, capsize=3, label=name)
    gaussian = max(
        (row for row in rows if row["model"] == "linear, Gaussian"), key=lambda row: row["mean"], default=None
    )
    if gaussian:
        ax.axhline(gaussian["mean"], color="#666666", linewidth=0.8, linestyle=":")
    ticks = sorted({row["size"] for row in rows})
    ax.set_xscale("log", base=2)
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.minorticks_off()
    ax.set(xlabel="size of the model (causes, experts or hidden units)")
    ax.set_ylabel("held-out log-likelihood per row (nats)")
    ax.spines[["top", "right"]].set_visible(False)
    fig.legend(loc="outside lower center", ncols=3, frameon=False)
    fig.savefig(path, dpi=130)
    plt.close(fig)
    print(f"Saved {path}.")


def read(path: Path) -> list[dict]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    words = ("model", "findings")
    return [
        {key: value if key in words else int(value) if key == "size" else float(value) for key, value in row.items()}
        for row in rows
    ]


def write(rows: list[dict], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def compare(arguments: argparse.Namespace) -> list[dict]:
    """Train and score every model at every size, writing down each as it comes."""
    logging.getLogger("pymc").setLevel(logging.ERROR)
    logging.getLogger("pymc.hais").setLevel(logging.CRITICAL)  # the table names the findings
    small = arguments.small
    if arguments.data == "vanhateren":
        patches = load_van_hateren(arguments.rows or 100)
    else:
        width, n_components = (8, 16) if small else (16, 36)
        patches = load_patches(n_components, width, n_test=arguments.rows or (20 if small else 100))
    settings = SETTINGS["small" if small else "full"]
    rows = read(arguments.csv) if arguments.csv.exists() else []
    show_head(patches)
    for name in arguments.models:
        for factor in (SMALL_SIZES if small else SIZES)[name]:
            size = round(factor * patches.train.shape[1])
            new = measure(name, patches, size, arguments.steps or (500 if small else 3000), settings)
            rows = [row for row in rows if (row["model"], row["size"]) != (name, size)] + [new]
            show(new)
            write(rows, arguments.csv)
    conclude(rows)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="8x8 patches, 16 components, few sizes")
    parser.add_argument("--data", choices=("photographs", "vanhateren"), default="photographs")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rows", type=int, help="held-out rows")
    parser.add_argument("--steps", type=int, help="steps of training")
    parser.add_argument("--draw", action="store_true", help="measure nothing, draw the results in --csv")
    parser.add_argument("--csv", type=Path, default=Path("compare_models.csv"))
    parser.add_argument("--image", type=Path, default=Path("compare_models.png"))
    arguments = parser.parse_args()
    draw(read(arguments.csv) if arguments.draw else compare(arguments), arguments.image)


if __name__ == "__main__":
    main()
