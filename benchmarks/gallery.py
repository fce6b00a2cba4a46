"""Models as users write them, and the public cases: seconds of ``sample_hais`` and of the draws alone, side by side.

``python benchmarks/gallery.py [--limit S] [--max-seconds S] [--repeats N] [--nutpie] [--cases] [name ...]``.  Every
call runs in a process of its own, one after the other, with no compiled programs on disk; ``pm.sample`` makes 4 chains
of 1000 + 1000 draws on two cores, with PyMC's NUTS and, if asked for and installed, with nutpie.
"""

import argparse
import importlib.util
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median

import numpy as np
from cases import CASES, VARIANTS
from cases import build as build_case

#: Public cases that cannot be drawn or whose draws no one would ask for: priors alone, hard walls, improper priors.
NOT_DRAWN = ("lkj_prior", "orthant:hard", "co2_local_level", "gbs_cauchy48")
COLUMNS = (
    "model", "D", "log Z", "error", "se", "T", "million gradients", "s", "CPU s", "findings",
    "pm.sample s", "CPU s", "divergences", "s / s", "nutpie s", "CPU s", "s / s",
)  # fmt: skip


def build(name: str):
    """Build a public case, a gallery model, ``family:seed`` or a file's model; return it with its log Z, if known."""
    if name.endswith(".py"):
        spec = importlib.util.spec_from_file_location("found", name)
        module = importlib.util.module_from_spec(spec)
        sys.path.insert(0, str(Path(name).parent))
        spec.loader.exec_module(module)
        np.random.seed(0)  # noqa: NPY002 - models that simulate data without a seed: the same in every process
        made = module.build_model()
        return made[0] if isinstance(made, tuple) else made, None

    from gallery_models import EVERY
    from gallery_models.families import FAMILIES

    family, _, variant = name.partition(":")
    if family in FAMILIES:
        return FAMILIES[family](int(variant)), None
    if name in EVERY:
        made = EVERY[name]()
        return made if isinstance(made, tuple) else (made, None)
    model, truth, _ = build_case(name)
    return model, truth


def run_one(name: str, what: str, seed: int, max_seconds: float | None) -> dict:
    """Sample one model in this process."""
    import numpy as np
    import pymc as pm

    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.CRITICAL)
    model, truth = build(name)
    if what == "hais":
        import pymc_hais
    begin, cpu = time.perf_counter(), sum(os.times()[:4])
    if what == "hais":
        idata = pm.sample_hais(model=model, random_seed=seed, progressbar=False, max_seconds=max_seconds)
        estimate, attrs = pymc_hais.log_marginal_likelihood(idata), idata["posterior"].attrs
        found = {
            "log_z": estimate.value,
            "error": None if truth is None else estimate.value - truth,
            "se": estimate.se,
            "T": int(attrs["n_temperatures"]),
            "gradients": int(attrs["n_gradients"] + attrs["n_gradients_pilot"]),
            "findings": ", ".join(finding.name for finding in estimate.findings) or "-",
        }
    else:
        with model:
            idata = pm.sample(chains=4, cores=2, random_seed=seed, progressbar=False, nuts_sampler=what)
        found = {"divergences": int(idata["sample_stats"]["diverging"].sum())}
    found |= {"seconds": time.perf_counter() - begin, "cpu": sum(os.times()[:4]) - cpu}
    return found | {"D": int(sum(np.size(value) for value in model.initial_point().values()))}


def run_apart(name: str, what: str, seed: int, options: argparse.Namespace) -> dict:
    """Sample one model in a process of its own; a failure or a time-out is a result."""
    command = [sys.executable, __file__, "--one", name, what, str(seed), str(options.max_seconds)]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYMC_HAIS_CACHE": folder, "NUMBA_CACHE_DIR": folder}
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=options.limit)
        except subprocess.TimeoutExpired:
            return {"failure": f"over {options.limit:.0f} s"}
    if done.returncode == 0:
        return json.loads(done.stdout.strip().splitlines()[-1])
    return {"failure": (done.stderr.strip().splitlines() or [f"killed ({-done.returncode})"])[-1][:60]}


def middle(runs: list[dict]) -> dict:
    """Return the run of the median time, or a failure."""
    failed = [run for run in runs if "failure" in run]
    seconds = median(run["seconds"] for run in runs) if not failed else 0.0
    return failed[0] if failed else min(runs, key=lambda run: abs(run["seconds"] - seconds))


def describe(name: str, ours: dict, *theirs: dict) -> str:
    """Write a row of the table."""
    if "failure" in ours:
        cells = ["", ours["failure"], *[""] * 7]
    else:
        error = "" if ours["error"] is None else f"{ours['error']:+.3f}"
        cells = [str(ours["D"]), f"{ours['log_z']:.2f}", error, f"{ours['se']:.3f}", str(ours["T"])]
        cells += [f"{ours['gradients'] / 1e6:.2f}", f"{ours['seconds']:.1f}", f"{ours['cpu']:.1f}", ours["findings"]]
    for i, one in enumerate(theirs):
        if "failure" in one:
            cells += [one["failure"], *[""] * (3 if i == 0 else 2)]
            continue
        ratio = f"{ours['seconds'] / one['seconds']:.2f}" if "seconds" in ours else ""
        divergences = [str(one["divergences"])] if i == 0 else []
        cells += [f"{one['seconds']:.1f}", f"{one['cpu']:.1f}", *divergences, ratio]
    return f"| {name} | " + " | ".join(cells) + " |"


def parse() -> argparse.Namespace:
    from gallery_models import MODELS

    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--limit", type=float, default=300.0)
    parser.add_argument("--max-seconds", type=float, default=None)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--cases", action="store_true", help="the public cases instead of the gallery")
    parser.add_argument("--nutpie", action="store_true")
    parser.add_argument("--skip-nuts", action="store_true")
    options = parser.parse_args()
    if options.cases and not CASES.exists():
        parser.error("the shared cases are not beside the repository")
    cases = [case for case in VARIANTS if not case.startswith(NOT_DRAWN)]
    options.names = options.names or (cases if options.cases else list(MODELS))
    return options


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        name, what, seed, limit = sys.argv[2:]
        print(json.dumps(run_one(name, what, int(seed), None if limit == "None" else float(limit))))
        return
    options = parse()
    samplers = [] if options.skip_nuts else ["pymc", "nutpie"] if options.nutpie else ["pymc"]
    n = 10 + (4 if samplers else 0) + (3 if options.nutpie and samplers else 0)
    print(f"| {' | '.join(COLUMNS[:n])} |\n" + "| --- " * n + "|")
    ratios: list[list[float]] = [[] for _ in samplers]
    for name in options.names:
        runs = [
            [run_apart(name, what, seed, options) for what in ("hais", *samplers)]
            for seed in range(1, options.repeats + 1)
        ]
        ours, *theirs = (middle(list(of_method)) for of_method in zip(*runs, strict=True))
        print(describe(Path(name).stem, ours, *theirs), flush=True)
        for found, one in zip(ratios, theirs, strict=True):
            if "failure" not in ours and one.get("divergences") == 0:
                found.append(ours["seconds"] / one["seconds"])
    for sampler, found in zip(samplers, ratios, strict=True):
        if found:
            print(f"\nmedian ratio to {sampler} where nothing diverges: {median(found):.2f} ({len(found)} models)")


if __name__ == "__main__":
    main()
