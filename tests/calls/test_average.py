"""average: the numbers of draws, exact averages of conjugate models, and what cannot be averaged."""

import json

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.stats import multivariate_normal

import pymc_hais
from tests.calls.test_comparison import result

Y = np.array([0.3, 1.1, 0.7, 1.6])


def with_draws(value, draws, predictive=None, coords=None, **options):
    """Add posterior draws {name: (dims, values (2, n, ...))} to a result of the given log Z."""
    idata = result(value, **options)
    for group, found in (("posterior", draws), ("posterior_predictive", predictive)):
        if found is not None:
            variables = {name: (("chain", "draw", *dims), values) for name, (dims, values) in found.items()}
            idata[group] = xr.DataTree(xr.Dataset(variables, coords or {}))
    return idata


def constant(number, n=50, size=None):
    shape = (2, n) if size is None else (2, n, size)
    return (() if size is None else ("group",)), np.full(shape, float(number))


def probabilities(tree):
    return json.loads(tree["posterior"].attrs["model_probabilities"])


def conjugate(prior_mean, prior_sd, seed):
    """Anneal y ~ N(mu, 1), mu ~ N(m, s^2); return the result with the exact log Z and posterior mean and sd of mu."""
    with pm.Model():
        mu = pm.Normal("mu", prior_mean, prior_sd)
        pm.Deterministic("twice", 2.0 * mu)
        pm.Normal("y", mu, 1.0, observed=Y)
        idata = pm.sample_hais(500, random_seed=seed, progressbar=False)
    log_z = multivariate_normal(np.full(4, prior_mean), np.eye(4) + prior_sd**2).logpdf(Y)
    precision = 4.0 + prior_sd**-2
    return idata, log_z, (Y.sum() + prior_mean * prior_sd**-2) / precision, precision**-0.5


@pytest.mark.slow
def test_the_average_of_conjugate_models_is_exact():
    """E[mu | y] = sum p_i m_i, and the variance has that between the models added."""
    models = [conjugate(0.0, 1.0, 1), conjugate(3.0, 0.5, 2), conjugate(1.0, 0.3, 3)]
    idata, log_z, mean, sd = map(list, zip(*models, strict=True))
    prior = np.array([1.0, 4.0, 0.5])
    p = prior * np.exp(log_z)
    p, mean, sd = p / p.sum(), np.array(mean), np.array(sd)
    tree = pymc_hais.average(dict(zip("abc", idata, strict=True)), dict(zip("abc", prior, strict=True)), random_seed=1)
    found = probabilities(tree)
    np.testing.assert_allclose([found[name] for name in "abc"], p, atol=0.03)
    posterior = tree["posterior"]
    assert posterior.sizes == {"chain": 4, "draw": 500}
    # Functions of ArviZ take every variable for numbers: which model a draw is from is a coordinate.
    assert list(az.summary(tree).index) == ["mu", "twice"]
    mu, total = posterior["mu"].values.ravel(), np.sqrt(p @ (sd**2 + mean**2) - (p @ mean) ** 2)
    # Beside the draws, log Z has an error: of about 0.01 nats, times the distance of the means.
    assert abs(mu.mean() - p @ mean) <= 5.0 * (total / np.sqrt(mu.size) + 0.01 * np.ptp(mean))
    np.testing.assert_allclose(mu.std(), total, rtol=0.1)
    np.testing.assert_array_equal(posterior["twice"], 2.0 * posterior["mu"])
    chosen = posterior["model"].values.ravel()
    for name, one, mean_of_one, sd_of_one in zip("abc", idata, mean, sd, strict=True):
        assert abs(np.sum(chosen == name) - 2000 * found[name]) <= 1.0
        taken = mu[chosen == name]
        assert np.isin(taken, one["posterior"]["mu"]).all()
        assert abs(taken.mean() - mean_of_one) <= 7.0 * sd_of_one / np.sqrt(len(taken))


def test_draws_follow_the_probabilities_and_are_shuffled():
    results = {"a": with_draws(0.0, {"x": constant(1)}), "b": with_draws(np.log(3.0), {"x": constant(2)})}
    tree = pymc_hais.average(results, random_seed=3)
    x, model = tree["posterior"]["x"].values, tree["posterior"]["model"].values
    assert x.shape == (2, 50)
    assert np.sum(x == 1.0) == 25
    np.testing.assert_array_equal(np.where(x == 1.0, "a", "b"), model)
    assert 5 <= np.sum(x[0] == 1.0) <= 20
    again = pymc_hais.average(results, random_seed=3)
    xr.testing.assert_identical(again["posterior"].to_dataset(), tree["posterior"].to_dataset())
    # More draws than there are: none twice before all once.
    many = pymc_hais.average({**results, "b": with_draws(-900.0, {"x": constant(2)})}, draws=75, random_seed=1)
    assert many["posterior"].sizes == {"chain": 2, "draw": 75}
    assert np.all(many["posterior"]["x"] == 1.0)


def test_only_what_all_models_have_is_mixed_with_its_coordinates():
    coords = {"group": ["u", "v", "w"]}
    first = with_draws(0.0, {"x": constant(1, size=3), "own": constant(0)}, {"y": constant(1)}, coords)
    second = with_draws(0.0, {"x": constant(2, n=40, size=3)}, {"y": constant(2, n=40)}, coords)
    tree = pymc_hais.average({"a": first, "b": second}, random_seed=1)
    assert set(tree["posterior"].data_vars) == {"x"}
    assert tree["posterior"]["x"].sizes == {"chain": 2, "draw": 40, "group": 3}
    assert list(tree["posterior"]["group"].values) == ["u", "v", "w"]
    # Predictive draws belong to the same draws of the posterior.
    np.testing.assert_array_equal(tree["posterior_predictive"]["y"], tree["posterior"]["x"].isel(group=0))
    np.testing.assert_array_equal(tree["posterior_predictive"]["model"], tree["posterior"]["model"])
    without = with_draws(0.0, {"x": constant(2, size=3)}, None, coords)
    assert "posterior_predictive" not in pymc_hais.average({"a": first, "b": without}).children


def test_a_result_with_an_infinite_error_gives_no_draws():
    results = {
        "a": with_draws(0.0, {"x": constant(1)}),
        "b": with_draws(0.0, {"x": constant(2)}),
        "c": with_draws(5.0, {"x": constant(3)}, shortfall=np.inf),
    }
    with pytest.raises(ValueError, match="'c': an infinite error"):
        pymc_hais.average(results)
    tree = pymc_hais.average(results, allow_errors=True, random_seed=1)
    assert set(np.unique(tree["posterior"]["x"])) == {1.0, 2.0}
    assert probabilities(tree) == {"a": 0.5, "b": 0.5, "c": None}
    with pytest.raises(ValueError, match="infinite for all, or all but one"):
        pymc_hais.average({name: results[name] for name in "ac"}, allow_errors=True)


GOOD = with_draws(0.0, {"x": constant(1)})


@pytest.mark.parametrize(
    ("other", "options", "message"),
    [
        (with_draws(0.0, {"z": constant(1)}), {}, "share no variable.*'a' has x; 'b' has z"),
        (with_draws(0.0, {}), {}, "share no variable.*'a' has x; 'b' has none"),
        (
            with_draws(0.0, {"x": constant(1, size=3)}),
            {},
            r"`x` has another shape in 'a' \(a number\) .*3 \(group\)",
        ),
        (with_draws(0.0, {"x": constant(1)}, observed=np.zeros(2)), {}, "different observed data"),
        (with_draws(0.0, {"x": constant(1)}, findings=["weight_degeneracy"]), {}, "'b': weight_degeneracy"),
        (GOOD, {"draws": 0}, "`draws` must be a positive whole number; got 0"),
        (GOOD, {"draws": 2.5}, "`draws` must be a positive whole number"),
        (GOOD, {"random_seed": "a"}, "`random_seed` must be a whole number, .*got 'a'"),
        (GOOD, {"prior": {"a": 1.0}}, "`prior` must be a dictionary"),
    ],
)
def test_what_cannot_be_averaged_is_named(other, options, message):
    with pytest.raises(ValueError, match=message):
        pymc_hais.average({"a": GOOD, "b": other}, **options)


def test_coordinates_must_agree():
    one, other = (
        with_draws(0.0, {"x": constant(1, size=2)}, coords={"group": names}) for names in (["u", "v"], ["v", "u"])
    )
    with pytest.raises(ValueError, match="`x` has another coordinates"):
        pymc_hais.average({"a": one, "b": other})


def test_models_whose_coefficients_differ_in_length_average_what_is_named():
    first = with_draws(0.0, {"b": constant(1, size=2), "mu": constant(3)}, {"y": constant(1)})
    second = with_draws(np.log(3.0), {"b": constant(2, size=3), "mu": constant(4)}, {"y": constant(2)})
    results = {"a": first, "b": second}
    with pytest.raises(ValueError, match=r"`b` has another shape .* Pass as `var_names` the variables to average"):
        pymc_hais.average(results)
    tree = pymc_hais.average(results, var_names=["mu"], random_seed=1)
    assert set(tree["posterior"].data_vars) == {"mu"}
    # The averaged prediction is 1 with probability 1 / 4, and 2 with 3 / 4.
    assert float(tree["posterior_predictive"]["y"].mean()) == 1.75
    for wrong, message in (
        ("mu", "must be a list of names"),
        (["nu"], r"`var_names` has `nu`, which some of the models do not have"),
    ):
        with pytest.raises(ValueError, match=message):
            pymc_hais.average(results, var_names=wrong)


def test_models_that_share_a_prediction_alone_are_averaged():
    results = {
        "a": with_draws(0.0, {"u": constant(1)}, {"y": constant(1)}),
        "b": with_draws(0.0, {"v": constant(1)}, {"y": constant(2)}),
    }
    tree = pymc_hais.average(results, random_seed=1)
    assert set(tree["posterior"].data_vars) == set()
    assert float(tree["posterior_predictive"]["y"].mean()) == 1.5


def test_draws_may_come_beside_their_log_z_and_from_files(tmp_path):
    results = {"a": with_draws(0.0, {"x": constant(1.0)}), "b": with_draws(1.0, {"x": constant(2.0)})}
    expected = pymc_hais.average(results, random_seed=1)
    results["b"].to_netcdf(tmp_path / "b.nc")
    bare = results["b"].drop_nodes("log_marginal_likelihood")
    log_z = pymc_hais.log_marginal_likelihood(results["b"])
    for given in (tmp_path / "b.nc", (bare, log_z), (bare, (1.0, 0.05))):
        xr.testing.assert_equal(pymc_hais.average({**results, "b": given}, random_seed=1), expected)
    other = with_draws(1.0, {"x": constant(2.0)}, observed=np.zeros(3)).drop_nodes("log_marginal_likelihood")
    with pytest.raises(ValueError, match="different observed data"):
        pymc_hais.average({**results, "b": (other, 1.0)})
    with pytest.raises(ValueError, match=r"`b` has an estimate of log Z and no draws: .*\{'b': \(idata, log_z\)\}"):
        pymc_hais.average({**results, "b": 1.0})
