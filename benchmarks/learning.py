"""A restricted Boltzmann machine of digits, by ``pymc_hais.fit`` and by ``sklearn.neural_network.BernoulliRBM``.

The 1,797 digits of scikit-learn, binarised: 64 visible and few hidden units, so that the log-likelihood of the 297 test
rows is an exact sum.  Run ``python -m benchmarks.learning``.  What is the test log-likelihood after how many seconds of
wall and of CPU time, in the median and range of five fits?  ``--hidden`` takes other sizes.  ``--large`` times an epoch
of 60,000 synthetic rows of 784 visible units, with 500 hidden ones.  With ``--rbms PYTHON``, an interpreter that has
PyPI's ``rbms``, its persistent chains stand beside both.
"""

import argparse
import logging
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
from scipy.special import logit
from sklearn.neural_network import BernoulliRBM

import pymc_hais
from examples import rbm
from pymc_hais import learning

N_TRAIN, BATCH, SEEDS = 1500, 100, range(1, 6)
#: Methods of separate fits, since the rate falls over the second half of each, and their steps: fifteen are an epoch.
OURS = {
    learning.FastPersistentCD(n_moves=2, n_chains=BATCH, fast_rate=0.1): (600, 1000, 2000),
    learning.StochasticMaximumLikelihood(n_moves=5, n_chains=BATCH): (1000, 2000),
}
RATE = 0.03
RATES, EPOCHS = (0.05, 0.1), (500, 1000, 1500)
#: Moves and rate of ``rbms``.
THEIRS = (5, 0.1)
SCRIPT = str(Path(__file__).with_name("learning_rbms.py"))
#: Visible and hidden units, rows and those of a batch, and steps that are timed.
LARGE, N_TIMED = (784, 500, 60_000, 500), 15


def clocks() -> np.ndarray:
    """Return wall and CPU seconds."""
    return np.array([time.perf_counter(), time.process_time()])


def score(parameters: rbm.Parameters, rows: np.ndarray) -> float:
    """Return the exact mean log-likelihood of rows (n, V)."""
    return float(rbm.log_unnormalised(rows, parameters).mean()) - rbm.exact_log_z(parameters)


def build_machine(train: np.ndarray, n_hidden: int) -> pm.Model:
    """Build the machine with both layers, at small weights and the data's base rates."""
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        weights = pm.Data("W", 0.01 * rng.normal(size=(train.shape[1], n_hidden)))
        visible_bias = pm.Data("b", logit(rbm.base_rates(train)))
        hidden_bias = pm.Data("c", np.zeros(n_hidden))
        v = pymc_hais.FlatDiscrete("v", 0, 1, shape=train.shape[1])
        h = pymc_hais.FlatDiscrete("h", 0, 1, shape=n_hidden)
        pm.Potential("negative_energy", v @ weights @ h + v @ visible_bias + h @ hidden_bias)
    return model


type Fit = tuple[float, np.ndarray]


def fit_ours(train: np.ndarray, test: np.ndarray, n_hidden: int, method: Any, n_steps: int, seed: int) -> Fit:
    """Fit for so many steps, compiling included, and score the fit."""
    model, begin = build_machine(train, n_hidden), clocks()
    pymc_hais.fit(
        model, {"v": train.astype(int)}, ["W", "b", "c"], method, n_steps=n_steps, batch_size=BATCH, random_seed=seed,
        progressbar=False, optimizer=pm.adam(learning_rate=RATE),
    )  # fmt: skip
    seconds = clocks() - begin
    return score(rbm.Parameters(*(model[name].get_value() for name in "Wbc")), test), seconds


def fit_theirs(train: np.ndarray, test: np.ndarray, n_hidden: int, rate: float, n_epochs: int, seed: int) -> Fit:
    """Fit a BernoulliRBM, and score it."""
    machine = BernoulliRBM(n_hidden, learning_rate=rate, batch_size=BATCH, n_iter=n_epochs, random_state=seed)
    begin = clocks()
    machine.fit(train)
    seconds = clocks() - begin
    return score(
        rbm.Parameters(machine.components_.T, machine.intercept_visible_, machine.intercept_hidden_), test
    ), seconds


def fit_rbms(python: str, train: np.ndarray, test: np.ndarray, n_hidden: int, n_steps: int, seed: int) -> Fit:
    """Fit with ``rbms`` in another interpreter, and score what it finds."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder, "rows.npy"), train)
        numbers = [n_hidden, n_steps, BATCH, BATCH, *THEIRS, seed]
        subprocess.run([python, SCRIPT, folder, *map(str, numbers)], check=True)
        found = np.load(Path(folder, "fitted.npz"))
        return score(rbm.Parameters(found["W"], found["b"], found["c"]), test), found["seconds"]


def run_large(python: str | None) -> None:
    """Print seconds an epoch of a large machine, of steps after the first few, by each."""
    n_visible, n_hidden, n_rows, batch = LARGE
    rows = (np.random.default_rng(0).random((20 * batch, n_visible)) < 0.2).astype(float)
    print("| method | s an epoch | CPU s an epoch | s before the first step |\n| --- | --- | --- | --- |")
    for method in (learning.ContrastiveDivergence(1), learning.StochasticMaximumLikelihood(n_moves=1, n_chains=batch)):
        model, marks = build_machine(rows, n_hidden), [clocks()]
        pymc_hais.fit(
            model, {"v": rows.astype(int)}, ["W", "b", "c"], method, n_steps=N_TIMED + 5, batch_size=batch,
            random_seed=1, progressbar=False, callbacks=[lambda *_, marks=marks: marks.append(clocks())],
        )  # fmt: skip
        seconds = (marks[-1] - marks[5]) / (len(marks) - 6) * n_rows / batch
        print(f"| {method.name} | {seconds[0]:.0f} | {seconds[1]:.0f} | {marks[1][0] - marks[0][0]:.0f} |", flush=True)
    begin = clocks()
    BernoulliRBM(n_hidden, learning_rate=0.01, batch_size=batch, n_iter=1, random_state=0).fit(rows)
    seconds = (clocks() - begin) * n_rows / len(rows)
    print(f"| BernoulliRBM | {seconds[0]:.0f} | {seconds[1]:.0f} | 0 |", flush=True)
    if python:
        with tempfile.TemporaryDirectory() as folder:
            np.save(Path(folder, "rows.npy"), rows)
            numbers = [n_hidden, N_TIMED, batch, batch, 1, 0.01, 0]
            subprocess.run([python, SCRIPT, folder, *map(str, numbers)], check=True)
            seconds = np.load(Path(folder, "fitted.npz"))["seconds"] / N_TIMED * n_rows / batch
        print(f"| rbms | {seconds[0]:.0f} | {seconds[1]:.0f} | 0 |", flush=True)


def show(name: str, n_epochs: int, fit: Callable[[int], Fit]) -> None:
    """Print the median and range over several seeds."""
    found, seconds = zip(*(fit(seed) for seed in SEEDS), strict=True)
    low, middle, high = np.quantile(found, [0.0, 0.5, 1.0])
    wall, cpu = np.median(seconds, axis=0)
    print(f"| {name} | {n_epochs} | {middle:.2f} | {low:.2f} to {high:.2f} | {wall:.1f} | {cpu:.1f} |", flush=True)


def main() -> None:
    logging.getLogger("pymc").setLevel(logging.ERROR)
    logging.getLogger("pymc.hais").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--rbms", metavar="PYTHON")
    parser.add_argument("--hidden", type=int, default=16)
    options = parser.parse_args()
    if options.large:
        return run_large(options.rbms)
    rows = rbm.load_digits()
    np.random.default_rng(0).shuffle(rows)
    train, test = rows[:N_TRAIN], rows[N_TRAIN:]
    rates = rbm.base_rates(train)
    independent = float((test * np.log(rates) + (1.0 - test) * np.log1p(-rates)).sum(axis=1).mean())
    print(f"Independent units: {independent:.2f} nats a test row\n")
    print("| method | epochs | test log-likelihood | range | s | CPU s |\n| --- | --- | --- | --- | --- | --- |")
    data = (train, test, options.hidden)
    fit_ours(*data, next(iter(OURS)), 20, 0)  # imports
    for method, lengths in OURS.items():
        for n_steps in lengths:
            show(method.name, n_steps * BATCH // len(train), partial(fit_ours, *data, method, n_steps))
    for rate in RATES:
        for n_epochs in EPOCHS:
            show(f"BernoulliRBM, rate {rate}", n_epochs, partial(fit_theirs, *data, rate, n_epochs))
    for n_steps in (1000, 2000) if options.rbms else ():
        name = f"rbms, rate {THEIRS[1]}"
        show(name, n_steps * BATCH // len(train), partial(fit_rbms, options.rbms, *data, n_steps))


if __name__ == "__main__":
    main()
