"""Labels that may trade places: they are found from the density, and points that lead to modes take copies along."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from pymc_hais.planning.building import compile_first
from pymc_hais.problem.problem import Problem
from pymc_hais.run.copies import Labels
from tests.front_door import assert_right, estimate
from tests.marks import slow_but
from tests.runs import call_of

Y = np.random.default_rng(3).normal([-2.0, 0.0, 3.0] * 5, 0.5)


def labels_of(model):
    call = call_of(model, backend="jax")
    return Labels(compile_first(model, "auto", call).problem, call)


def mixture(prior_means=(0.0, 0.0, 0.0)):
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        mu = pm.Normal("mu", np.array(prior_means), 5.0)
        sd = pm.HalfNormal("sd", 1.0)
        pm.NormalMixture("y", w, mu, sd, observed=Y)
    return model


@pytest.fixture(scope="module")
def components():
    """Return the labels of a mixture, the positions that they were tested with, and the gradients that were counted."""
    model, tested = mixture(), []
    runner = call_of(model, backend="jax")
    problem, evaluate = compile_first(model, "auto", runner).problem, Problem.log_density
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Problem, "log_density", lambda self, x: tested.append(len(x)) or evaluate(self, x))
        labels = Labels(problem, runner)
    return labels, sum(tested), dict(runner.ledger.gradients)


def numbered():
    with pm.Model() as model:
        terms = []
        for i in (1, 2):
            height, rate = pm.HalfNormal(f"height{i}", 2.0), pm.LogNormal(f"rate{i}", 0.0, 1.0)
            terms.append(height * pt.sin(rate * np.arange(15)))
        pm.Normal("y", sum(terms), 1.0, observed=Y)
    return model


def chain():
    """Two hidden states, summed out by hand over three steps."""
    with pm.Model() as model:
        rows = pm.Dirichlet("rows", np.ones((2, 2)), shape=(2, 2))
        mu = pm.Normal("mu", 0.0, 3.0, shape=2)
        ahead = pt.ones(2) / 2
        for y in (-1.0, 0.5, 2.0):
            ahead = (ahead @ rows) * pt.exp(-0.5 * (y - mu) ** 2)
        pm.Potential("y", pt.log(ahead.sum()))
    return model


def test_components_of_a_mixture_trade_weights_and_means_together(components):
    labels, n_tested, n_gradients = components
    assert n_gradients == {"labels": n_tested}
    assert n_tested > 3
    assert labels.n_trades == 2
    w, mu = np.array([0.2, 0.3, 0.5]), np.array([-2.0, 0.0, 3.0])
    point = np.concatenate([np.log(w[:2]) - np.log(w).mean(), mu, [0.4]])
    copies = labels.copies(point[None], 64)
    assert len(copies) == 6
    order = np.argsort(copies[:, 2:5], axis=1)
    logs = np.column_stack([copies[:, :2], -copies[:, :2].sum(axis=1)])
    np.testing.assert_allclose(np.take_along_axis(copies[:, 2:5], order, axis=1), np.tile(mu, (6, 1)))
    expected = np.log(w) - np.log(w).mean()
    np.testing.assert_allclose(np.take_along_axis(logs, order, axis=1), np.tile(expected, (6, 1)))
    np.testing.assert_allclose(copies[:, 5], 0.4)


@pytest.mark.slow
def test_labels_with_different_priors_do_not_trade():
    assert labels_of(mixture((0.0, 1.0, 2.0))).n_trades == 0


def test_variables_whose_names_differ_in_a_number_trade_together():
    labels = labels_of(numbered())
    assert labels.n_trades == 1
    np.testing.assert_array_equal(labels.trade(np.array([[1.0, 2.0, 3.0, 4.0]]))[0, 0], [3.0, 4.0, 1.0, 2.0])


@pytest.mark.slow
def test_states_of_a_chain_trade_rows_columns_and_means():
    labels = labels_of(chain())
    assert labels.n_trades == 1
    # Of two states the transform keeps one number a row: half the log odds of the first.
    np.testing.assert_allclose(labels.trade(np.array([[1.0, 2.0, 3.0, 4.0]]))[0, 0], [-2.0, -1.0, 4.0, 3.0])


def test_no_more_copies_than_asked_for(components):
    labels, *_ = components
    points = np.random.default_rng(0).normal(size=(5, 6))
    assert len(labels.copies(points, 12)) == 12
    np.testing.assert_array_equal(labels.copies(points, 2), points)


@pytest.mark.parametrize("seed", slow_but((), [1, 2], [2]))
def test_modes_take_their_copies_along(seed):
    """Two waves of unknown frequencies, in noise: each order of the two is a narrow mode among hundreds of low ones."""
    rng, truth, most = np.random.default_rng(8), np.array([57.0, 141.0]), 200.0
    times = rng.uniform(size=60)
    y = np.sin(2.0 * np.pi * truth[:, None] * times).sum(axis=0) + rng.normal(0.0, 0.3, 60)
    with pm.Model() as model:
        waves = [pm.math.sin(2.0 * np.pi * pm.Uniform(f"rate{i}", 0.0, most) * times) for i in (1, 2)]
        pm.Normal("y", waves[0] + waves[1], 0.3, observed=y)
    # Both modes are nearly normal: the integral around one of them on a grid of its own, twice.
    near = np.linspace(-0.2, 0.2, 401)
    of_one, of_other = (np.sin(2.0 * np.pi * (rate + near)[:, None] * times) for rate in truth)
    residuals = y - of_one[:, None] - of_other
    log_density = norm(0.0, 0.3).logpdf(residuals).sum(axis=-1)
    log_z = logsumexp(log_density) + 2.0 * np.log((near[1] - near[0]) / most) + np.log(2.0)
    found, _ = estimate(model, modes={"rate1": truth[0], "rate2": truth[1]}, random_seed=seed)
    assert_right(found, log_z)
    assert found.se < 0.2
