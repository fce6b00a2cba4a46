"""Models as users write them: seconds of ``sample_hais`` and of ``pm.sample``, both at their defaults.

``python benchmarks/gallery.py [--limit SECONDS] [--seed N] [name ...]``.  Every call runs in a process of its own, one
after the other, so that nothing is compiled already; ``pm.sample`` makes 4 chains of 1000 + 1000 draws on two cores.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import time
import warnings

_COLUMNS = "model, D, log Z, se, T, million gradients, s, CPU s, findings, pm.sample s, CPU s, divergences, s / s"
HEADER = "| " + _COLUMNS.replace(", ", " | ") + " |\n" + "| --- " * 13 + "|"


def run_one(name: str, what: str, seed: int) -> dict:
    """Sample one model in this process."""
    import numpy as np
    import pymc as pm
    from gallery_models import MODELS

    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.CRITICAL)
    model = MODELS[name]()
    begin, cpu = time.perf_counter(), sum(os.times()[:4])
    if what == "hais":
        import pymc_hais

        idata = pm.sample_hais(model=model, random_seed=seed, progressbar=False)
        estimate, attrs = pymc_hais.log_marginal_likelihood(idata), idata["posterior"].attrs
        found = {
            "log_z": estimate.value,
            "se": estimate.se,
            "T": int(attrs["n_temperatures"]),
            "gradients": int(attrs["n_gradients"] + attrs["n_gradients_pilot"]),
            "findings": ", ".join(finding.name for finding in estimate.findings) or "-",
        }
    else:
        with model:
            idata = pm.sample(chains=4, cores=2, random_seed=seed, progressbar=False)
        found = {"divergences": int(idata["sample_stats"]["diverging"].sum())}
    found |= {"seconds": time.perf_counter() - begin, "cpu": sum(os.times()[:4]) - cpu}
    return found | {"D": int(sum(np.size(value) for value in model.initial_point().values()))}


def run_apart(name: str, what: str, seed: int, limit: float) -> dict:
    """Sample one model in a process of its own; a failure or a time-out is a result."""
    command = [sys.executable, __file__, "--one", name, what, str(seed)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"failure": f"over {limit:.0f} s"}
    lines = done.stdout.strip().splitlines()
    return json.loads(lines[-1]) if done.returncode == 0 else {"failure": done.stderr.strip().splitlines()[-1][:60]}


def describe(name: str, ours: dict, theirs: dict) -> str:
    first = f"| {name} | {ours.get('D', '')} | "
    if "failure" in ours:
        first += f"{ours['failure']} | | | | | | | "
    else:
        first += (
            f"{ours['log_z']:.2f} | {ours['se']:.3f} | {ours['T']} | {ours['gradients'] / 1e6:.2f} | "
            f"{ours['seconds']:.1f} | {ours['cpu']:.1f} | {ours['findings']} | "
        )
    if "failure" in theirs:
        return first + f"{theirs['failure']} | | | |"
    ratio = f"{ours['seconds'] / theirs['seconds']:.2f}" if "seconds" in ours else ""
    return first + f"{theirs['seconds']:.1f} | {theirs['cpu']:.1f} | {theirs['divergences']} | {ratio} |"


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        name, what, seed = sys.argv[2:]
        print(json.dumps(run_one(name, what, int(seed))))
        return
    from gallery_models import MODELS

    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--limit", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skip-nuts", action="store_true")
    options = parser.parse_args()
    print(HEADER)
    for name in options.names:
        ours = run_apart(name, "hais", options.seed, options.limit)
        nuts = {"failure": "-"} if options.skip_nuts else run_apart(name, "nuts", options.seed, options.limit)
        print(describe(name, ours, nuts), flush=True)


if __name__ == "__main__":
    main()
