"""Models with discrete variables: against exact sums and ``pm.sample_smc``, and a Boltzmann machine of 784 x 500 units.

``python -m benchmarks.discrete models [--seed N]`` compares a default call with ``pm.sample_smc`` on models whose log Z
is a finite sum.  ``python -m benchmarks.discrete machine [--rbms PYTHON]`` runs the setting of Salakhutdinov & Murray
(2008), 100 particles and 14,500 temperatures from the base rates, and plans of ours; PYTHON is an interpreter that has
the package ``rbms``, which then runs the same setting on the same weights.
"""

import argparse
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pymc as pm

import pymc_hais
from examples import change_point, ising, rbm, variable_selection
from pymc_hais.density import build_layout, log_count
from tests import discrete_truth

#: Salakhutdinov & Murray's.
N_PARTICLES, N_TEMPERATURES = 100, 14_500
#: What ``rbms`` is asked, in an interpreter of its own.
PEER = """
import sys, time
import numpy as np, torch
from rbms.bernoulli_bernoulli.classes import BBRBM
from rbms.partition_function.ais import compute_partition_function_ais
weights = np.load(sys.argv[1])
dtype = getattr(torch, sys.argv[2])
machine = BBRBM(*(torch.tensor(weights[name], dtype=dtype) for name in ("weights", "visible", "hidden")))
with torch.no_grad():
    wall, cpu = time.perf_counter(), time.process_time()
    log_z = compute_partition_function_ais(int(sys.argv[3]), int(sys.argv[4]), machine)
    print(f"{log_z:.3f} {time.perf_counter() - wall:.1f} {time.process_time() - cpu:.1f}")
"""


def build_models(seed: int) -> dict[str, tuple[pm.Model, float]]:
    """Build models with their exact log Z."""
    rng = np.random.default_rng(seed)
    found: dict[str, tuple[pm.Model, float]] = {}
    for coupling in (0.2, ising.CRITICAL_COUPLING, 0.6):
        found[f"Ising 8 x 8, {coupling:.2f}"] = ising.build_model(8, coupling), ising.exact_log_z(8, coupling)
    digits = rbm.load_digits()
    machine = rbm.train(digits, 20)
    found["Boltzmann machine 64 x 20"] = rbm.build_model(machine), rbm.exact_log_z(machine)
    x, y = variable_selection.simulate(seed)
    found["spike and slab, 20"] = (
        variable_selection.build_model(x, y),
        variable_selection.exact_log_marginal_likelihood(x, y),
    )
    counts = change_point.COUNTS
    found["change point"] = change_point.build_model(counts), change_point.exact_log_marginal_likelihood(counts)
    velocities = np.concatenate([rng.normal(10, 1, 10), rng.normal(21, 2, 50), rng.normal(33, 1, 22)])
    for k in (2, 3, 5):
        given = np.full(k, 1.0 / k), np.linspace(10.0, 33.0, k), np.full(k, 3.0)
        found[f"mixture of {k}, 82 points"] = (
            discrete_truth.build_mixture(velocities, *given),
            discrete_truth.log_evidence_mixture(velocities, *given),
        )
    initial, transition = np.array([0.5, 0.5]), np.array([[0.9, 0.1], [0.2, 0.8]])
    series = rng.normal(size=200) + np.repeat(rng.integers(0, 2, 20), 10) * 2.0
    chain = series, initial, transition, np.array([0.0, 2.0]), 1.0
    found["hidden chain, 200"] = discrete_truth.build_chain(*chain), discrete_truth.log_evidence_chain(*chain)
    return found


def compare_models(seed: int) -> None:
    """Print a line a model and method."""
    print(f"{'model':28s}{'method':14s}{'error':>9s}{'se':>8s}{'s':>8s}{'CPU s':>8s}  findings", flush=True)
    for name, (model, exact) in build_models(seed).items():
        for method, run in (("sample_hais", _hais), ("sample_smc", _smc)):
            wall, cpu = time.perf_counter(), _cpu_seconds()
            try:
                value, se, note = run(model, seed)
                line = f"{value - exact:9.3f}{se:8.3f}"
            except Exception as error:  # a peer that cannot do a model is a result
                line, note = f"{'':>17s}", f"{type(error).__name__}: {str(error)[:60]}"
            seconds = f"{time.perf_counter() - wall:8.1f}{_cpu_seconds() - cpu:8.1f}"
            print(f"{name:28s}{method:14s}{line}{seconds}  {note}", flush=True)


def _cpu_seconds() -> float:
    """Seconds of this process and of those that it waited for."""
    return sum(os.times()[:4])


def _hais(model: pm.Model, seed: int) -> tuple[float, float, str]:
    found = pymc_hais.log_marginal_likelihood(pm.sample_hais(model=model, random_seed=seed, progressbar=False))
    return found.value, found.se, ", ".join(one.name for one in found.findings)


def _smc(model: pm.Model, seed: int) -> tuple[float, float, str]:
    idata = pm.sample_smc(
        model=model, chains=4, cores=2, random_seed=seed, progressbar=False, compute_convergence_checks=False
    )
    values = [np.ravel(one)[-1] for one in idata["sample_stats"]["log_marginal_likelihood"].values]
    values = np.array([one[-1] if np.ndim(one) else one for one in values], dtype=float)
    # It averages over uniform draws of what counts each state with weight one.
    counted = log_count(model, build_layout(model))
    return float(np.mean(values)) + counted, float(np.std(values, ddof=1) / np.sqrt(len(values))), "spread of 4 chains"


def train_machine(n_hidden: int = 500, n_epochs: int = 60) -> tuple[rbm.Parameters, np.ndarray]:
    """Train a machine on the digits, enlarged to 28 x 28; return it and the base rates of its visible units."""
    small = rbm.load_digits().reshape(-1, 8, 8)
    pixels = np.minimum(np.arange(28) * 8 // 28, 7)
    data = small[:, pixels][:, :, pixels].reshape(-1, 784)
    return rbm.train(data, n_hidden, n_epochs=n_epochs, rate=0.02), data


def compare_machine(python: str | None) -> None:
    """Print log Z, error and seconds of each setting."""
    machine, data = train_machine()
    model, reference = rbm.build_model(machine), rbm.base_rate_reference(data, len(machine.hidden_bias))
    schedule = {"schedule": "linear", "n_temperatures": N_TEMPERATURES, "resample": False, "target_se": None}
    settings = {
        "their schedule": (N_PARTICLES, {"chains": 1, "reference": reference, **schedule}),
        "our schedule, a tenth": (
            N_PARTICLES,
            {"chains": 1, "reference": reference, "n_temperatures": N_TEMPERATURES // 10, "target_se": None},
        ),
        "ours, a tenth, sandwich": (
            N_PARTICLES,
            {
                "chains": 1,
                "reference": reference,
                "n_temperatures": N_TEMPERATURES // 10,
                "target_se": None,
                "estimators": "bidirectional",
            },
        ),
        "a default call": (1000, {}),
    }
    for name, (draws, kwargs) in settings.items():
        wall, cpu = time.perf_counter(), _cpu_seconds()
        idata = pm.sample_hais(draws, model=model, random_seed=1, progressbar=False, **kwargs)
        seconds = f"{time.perf_counter() - wall:6.1f} s {_cpu_seconds() - cpu:6.1f} CPU s"
        found, attrs = pymc_hais.log_marginal_likelihood(idata), idata["posterior"].attrs
        cost = (attrs["n_gradients"] + attrs["n_gradients_pilot"]) / 1e6
        print(f"{name:26s}{found.value:10.3f} ± {found.se:.3f} {seconds} {cost:6.2f} million evaluations", flush=True)
        table = pymc_hais.estimates(idata)
        if "reverse" in table.index:
            print(f"{'':26s}{table.loc['reverse', 'value']:10.3f} ± {table.loc['reverse', 'se']:.3f} from above")
    if python:
        _peer(python, machine)


def _peer(python: str, machine: rbm.Parameters) -> None:
    with tempfile.TemporaryDirectory() as folder:
        weights, script = Path(folder) / "machine.npz", Path(folder) / "peer.py"
        np.savez(weights, weights=machine.weights, visible=machine.visible_bias, hidden=machine.hidden_bias)
        script.write_text(PEER)
        for dtype in ("float32", "float64"):
            command = [python, "-W", "ignore", script, weights, dtype, str(N_PARTICLES), str(N_TEMPERATURES)]
            run = subprocess.run(command, capture_output=True, text=True)
            print(f"rbms, {dtype}: {run.stdout.strip() or run.stderr.strip()[-200:]} (log Z, s, CPU s)", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["models", "machine"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rbms", metavar="PYTHON")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in ("pymc", "pymc.hais"):
        logging.getLogger(name).setLevel(logging.ERROR)
    if args.what == "models":
        compare_models(args.seed)
    else:
        compare_machine(args.rbms)


if __name__ == "__main__":
    sys.exit(main())
