"""Bounds and ranks on data simulated from a model, against the exact log Z of each simulated data set."""

import numpy as np
import pymc as pm
import pytest

import pymc_hais
from pymc_hais.density import build_layout
from pymc_hais.opinions import sandwich as validation
from pymc_hais.references import build_prior
from pymc_hais.references.prior import simulate
from pymc_hais.results.findings.compared import check_validation
from pymc_hais.results.validation import bounds_of, rank, to_text, to_validation_tree
from pymc_hais.run import populations
from tests.mutants import mutate
from tests.quick import one_mean, schools, shared
from tests.statistical import assert_caught, assert_distribution, assert_mean
from tests.truth import log_evidence_normal

N_SETS = 40


def validated(**options):
    defaults = {"draws": 200, "chains": 2, "n_temperatures": 8, "target_se": None, "random_seed": 5}
    return pymc_hais.validate(shared(one_mean), N_SETS, progressbar=False, **(defaults | options))


@pytest.fixture(scope="module")
def tree():
    return validated()


def simulated(n, seed):
    model = one_mean()
    layout = build_layout(model)
    positions, data = simulate(model, layout, build_prior(model), n, seed)
    return positions[:, 0], data["y"]


def test_simulated_data_belong_to_their_parameters():
    mu, y = simulated(3000, 1)
    assert y.shape == (3000, 3)
    assert_mean(y - mu[:, None], 0.0)
    assert_mean((y - mu[:, None]) ** 2, 1.0)
    assert_mean(mu**2, 9.0)
    # The first noise of a data set is not the noise that its parameter was drawn with.
    assert_mean(mu * (y[:, 0] - mu), 0.0)


def test_parameters_and_data_share_no_random_numbers():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1.0, observed=0.0)
    layout = build_layout(model)
    positions, data = simulate(model, layout, build_prior(model), 2000, 1)
    assert_mean(positions[:, 0] * (data["y"] - positions[:, 0]), 0.0)


def exact(monkeypatch):
    """Validate once more, and return the exact log Z of every simulated data set beside the bounds."""
    kept = {}

    def keep(*args):
        kept["positions"], kept["data"] = simulate(*args)
        return kept["positions"], kept["data"]

    monkeypatch.setattr("pymc_hais.calls.validate.simulate", keep)
    tree = validated()
    return tree, np.array([log_evidence_normal(y, 0.0, 3.0, 1.0) for y in kept["data"]["y"]])


@pytest.mark.slow
def test_the_truth_lies_between_the_bounds(monkeypatch):
    tree, log_z = exact(monkeypatch)
    bounds = tree["bounds"]
    lower, upper = np.exp(bounds["lower"].values - log_z), np.exp(log_z - bounds["upper"].values)
    assert_mean(lower, 1.0)  # unbiased for Z
    assert_mean(upper, 1.0)  # unbiased for 1 / Z
    errors = np.abs(bounds["lower"].values - log_z) / bounds["lower_se"].values
    assert np.quantile(errors, 0.8) < 2.5


@pytest.mark.slow
def test_a_way_back_of_the_wrong_sign_is_caught(monkeypatch):
    wrong = mutate(populations, ("problem.log_z_reference, is_reverse=True", "problem.log_z_reference"))
    monkeypatch.setattr(validation, "anneal_back", wrong.anneal_back)
    tree, log_z = exact(monkeypatch)
    assert_caught(np.exp(log_z - tree["bounds"]["upper"].values), 1.0)


@pytest.mark.slow
def test_the_ranks_of_the_true_values_are_uniform(tree):
    assert_distribution(tree["ranks"]["mu"].values, "uniform")
    assert tree.attrs["findings"] == "[]"


@pytest.mark.slow
def test_a_posterior_that_is_off_is_a_finding(tree):
    ranks = {"mu": 0.5 * tree["ranks"]["mu"].values}
    names = [finding.name for finding in check_validation(bounds_of(sandwiches(0.0)), ranks)]
    assert names == ["calibration"]


@pytest.mark.parametrize(("gap", "name"), [(-0.5, "calibration"), (2.0, "standard_error")])
def test_bounds_that_cross_or_gape_are_findings(gap, name):
    assert [finding.name for finding in check_validation(bounds_of(sandwiches(gap)), {})] == [name]


def test_a_wide_gap_names_the_data_set_and_a_table_shows_all():
    chosen = [*sandwiches(1.0)[:2], *sandwiches(3.0)[:1], *sandwiches(0.5)[:1]]
    (finding,) = check_validation(bounds_of(chosen), {})
    assert "3.00 for data set 2" in finding.message
    tree = to_validation_tree(chosen, {}, {}, {"coords": {}, "dims": {}}, (finding,), {})
    assert to_text(tree).splitlines()[-2].split() == ["2", "-3.0", "0.0", "3.0", "8"]
    many = to_validation_tree(chosen * 5, {}, {}, {"coords": {}, "dims": {}}, (), {})
    said = to_text(many).splitlines()
    assert "(the widest 10 of 20 data sets)" in said[0]
    assert len(said) == 3 + 10
    assert said[3].split()[:2] == ["2", "-3.0"]


def sandwiches(gap):
    lower = pymc_hais.LogZEstimate(-3.0, 0.05, -3.1, -2.9)
    upper = pymc_hais.LogZEstimate(-3.0 + gap, 0.05, -3.1 + gap, -2.9 + gap)
    result = type("Result", (), {"estimate": lower, "rounds": [pymc_hais.estimators.Round(8, -3.0, 0.05)]})
    return [validation.Sandwich(result, upper, np.zeros((1, 1)))] * 10


def test_ranks_count_ties_by_half():
    draws, truth = {"a": np.array([[1.0, 2.0, 3.0, 3.0]])}, {"a": np.array([3.0])}
    np.testing.assert_allclose(rank(draws, truth)["a"], [0.75])


@pytest.mark.exhaustive
def test_the_gap_closes_as_temperatures_grow():
    gaps = [float(validated(n_temperatures=t, draws=100)["bounds"]["gap"].mean()) for t in (1, 32)]
    assert gaps[0] > 0.05
    assert abs(gaps[1]) < 0.3 * gaps[0]


@pytest.mark.slow
def test_a_model_with_dims_keeps_its_labels():
    tree = pymc_hais.validate(
        schools(), 3, draws=100, chains=2, n_temperatures=16, target_se=None, random_seed=1, progressbar=False
    )
    assert tree["ranks"]["z"].dims == ("data_set", "school")
    assert list(tree["ranks"]["school"].values) == list("ABCDEFGH")
    assert {"lower", "upper", "lower_se", "upper_se", "gap", "n_temperatures"} <= set(tree["bounds"].data_vars)


def potential():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1.0, observed=[1.0])
        pm.Potential("p", -(mu**2))
    return model


def without_data():
    with pm.Model() as model:
        pm.Normal("mu")
    return model


def improper():
    with pm.Model() as model:
        mu = pm.Flat("mu")
        pm.Normal("y", mu, 1.0, observed=[1.0])
    return model


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (potential, "pm.Potential `p`: no data can be drawn"),
        (without_data, "no observed variable"),
        (improper, "`mu`"),
    ],
)
def test_models_that_cannot_be_simulated_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        pymc_hais.validate(build(), 2, progressbar=False)


def test_a_number_of_data_sets_that_is_none_is_refused():
    with pytest.raises(ValueError, match="`n` must be a whole number of at least 1; got 0"):
        pymc_hais.validate(one_mean(), 0)
