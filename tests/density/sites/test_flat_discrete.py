"""The counting measure on a finite set: its density, its draws, and that PyMC's own tools take it."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor
import pytest
from pymc.logprob.utils import ParameterValueError
from pymc.model.transform.optimization import freeze_dims_and_data
from scipy.special import logsumexp

from pymc_hais.density.sites.variables import FlatDiscrete
from tests.discrete_truth import all_states, log_densities

MODE = "FAST_COMPILE"


def evaluate(variable):
    return variable.eval(mode=MODE)


@pytest.fixture
def model():
    with pm.Model(coords={"site": ["a", "b", "c"]}) as model:
        spin = FlatDiscrete("spin", shape=(2, 2))
        level = FlatDiscrete("level", lower=-1, upper=[0, 5, 2], dims="site")
        pm.Potential("energy", 0.5 * spin.sum() - 0.1 * level.sum())
    return model


def test_weight_one_inside_and_none_outside():
    found = evaluate(pm.logp(FlatDiscrete.dist(lower=-2, upper=1), np.arange(-4, 4)))
    assert found.tolist() == [-np.inf, -np.inf, 0.0, 0.0, 0.0, 0.0, -np.inf, -np.inf]
    assert evaluate(pm.logp(FlatDiscrete.dist(), np.arange(-1, 3))).tolist() == [-np.inf, 0.0, 0.0, -np.inf]
    assert evaluate(pm.logp(FlatDiscrete.dist(0.0, pytensor.shared(1.9)), 2)) == -np.inf


@pytest.mark.parametrize("limits", [{"lower": 0.5, "upper": 2.5}, {"upper": [1.0, np.inf]}])
def test_limits_that_are_no_whole_numbers_are_refused(limits):
    with pytest.raises(ValueError, match=r"`(lower|upper)` of FlatDiscrete must be whole numbers; got "):
        FlatDiscrete.dist(**limits)


def test_unknown_arguments_are_answered():
    with pm.Model(), pytest.raises(TypeError, match=r"FlatDiscrete\(\) has no argument `low`: did you mean `lower`\?"):
        FlatDiscrete("z", shape=3, low=5)


def test_limits_in_the_wrong_order_are_refused():
    with pytest.raises(ParameterValueError, match="lower <= upper"):
        evaluate(pm.logp(FlatDiscrete.dist(lower=2, upper=1), 1))


def test_it_is_a_discrete_uniform_without_the_number_of_states():
    (s,) = all_states((3,), n_values=4)
    densities = {}
    for kind in (FlatDiscrete, pm.DiscreteUniform):
        with pm.Model() as model:
            kind("s", lower=0, upper=3, shape=3)
        densities[kind] = log_densities(model, s=s)
    assert densities[FlatDiscrete] == pytest.approx(np.zeros(64))
    assert densities[FlatDiscrete] - densities[pm.DiscreteUniform] == pytest.approx(np.full(64, 3 * np.log(4)))
    assert logsumexp(densities[FlatDiscrete]) == pytest.approx(np.log(64))


def test_draws_are_uniform_to_both_ends_of_each_element():
    n = 4000
    draws = pm.draw(FlatDiscrete.dist(lower=[0, -1], upper=[1, 127]), n, random_seed=1, mode=MODE)
    assert draws.dtype == np.int64
    for column, n_values, low in zip(draws.T, [2, 129], [0, -1], strict=True):
        frequencies = np.bincount(column - low, minlength=n_values) / n
        assert len(frequencies) == n_values
        # Six standard errors: 131 values with a false alarm of 2e-9 each.
        assert np.abs(frequencies - 1 / n_values).max() < 6 * np.sqrt(1 / n_values / n)


def test_start_and_density_of_a_model(model):
    start = model.initial_point()
    assert start["spin"].tolist() == [[0, 0], [0, 0]]
    assert start["level"].tolist() == [-1, -1, -1]
    spin, level = np.ones((1, 2, 2)), np.array([[0, 5, -1]])
    assert log_densities(model, spin=spin, level=level) == pytest.approx([2.0 - 0.4])
    assert log_densities(model, spin=spin, level=[[1, 5, -1]]) == [-np.inf]


def test_freezing_keeps_the_density(model):
    frozen = freeze_dims_and_data(model)
    assert frozen["level"].type.shape == (3,)
    rng = np.random.default_rng(1)
    values = {"spin": rng.integers(0, 2, (20, 2, 2)), "level": rng.integers(-1, 3, (20, 3))}
    expected = log_densities(model, **values)
    assert np.array_equal(log_densities(frozen, **values), expected)
    assert 0 < np.isfinite(expected).sum() < 20


@pytest.mark.filterwarnings("ignore:The effect of Potentials:UserWarning")
def test_prior_predictive_draws_stay_inside(model):
    drawn = pm.sample_prior_predictive(200, model=model, random_seed=1, compile_kwargs={"mode": MODE}).prior
    assert set(np.unique(drawn["spin"])) == {0, 1}
    level = drawn["level"].values.reshape(-1, 3)
    assert (level.min(axis=0).tolist(), level.max(axis=0).tolist()) == ([-1, -1, -1], [0, 5, 2])
    assert drawn["level"].dims == ("chain", "draw", "site")
