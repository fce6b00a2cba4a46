"""bridge(model, idata) and sample_hais(reference=idata): draws of another sampler, once they are this model's."""

import functools

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_hais
from pymc_hais.density import build_layout, build_outputs, build_unconstrain
from tests.quick import QUICK, TRUTH, hierarchy, one_mean, schools, shared

MEAN, SD = 3.0 * 9.0 / 28.0 * np.mean([1.2, 0.3, 2.5]), np.sqrt(9.0 / 28.0)


def tree_of(groups):
    return xr.DataTree.from_dict(groups)


@functools.cache
def exact_draws(n_draws=500):
    """Draw from the exact posterior of ``one_mean``."""
    mu = np.random.default_rng(0).normal(MEAN, SD, size=(4, n_draws))
    return tree_of(
        {
            "/posterior": xr.Dataset({"mu": (("chain", "draw"), mu)}),
            "/observed_data": xr.Dataset({"y": (("y_dim_0",), [1.2, 0.3, 2.5])}),
        }
    )


def test_the_bridge_finds_the_truth():
    estimate = pymc_hais.bridge(shared(one_mean), exact_draws(), random_seed=1)
    assert estimate.estimator == "bridge"
    assert abs(estimate.value - TRUTH) < 4.5 * estimate.se < 0.05
    assert not estimate.findings


def test_a_model_without_free_variables_is_not_told_of_a_kernel():
    """No kernel was passed, so that none is to be left out."""
    with pm.Model() as model:
        pm.Normal("y", 0.0, 1.0, observed=[1.2, 0.3, 2.5])
    with pytest.raises(ValueError, match=r"no free random variables.*model\.logp\(\) itself"):
        pymc_hais.bridge(model, exact_draws())


@pytest.mark.slow
def test_draws_of_a_run_of_ours_go_in():
    model, truth = hierarchy()
    idata = pm.sample_hais(**(QUICK | {"draws": 500}), random_seed=4, model=model)
    estimate = pymc_hais.bridge(model, idata, random_seed=1)
    assert abs(estimate.value - truth) < 4.5 * estimate.se + 0.02


def test_a_run_from_given_draws_needs_no_pilot_from_the_prior():
    idata = pm.sample_hais(**QUICK, reference=exact_draws(), random_seed=1, model=shared(one_mean))
    estimate = pymc_hais.log_marginal_likelihood(idata)
    assert abs(estimate.value - TRUTH) < 4.5 * estimate.se
    assert idata["posterior"].attrs["reference"] == "the prior (10%) and a Gaussian fitted to the draws given (90%)"


@pytest.mark.parametrize(
    "sample", [pymc_hais.bridge, lambda model, idata: pm.sample_hais(reference=idata, model=model)]
)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"/posterior": xr.Dataset({"tau": (("chain", "draw"), np.zeros((2, 90)))})},
            "another model: .* no draws of `mu`",
        ),
        (
            {"/posterior": xr.Dataset({"mu": (("chain", "draw", "k"), np.zeros((2, 90, 3)))})},
            r"another model: its `mu` has shape \(3,\), the model's \(\)",
        ),
        (
            {"/observed_data": xr.Dataset({"y": (("i",), [1.2, 0.3, 9.9])})},
            "other data: the values of its observed `y`",
        ),
        ({"/observed_data": xr.Dataset({"z": (("i",), [1.2])})}, "no observed `y`, but `z`"),
        ({"/posterior": xr.Dataset({"mu": (("chain", "draw"), np.zeros((2, 9)))})}, "9 draws a chain: at least 50"),
        ({"/posterior": xr.Dataset({"mu": (("chain", "draw"), np.full((2, 90), np.nan))})}, "`mu` that are NaN"),
        ({"/posterior": None}, "must be a DataTree with a `posterior` group"),
    ],
)
def test_draws_of_something_else_are_refused_by_name(sample, change, message):
    groups = {f"/{name}": group.to_dataset() for name, group in exact_draws().children.items()} | change
    idata = tree_of({name: group for name, group in groups.items() if group is not None})
    with pytest.raises(ValueError, match=message):
        sample(one_mean(), idata)


def test_what_is_no_result_at_all_is_refused():
    with pytest.raises(ValueError, match=r"`idata` must be a DataTree with a `posterior` group.* got dict"):
        pymc_hais.bridge(one_mean(), {"mu": 1})


def test_chains_in_different_modes_are_an_error():
    shift = xr.DataArray([0.0, 0.0, 9.0, 9.0], dims="chain")
    mu = exact_draws()["posterior"]["mu"] + shift
    apart = tree_of({"/posterior": xr.Dataset({"mu": mu})})
    estimate = pymc_hais.bridge(shared(one_mean), apart, random_seed=1)
    assert any(finding.name == "poor_draws" and "R-hat" in finding.message for finding in estimate.findings)
    assert not estimate.is_trustworthy


# To the unconstrained space and back -------------------------------------------------------------------------


def every_transform():
    with pm.Model(coords={"g": range(3)}) as model:
        a = pm.HalfNormal("a")
        pm.Uniform("b", 0.0, 1.0 + a)
        pm.Dirichlet("s", np.ones(3))
        pm.Normal("o", 0.0, 1.0, shape=4, transform=pm.distributions.transforms.ordered, initval=np.arange(4.0))
        pm.LKJCholeskyCov("c", n=2, eta=1.0, sd_dist=pm.HalfNormal.dist(1.0))
        pm.ZeroSumNormal("z", dims="g")
        pm.Normal("x", a, 1.0, dims="g")
    return model


@pytest.mark.parametrize("build", [every_transform, schools])
def test_positions_come_back_from_what_a_posterior_group_holds(build):
    model = build()
    layout = build_layout(model)
    positions = np.random.default_rng(0).normal(size=(7, layout.n_dims))
    named = build_outputs(model, layout, list(layout.owners))(positions)
    unconstrain = build_unconstrain(model, layout, {name: values.shape[1:] for name, values in named.items()})
    np.testing.assert_allclose(unconstrain(named), positions, rtol=1e-9, atol=1e-9)


def regression(shared):
    """Eight coefficients whose columns share a part of their variance: the posterior's correlations grow with it."""
    rng = np.random.default_rng(0)
    x = np.sqrt(1 - shared) * rng.normal(size=(50, 8)) + np.sqrt(shared) * rng.normal(size=(50, 1))
    y = x.sum(axis=1) + rng.normal(size=50)
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 2.0, shape=8)
        pm.Normal("y", x @ b, 1.0, observed=y)
    precision = x.T @ x + np.eye(8) / 4.0
    mean = np.linalg.solve(precision, x.T @ y)
    return model, mean, precision


def draws_of(values, n_chains):
    values = values.reshape(n_chains, -1, values.shape[-1])
    return tree_of({"/posterior": xr.Dataset({"b": (("chain", "draw", "k"), values)})})


@pytest.mark.few(3)
@pytest.mark.every(2)
@pytest.mark.parametrize(("shared", "n_chains"), [(0.0, 1), (0.5, 1), (0.9, 4)])
def test_draws_of_a_mean_field_approximation_are_not_of_the_posterior(shared, n_chains):
    """The Gaussian with independent coefficients nearest to the posterior has its mean and its precisions' diagonal."""
    model, mean, precision = regression(shared)
    rng = np.random.default_rng(1)
    draws = mean + rng.normal(size=(2000, 8)) / np.sqrt(np.diag(precision))
    found = pymc_hais.bridge(model, draws_of(draws, n_chains), random_seed=1).findings
    (finding,) = (one for one in found if one.severity == "error")
    assert finding.name == "poor_draws"
    assert "not of this model's posterior" in finding.message


@pytest.mark.parametrize(("shared", "n_chains"), [(0.0, 1), (0.9, 1), (0.9, 4)])
def test_exact_draws_are(shared, n_chains):
    model, mean, precision = regression(shared)
    normal = np.random.default_rng(1).normal(size=(2000, 8))
    draws = mean + np.linalg.solve(np.linalg.cholesky(precision).T, normal.T).T
    assert not pymc_hais.bridge(model, draws_of(draws, n_chains), random_seed=1).findings


def test_draws_of_a_posterior_that_is_no_fit_to_be_are():
    """A mixture far from any Gaussian or Student-t, by exact draws: what is tested is not how good the fit is."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0)
        pm.Potential("second", pm.math.logaddexp(np.log(0.7), np.log(0.3) + 3.0 * x))
    # N(0, 1) exp(3 x) is exp(4.5) N(3, 1).
    rng = np.random.default_rng(2)
    second = rng.uniform(size=(4, 1000)) < 0.3 * np.exp(4.5) / (0.7 + 0.3 * np.exp(4.5))
    draws = tree_of({"/posterior": xr.Dataset({"x": (("chain", "draw"), rng.normal(size=(4, 1000)) + 3.0 * second)})})
    estimate = pymc_hais.bridge(model, draws, random_seed=1)
    assert not estimate.findings
    assert abs(estimate.value - np.log(0.7 + 0.3 * np.exp(4.5))) < 4.5 * estimate.se < 0.1
