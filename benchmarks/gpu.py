"""JAX on the CPU and on a GPU: seconds of one round, in double and single precision, and whether log Z agrees.

    python benchmarks/gpu.py

Each line is a process of its own, since JAX chooses its device once.  A round is annealed twice with the same plan: the
second one compiles nothing.  All of it takes less than four minutes; what has not ended by then is left out.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

#: Seconds for all processes together.
LIMIT = 220
PLATFORMS, FLOATS = ("cpu", "gpu"), ("float64", "float32")
CASES = {"logistic: 20,000 rows, 20 coefficients": (20_000, 20, 1000), "normal: 50 dimensions": (0, 50, 8000)}


def measure(case: str) -> None:
    """Run one case in this process; print its seconds and log Z as JSON."""
    import jax
    import numpy as np
    import pymc as pm
    import pytensor

    import pymc_hais

    n_rows, n_dims, draws = CASES[case]
    rng, floats = np.random.default_rng(1), pytensor.config.floatX
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0, shape=n_dims)
        if n_rows:
            table = rng.normal(size=(n_rows, n_dims)).astype(floats)
            pm.Bernoulli("y", logit_p=0.1 * (table @ x), observed=rng.random(n_rows) < 0.5)
        else:
            pm.Normal("y", x, 0.5, observed=rng.normal(size=n_dims))
    given = {"model": model, "draws": draws, "chains": 4, "n_temperatures": 64, "progressbar": False, "backend": "jax"}
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        idata = pymc_hais.sample_hais(**given, target_se=None, random_seed=1)
        seconds.append(time.perf_counter() - begin)
        given["plan"] = idata
        given.pop("n_temperatures", None)
    estimate = pymc_hais.log_marginal_likelihood(idata)
    device = jax.devices()[0]
    answer = {"device": device.device_kind, "first": seconds[0], "second": seconds[1]}
    print(json.dumps({**answer, "log_z": estimate.value, "se": estimate.se}))


def run(case: str, platform: str, floats: str, seconds: float) -> dict | str:
    """Run a case in a process of its own; return its answer, or why there is none."""
    root = Path(__file__).resolve().parents[1]
    env = os.environ | {
        "JAX_PLATFORMS": "cuda,cpu" if platform == "gpu" else "cpu",
        "PYTENSOR_FLAGS": f"floatX={floats}",
        "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]),
        "PYMC_HAIS_CACHE": "off",
    }
    command = [sys.executable, __file__, "--case", case]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=max(1.0, seconds), check=False)
    except subprocess.TimeoutExpired:
        return "out of time"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["failed"])[-1][:80]
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", help="run one case in this process")
    case = parser.parse_args().case
    if case:
        measure(case)
        return
    begin = time.perf_counter()
    print(f"{'model':40} {'device':24} {'floats':8} {'first s':>8} {'second s':>8}  log Z")
    for name in CASES:
        for platform in PLATFORMS:
            for floats in FLOATS:
                answer = run(name, platform, floats, LIMIT - (time.perf_counter() - begin))
                if isinstance(answer, str):
                    print(f"{name:40} {platform:24} {floats:8} {answer}", flush=True)
                    continue
                print(
                    f"{name:40} {answer['device'][:24]:24} {floats:8} {answer['first']:8.1f} {answer['second']:8.1f}  "
                    f"{answer['log_z']:.3f} ± {answer['se']:.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
