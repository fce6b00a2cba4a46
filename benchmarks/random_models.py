"""Random discrete and mixed models with known log Z, one default call each: right, flagged, refused, or silently wrong?

``python -m benchmarks.random_models [--n 500] [--seed N] [--jobs 1]``.  The seeds are fresh unless given; a model that
goes wrong is made again by ``tests.random_models.random_model(its number)``.  Models run in worker processes, which are
renewed, so that memory stays bounded and a crash is a result.
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import secrets
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

#: Models of one worker process, and the address space that it may take.
PER_WORKER, MOST_BYTES = 25, 12 * 2**30
#: Standard errors that count as silently wrong, and the error that any log Z is granted.
FAR, GRANTED = 4.5, 1e-3


def judge(number: int, without: tuple[int, ...] = ()) -> dict[str, Any]:
    """Run a default call on a model and say how it went."""
    import pymc as pm

    import pymc_hais
    from tests.random_models import random_model

    start = time.perf_counter()
    try:
        case = random_model(number, without)
    except Exception as error:  # the generator's own fault, which is to be seen
        return {"number": number, "verdict": "no model", "message": f"{type(error).__name__}: {error}"}
    found: dict[str, Any] = {
        "number": number,
        "parts": case.parts,
        "rejected": case.rejected,
        "truth": case.truth.log_z,
        "seconds of the truth": time.perf_counter() - start,
    }
    start = time.perf_counter()
    try:
        result = pm.sample_hais(model=case.model, random_seed=number % 2**31, progressbar=False)
        estimate = pymc_hais.log_marginal_likelihood(result)
    except Exception as error:  # what is refused, and by which words, is a result
        found |= {"verdict": "refused", "message": f"{type(error).__name__}: {error}"}
    else:
        errors = [one.name for one in estimate.findings if one.severity == "error"]
        z = (estimate.value - case.truth.log_z) / np.hypot(np.hypot(estimate.se, case.truth.error), GRANTED)
        found |= {"value": estimate.value, "se": estimate.se, "z": float(z), "errors": errors}
        found["findings"] = [one.name for one in estimate.findings]
        found["verdict"] = "flagged" if errors else "right" if abs(z) <= FAR else "silent"
    found["seconds"] = time.perf_counter() - start
    found["MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def shrink(number: int, n_parts: int) -> dict[str, Any] | None:
    """Leave out the terms that a silently wrong model does not need to be so."""
    without: tuple[int, ...] = ()
    smallest = None
    for term in reversed(range(n_parts)):
        found = judge(number, (*without, term))
        if found["verdict"] == "silent":
            without, smallest = (*without, term), found
    return smallest


def run(numbers: list[int], log: str | None = None) -> list[dict[str, Any]]:
    """Judge models in worker processes, one after the other."""
    found: list[dict[str, Any]] = []
    while len(found) < len(numbers):
        batch = numbers[len(found) : len(found) + PER_WORKER]
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.random_models", "--worker", *map(str, batch)]
        with tempfile.TemporaryFile("w+") as said:
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True) as worker:
                assert worker.stdout is not None
                done = [_show(json.loads(line[5:]), log) for line in worker.stdout if line.startswith("JSON:")]
            said.seek(0)
            errors = said.read()
        found += done
        if len(done) < len(batch):
            reason = f"died with {worker.returncode}: {errors.strip()[-300:]}"
            found.append({"number": batch[len(done)], "verdict": "no model", "message": reason})
    return found


def _show(one: dict[str, Any], log: str | None) -> dict[str, Any]:
    if log:
        with open(log, "a") as file:
            file.write(json.dumps(one) + "\n")
    if one["verdict"] in ("silent", "refused", "no model"):
        print(describe(one), file=sys.stderr, flush=True)
    return one


def describe(one: dict[str, Any]) -> str:
    """Return a line that says what went wrong."""
    if "value" in one:
        how = f"{one['value']:.3f} ± {one['se']:.3f}, exact {one['truth']:.3f}, z {one['z']:.1f}"
    else:
        how = one["message"].replace("\n", " ")[:200]
    return f"{one['verdict']} {one['number']}: {how}; " + "; ".join(one.get("parts", ()))


def report(results: list[dict[str, Any]], wall: float) -> str:
    """Return the tables as markdown."""
    judged = [one for one in results if "seconds" in one]
    counts = Counter(one["verdict"] for one in results)
    seconds = [one["seconds"] for one in judged] or [np.nan]
    z = np.array([one["z"] for one in judged if one["verdict"] in ("right", "silent")])
    right_but_flagged = sum(one["verdict"] == "flagged" and abs(one["z"]) <= FAR for one in judged)
    rejected = sum(len(one["rejected"]) for one in judged)
    lines = [
        "| models | right | flagged | of these within 4.5 se | refused | silent | s, median | max | peak MB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        f"| {len(results)} | {counts['right']} | {counts['flagged']} | {right_but_flagged} | {counts['refused']} "
        f"| {counts['silent']} | {np.median(seconds):.1f} | {max(seconds):.1f} "
        f"| {max((one['MB'] for one in judged), default=np.nan):.0f} |",
        "",
        f"Of those not flagged {np.mean(np.abs(z) < 2):.1%} are within 2 se, the farthest is {np.max(np.abs(z)):.1f} "
        "off; "
        f"{rejected} drawn models ({rejected / (rejected + len(judged)):.0%}) were drawn again because their truth was "
        f"not known; {counts['no model']} not made; {wall / 60:.0f} min.",
    ]
    for title, key in (("errors", "flagged"), ("refusals", "refused")):
        named: Counter[str] = Counter()
        for one in judged:
            if one["verdict"] == key:
                named.update(one["errors"] if key == "flagged" else [one["message"].split("\n")[0][:150]])
        if named:
            lines += ["", f"| {title} | models |", "| --- | --- |"]
            lines += [f"| {name.replace('|', '/')} | {n} |" for name, n in named.most_common()]
    lines += [
        "",
        *(f"- {describe(one)}" for one in results if one["verdict"] in ("silent", "refused", "no model")),
    ]
    return "\n".join(lines)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=500)
    parser.add_argument("--seed", type=int, help="number of the first model; a fresh one by default")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes at a time")
    parser.add_argument("--shrink", type=int, metavar="NUMBER", help="leave out what a silent model does not need")
    parser.add_argument("--json", metavar="FILE", help="to which each result is added, a line each")
    parser.add_argument("--worker", type=int, nargs="*", help=argparse.SUPPRESS)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in ("pymc", "pymc.hais"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if args.worker is not None:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        for number in args.worker:
            print("JSON:" + json.dumps(judge(number)), flush=True)
        return
    if args.shrink is not None:
        smallest = shrink(args.shrink, 6)
        print(describe(smallest or judge(args.shrink)))
        return
    first = secrets.randbelow(2**31) if args.seed is None else args.seed
    print(f"Models {first} to {first + args.n - 1}.\n", flush=True)
    numbers, start = list(range(first, first + args.n)), time.perf_counter()
    shares = [numbers[i :: args.jobs] for i in range(args.jobs)]
    with ThreadPoolExecutor(args.jobs) as pool:
        results = [one for part in pool.map(lambda share: run(share, args.json), shares) for one in part]
    print(report(sorted(results, key=lambda one: one["number"]), time.perf_counter() - start))


if __name__ == "__main__":
    main()
