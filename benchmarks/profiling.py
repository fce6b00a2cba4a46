"""Where the seconds of a default call go: building graphs, compiling, checks, pilots, rounds, output.

``python benchmarks/profiling.py [case or model ...]``.  Each is called in three ways: in a fresh process without
programs on disk, in another process that finds them there, and a second time on the same model.
"""

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings

DEFAULT = ("radiata_pine:m1", "pima_friel_wyse:m1", "hier_normal:H1", "conjugate_regression50", "logistic_uci:sonar")
PARTS = ("total", "compile", "pilot", "rounds", "rest")
HEADER = "| model | call | " + " | ".join(f"{part} s" for part in PARTS) + " |\n" + "| --- " * 7 + "|"


def run_one(name: str) -> None:
    """Call twice in this process; print the parts of each call."""
    from gallery import build

    import pymc_hais

    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.CRITICAL)
    model, _ = build(name)
    for seed in (1, 2):
        begin = time.perf_counter()
        attrs = pymc_hais.sample_hais(model=model, random_seed=seed, progressbar=False)["posterior"].attrs
        total, compiling = time.perf_counter() - begin, attrs["compile_time"]
        # Programs are compiled by the first call that needs them, in the checks or the pilot.
        parts = [total, compiling, attrs["pilot_time"], attrs["sampling_time"]]
        print(json.dumps([*parts, total - sum(parts[2:])]))


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        run_one(sys.argv[2])
        return
    print(HEADER)
    for name in sys.argv[1:] or DEFAULT:
        with tempfile.TemporaryDirectory() as folder:
            for process in ("first process", "second process"):
                done = subprocess.run(
                    [sys.executable, __file__, "--one", name],
                    capture_output=True,
                    text=True,
                    check=True,
                    env=os.environ | {"PYMC_HAIS_CACHE": folder},
                )
                first, second = map(json.loads, done.stdout.strip().splitlines()[-2:])
                print(f"| {name} | {process} | " + " | ".join(f"{s:.2f}" for s in first) + " |", flush=True)
            print(f"| {name} | second call | " + " | ".join(f"{s:.2f}" for s in second) + " |", flush=True)


if __name__ == "__main__":
    main()
