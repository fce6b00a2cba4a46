"""The table of the comparison, and what it says."""

from itertools import pairwise

import numpy as np

from examples.image_models.patches import Patches

#: And the colour of each.
MODELS = {
    "linear, Gaussian": "#666666",
    "linear, Laplace": "#0072B2",
    "bilinear": "#E69F00",
    "experts, Laplace": "#009E73",
    "experts, Student-t": "#CC79A7",
    "mcRBM": "#D55E00",
}


def has_converged(row: dict) -> bool:
    return "not_converged" not in row["findings"]


def has_error(row: dict) -> bool:
    """Whether the values have an error bar: experts that do not integrate to a finite number have none."""
    return bool(np.isfinite(row["mcse"]))


def mean_and_sem(values) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


def show_head(patches: Patches) -> None:
    print(f"{patches.source}: {len(patches.test)} held-out rows, {patches.test.shape[1]} components, nats per row")
    print("Errors: Monte Carlo, then the spread over rows; the gain is over the best Gaussian, row by row; other: how")
    print("far another estimate is away, in standard errors; seconds of processor time to train and to score.")
    heads = f"{'log-likelihood':>24s}{'gain':>16s}{'other':>7s}{'seconds':>12s}"
    print(f"{'model':20s}{'size':>5s} {'training':12s}{heads}")


def show(row: dict) -> None:
    numbers = f"{'no number with an error':>47s}"
    if has_error(row):
        (mean, sem), (gain, gain_sem) = mean_and_sem(row["values"]), mean_and_sem(row["gain"])
        numbers = f"{mean:9.2f} ± {row['mcse']:4.2f} ± {sem:5.2f}{gain:+9.2f} ± {gain_sem:4.2f}{row['other']:7.1f}"
    print(
        f"{row['model']:20s}{row['size']:5d} {row['method']:12s}{numbers}{row['training_seconds']:6.0f}"
        f"{row['seconds']:6.0f}  {' '.join(row['findings'])}",
        flush=True,
    )


def conclude(rows: list[dict]) -> None:
    """Print which fits have not converged, and compare each model's best entry with the next model's, row by row."""
    if unfinished := [f"{row['model']} ({row['size']}, {row['method']})" for row in rows if not has_converged(row)]:
        print(f"Training has not converged, and more --steps would change the numbers: {', '.join(unfinished)}.")
    best = {}
    for row in filter(has_error, rows):
        if row["model"] not in best or np.mean(row["values"]) > np.mean(best[row["model"]]["values"]):
            best[row["model"]] = row
    order = sorted(best.values(), key=lambda row: np.mean(row["values"]))
    for below, above in pairwise(order):
        mean, sem = mean_and_sem(np.subtract(above["values"], below["values"]))
        error = np.hypot(above["mcse"], below["mcse"])
        verdict = "above" if mean > 2.0 * np.hypot(sem, error) else "not clearly above"
        print(
            f"{above['model']} ({above['size']}) is {verdict} {below['model']} ({below['size']}): "
            f"{mean:+.2f} ± {sem:.2f} over rows ± {error:.2f} Monte Carlo"
        )
