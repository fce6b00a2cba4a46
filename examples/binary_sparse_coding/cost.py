"""What an E-step costs against the number of selected units H': select-and-sample linear, selection exponential.

Patches of 40 x 40 pixels and 1600 units, as in Shelton et al. (2011), ``python -m examples.binary_sparse_coding.cost``;
``--small`` takes 12 x 12 and 200.  Seconds are of CPU, for an E-step of some patches; the projection of the patches on
the basis functions does not change with H', and is a constant in the fit.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import curve_fit

from examples.binary_sparse_coding.model import PARAMETERS, build_model, first_parameters, score
from examples.binary_sparse_coding.patches import load_rows
from pymc_hais import learning
from pymc_hais.learning.binary.strategies import piece_of
from pymc_hais.learning.family import build_family
from pymc_hais.learning.likelihood.expectation_maximization import begin

SAMPLED = (4, 8, 12, 16, 20, 24, 28, 34)
ENUMERATED = (4, 6, 8, 10, 12, 14, 16, 17)


def measure(
    rows: np.ndarray,
    n_units: int,
    sampled: Sequence[int] = SAMPLED,
    enumerated: Sequence[int] = ENUMERATED,
    n_sweeps: int = 200,
) -> dict[str, np.ndarray]:
    """Return H', states of a row and seconds of CPU (K, 3) for both E-steps."""
    first = first_parameters(rows, n_units, np.random.default_rng(1))
    family, rows = build_family(
        build_model(*(first[name] for name in PARAMETERS)), {"y": rows}, list(PARAMETERS), "python"
    )
    e_steps = {
        "select and sample": [learning.SelectAndSample(score, k, n_sweeps - 50, 50) for k in sampled],
        "selection": [learning.Selection(score, k) for k in enumerated],
    }
    found = {}
    for name, several in e_steps.items():
        lines = []
        for e_step in several:
            state = begin(e_step, family, rows)
            bound = state.density.at(first, rows[0])
            # As many rows at once as a fit would take.
            size, seconds = piece_of(rows.shape[1], e_step.width(n_units)), []
            for _ in range(3):
                began = time.process_time()
                for i in range(0, len(rows), size):
                    some = rows[i : i + size]
                    units = e_step.choose(some, first, n_units)
                    local, start = bound(some, units), state.last[: len(some)]
                    e_step.explore(local, units, start, 1.0, np.random.default_rng(1))
                seconds.append(time.process_time() - began)
            lines.append((e_step.n_units, e_step.n_states(n_units), min(seconds)))
        found[name] = np.array(lines)
    return found


def exponents(found: dict[str, np.ndarray]) -> tuple[float, float, float, float]:
    """Return the power p of H' of select-and-sample, and the doublings b a unit of selection: by states, by seconds.

    Seconds are ``c + a H'^p`` and ``c + a 2^(b H')``.
    """
    sampled, enumerated = found["select and sample"], found["selection"]

    def power(k: np.ndarray, c: float, a: float, p: float) -> np.ndarray:
        return c + a * k**p

    def doubling(k: np.ndarray, c: float, a: float, b: float) -> np.ndarray:
        return c + a * 2.0 ** (b * k)

    (_, _, p), _ = curve_fit(power, sampled[:, 0], sampled[:, 2], (sampled[0, 2], 1e-3, 1.0))
    first = (enumerated[0, 2], enumerated[-1, 2] / 2.0 ** enumerated[-1, 0], 1.0)
    (_, _, b), _ = curve_fit(doubling, enumerated[:, 0], enumerated[:, 2], first)
    return (
        np.polyfit(*np.log(sampled[:, :2]).T, 1)[0],
        p,
        np.polyfit(enumerated[:, 0], np.log2(enumerated[:, 1]), 1)[0],
        b,
    )


def draw(found: dict[str, np.ndarray], path: Path) -> None:
    """Draw states and seconds against H'."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    for column, axis, label in zip((1, 2), axes, ("states of a row", "seconds of CPU"), strict=True):
        for name, lines in found.items():
            axis.semilogy(lines[:, 0], lines[:, column], "o-", label=name)
        axis.set(xlabel="selected units H'", ylabel=label)
    axes[1].legend()
    figure.savefig(path, dpi=120)


def main(small: bool = False, path: Path = Path("cost_of_selection.png")) -> None:
    width, n_units, n_rows = (12, 200, 100) if small else (40, 1600, 200)
    rows, source = load_rows(n_rows, width)
    found = measure(rows, n_units)
    print(f"{n_rows} patches, {width} x {width}, {n_units} units; {source}")
    for name, lines in found.items():
        print(f"{name:18s} {'states':>8s} {'cpu s':>8s}")
        for n_selected, n_states, seconds in lines:
            print(f"  H' = {n_selected:11.0f} {n_states:8.0f} {seconds:8.3f}")
    power, power_of_time, doublings, doublings_of_time = exponents(found)
    print(f"select and sample ~ H'^a: a = {power:.2f} by states, {power_of_time:.2f} by seconds")
    print(f"selection ~ 2^(b H'): b = {doublings:.2f} by states, {doublings_of_time:.2f} by seconds")
    draw(found, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--figure", type=Path, default=Path("cost_of_selection.png"))
    arguments = parser.parse_args()
    main(arguments.small, arguments.figure)
