"""Figures 2, 3 and 4 of Sohl-Dickstein & Culpepper (2012), arXiv:1205.1925, on data made here.

The log-likelihood as it is estimated with more and more intermediate distributions N, 200 particles a run, and its
exact value.  ``python examples/convergence.py`` measures all of it, an hour or so on two cores, into convergence.csv;
``--small`` stops at N = 1000 after some minutes; ``--draw`` only draws what convergence.csv holds.
"""

import argparse
import csv
import logging
import math
from pathlib import Path

import linear_generative as linear
import matplotlib
import numpy as np
import product_of_experts as experts
import pymc as pm

import pymc_hais

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
DATA = HERE / "convergence.csv"
IMAGES = HERE.parent / "docs" / "images"
LENGTHS = [10, 32, 100, 316, 1000, 3162, 10_000, 31_623, 100_000]
#: The longest runs: our plan is at the exact line long before.
LONGEST = {"tuned plan": 10_000}
N_PARTICLES, N_TEST = 200, 100
#: Of the experts' curvature: directions of the target whose widths differ tenfold.
CONDITION = 100.0

FIGURES = {
    "2": "Complete product of 36 Student-t experts",
    "3": "Complete product of 36 Laplace experts",
    "4": "Linear generative model, 36 Gaussian causes, one data point",
}
METHODS = {
    "tuned plan": "#0072B2",
    "HAIS, as in the report": "#009E73",
    "HAIS, momentum renewed": "#E69F00",
    "random walk": "#CC79A7",
}


def settings(method: str, n: int, reference: str) -> dict:
    """Return the arguments of sample_hais for one method; the report's methods start from ``reference``."""
    report = {"reference": reference, **pymc_hais.paper_settings(n)}
    momentum_renewed = pymc_hais.Hamiltonian("drift-kick-drift", step_size=0.2, damping=math.inf)
    return {
        "tuned plan": {"n_temperatures": n, "target_se": None},
        "HAIS, as in the report": report,
        "HAIS, momentum renewed": {**report, "kernel": momentum_renewed},
        "random walk": {**report, "kernel": pymc_hais.RandomWalk(step_size=0.1)},
    }[method]


def estimate(model: pm.Model, method: str, n: int, reference: str) -> np.ndarray:
    """Return log Z of independent runs of 200 particles, (runs,): many where they are cheap."""
    chains = 8 if n <= 316 else 4 if n <= 3162 else 2 if n <= 31_623 else 1
    with model:
        idata = pm.sample_hais(
            N_PARTICLES, chains=chains, random_seed=n, progressbar=False, **settings(method, n, reference)
        )
    return np.array(pymc_hais.log_marginal_likelihood(idata).per_chain)


def analysis(kind: str):
    """Return the exact log-likelihood of test points under experts, and how to estimate it: one run serves all."""
    phi = experts.build_filters(condition=CONDITION)
    points = experts.sample_experts(phi, kind, N_TEST)
    weights = experts.default_weights(kind)
    mean_energy = float(experts.energy(points @ phi.T, kind, weights).eval().mean())
    model = experts.build_model(phi, kind)
    return (
        -mean_energy - experts.exact_log_z(phi, kind),
        lambda method, n: -mean_energy - estimate(model, method, n, "gaussian"),
    )


def generative():
    """Return the same for one point of the linear generative model, which takes a run of its own."""
    phi = linear.build_basis()
    point = linear.generate(phi, 1)[0]
    model = linear.build_model(phi, point)
    exact = float(linear.exact_log_likelihood(phi, point))
    return exact, lambda method, n: estimate(model, method, n, "prior")


def measure(figures: list[str], longest: int) -> None:
    """Measure the curves and put them into the data file, in place of those that it holds."""
    logging.getLogger("pymc").setLevel(logging.CRITICAL)
    rows = [row for row in read() if row["figure"] not in figures]
    for figure in figures:
        exact, run = generative() if figure == "4" else analysis({"2": "student", "3": "laplace"}[figure])
        rows.append({"figure": figure, "method": "exact", "n": 0, "run": 0, "log_likelihood": round(exact, 4)})
        for n in LENGTHS:
            for method in METHODS:
                if n > min(longest, LONGEST.get(method, n)):
                    continue
                values = run(method, n)
                print(f"figure {figure}, N = {n:6d}, {method:24s} error {np.mean(values) - exact:+9.3f}", flush=True)
                rows += [
                    {"figure": figure, "method": method, "n": n, "run": i, "log_likelihood": round(float(value), 4)}
                    for i, value in enumerate(values)
                ]
            write(rows)


def read() -> list[dict]:
    if not DATA.exists():
        return []
    with DATA.open(newline="") as file:
        return [
            {**row, "n": int(row["n"]), "log_likelihood": float(row["log_likelihood"])} for row in csv.DictReader(file)
        ]


def write(rows: list[dict]) -> None:
    with DATA.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def draw(figure: str, rows: list[dict]) -> None:
    """Draw one figure: a point is the mean of the runs, its bar their standard deviation."""
    rows = [row for row in rows if row["figure"] == figure]
    exact = next(row["log_likelihood"] for row in rows if row["method"] == "exact")
    fig, ax = plt.subplots(figsize=(6.6, 4.4), layout="constrained")
    ax.axhline(exact, color="black", linewidth=1.2, label="exact")
    for i, (method, color) in enumerate(METHODS.items()):
        lengths = sorted({row["n"] for row in rows if row["method"] == method})
        values = [[r["log_likelihood"] for r in rows if (r["method"], r["n"]) == (method, n)] for n in lengths]
        means = [np.mean(v) for v in values]
        sds = [np.std(v, ddof=1) if len(v) > 1 else 0.0 for v in values]
        apart = 1.05 ** (i - 1.5)  # so that bars do not hide each other
        ax.errorbar(
            np.multiply(lengths, apart),
            means,
            sds,
            color=color,
            marker="o",
            markersize=4,
            capsize=2,
            linewidth=1.4,
            label=method,
        )
    if figure == "4":  # hundreds of nats too low at first
        ax.set_ylim(exact - 20.0, exact + 2.0)
    ax.set(xscale="log", xlabel="intermediate distributions N", title=FIGURES[figure])
    ax.set_ylabel("log-likelihood per point (nats)")
    ax.spines[["top", "right"]].set_visible(False)
    fig.legend(loc="outside lower center", ncols=3, frameon=False)
    IMAGES.mkdir(parents=True, exist_ok=True)
    path = IMAGES / f"report_figure_{figure}.png"
    fig.savefig(path, dpi=130)
    plt.close(fig)
    print(f"Saved {path.relative_to(HERE.parent)}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="stop at N = 1000")
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    parser.add_argument("--figures", nargs="+", choices=FIGURES, default=list(FIGURES))
    arguments = parser.parse_args()
    if not arguments.draw:
        measure(arguments.figures, 1000 if arguments.small else max(LENGTHS))
    rows = read()
    for figure in arguments.figures:
        draw(figure, rows)


if __name__ == "__main__":
    main()
