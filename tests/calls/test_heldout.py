"""Held-out rows against closed forms, whatever the kind of model and the engine."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import ordered
from scipy.special import gammaln
from scipy.stats import multivariate_normal, norm

import pymc_hais
import tests.statistical as statistical
from pymc_hais.calls import heldout
from pymc_hais.estimators import LogZEstimate, divide
from pymc_hais.results.heldout import HeldOut, of_rows
from pymc_hais.run.row_evidence import RowEvidence
from tests.marks import slow_but
from tests.quick import interrupt
from tests.rows import SIGMA, basis, exact_linear, generate, held_out, largest_score, linear, run_rows

# Generative models ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    phi = basis(6, 4)
    x = generate(phi, 100)
    return phi, x, held_out(linear(phi), {"x": x}, cores=2)


@pytest.mark.slow
def test_linear_gaussian_rows_are_exact(small):
    phi, x, result = small
    exact = exact_linear(phi, x)
    assert largest_score(result, exact) <= statistical.threshold(100)
    assert abs(float(result["mean"]) - exact.mean()) < 0.05
    # The rows' errors are honest on average: the mean square of 100 scores is a chi-square over 100.
    scores = (result["value"].values - exact) / result["se"].values
    assert 0.5 < np.mean(scores**2) < 1.8
    # All of this sees a noise that is a fifth too large.
    wrong = exact_linear(phi, x, 1.2 * SIGMA)
    assert largest_score(result, wrong) > statistical.threshold(100)


@pytest.mark.exhaustive
def test_rows_do_not_toss_coins_about_where_their_particles_start():
    # Were each particle's part of the mixture a coin's choice, a row's error would be the coin's at least.
    phi = basis(8, 3)
    x = generate(phi, 100)
    result = held_out(linear(phi), {"x": x}, reference="fitted")
    coin = np.sqrt(0.1 / 0.9 / 200)
    assert np.sqrt(np.mean((result["value"].values - exact_linear(phi, x)) ** 2)) < 0.5 * coin
    assert np.sqrt(np.mean(result["se"].values ** 2)) < 0.5 * coin
    assert largest_score(result, exact_linear(phi, x)) <= statistical.threshold(100)


@pytest.mark.slow
def test_two_errors_are_kept_apart(small):
    _, _, result = small
    value, se = result["value"].values, result["se"].values
    # A scouting round told how long each row's one round must be; no row is run again because of what it says.
    assert np.mean(se <= 0.1) > 0.8
    assert np.sqrt(np.mean(se**2)) <= 0.1
    np.testing.assert_allclose(float(result["sem"]), value.std(ddof=1) / 10.0)
    # At least half the variance by which the log of an unbiased estimate errs low, at most what adds up to the errors.
    assert np.mean(se**2) / 4 < float(result["mcse"]) < np.mean(se)
    assert result.attrs["n_gradients"] > 0
    assert result.attrs["engine"] == "jax"
    assert result.sizes["row"] == 100


@pytest.mark.exhaustive
def test_rows_without_a_target_for_their_error_may_start_from_a_fit():
    phi = basis(6, 4)
    x = generate(phi, 5)
    result = held_out(linear(phi), {"x": x}, reference="fitted", target_se=None)
    assert largest_score(result, exact_linear(phi, x)) <= statistical.threshold(5)


@pytest.mark.exhaustive
def test_the_error_of_the_mean_is_made_of_the_rows_own():
    phi = basis(6, 4)
    rows = {"x": generate(phi, 6)}
    evidence = run_rows(linear(phi), rows)
    tree = held_out(linear(phi), rows)
    estimates = [row.estimate for row in evidence.rows]
    np.testing.assert_array_equal(tree["value"], [estimate.value for estimate in estimates])
    np.testing.assert_array_equal(tree["se"], [estimate.se for estimate in estimates])
    mc_se, shortfall = (np.array([getattr(one, name) for one in estimates]) for name in ("mc_se", "shortfall"))
    # Independent errors of the rows; half the variance, and what may be missing, which do not average out.
    bias = np.mean(mc_se**2) / 2 + np.mean(shortfall)
    np.testing.assert_allclose(float(tree["mcse"]), np.hypot(np.sqrt(np.sum(mc_se**2)) / 6, bias))


@pytest.mark.slow
def test_same_bits_however_many_threads_and_rows_are_in_flight(small, monkeypatch):
    phi, x, result = small
    monkeypatch.setattr("pymc_hais.run.populations._PARTICLES", 1000)
    few = held_out(linear(phi), {"x": x}, cores=1)
    np.testing.assert_array_equal(few["value"].values, result["value"].values)


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("options", "sharp"),
    [
        pytest.param({}, 1.0, marks=pytest.mark.slow, id="default"),
        pytest.param({"chains": 2, "draws": 100, "reference": "prior"}, 1.0, marks=pytest.mark.exhaustive, id="chains"),
        # A round with fewer particles than draws.
        pytest.param({"chains": 4, "draws": 1000, "reference": "prior"}, 300.0, marks=pytest.mark.slow, id="fewer"),
    ],
)
def test_one_row_is_sample_hais_to_the_bit(options, sharp, monkeypatch):
    phi, found = sharp * basis(6, 4), []
    row = generate(phi, 1)
    monkeypatch.setattr(heldout, "of_rows", lambda rows, *rest: found.extend(rows) or of_rows(rows, *rest))
    tree = held_out(linear(phi), {"x": row}, **options)
    (ours,) = found
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 1.0, shape=4)
        pm.Normal("x", phi @ a, SIGMA, observed=row[0])
    settings = {"draws": 200, "chains": 1, "random_seed": 1, "progressbar": False, **options}
    idata = pymc_hais.sample_hais(model=model, **settings)
    attrs, theirs = idata["posterior"].attrs, pymc_hais.log_marginal_likelihood(idata)
    assert (attrs["particles"] < attrs["draws"]) == (sharp > 1.0)
    # But for the findings, which the rows' own function makes.
    assert replace(theirs, findings=()) == ours.estimate
    assert (float(tree["value"][0]), float(tree["se"][0])) == (theirs.value, theirs.se)


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize(("phase", "options"), [("Scouting", {}), ("5 rows", {"target_se": None})])
def test_an_interrupt_leaves_nothing_of_several_rows(phase, options, monkeypatch):
    """Today: neither a scouting round nor an unfinished reported one is kept."""
    interrupt(monkeypatch, phase)
    phi = basis(6, 4)
    with pytest.raises(KeyboardInterrupt):
        held_out(linear(phi), {"x": generate(phi, 5)}, reference="prior", **options)


@pytest.mark.slow
def test_whoever_interrupts_the_rows_of_an_unnormalised_model_does_not_wait_for_log_z(monkeypatch):
    with pm.Model() as model:
        x = pm.Flat("x")
        hidden = pm.Normal("hidden", 0.0, 1.0)
        pm.Potential("energy", -0.5 * (x - hidden) ** 2)
    interrupt(monkeypatch, "5 rows")  # which have all been scouted
    monkeypatch.setattr("pymc_hais.calls.heldout.sample_hais", lambda **_: pytest.fail("log Z has begun"))
    with pytest.raises(KeyboardInterrupt):
        held_out(model, {"x": np.linspace(-1.0, 1.0, 5)})


@pytest.mark.exhaustive
def test_rows_may_start_anywhere():
    phi = basis(6, 4)
    x = generate(phi, 5)
    result = held_out(linear(phi), {"x": x}, reference="gaussian", draws=100)
    assert result.attrs["reference"] == "a Gaussian"
    assert largest_score(result, exact_linear(phi, x)) <= statistical.threshold(5)


@pytest.mark.exhaustive
def test_the_report_s_size_within_four_standard_errors():
    # 100 rows, 36 latents, 200 particles: under a normal law one of 100 scores is beyond 4 once in 160 seeds.
    phi = basis(36, 36)
    x = generate(phi, 100)
    result, exact = held_out(linear(phi), {"x": x}), exact_linear(phi, x)
    assert largest_score(result, exact) < 4.0
    assert abs(float(result["mean"]) - exact.mean()) < 0.05


@pytest.mark.exhaustive
def test_without_causes_the_weights_are_constant():
    # Phi = 0: p(x) = N(x; 0, sigma^2 I), Eq. 41 of the report.
    x = 0.3 * np.random.default_rng(0).normal(size=(5, 3))
    result = held_out(linear(np.zeros((3, 2))), {"x": x})
    np.testing.assert_allclose(result["value"], norm(0.0, SIGMA).logpdf(x).sum(axis=1), rtol=1e-10)
    assert np.all(result["se"].values < 1e-12)
    np.testing.assert_allclose(result["ess"], 200.0)


@pytest.mark.exhaustive
def test_counts_that_are_observed_from_a_data_container_in_several_chains():
    y = np.array([[1, 2], [3, 4], [0, 9]])
    with pm.Model() as model:
        counts = pm.Data("counts", np.zeros(2, dtype=int))
        rate = pm.Gamma("rate", 2.0, 1.0)
        pm.Poisson("y", rate, observed=counts)
    # Gamma(2, 1) prior, two counts of sum S: Gamma(2 + S) / Gamma(2) / 3^(2 + S) / prod y!.
    total = y.sum(axis=1)
    exact = gammaln(2 + total) - (2 + total) * np.log(3.0) - gammaln(y + 1.0).sum(axis=1)
    result = held_out(model, {"y": y}, chains=2, draws=100, reference="prior")
    assert largest_score(result, exact) <= statistical.threshold(3)


@pytest.mark.slow
def test_covariates_of_a_row_are_data_too():
    rng = np.random.default_rng(3)
    size, x = np.array([1.0, 2.0, 3.0]), rng.normal(size=3)
    with pm.Model() as model:
        scale = pm.Data("scale", 1.0)
        a = pm.Normal("a", 0.0, 1.0)
        pm.Normal("x", scale * a, 0.5, observed=0.0)
    result = held_out(model, {"x": x, "scale": size})
    assert largest_score(result, norm(0.0, np.sqrt(size**2 + 0.25)).logpdf(x)) <= statistical.threshold(3)


def test_fixed_parameters_need_no_annealing():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0)
        pm.Normal("x", mu, 2.0, observed=0.0)
    rows = np.array([0.0, 1.0, 5.0])
    result = held_out(pm.do(model, {"mu": 1.0}), {"x": rows})
    np.testing.assert_allclose(result["value"], norm(1.0, 2.0).logpdf(rows), rtol=1e-8)
    assert np.all(result["se"].values == 0.0)


# Engines: that rows together are the rows one by one stands in engines/test_populations.py -----------------


@pytest.mark.every(2)
@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", ["numba", "c"])
def test_every_backend_gives_the_same_rows(backend):
    phi = basis(3, 2)
    x = generate(phi, 3)
    by_jax, other = (held_out(linear(phi), {"x": x}, backend=name, reference="prior") for name in ("jax", backend))
    np.testing.assert_allclose(other["value"], by_jax["value"], rtol=1e-6)


# Unnormalised models -------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_a_complete_product_of_experts_has_one_error_for_all_rows():
    filters = np.array([[1.0, 0.3, 0.0], [0.0, 1.2, -0.4], [0.2, 0.0, 0.8]])
    with pm.Model() as model:
        x = pm.Flat("x", shape=3)
        pm.Potential("experts", -pt.abs(pt.dot(filters, x)).sum())
    rows = np.random.default_rng(0).normal(size=(20, 3))
    # u = Phi x: Z is the product of three integrals of exp(-|u|), each 2, over |det Phi|.
    log_z = 3 * np.log(2.0) - np.linalg.slogdet(filters)[1]
    exact = -np.abs(rows @ filters.T).sum(axis=1) - log_z
    result = held_out(model, {"x": rows}, sample_kwargs={"chains": 2})
    error = result["value"].values - exact
    np.testing.assert_allclose(error, error[0], atol=1e-9)
    se = float(result["log_z_se"])
    assert 0 < abs(error[0]) <= statistical.threshold() * se
    assert np.all(result["se"].values == 0.0)
    assert float(result["mcse"]) == se


@pytest.mark.exhaustive
def test_a_free_variable_s_density_is_in_its_own_space():
    with pm.Model() as model:
        x = pm.HalfFlat("x")
        pm.Potential("rate", -2.0 * x)
    rows = np.array([0.5, 1.0, 4.0])
    result = held_out(model, {"x": rows})
    error = result["value"].values - (np.log(2.0) - 2.0 * rows)
    assert np.max(np.abs(error)) <= statistical.threshold() * float(result["log_z_se"])


@pytest.mark.slow
def test_hidden_variables_are_integrated_out_of_every_row():
    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        hidden = pm.Normal("hidden", 0.0, 1.0)
        pm.Potential("energy", -0.5 * ((x - hidden) ** 2).sum())
    rows = np.random.default_rng(0).normal(size=(4, 2))
    # x given hidden is N(hidden, I): together x ~ N(0, I + 1 1').
    exact = multivariate_normal(np.zeros(2), np.eye(2) + 1.0).logpdf(rows)
    result = held_out(model, {"x": rows})
    se = np.hypot(result["se"].values, float(result["log_z_se"]))
    assert np.all(np.abs(result["value"].values - exact) <= statistical.threshold(4) * se)


@pytest.mark.every(2)
@pytest.mark.exhaustive
@pytest.mark.parametrize("reference", ["prior", "fitted"])
def test_a_hidden_prior_s_mass_is_in_the_rows_as_it_is_in_log_z(reference):
    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        # Half of the mass is left: the other order has none.
        hidden = pm.Normal("hidden", 0.0, 1.0, shape=2, transform=ordered, initval=[-1.0, 1.0])
        pm.Potential("energy", -0.5 * ((x - hidden.sum()) ** 2).sum())
    rows = np.random.default_rng(0).normal(size=(4, 2))
    # The energy does not mind the order: x ~ N(0, I + 2 1 1').
    exact = multivariate_normal(np.zeros(2), np.eye(2) + 2.0).logpdf(rows)
    result = held_out(model, {"x": rows}, reference=reference, draws=100)
    errors = result["value"].values - exact
    assert np.all(np.abs(errors) <= statistical.threshold(4) * np.hypot(result["se"].values, float(result["mcse"])))
    assert np.max(np.abs(errors)) < 0.5 * np.log(2.0)


# Numbers -> labels ---------------------------------------------------------------------------------------


def tilted_mean():
    """A hidden mean with a tilt: N(0, 1) exp(z) is exp(1/2) N(1, 1), so that x ~ N(1, 2)."""
    with pm.Model() as model:
        z = pm.Normal("z", 0.0, 1.0)
        pm.Potential("tilt", 1.0 * z)
        pm.Normal("x", z, 1.0, observed=0.0)
    return model, norm(1.0, np.sqrt(2.0)).logpdf


def half_a_mean():
    """A hidden mean of which a potential leaves the positive half: of two normals' sum given one's sign."""
    with pm.Model() as model:
        z = pm.Normal("z", 0.0, 1.0)
        pm.Potential("positive", pt.switch(z > 0.0, 0.0, -np.inf))
        pm.Normal("x", z, 1.0, observed=0.0)
    # The posterior of z is N(x / 2, 1 / 2).
    return model, lambda x: np.log(2.0) + norm(0.0, np.sqrt(2.0)).logpdf(x) + norm.logcdf(x / np.sqrt(2.0))


def tilted_switch():
    with pm.Model() as model:
        s = pm.Bernoulli("s", 0.3)
        pm.Potential("tilt", 2.0 * s + 5.0)
        pm.Normal("x", 3.0 * s, 1.0, observed=0.0)
    p = 0.3 * np.exp(2.0) / (0.7 + 0.3 * np.exp(2.0))
    return model, lambda x: np.log((1 - p) * norm.pdf(x) + p * norm.pdf(x, 3.0))


@pytest.mark.slow
@pytest.mark.parametrize("build", slow_but({tilted_switch}, [tilted_mean, half_a_mean, tilted_switch], {half_a_mean}))
def test_rows_are_divided_by_the_mass_that_a_potential_leaves(build):
    model, exact = build()
    rows = np.array([-0.7, 0.2, 1.5, 2.4])
    result = held_out(model, {"x": rows})
    errors = result["value"].values - exact(rows)
    assert np.all(np.abs(errors) <= statistical.threshold(4) * np.hypot(result["se"].values, float(result["log_z_se"])))
    assert np.max(np.abs(errors)) < 0.25


def test_neither_the_common_error_nor_what_may_be_missing_averages_away():
    zeros = np.zeros(100)
    assert HeldOut(zeros, zeros, zeros, zeros, 0.0, common_se=0.2).mcse == pytest.approx(0.2)
    assert HeldOut(zeros, zeros + 0.1, zeros, zeros, 0.01).mcse == pytest.approx(np.hypot(0.01, 0.005))
    short = HeldOut(zeros, zeros + 0.14, zeros, zeros, 0.01, shortfall=zeros + 0.04)
    assert short.mcse == pytest.approx(np.hypot(0.01, 0.005 + 0.04))
    # What is left of the rows' own errors averages away, the error of the mass that divides them all does not.
    own, mass = LogZEstimate(-3.0, 0.1, -3.2, -2.8), LogZEstimate(-0.7, 0.05, -0.8, -0.6)
    rows = [RowEvidence(divide(own, mass), SimpleNamespace(n_families=100.0, pareto_k=0.0), ())] * 100
    result = of_rows(rows, (), mass)
    np.testing.assert_allclose(result.se, np.hypot(0.1, 0.05))
    np.testing.assert_allclose(result.mcse, np.sqrt(0.01**2 + 0.05**2 + (0.5 * (0.1**2 + 0.05**2)) ** 2))
    assert np.isnan(HeldOut(zeros[:1], zeros[:1], zeros[:1], zeros[:1], 0.0).sem)
