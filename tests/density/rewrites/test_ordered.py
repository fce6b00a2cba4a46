"""Ordered categories: the same log density as PyMC's where that has digits, and the exact one where it has none."""

import numpy as np
import pymc as pm
import pytensor
import pytest
from pytensor.graph.traversal import ancestors

from pymc_hais.density import build_density, build_layout
from tests.front_door import estimate

ORDERED = pm.distributions.transforms.ordered

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def model_of(kind, n_categories=4, n=40):
    """Build a model of ordered categories; ``kind`` is how cutpoints and scores are given."""
    rng = np.random.default_rng(n_categories)
    x, y = rng.normal(size=(n, 2)), rng.integers(0, n_categories, (n, 3) if kind == "table" else n)
    start = np.linspace(-1.0, 1.0, n_categories - 1)
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0, 1, shape=2)
        score = x @ slopes
        if kind == "of each row":
            steps = pm.HalfNormal("steps", 1, shape=(n, n_categories - 1))
            cuts = pm.math.cumsum(steps, axis=1) - 2.0
        elif kind == "not ordered":
            cuts = pm.Normal("cuts", start, 0.1, shape=n_categories - 1)
        else:
            cuts = pm.Normal("cuts", 0, 2, shape=n_categories - 1, transform=ORDERED, initval=start)
        if kind == "table":
            score = score[:, None] + pm.Normal("item", 0, 1, shape=3)
        pm.OrderedLogistic("y", eta=score, cutpoints=cuts, observed=y)
    return model


def compiled(model):
    """Return the number of sigmoids in the log likelihood, and a function of the flat vector: itself and its slope."""
    graph = build_density(model, build_layout(model))
    nodes = {variable.owner for variable in ancestors([graph.density[1]]) if variable.owner}
    n_sigmoids = sum("sigmoid" in str(node.op).lower() for node in nodes)
    function = pytensor.function(graph.arguments, graph.density, mode="FAST_COMPILE", on_unused_input="ignore")
    return n_sigmoids, lambda position: function(position, *graph.data_values)[1::2]


@pytest.mark.every(5)
@pytest.mark.few(3)
@pytest.mark.parametrize("n_categories", [2, 3, 4, 9])
@pytest.mark.parametrize("kind", ["common", "of each row", "not ordered", "table"])
def test_log_likelihoods_of_ordered_categories_are_the_models(kind, n_categories):
    model = model_of(kind, n_categories)
    n_sigmoids, ours = compiled(model)
    assert n_sigmoids == 0
    likelihood = model.logp(vars=model.observed_RVs)
    slope = pm.pytensorf.gradient(likelihood, model.continuous_value_vars)
    theirs = model.compile_fn([likelihood, slope], mode="FAST_COMPILE")
    layout = build_layout(model)
    for seed in range(3):
        position = np.random.default_rng(seed).normal(0.0, 0.5, layout.n_dims)
        if kind == "not ordered":
            position[2:] = np.sort(position[2:])
        point, at = {}, 0
        for variable in model.continuous_value_vars:
            size = int(np.prod(variable.type.shape))
            point[variable.name] = position[at : at + size].reshape(variable.type.shape)
            at += size
        value, gradient = theirs(point)
        found = ours(position)
        np.testing.assert_allclose(found[0], value, rtol=1e-9)
        np.testing.assert_allclose(found[1], gradient, rtol=1e-7, atol=1e-9)


def test_cutpoints_that_are_not_ordered_are_impossible():
    _, ours = compiled(model_of("not ordered"))
    assert ours(np.array([0.1, 0.2, -1.0, 0.5, 0.4]))[0] == -np.inf


def test_far_from_the_cutpoints_nothing_is_lost():
    """There both logistic functions of a category round to one, or to zero, and PyMC has minus infinity."""
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 100)
        cuts = pm.Normal("cuts", 0, 100, shape=2, transform=ORDERED, initval=[-1.0, 1.0])
        pm.OrderedLogistic("y", eta=slope * np.ones(3), cutpoints=cuts, observed=[0, 1, 2])
    _, ours = compiled(model)
    for score in (-900.0, -50.0, 50.0, 900.0):
        value, gradient = ours(np.array([score, -1.0, np.log(2.0)]))
        away = abs(score)
        # log sigmoid(-1 - s) + log(sigmoid(1 - s) - sigmoid(-1 - s)) + log sigmoid(s - 1), for s far from both
        expected = -(away + 1.0) - (away - 1.0) + np.log1p(-np.exp(-2.0))
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        np.testing.assert_allclose(gradient[0], -2.0 * np.sign(score), rtol=1e-12)


def test_cutpoints_may_be_equal_if_the_category_between_was_not_observed():
    with pm.Model() as model:
        slope, cuts = pm.Normal("slope", 0, 1), pm.Normal("cuts", [-1.0, 0.0, 0.0], 1, shape=3)
        pm.OrderedLogistic("y", eta=slope * np.linspace(-1.0, 1.0, 5), cutpoints=cuts, observed=[0, 1, 1, 3, 3])
    _, ours = compiled(model)
    value, gradient = ours(np.array([0.5, -1.0, 0.2, 0.2]))
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


@pytest.mark.exhaustive
def test_wide_priors_of_few_rows_are_sampled():
    """At most of their draws PyMC's own log density is minus infinity, in wide numbers, too."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(12, 2))
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0, 100, shape=2)
        cuts = pm.Normal("cuts", 0, 100, shape=2, transform=ORDERED, initval=[-1.0, 1.0])
        pm.OrderedLogistic("y", eta=x @ slopes, cutpoints=cuts, observed=np.digitize(x[:, 0], [-0.5, 0.5]))
    found, _ = estimate(model, random_seed=1)
    assert "rounding" not in [finding.name for finding in found.findings]
    assert found.se < 0.2
