"""The report's experiments as numbers: what a standard error of 0.1 costs, and the time of its longest run.

``python benchmarks/report.py [cost | time]``.  On each target every method runs at growing N, several runs of 200
particles each, until the root mean square error of log Z around the exact value is below 0.1.  Its cost is the N of an
error of 0.1 (by error ~ 1 / sqrt(N) from all errors below 0.4; marked > where none is below 0.1), in evaluations of the
energy, with or without its gradient, that one run makes.
"""

import logging
import math
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pymc as pm

import pymc_hais

sys.path.append(str(Path(__file__).parents[1]))
from examples import product_of_experts as experts

CASES = Path(__file__).parents[2] / "shared" / "cases"

N_PARTICLES, TARGET, NEAR = 200, 0.1, 4.0
REPORT, RENEWED, WALK = "the report's HAIS", "momentum renewed", "random walk"
KICKS = "the report's HAIS, kick-drift-kick"
TUNED, NORMAL = "tuned plan", "tuned plan from a normal"
LENGTHS = [10, 32, 100, 316, 1000, 3162, 10_000]
#: Evaluations of one transition, as this package makes them: a drift-kick-drift step reads a gradient half-way and an
#: energy at its end, a kick-drift-kick step both in one place.
EVALUATIONS = {REPORT: 2, KICKS: 1, RENEWED: 2, WALK: 1, TUNED: 1, NORMAL: 1}
#: Ratios of costs asked for: dearer method, cheaper one, on which targets, times.
BARS = [(WALK, REPORT, "", 5.0), (WALK, KICKS, "", 5.0), (RENEWED, REPORT, "", 2.0)]
BARS += [
    (REPORT, plan, where, bar) for plan in (TUNED, NORMAL) for where, bar in (("Hateren", 3.0), ("condition", 20.0))
]


def targets() -> dict:
    """Name the targets -> model, exact log Z."""
    found = {}
    if CASES.exists():
        sys.path.append(str(CASES))
        import poe_vanhateren36

        for kind in experts.KINDS:
            found[f"van Hateren, {kind}"] = poe_vanhateren36.build(kind)[:2]
    else:
        print("skipped: the van Hateren experts, since the shared cases are not beside the repository")
    for condition in (100.0, 1000.0):
        phi = experts.build_filters(condition=condition)
        for kind in experts.KINDS:
            model = experts.build_model(phi, kind)
            found[f"condition {condition:.0f}, {kind}"] = model, experts.exact_log_z(phi, kind)
    return found


def settings(method: str, n: int) -> dict:
    if method in (TUNED, NORMAL):
        return {"reference": "auto" if method == TUNED else "gaussian", "n_temperatures": n, "target_se": None}
    kernel = {
        KICKS: pymc_hais.Hamiltonian(step_size=0.2, damping=math.log(2.0)),
        RENEWED: pymc_hais.Hamiltonian("drift-kick-drift", step_size=0.2, damping=math.inf),
        WALK: pymc_hais.RandomWalk(step_size=0.1),
    }.get(method)
    report = {"reference": "gaussian", **pymc_hais.paper_settings(n)}
    return report if kernel is None else {**report, "kernel": kernel}


def error(model: pm.Model, exact: float, method: str, n: int) -> tuple[float, int]:
    """Return the root mean square error of a run, and the evaluations of the pilot before it."""
    # Weights have heavy tails: a rare heavy particle makes the error of few runs what chance will have it be.
    runs = int(np.clip(32_000 // n, 8, 64))
    idata = pm.sample_hais(
        N_PARTICLES, chains=runs, model=model, random_seed=n, progressbar=False, **settings(method, n)
    )
    per_run = np.array(pymc_hais.log_marginal_likelihood(idata).per_chain)
    return float(np.sqrt(np.mean((per_run - exact) ** 2))), int(idata["posterior"].attrs["n_gradients_pilot"])


def enough(lengths: list[int], errors: list[float]) -> float:
    """Return the N of an error at the target, from all errors that are near it and so fall as 1 / sqrt(N)."""
    products = [n * (rmse / TARGET) ** 2 for n, rmse in zip(lengths, errors, strict=True) if rmse <= NEAR * TARGET]
    return float(np.exp(np.mean(np.log(products)))) if products else lengths[-1] * (errors[-1] / TARGET) ** 2


def costs(name: str, model: pm.Model, exact: float) -> dict[str, tuple[float, float, int]]:
    """Return, for each method, its N, the evaluations of a run and those of the pilot."""
    found = {}
    for method, each in EVALUATIONS.items():
        lengths, errors, pilot = [], [], 0
        for n in LENGTHS:
            rmse, pilot = error(model, exact, method, n)
            lengths, errors = [*lengths, n], [*errors, rmse]
            if rmse <= TARGET:
                break
        n = enough(lengths, errors)
        found[method] = n, n * N_PARTICLES * each, pilot
        shown = ", ".join(f"{rmse:.3f}" for rmse in errors)
        mark = ">" if errors[-1] > TARGET else ""
        print(f"| {name} | {method} | {shown} | {mark}{n:.0f} | {found[method][1]:.1e} | {pilot:.1e} |", flush=True)
    return found


def compare_costs() -> None:
    print(f"| target | method | errors at N = {LENGTHS} | N for 0.1 | evaluations | pilot's |\n" + "| --- " * 6 + "|")
    found = {name: costs(name, *target) for name, target in targets().items()}
    print("\n| target | ratio | distributions | evaluations | with the pilot | asked for |\n" + "| --- " * 6 + "|")
    for name, each in found.items():
        for dear, cheap, where, bar in BARS:
            if where in name:
                (n_dear, dear_cost, _), (n_cheap, cheap_cost, pilot) = each[dear], each[cheap]
                print(
                    f"| {name} | {dear} / {cheap} | {n_dear / n_cheap:.1f} | {dear_cost / cheap_cost:.1f} | "
                    f"{dear_cost / (cheap_cost + pilot):.1f} | {bar:.0f} |"
                )


def time_run(n: int = 100_000) -> None:
    """Time the report's run of 200 particles, as two chains for two cores; compilation is counted apart."""
    phi = experts.build_filters()
    for kind in experts.KINDS:
        begin, cpu = time.perf_counter(), time.process_time()
        idata = pm.sample_hais(
            100,
            chains=2,
            model=experts.build_model(phi, kind),
            reference="gaussian",
            random_seed=1,
            progressbar=False,
            **pymc_hais.paper_settings(n),
        )
        wall, cpu, attrs = time.perf_counter() - begin, time.process_time() - cpu, idata["posterior"].attrs
        found = pymc_hais.log_marginal_likelihood(idata)
        print(
            f"{kind} experts, 200 particles, N = {n}: {attrs['sampling_time']:.1f} s (asked for: 15 s on two idle "
            f"cores), with compilation {wall:.1f} s, {cpu:.1f} s of processor time; log Z {found.value:.3f} ± "
            f"{found.se:.3f}, exact {experts.exact_log_z(phi, kind):.3f}"
        )


def main() -> None:
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.CRITICAL)
    asked = sys.argv[1:] or ["cost", "time"]
    if "cost" in asked:
        compare_costs()
    if "time" in asked:
        time_run()


if __name__ == "__main__":
    main()
