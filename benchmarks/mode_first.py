"""Where the mode comes first: walks of many lengths against the Kalman filter, and starts there that were refused.

``python -m benchmarks.mode_first walks [--seeds N] [--lengths N ...]`` writes a line a run, and with ``--plot FILE``
errors against dimensions.  ``python -m benchmarks.mode_first refused [name ...]`` runs models with known log Z twice:
as they are, with the reason why the mode was refused, and as if it had not been.
"""

import argparse
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from unittest import mock

import numpy as np
import pymc as pm

import pymc_hais
from benchmarks.gallery_models.fields import walk
from pymc_hais.planning import choose
from pymc_hais.planning.modes import fields, near
from pymc_hais.problem.problem import Problem
from pymc_hais.run.modes.climbing import can_climb

LENGTHS = (64, 128, 300, 500, 1000, 2000)


def run(model: pm.Model, seed: int = 1) -> tuple[float, float, str, int, float, float]:
    """Return log Z, its error, findings, temperatures, seconds and CPU seconds of a default call."""
    begin, cpu = time.perf_counter(), sum(os.times()[:4])
    idata = pm.sample_hais(model=model, random_seed=seed, progressbar=False)
    seconds, cpu = time.perf_counter() - begin, sum(os.times()[:4]) - cpu
    estimate = pymc_hais.log_marginal_likelihood(idata)
    names = ", ".join(finding.name for finding in estimate.findings if finding.severity != "info") or "-"
    return estimate.value, estimate.se, names, int(idata["posterior"].attrs["n_temperatures"]), seconds, cpu


def walks(lengths: list[int], n_seeds: int, plot: Path | None) -> None:
    rows = []
    for is_summed in (False, True):
        for n in lengths:
            own = []
            for seed in range(n_seeds):
                model, truth = walk(n, seed, is_summed)
                value, se, names, n_steps, seconds, cpu = run(model, seed)
                own.append((is_summed, n, value - truth, se, seconds))
                name = f"{n} {'innovations' if is_summed else 'steps'} seed {seed}"
                print(
                    f"{name}: error {value - truth:+.4f} se {se:.4f} T {n_steps} {names} {seconds:.1f} s, CPU {cpu:.1f}"
                )
                sys.stdout.flush()
            z = np.array([error / se for _, _, error, se, _ in own])
            print(f"== {n}: rms z {np.sqrt(np.mean(z**2)):.2f}, largest {np.abs(z).max():.1f}, "
                  f"median {median(row[4] for row in own):.1f} s", flush=True)  # fmt: skip
            rows += own
    if plot:
        draw(rows, plot)


def draw(rows: list[tuple[bool, int, float, float, float]], file: Path) -> None:
    """Plot root mean square errors, and those that are stated, against dimensions."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6.0, 3.6), layout="constrained")
    for is_summed, label, colour in ((False, "steps", "C0"), (True, "innovations", "C1")):
        of_form = [row for row in rows if row[0] == is_summed]
        lengths = sorted({row[1] for row in of_form})
        for k, name, style in ((2, "error", "o-"), (3, "stated", "--")):
            roots = [np.sqrt(np.mean([row[k] ** 2 for row in of_form if row[1] == n])) for n in lengths]
            axis.plot(lengths, roots, style, color=colour, label=f"{name}, {label}")
    axis.set(xscale="log", yscale="log", xlabel="dimensions", ylabel="error of log Z (nats), root mean square")
    axis.legend(fontsize="small")
    figure.savefig(file, dpi=130)


def _any_cost(problem: Problem) -> bool:
    """Offer the mode whatever an evaluation costs, and also where scales are variables."""
    return problem.fitted is not None and problem.is_prior and can_climb(problem) and problem.is_integral


def _whatever_cost(problem: Problem) -> bool:
    """Offer the mode whatever an evaluation costs."""
    return _any_cost(problem) and not near.is_hierarchy(problem)


#: What lets every start through.
_FORCED = (
    (near, "_is_offered", _any_cost),
    (near, "_GOOD_SHARE", 0.0),
    (near, "_GOOD_TAIL", np.inf),
    (near, "_AGREEING", 0.0),
    (near, "_MOVED", np.inf),
    (near, "_doubt", lambda *_: None),
    (near, "those_that_count", lambda climbed: sorted(climbed.peaks, key=lambda peak: -peak.log_mass)[:1]),
    (fields, "_ENOUGH_COUNT", 0.0),
    (fields, "_LIGHT", np.inf),
)


def with_reason(model: pm.Model, patches: tuple) -> tuple[str, tuple]:
    """Run with attributes replaced; return why the mode was refused, or nothing, and the result."""
    said: list[str] = []
    first: Callable = choose._try_mode

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler, log = Lines(), logging.getLogger("pymc.hais")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    taken: list[bool] = []

    def watched(*args: object) -> object:
        trial = first(*args)
        taken.append(trial is not None)
        return trial

    changes = [mock.patch.object(*patch) for patch in (*patches, (choose, "_try_mode", watched))]
    for change in changes:
        change.start()
    try:
        result = run(model)
    finally:
        for change in changes:
            change.stop()
        log.removeHandler(handler)
    reasons = [line.removeprefix("Not from the mode: ") for line in said if line.startswith("Not from the mode")]
    return "accepted" if any(taken) else (reasons or ["a scale or a location is a variable"])[0], result


def refused(names: list[str]) -> None:
    print("| model | refused, as | error | se | findings | had it been accepted: error | se | findings |")
    print("| --- " * 8 + "|")
    for name, build in known().items():
        if names and name not in names:
            continue
        try:
            (model, truth), (other, _) = build(), build()
            reason, (value, se, found, *_) = with_reason(model, ((near, "_is_offered", _whatever_cost),))
            if reason == "accepted":
                print(f"| {name} | accepted | {value - truth:+.3f} | {se:.3f} | {found} | | | |", flush=True)
                continue
            forced, (wrong, own, rung, *_) = with_reason(other, _FORCED)
        except Exception as error:
            print(f"| {name} | {type(error).__name__}: {str(error)[:80]} |" + " |" * 6, flush=True)
            continue
        then = f"{wrong - truth:+.3f} | {own:.3f} | {rung}" if forced == "accepted" else f"{forced} | |"
        print(f"| {name} | {reason} | {value - truth:+.3f} | {se:.3f} | {found} | {then} |", flush=True)


def known() -> dict[str, Callable[[], tuple[pm.Model, float]]]:
    """Return models with known log Z."""
    sys.path.insert(0, str(Path(__file__).parent))
    import cases
    import exact
    from calibration import CASES
    from hierarchies import MODELS

    found = {name: build for name, build in exact.MODELS.items() if name != "forty_modes"}
    found |= {build.__name__: build for build in MODELS}
    found |= {case.build.__name__: case.build for case in CASES}
    if cases.CASES.exists():
        listed = [
            case for case in cases.VARIANTS if not case.startswith(("lkj", "orthant:h", "many_well32:flat", "gbs_c"))
        ]
        found |= {case: (lambda case=case: cases.build(case)[:2]) for case in listed}
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("section", choices=("walks", "refused"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    if options.section == "walks":
        walks(options.lengths, options.seeds, options.plot)
    else:
        refused(options.names)


if __name__ == "__main__":
    main()
