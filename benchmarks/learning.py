"""A restricted Boltzmann machine of digits, by ``pymc_hais.fit`` and by ``sklearn.neural_network.BernoulliRBM``.

The 1,797 digits of scikit-learn, binarised: 64 visible and 16 hidden units, so that the log-likelihood of the 297 test
rows is an exact sum.  Run ``python -m benchmarks.learning``.  What is the test log-likelihood after how many seconds of
wall and of CPU time?
"""

import logging
import time

import numpy as np
import pymc as pm
from scipy.special import logit
from sklearn.neural_network import BernoulliRBM

import pymc_hais
from examples import rbm
from pymc_hais import learning

N_HIDDEN, N_TRAIN, BATCH = 16, 1500, 100
#: Of separate fits, since the rate falls over the second half of each; 15 make an epoch of 1,500 rows.
STEPS = (300, 1000, 3000, 7500)
RATES, EPOCHS = (0.01, 0.05, 0.1), (20, 100, 500)


def clocks() -> np.ndarray:
    """Return wall and CPU seconds."""
    return np.array([time.perf_counter(), time.process_time()])


def score(parameters: rbm.Parameters, rows: np.ndarray) -> float:
    """Return the exact mean log-likelihood of rows (n, V)."""
    return float(rbm.log_unnormalised(rows, parameters).mean()) - rbm.exact_log_z(parameters)


def build_machine(train: np.ndarray) -> pm.Model:
    """Build the machine with both layers, at small weights and the data's base rates."""
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        weights = pm.Data("W", 0.01 * rng.normal(size=(train.shape[1], N_HIDDEN)))
        visible_bias = pm.Data("b", logit(rbm.base_rates(train)))
        hidden_bias = pm.Data("c", np.zeros(N_HIDDEN))
        v = pymc_hais.FlatDiscrete("v", 0, 1, shape=train.shape[1])
        h = pymc_hais.FlatDiscrete("h", 0, 1, shape=N_HIDDEN)
        pm.Potential("negative_energy", v @ weights @ h + v @ visible_bias + h @ hidden_bias)
    return model


def run_ours(train: np.ndarray, test: np.ndarray, n_steps: int) -> str:
    """Fit for so many steps, compiling included, and score the fit."""
    model, begin = build_machine(train), clocks()
    pymc_hais.fit(
        model, {"v": train.astype(int)}, ["W", "b", "c"],
        learning.StochasticMaximumLikelihood(n_moves=1, n_chains=BATCH),
        n_steps=n_steps, batch_size=BATCH, random_seed=1, progressbar=False, optimizer=pm.adam(learning_rate=0.01),
    )  # fmt: skip
    seconds = clocks() - begin
    found = score(rbm.Parameters(*(model[name].get_value() for name in "Wbc")), test)
    return line("StochasticMaximumLikelihood", n_steps * BATCH // len(train), found, seconds)


def run_theirs(train: np.ndarray, test: np.ndarray, rate: float, n_epochs: int) -> str:
    """Fit a BernoulliRBM, and score it."""
    machine = BernoulliRBM(N_HIDDEN, learning_rate=rate, batch_size=BATCH, n_iter=n_epochs, random_state=0)
    begin = clocks()
    machine.fit(train)
    seconds = clocks() - begin
    parameters = rbm.Parameters(machine.components_.T, machine.intercept_visible_, machine.intercept_hidden_)
    return line(f"BernoulliRBM, rate {rate}", n_epochs, score(parameters, test), seconds)


def line(name: str, n_epochs: int, found: float, seconds: np.ndarray) -> str:
    return f"| {name} | {n_epochs} | {found:.2f} | {seconds[0]:.1f} | {seconds[1]:.1f} |"


def main() -> None:
    logging.getLogger("pymc").setLevel(logging.ERROR)
    logging.getLogger("pymc.hais").setLevel(logging.CRITICAL)
    rows = rbm.load_digits()
    np.random.default_rng(0).shuffle(rows)
    train, test = rows[:N_TRAIN], rows[N_TRAIN:]
    rates = rbm.base_rates(train)
    independent = float((test * np.log(rates) + (1.0 - test) * np.log1p(-rates)).sum(axis=1).mean())
    print(f"Independent units: {independent:.2f} nats a test row\n")
    print("| method | epochs | test log-likelihood | s | CPU s |\n| --- | --- | --- | --- | --- |")
    for n_steps in STEPS:
        print(run_ours(train, test, n_steps), flush=True)
    for rate in RATES:
        for n_epochs in EPOCHS:
            print(run_theirs(train, test, rate, n_epochs), flush=True)


if __name__ == "__main__":
    main()
