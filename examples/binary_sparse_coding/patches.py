"""Binary sparse coding of natural patches: how many states are evaluated, and how well the patches are explained.

``python -m examples.binary_sparse_coding.patches`` takes 40,000 patches of 26 x 26 pixels and 800 units; ``--small`` is
over in three minutes.  Select-and-sample evaluates H' states a sweep, and Gibbs sampling of all units H of them.
"""

import argparse
import resource
import time

import numpy as np

import pymc_hais
from examples.binary_sparse_coding.model import PARAMETERS, build_model, first_parameters, m_step, score
from examples.image_models.patches import TRAINING, VAN_HATEREN_IMAGE, cut, cut_images, load_van_hateren_image
from pymc_hais import learning


def load_rows(n: int, width: int, seed: int = 2011) -> tuple[np.ndarray, str]:
    """Return patches (n, width^2) of log intensity without their means, of variance one, and where they come from."""
    rng = np.random.default_rng(seed)
    if VAN_HATEREN_IMAGE.exists():
        patches, source = cut_images([load_van_hateren_image()], n, width, rng), "one van Hateren image"
    else:
        patches, source = cut(TRAINING, n, width, rng), f"photographs: {', '.join(TRAINING)}"
    return patches / patches.std(), source


def bound(rows: np.ndarray, parameters: dict, n_units: int) -> float:
    """Return the mean log-likelihood of rows (nats) summed over all states of the H' best units: a lower bound."""
    model = build_model(*(np.asarray(parameters[name]) for name in PARAMETERS))
    e_step = learning.Selection(score, n_units)
    method = learning.ExpectationMaximization(e_step=e_step, m_step=lambda sums, values: values)
    fitted = pymc_hais.fit(model, {"y": rows}, PARAMETERS, method, n_steps=1, progressbar=False)
    return -float(fitted["learning"].attrs["objective"])


def train(rows: np.ndarray, first: dict, e_step: learning.SelectAndSample, n_steps: int, seed: int = 1) -> tuple:
    """Return the fitted parameters, the seconds of CPU and wall clock, and the states of a row in one step."""
    model = build_model(*(first[name] for name in PARAMETERS))
    method = learning.ExpectationMaximization(e_step=e_step, m_step=m_step)
    cpu, wall = time.process_time(), time.perf_counter()
    fitted = pymc_hais.fit(model, {"y": rows}, PARAMETERS, method, n_steps=n_steps, random_seed=seed, progressbar=False)
    spent = time.process_time() - cpu, time.perf_counter() - wall
    values = {name: fitted["fitted"][name].values for name in PARAMETERS}
    return values, spent, int(fitted["learning"]["states_per_row"][-1])


def report(name: str, found: tuple, held_out: np.ndarray, n_bound: int) -> None:
    """Print a line of the table."""
    values, (cpu, wall), n_states = found
    print(
        f"{name:28s} {n_states:9d} {bound(held_out, values, n_bound):12.2f} {cpu:9.1f} {wall:9.1f} "
        f"{float(values['sigma']):7.3f} {float(values['pi']) * values['W'].shape[1]:7.2f}",
        flush=True,
    )


def main(small: bool = False) -> None:
    n_rows, width, n_units, n_steps = (2000, 12, 100, 8) if small else (40_000, 26, 800, 6)
    chosen = (6, 10, 14) if small else (12, 20, 28, 36)
    rows, source = load_rows(n_rows + 500, width)
    rows, held_out = rows[:n_rows], rows[n_rows:]
    first = first_parameters(rows, n_units, np.random.default_rng(1))
    # Basis functions that begin at patches are selected for something from the first step on.
    first["W"] = rows[np.random.default_rng(2).permutation(n_rows)[:n_units]].T
    print(f"{n_rows} patches, {width} x {width}, {n_units} units, {n_steps} steps; {source}")
    print(
        f"{'E-step':28s} {'states':>9s} {'held out >=':>12s} {'cpu s':>9s} {'wall s':>9s} {'sigma':>7s} {'active':>7s}"
    )
    for k in chosen:
        e_step = learning.SelectAndSample(score, k, n_sweeps=30, n_burn=10)
        report(f"SelectAndSample(H'={k})", train(rows, first, e_step, n_steps), held_out, 12)
    some = rows[: n_rows if small else 2000]
    for name, e_step in {
        f"the same of {len(some)}, H'={chosen[1]}": learning.SelectAndSample(score, chosen[1], n_sweeps=30, n_burn=10),
        f"GibbsSampling of {len(some)}": learning.GibbsSampling(n_sweeps=30, n_burn=10),
    }.items():
        report(name, train(some, first, e_step, n_steps), held_out, 12)
    print(f"memory at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2:.1f} GiB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    main(parser.parse_args().small)
