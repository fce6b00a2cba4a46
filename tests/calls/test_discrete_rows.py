"""Held-out rows of models with discrete latent variables, against sums over all their states."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import logsumexp
from scipy.stats import norm, poisson

import pymc_hais
import tests.statistical as statistical
from examples import rbm
from pymc_hais import FlatDiscrete, Gibbs, Hamiltonian
from tests import discrete_truth as truth
from tests.rows import held_out, largest_score

#: Nats; a sum over all states has no other error.
ROUNDING = 1e-9
WEIGHTS, MEANS, SDS = np.array([0.2, 0.3, 0.5]), np.array([-2.0, 0.0, 3.0]), np.array([0.5, 1.0, 2.0])
TRANSITION = np.array([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.1, 0.1, 0.8]])


# Generative models ---------------------------------------------------------------------------------------


def sparse_rows(n):
    """Rows of binary sparse coding, the model of one of them, and what each is worth."""
    rng = np.random.default_rng(0)
    basis = rng.normal(size=(6, 8))
    y = (rng.random((n, 8)) < 0.3) @ basis.T + 0.5 * rng.normal(size=(n, 6))
    exact = np.array([truth.log_evidence_sparse_coding(row, basis, 0.3, 0.5) for row in y])
    return truth.build_sparse_coding(np.zeros(6), basis, 0.3, 0.5), y, exact


@pytest.mark.every(2)
@pytest.mark.exhaustive
@pytest.mark.parametrize("reference", ["auto", "gaussian"])
def test_binary_sparse_coding(reference):
    model, y, exact = sparse_rows(40)
    result = held_out(model, {"y": y}, reference=reference)
    assert largest_score(result, exact) <= statistical.threshold(40)
    assert abs(float(result["mean"]) - exact.mean()) < 4 * float(result["mcse"])
    assert float(result["mcse"]) < 0.05
    # The rows' errors are honest on average: the mean square of 40 scores is a chi-square over 40.
    scores = (result["value"].values - exact) / result["se"].values
    assert 0.3 < np.mean(scores**2) < 2.2
    # All of this sees another order of the rows.
    assert largest_score(result, exact[::-1]) > statistical.threshold(40)


@pytest.mark.slow
def test_rows_take_kernels_of_sites():
    model, y, exact = sparse_rows(5)
    assert largest_score(held_out(model, {"y": y}, kernel=Gibbs()), exact) <= statistical.threshold(5)


@pytest.mark.slow
def test_one_row_is_sample_hais():
    model, y, exact = sparse_rows(1)
    # Its 256 states are summed; the density that PyMC compiles differs from NumPy's by 1e-8.
    np.testing.assert_allclose(held_out(model, {"y": y})["value"].values, exact, atol=1e-6)


def mixture(n, has_spread):
    with pm.Model() as model:
        z = pm.Categorical("z", p=WEIGHTS)
        x = pm.Normal("x") if has_spread else 0.0
        pm.Normal("y", pt.constant(MEANS)[z] + x, pt.constant(SDS)[z], observed=0.0)
    y = 3.0 * np.random.default_rng(5).normal(size=n)
    sds = np.hypot(SDS, 1.0) if has_spread else SDS
    return model, y, logsumexp(np.log(WEIGHTS) + norm.logpdf(y[:, None], MEANS, sds), axis=1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kernel", [None, [Hamiltonian(), Gibbs()]], ids=["default", "pair"])
def test_an_indicator_and_a_continuous_variable_of_each_row(kernel):
    model, y, exact = mixture(50, has_spread=True)
    result = held_out(model, {"y": y}, kernel=kernel)
    assert largest_score(result, exact) <= statistical.threshold(50)
    assert float(result["mcse"]) < 0.02


@pytest.mark.exhaustive
def test_the_error_of_a_single_indicator_is_its_own():
    """Every move redraws it from its conditional distribution, so that nothing is missing and rows are exact soon."""
    model, y, exact = mixture(50, has_spread=False)
    result = held_out(model, {"y": y})
    assert largest_score(result, exact) <= statistical.threshold(50)
    scores = (result["value"].values - exact) / result["se"].values
    assert np.mean(scores**2) > 0.3
    assert result.attrs["findings"] == "[]"


@pytest.mark.exhaustive
def test_a_count_of_each_row():
    with pm.Model() as model:
        n = pm.Poisson("n", 5.0)
        pm.Binomial("y", n, 0.3, observed=1)
    y = np.arange(6)
    assert largest_score(held_out(model, {"y": y}), poisson.logpmf(y, 1.5)) <= statistical.threshold(6)


def chain(rng, n):
    z = [1]
    while len(z) < n:
        z.append(rng.choice(3, p=TRANSITION[z[-1]]))
    return MEANS[z] + rng.normal(size=n)


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize(("n_rows", "n_steps"), [(6, 20), (1, 200)])
def test_hidden_markov_chains(n_rows, n_steps):
    rng = np.random.default_rng(6)
    y = np.array([chain(rng, n_steps) for _ in range(n_rows)])
    settings = (WEIGHTS, TRANSITION, MEANS, 1.0)
    result = held_out(truth.build_chain(np.zeros(n_steps), *settings), {"y": y})
    exact = np.array([truth.log_evidence_chain(row, *settings) for row in y])
    assert largest_score(result, exact) <= statistical.threshold(n_rows)
    assert np.all(result["se"].values <= 0.15)


# Unnormalised models -------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize("hidden", rbm.HIDDEN)
def test_rows_of_a_boltzmann_machine(hidden):
    rng = np.random.default_rng(1)
    parameters = rbm.Parameters(rng.normal(size=(12, 6)), rng.normal(size=12), rng.normal(size=6))
    v = rng.integers(0, 2, (20, 12))
    exact = rbm.log_unnormalised(v, parameters) - rbm.exact_log_z(parameters)
    result = held_out(rbm.build_model(parameters, hidden), {"v": v}, sample_kwargs={"target_se": 0.02})
    error, common = result["value"].values - exact, float(result["log_z_se"])
    se = np.hypot(result["se"].values, common)
    assert np.all(np.abs(error) <= statistical.threshold(20) * se + ROUNDING)  # where all states are summed
    assert 0.0 < common <= 0.02
    if hidden == "summed out":  # nothing is left to integrate in a row: one error for all
        np.testing.assert_allclose(error, error[0], atol=1e-9)
        assert np.all(result["se"].values == 0.0)


@pytest.mark.exhaustive
def test_rows_of_three_values():
    with pm.Model() as model:
        s = FlatDiscrete("s", lower=-1, upper=1, shape=4)
        pm.Potential("energy", 0.5 * (s[1:] * s[:-1]).sum() - 0.3 * (s**2).sum())
    (states,) = truth.all_states((4,), n_values=3)
    rows = states[::9] - 1
    log_p = truth.log_densities(model, s=states - 1)
    exact = truth.log_densities(model, s=rows) - logsumexp(log_p)
    np.testing.assert_allclose(held_out(model, {"s": rows})["value"].values, exact, atol=ROUNDING)


# Parameters with posterior draws -------------------------------------------------------------------------


@pytest.mark.slow
def test_discrete_parameters_of_all_rows():
    """The predictive density of new rows averages over two values of a parameter."""
    with pm.Model() as model:
        k = pm.Bernoulli("k", 0.4)
        pm.Normal("y", 2.0 * k, 1.0, observed=np.array([0.8, 1.3]))
    options = {"draws": 2000, "target_se": None, "random_seed": 1, "progressbar": False}
    posterior = pymc_hais.sample_hais(model=model, **options)
    y = np.array([-1.0, 0.5, 3.0])
    result = held_out(model, {"y": y}, posterior=posterior, n_draws=8000)
    log_p = np.log([0.6, 0.4]) + norm.logpdf([[0.8], [1.3]], [0.0, 2.0]).sum(axis=0)
    expected = logsumexp(log_p - logsumexp(log_p) + norm.logpdf(y[:, None], [0.0, 2.0]), axis=1)
    assert largest_score(result, expected) <= statistical.threshold(3)
