"""Where the seconds of a default call go: building graphs, compiling, checks, pilots, rounds, output.

``python benchmarks/profiling.py [--backend NAME ...] [case or model ...]``.  Each is called in three ways: in a fresh
process without programs on disk, in another process that finds them there, and a second time on the same model.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings

DEFAULT = ("radiata_pine:m1", "pima_friel_wyse:m1", "hier_normal:H1", "conjugate_regression50", "logistic_uci:sonar")
PARTS = ("total", "CPU", "compile", "pilot", "rounds", "rest")
HEADER = "| model | backend | call | " + " | ".join(f"{part} s" for part in PARTS) + " |\n" + "| --- " * 9 + "|"


def run_one(name: str, backend: str) -> None:
    """Call twice in this process; print the parts of each call."""
    from gallery import build

    import pymc_hais

    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.CRITICAL)
    model, _ = build(name)
    for seed in (1, 2):
        begin, cpu = time.perf_counter(), time.process_time()
        idata = pymc_hais.sample_hais(model=model, random_seed=seed, progressbar=False, backend=backend)
        attrs = idata["posterior"].attrs
        total, cpu, compiling = time.perf_counter() - begin, time.process_time() - cpu, attrs["compile_time"]
        # Programs are compiled by the first call that needs them, in the checks or the pilot.
        parts = [total, cpu, compiling, attrs["pilot_time"], attrs["sampling_time"]]
        print(json.dumps([*parts, total - sum(parts[3:])]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=DEFAULT)
    parser.add_argument("--backend", action="append", choices=["jax", "numba", "c"])
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    backends = given.backend or ["jax"]
    if given.one:
        run_one(given.names[0], backends[0])
        return
    print(HEADER)
    for name in given.names:
        for backend in backends:
            compare_calls(name, backend)


def compare_calls(name: str, backend: str) -> None:
    """Print the parts of a first call, of one that finds programs on disk, and of a second one."""

    def show(call: str, parts: list[float]) -> None:
        print(f"| {name} | {backend} | {call} | " + " | ".join(f"{s:.2f}" for s in parts) + " |", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        for process in ("first process", "second process"):
            done = subprocess.run(
                [sys.executable, __file__, "--one", "--backend", backend, name],
                capture_output=True,
                text=True,
                check=True,
                env=os.environ | {"PYMC_HAIS_CACHE": folder, "NUMBA_CACHE_DIR": folder},
            )
            first, second = map(json.loads, done.stdout.strip().splitlines()[-2:])
            show(process, first)
        show("second call", second)


if __name__ == "__main__":
    main()
