"""Held-out rows that are watched while a model is learnt."""

import re

import numpy as np
import pytest

import pymc_hais
from pymc_hais import learning
from tests.learning import densities

COUPLINGS = np.triu(np.random.default_rng(4).normal(size=(4, 4)), 1)
BIASES = -0.5 * COUPLINGS.sum(axis=0)
ROWS = densities.boltzmann_rows(COUPLINGS, BIASES, 500, 1).astype(int)
TEST = densities.boltzmann_rows(COUPLINGS, BIASES, 60, 2).astype(int)
METHOD = learning.StochasticMaximumLikelihood(n_moves=1, n_chains=400)
STEPS = 100
#: Steps after which the parameters are compared; five comparisons at 4.5 standard errors: 3e-5 in all.
COMPARED = (1, 10, 30, 60, 98)


@pytest.fixture(scope="module")
def fitted():
    model = densities.boltzmann(0.0 * COUPLINGS, 0.0 * BIASES)
    tree = pymc_hais.fit(
        model, {"s": ROWS}, ["W", "b"], METHOD, n_steps=STEPS, held_out={"s": TEST}, random_seed=3, progressbar=False
    )
    return model, tree


def exact(couplings, biases, rows):
    """Return the mean log-likelihood of rows, by the sum over all states, and its standard error over rows."""
    every = densities.boltzmann_score(densities.states(4), couplings, biases)
    log_p = densities.boltzmann_score(rows, couplings, biases) - np.logaddexp.reduce(every)
    return log_p.mean(), log_p.std(ddof=1) / np.sqrt(len(rows))


def before(tree, step):
    """Return the parameters that a step began at."""
    at = {name: tree["parameters"][name].sel(step=step - 1).values for name in ("W", "b")}
    told = tree["learning"].to_dataset().sel(step=step)
    return at, told["held_out"].item(), told["held_out_mcse"].item(), told["held_out_sem"].item()


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize("after", COMPARED)
def test_the_mean_of_the_rows_is_exact_within_its_error_at_every_step(fitted, after):
    at, value, mcse, sem = before(fitted[1], after + 1)
    mean, spread = exact(at["W"], at["b"], TEST)
    assert abs(value - mean) < 4.5 * mcse < 0.2
    assert sem == pytest.approx(spread)


def test_the_fitted_values_are_scored_too_and_learning_has_helped(fitted):
    _, tree = fitted
    end = tree["fitted"]
    mean, _ = exact(end["W"].values, end["b"].values, TEST)
    assert abs(end["held_out"].item() - mean) < 4.5 * end["held_out_mcse"].item() < 0.2
    _, first, mcse, _ = before(tree, 2)
    assert end["held_out"].item() > first + 4.0 * mcse


def test_log_z_of_other_parameters_is_caught(fitted):
    at, value, mcse, _ = before(fitted[1], STEPS)
    early = before(fitted[1], 2)[0]
    wrong = exact(at["W"], at["b"], TEST)[0] + log_z(at) - log_z(early)
    assert abs(value - wrong) > 4.5 * mcse


def log_z(at):
    return np.logaddexp.reduce(densities.boltzmann_score(densities.states(4), at["W"], at["b"]))


@pytest.mark.every(3)
@pytest.mark.slow
@pytest.mark.parametrize("after", COMPARED)
def test_a_run_of_its_own_agrees(fitted, after):
    model, tree = fitted
    at, value, mcse, _ = before(tree, after + 1)
    for name, one in at.items():
        model.set_data(name, one)
    scored = pymc_hais.log_likelihood(model, {"s": TEST}, random_seed=after, progressbar=False)["held_out"]
    assert abs(value - scored["mean"].item()) < 4.5 * np.hypot(mcse, scored["mcse"].item()) < 0.3


@pytest.mark.slow
def test_the_bar_shows_them(capsys):
    pymc_hais.fit(
        densities.boltzmann(COUPLINGS, BIASES), {"s": ROWS}, ["W", "b"], METHOD, n_steps=3, held_out={"s": TEST},
        random_seed=3,
    )  # fmt: skip
    assert re.search(r"Held out.*-\d\.\d\d ± 0\.\d\d", capsys.readouterr().out, re.DOTALL)


@pytest.mark.parametrize(
    ("method", "held_out", "message"),
    [
        (METHOD, {"t": TEST}, r"rows of the variables that `data` has, `s`; got `t`"),
        (METHOD, TEST, r"got a ndarray"),
        (METHOD, {"s": TEST[:, :3]}, r"`s`"),
        (learning.Pseudolikelihood(), {"s": TEST}, r"knows no log Z.*know it: StochasticMaximumLikelihood\."),
    ],
)
def test_rows_that_cannot_be_scored_are_refused(method, held_out, message):
    model = densities.boltzmann(COUPLINGS, BIASES)
    with pytest.raises(ValueError, match=message):
        pymc_hais.fit(model, {"s": ROWS}, ["W", "b"], method, held_out=held_out, progressbar=False)


def test_hidden_variables_are_named():
    model = densities.boltzmann(COUPLINGS, BIASES)
    with model:
        pymc_hais.FlatDiscrete("h", 0, 1)
    with pytest.raises(ValueError, match=r"`h` would have to be integrated out.*log_likelihood"):
        pymc_hais.fit(model, {"s": ROWS}, ["W", "b"], METHOD, held_out={"s": TEST}, progressbar=False)
