"""Calls on models with discrete variables: what a result holds, and the arguments that all models take.

Estimates are held to four of their standard errors: a false alarm in 16,000 a test where the errors are normal.
"""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy.stats import norm, poisson

import pymc_hais
from pymc_hais import Hamiltonian
from tests import discrete_truth as truth
from tests.front_door import assert_right, estimate

WEIGHTS, MEANS, SDS = np.array([2.0, 5.0]) / 7.0, np.array([-2.0, 0.5]), np.array([0.5, 1.0])
Y = np.array([-1.8, 0.2, 4.0])

# What a result holds -------------------------------------------------------------------------------------


def labelled():
    with pm.Model(coords={"place": list("abc"), "year": [10, 20]}) as model:
        base = pm.DiscreteUniform("base", 2, 5)
        mu = pm.Normal("mu", 0.0, 1.0, dims="place")
        z = pm.Bernoulli("z", 0.3, dims=("place", "year"))
        kind = pm.Categorical("kind", p=[0.2, 0.5, 0.3], dims="year")
        pm.Deterministic("total", z.sum(axis=1) + base, dims="place")
        pm.Deterministic("chosen", mu[kind], dims="year")
        y = pm.Data("data", np.arange(6).reshape(3, 2) * 0.3, dims=("place", "year"))
        pm.Normal("y", mu[:, None] + z + 0.2 * base, 1.0, observed=y, dims=("place", "year"))
    return model


@pytest.fixture(scope="module")
def idata():
    options = {"kernel": Hamiltonian(step_size=0.5), "schedule": "linear", "n_temperatures": 20, "target_se": None}
    return estimate(labelled(), draws=200, idata_kwargs={"log_likelihood": True}, **options)[1]


def test_names_dims_and_types(idata):
    posterior = idata["posterior"].to_dataset()
    assert {name: variable.dims[2:] for name, variable in posterior.items()} == {
        "base": (), "mu": ("place",), "z": ("place", "year"), "kind": ("year",), "total": ("place",),
        "chosen": ("year",),
    }  # fmt: skip
    assert list(posterior["place"].values) == list("abc")
    model = labelled()
    for name, variable in posterior.items():
        assert variable.dtype == model[name].dtype, name
    assert set(np.unique(posterior["z"])) == {0, 1}
    assert (posterior["base"].min(), posterior["base"].max()) == (2, 5)


def test_deterministics_are_those_of_the_draws(idata):
    posterior = idata["posterior"].to_dataset()
    np.testing.assert_array_equal(posterior["total"], posterior["z"].sum("year") + posterior["base"])
    chosen = np.take_along_axis(posterior["mu"].values, posterior["kind"].values, axis=2)
    np.testing.assert_array_equal(posterior["chosen"], chosen)


@pytest.mark.slow
def test_log_likelihood_and_what_arviz_and_pymc_make_of_the_draws(idata):
    posterior = idata["posterior"].to_dataset()
    mean = (posterior["mu"] + 0.2 * posterior["base"] + posterior["z"]).transpose("chain", "draw", "place", "year")
    expected = norm.logpdf(np.arange(6).reshape(3, 2) * 0.3, mean, 1.0)
    np.testing.assert_allclose(idata["log_likelihood"]["y"], expected)
    summary = az.summary(idata, var_names=["z", "kind", "total"], kind="stats")
    assert np.isfinite(summary["mean"].astype(float)).all()
    with labelled():
        predicted = pm.sample_posterior_predictive(idata, progressbar=False, random_seed=1)
    assert predicted["posterior_predictive"]["y"].shape == (2, 200, 3, 2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_types_are_those_of_pm_sample(idata):
    with labelled():
        theirs = pm.sample(20, tune=20, chains=1, progressbar=False, compute_convergence_checks=False)["posterior"]
    ours = idata["posterior"]
    assert {name: one.dtype for name, one in ours.items()} == {name: one.dtype for name, one in theirs.items()}
    assert {name: one.dims for name, one in ours.items()} == {name: one.dims for name, one in theirs.items()}


# Calls ---------------------------------------------------------------------------------------------------


def small():
    return truth.build_mixture(Y, WEIGHTS, MEANS, SDS)


SMALL_LOG_Z = truth.log_evidence_mixture(Y, WEIGHTS, MEANS, SDS)


def test_the_same_seed_gives_the_same_bits_and_a_second_call_compiles_nothing():
    model = small()
    options = {"draws": 1000, "chains": 2, "target_se": None}
    first, second, other = (estimate(model, **options, **own)[1] for own in ({}, {"cores": 1}, {"random_seed": 2}))
    assert second["posterior"].attrs["compile_time"] == 0.0
    assert pymc_hais.log_marginal_likelihood(first) == pymc_hais.log_marginal_likelihood(second)
    np.testing.assert_array_equal(first["posterior"]["z"], second["posterior"]["z"])
    assert other["posterior"].attrs["compile_time"] == 0.0
    assert not np.array_equal(first["posterior"]["z"], other["posterior"]["z"])


@pytest.mark.slow
def test_new_data_are_not_the_old_ones():
    with pm.Model() as model:
        seen = pm.Data("seen", [2, 1])
        n = pm.Poisson("n", [5.0, 2.0])
        pm.Binomial("y", n, 0.3, observed=seen)
    first, _ = estimate(model, n_temperatures=200, target_se=None)
    pm.set_data({"seen": [0, 3]}, model=model)
    second, _ = estimate(model, n_temperatures=200, target_se=None)
    # Of n events each is seen with probability 0.3: what is seen is Poisson too.
    old, new = (poisson.logpmf(y, [1.5, 0.6]).sum() for y in ([2, 1], [0, 3]))
    assert_right(first, old)
    assert_right(second, new)
    assert abs(second.value - old) > 20 * second.se


@pytest.mark.exhaustive
def test_comparison_of_models_with_and_without_discrete_variables():
    with pm.Model() as one_component:
        pm.Normal("unused")
        pm.Normal("y", MEANS[1], SDS[1], observed=Y)
    runs = {"two": estimate(small())[1], "one": estimate(one_component, random_seed=2)[1]}
    table = pymc_hais.compare(runs)
    assert table.loc["two", "log_z"] - table.loc["one", "log_z"] == pytest.approx(
        SMALL_LOG_Z - norm.logpdf(Y, MEANS[1], SDS[1]).sum(), abs=4 * table["se_bayes_factor"].max() + 1e-9
    )


@pytest.mark.exhaustive
def test_the_way_back_bounds_log_z():
    found, idata = estimate(small(), reference="prior", estimators=["bidirectional"], target_se=0.02)
    table = pymc_hais.estimates(idata)
    assert list(table.index) == ["annealed", "reverse"]
    assert table["agrees"].all()
    assert abs(table.loc["reverse", "value"] - SMALL_LOG_Z) <= 4 * table.loc["reverse", "se"]
    assert_right(found, SMALL_LOG_Z)


@pytest.mark.exhaustive
def test_numba():
    found, idata = estimate(small(), backend="numba", draws=1000)
    assert idata["posterior"].attrs["engine"] == "numba"
    assert_right(found, SMALL_LOG_Z)


@pytest.mark.exhaustive
def test_any_pytensor_mode():
    options = {"draws": 100, "n_temperatures": 8, "schedule": "linear", "target_se": None}
    found, idata = estimate(small(), compile_kwargs={"mode": "FAST_COMPILE"}, **options)
    assert idata["posterior"].attrs["engine"] == "python"
    assert_right(found, SMALL_LOG_Z)
