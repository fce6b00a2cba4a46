"""Priors that floating point holds in part: log Z is that of the model on the numbers that a computer holds."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import betaln, comb, logsumexp
from scipy.stats import gamma, norm

from pymc_hais.density import build_density, build_layout, is_log_concave
from pymc_hais.problem.building import _find_walls
from pymc_hais.references import Gaussian, Mixture, Prior, bind, build_prior
from tests.front_door import assert_right, estimate

Y = np.random.default_rng(9).normal(0.0, 2.0, 12)


def vague_proportion(shape=0.001, n=10, y=(3, 4, 2)):
    """Half of the draws are one, and a quarter is zero."""
    with pm.Model() as model:
        pm.Binomial("y", n, pm.Beta("p", shape, shape), observed=y)
    total, trials = sum(y), n * len(y)
    log_z = betaln(shape + total, shape + trials - total) - betaln(shape, shape)
    return model, log_z + np.sum(np.log(comb(n, y)))


def vague_precision(shape=0.001):
    """Half of the precisions are zero."""
    with pm.Model() as model:
        effects = pm.Normal("effects", 0.0, tau=pm.Gamma("tau", shape, shape), shape=len(Y))
        pm.Normal("y", effects, 1.0, observed=Y)
    logs = np.linspace(-60.0, 40.0, 20_001)
    of_data = norm.logpdf(Y, 0.0, np.sqrt(1.0 + np.exp(-logs))[:, None]).sum(axis=1)
    of_precision = gamma.logpdf(np.exp(logs), shape, scale=1.0 / shape) + logs
    return model, logsumexp(of_data + of_precision) + np.log(logs[1] - logs[0])


@pytest.mark.parametrize(
    ("build", "n_temperatures"),
    [(vague_proportion, 400), pytest.param(vague_precision, 2000, marks=pytest.mark.slow)],
)
def test_moves_do_not_drain_into_where_draws_are_missing(build, n_temperatures):
    """Without walls log Z falls by more than ten standard errors, the more temperatures the further."""
    model, truth = build()
    found, _ = estimate(model, reference="prior", n_temperatures=n_temperatures, target_se=None)
    assert_right(found, truth)


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize("build", [vague_proportion, vague_precision])
def test_a_default_call_is_calibrated(build):
    model, truth = build()
    calls = [estimate(model, random_seed=seed)[0] for seed in range(8)]
    z = [(one.value - truth) / one.se for one in calls]
    # The mean of eight squared normals is above this once in a thousand samples.
    assert np.mean(np.square(z)) < 3.3


def test_walls_stand_where_draws_had_to_be_clipped_and_nowhere_else():
    with pm.Model() as model:
        pm.Beta("p", 0.001, 0.001)
        tau = pm.Gamma("tau", 0.001, 0.001, shape=2)
        pm.Gamma("usual", 2.0, 1.0)
        pm.Normal("x", 0.0, tau=tau[0])
    layout = build_layout(model)
    prior = Prior(layout, build_prior(model))
    low, high = prior.find_walls(prior.draw(500, np.random.SeedSequence(1)))
    np.testing.assert_array_equal(low, [-700.0, -700.0, -700.0, -np.inf, -np.inf])
    np.testing.assert_array_equal(high, [36.0, np.inf, np.inf, np.inf, np.inf])
    mixed = bind(Mixture(["prior", Gaussian(0.0, 1.0)], [0.9, 0.1]), layout, prior, model)
    found = _find_walls(mixed, mixed.draw(500, np.random.SeedSequence(1)))
    np.testing.assert_array_equal(found, [low, high])


@pytest.mark.parametrize(("a", "b"), [(1.0, 0.01), (0.5, 0.02)])
def test_draws_near_one_lie_within_the_walls_or_are_clipped(a, b):
    """The last numbers before one have log odds of 36.04 and 36.74."""
    with pm.Model() as model:
        pm.Beta("p", a, b)
    prior = Prior(build_layout(model), build_prior(model))
    drawn = prior.draw(4000, np.random.SeedSequence(1))
    kept, (low, high) = drawn.positions[~drawn.clipped], prior.find_walls(drawn)
    assert high == 36.0
    assert np.all((low <= kept) & (kept <= high))


def test_a_variable_with_one_bound_has_no_wall_at_the_log_odds_of_one():
    with pm.Model() as model:
        pm.Pareto("x", 0.005, 1.0)
        pm.Gamma("tau", 0.001, 0.001)
    prior = Prior(build_layout(model), build_prior(model))
    drawn = prior.draw(500, np.random.SeedSequence(1))
    low, high = prior.find_walls(drawn)
    assert np.any(drawn.positions[~drawn.clipped, 0] > 36.0)
    np.testing.assert_array_equal([low[0], high[0]], [-np.inf, np.inf])


def test_the_shapes_of_draws_beyond_floating_point_are_known_without_a_warning():
    with pm.Model() as model:
        pm.Pareto("x", 1e-5, 1.0)  # nearly all draws overflow
    assert build_prior(model) is not None


def test_between_walls_a_density_of_one_hill_is_still_proven():
    with pm.Model() as model:
        rates = pm.Gamma("rates", 0.001, 0.001, shape=3)
        pm.Poisson("y", rates, observed=[1, 4, 2])
    layout = build_layout(model)
    walls = np.array([[-700.0, -np.inf, -700.0], [np.inf, 5.0, np.inf]])
    graph = build_density(model, layout, walls=walls)
    assert is_log_concave(graph, graph.data_values)
    evaluate = graph.density[0].eval
    values = [float(evaluate({graph.position: np.array([0.0, x, 0.0])})) for x in (4.9, 5.1)]
    assert np.isfinite(values[0])
    assert values[1] == -np.inf
