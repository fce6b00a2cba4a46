"""Models that people publish: does a default call answer, at what price, and does a second opinion agree?

``python benchmarks/catalogue.py FOLDER [--cpu S] [--only F] [--nuts] [--save FILE] [name ...]``.  Each file of the
folder, or those named, has a function ``build_model`` that returns a model, alone or first, as in a checkout of
``ricardoV94/pymc-model-catalogue`` (``pymc-model-catalogue/models``); a file of names chooses some of them.  Every call
runs in a process of its own, with nothing compiled on disk and at most ``--cpu`` seconds of CPU time.  With ``--nuts``,
``pm.sample`` draws 4 chains of 1000 + 1000 beside it, and ``pymc_hais.bridge`` makes a second opinion of its draws.
Rows that FILE (JSON lines) already has are not run again.
"""

import argparse
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pymc as pm
from gallery import build

import pymc_hais

#: Kinds of errors that the package raises for models that it cannot take.
REFUSALS = (ValueError, NotImplementedError, TypeError, RuntimeError)
COLUMNS = (
    "model", "D", "log Z", "se", "s", "CPU s", "compiling", "findings",
    "pm.sample CPU s", "ratio", "bridge", "z", "end",
)  # fmt: skip
#: Errors of bridge and of our own call together, above which two values contradict each other.
CONTRADICTS = 4.5


def timed(work: Callable[[], dict]) -> dict:
    """Return what the work finds, with its seconds and CPU seconds."""
    begin, cpu = time.perf_counter(), sum(os.times()[:4])
    found = work()
    return {"seconds": time.perf_counter() - begin, "cpu": sum(os.times()[:4]) - cpu, **found}


def sample(model, seed: int) -> dict:
    """Make a default call of ``sample_hais``."""
    idata = pm.sample_hais(model=model, random_seed=seed, progressbar=False)
    estimate, attrs = pymc_hais.log_marginal_likelihood(idata), idata["posterior"].attrs
    return {
        "log_z": estimate.value,
        "se": estimate.se,
        "gradients": int(attrs["n_gradients"] + attrs["n_gradients_pilot"]),
        "compiling": float(attrs["compile_time"]),
        "findings": [finding.name for finding in estimate.findings],
        "is_flagged": any(finding.severity == "error" for finding in estimate.findings),
    }


def draw(model, seed: int) -> dict:
    """Draw with NUTS and ask bridge for a second opinion, whose seconds do not count."""

    def draws() -> dict:
        with model:
            return {"idata": pm.sample(chains=4, cores=1, random_seed=seed, progressbar=False)}

    found = timed(draws)
    idata = found.pop("idata")
    found["divergences"] = int(idata["sample_stats"]["diverging"].sum())
    print(json.dumps(found), flush=True)
    estimate = pymc_hais.bridge(model, idata, random_seed=seed)
    names = [finding.name for finding in estimate.findings if finding.severity == "error"]
    return found | {"bridge": estimate.value, "bridge_se": estimate.se, "bridge_findings": names}


def is_refusal(error: Exception) -> bool:
    """Whether a ``raise`` of the package made the error: NumPy's errors in a line of ours are defects."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    is_raised = "pymc_hais" in last.filename and (last.line or "").startswith("raise ")
    return is_raised and isinstance(error, REFUSALS)


def run_one(name: str, what: str, seed: int) -> None:
    """Run one model in this process and print what is found as JSON."""
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.CRITICAL)
    model, _ = build(name)
    print(json.dumps({"D": int(sum(value.size for value in model.initial_point().values()))}), flush=True)
    try:
        found = timed(lambda: sample(model, seed)) if what == "hais" else draw(model, seed)
    except Exception as error:  # a failure is a result
        end = "refused" if is_refusal(error) else "raw error"
        found = {"failure": f"{type(error).__name__}: {' '.join(str(error).split())}"[:300], "end": end}
    print(json.dumps(found))


def run_apart(name: str, what: str, seed: int, cpu: int) -> dict:
    """Run one model in a process of its own; a failure or the end of its time is a result."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, __file__, "--one", name, what, str(seed)],
            capture_output=True,
            text=True,
            env=os.environ | {"PYMC_HAIS_CACHE": folder, "NUMBA_CACHE_DIR": folder},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu)),
        )
    found: dict = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            found |= json.loads(line)
    if done.returncode < 0:
        found |= {"failure": f"over {cpu} CPU s", "end": "too slow"}
    elif done.returncode:
        found |= {"failure": (done.stderr.strip().splitlines() or ["?"])[-1][:300], "end": "not built"}
    return {"end": "flagged" if found.get("is_flagged") else "answered"} | found


class Saved:
    """The rows of a file of JSON lines; a row that is missing is run, and appended to the file."""

    def __init__(self, path: Path | None, seed: int, cpu: int):
        self.path, self.seed, self.cpu = path, seed, cpu
        lines = path.read_text().splitlines() if path and path.exists() else []
        self.rows = {(row["model"], row["what"]): row for row in map(json.loads, lines)}

    def get(self, name: str, place: str, what: str) -> dict:
        if (name, what) not in self.rows:
            row = {"model": name, "what": what, **run_apart(place, what, self.seed, self.cpu)}
            self.rows[name, what] = row
            if self.path:
                with self.path.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        return self.rows[name, what]


def is_contradicted(ours: dict, theirs: dict) -> float | None:
    """Return the distance of two values in standard errors, if bridge trusts its own."""
    if "log_z" not in ours or "bridge" not in theirs or theirs["bridge_findings"]:
        return None
    return (ours["log_z"] - theirs["bridge"]) / float(ours["se"] ** 2 + theirs["bridge_se"] ** 2) ** 0.5


def describe(name: str, ours: dict, theirs: dict) -> str:
    """Write a row of the table."""
    cells = [name, str(ours.get("D", ""))]
    if "failure" in ours:
        cells += [ours["failure"][:70], *[""] * 5]
    else:
        share = ours["compiling"] / ours["seconds"]
        cells += [f"{ours['log_z']:.2f}", f"{ours['se']:.3f}", f"{ours['seconds']:.1f}", f"{ours['cpu']:.1f}"]
        cells += [f"{share:.0%}", ", ".join(ours["findings"]) or "-"]
    if "cpu" not in theirs:
        cells += [theirs.get("failure", "")[:40], *[""] * 3]
    else:
        z = is_contradicted(ours, theirs)
        cells += [f"{theirs['cpu']:.1f}", f"{ours['cpu'] / theirs['cpu']:.2f}" if "cpu" in ours else ""]
        cells += [f"{theirs['bridge']:.2f}" if "bridge" in theirs else "", "" if z is None else f"{z:+.1f}"]
    return f"| {' | '.join(cells)} | {ours['end']} |"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--cpu", type=int, default=120, help="CPU seconds of a call, with its imports")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=Path, help="a file of names")
    parser.add_argument("--nuts", action="store_true", help="draw with pm.sample, too, and ask bridge")
    parser.add_argument("--save", type=Path, help="a file of JSON lines; rows that it has are not run again")
    options = parser.parse_args()
    chosen = options.only.read_text().split() if options.only else []
    options.names = options.names or chosen or sorted(path.stem for path in options.folder.glob("[!_]*.py"))
    return options


def summarise(rows: list[tuple[dict, dict]]) -> None:
    """Print how calls ended, and their ratios to ``pm.sample``."""
    ends = Counter(ours["end"] for ours, _ in rows)
    print("\n" + ", ".join(f"{n} {end}" for end, n in ends.most_common()))
    ratios = sorted(ours["cpu"] / theirs["cpu"] for ours, theirs in rows if "cpu" in ours and "cpu" in theirs)
    if ratios:
        below = sum(ratio < 1 for ratio in ratios)
        print(f"CPU seconds beside pm.sample: median {median(ratios):.2f}, {below} of {len(ratios)} below 1")
    found = [z for ours, theirs in rows if (z := is_contradicted(ours, theirs)) is not None and not ours["is_flagged"]]
    if found:
        wrong = sum(abs(z) > CONTRADICTS for z in found)
        rms = (sum(z * z for z in found) / len(found)) ** 0.5
        print(f"second opinions: {len(found)}, contradicted {wrong}, rms z {rms:.2f}")


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        run_one(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return
    options = parse()
    saved = Saved(options.save, options.seed, options.cpu)

    print(f"| {' | '.join(COLUMNS)} |\n" + "| --- " * len(COLUMNS) + "|")
    rows = []
    for name in options.names:
        path = str(options.folder / f"{name}.py")
        rows.append((saved.get(name, path, "hais"), saved.get(name, path, "nuts") if options.nuts else {}))
        print(describe(name, *rows[-1]), flush=True)
    summarise(rows)


if __name__ == "__main__":
    main()
