"""Models with discrete variables through the front door: exact log Z and exact posteriors.

Estimates are held to four of their standard errors: a false alarm in 16,000 a test where the errors are normal.  Their
errors are a hundredth of a nat, so that a move that does not keep the density is seen.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import betaln, gammaln, logsumexp
from scipy.stats import binom, geom, nbinom, norm, poisson

from examples import change_point, ising, rbm, variable_selection
from tests import discrete_truth as truth
from tests.discrete_sums import sum_states
from tests.front_door import assert_right, estimate
from tests.marks import slow_but

SHARP = {"draws": 1000, "chains": 4, "n_temperatures": 200, "target_se": None}
WEIGHTS, MEANS, SDS = np.array([0.2, 0.5, 0.3]), np.array([-2.0, 0.5, 3.0]), np.array([0.5, 1.0, 2.0])
TRANSITION = np.array([[0.7, 0.2, 0.1], [0.05, 0.9, 0.05], [0.4, 0.3, 0.3]])
GRID = np.linspace(-7.0, 7.0, 71)
Y = np.array([-1.8, 0.2, 4.0, 1.0, 0.4, -2.2])

has_gaps = pytest.mark.filterwarnings("ignore:Data in .* contains missing values")


def sample(model, log_z, **options):
    """Sample a model and hold log Z to its exact value; return the posterior draws."""
    found, idata = estimate(model, **{**SHARP, **options})
    assert_right(found, log_z)
    assert found.se <= 0.1
    assert found.is_trustworthy
    return idata["posterior"]


def assert_means(draws, expected):
    """Hold means of draws (chain, draw, ...) to a tenth of a posterior standard deviation.

    4,000 draws count as 2,000 independent ones at least: a tenth is 4.5 of their standard errors.
    """
    draws = np.asarray(draws, dtype=float)
    assert draws.shape[2:] == np.shape(expected)
    error = np.abs(draws.mean(axis=(0, 1)) - expected)
    assert np.all(error <= 0.1 * draws.std(axis=(0, 1)) + 0.003), f"off by {np.max(error):.3f}"


def assert_probabilities(draws, expected):
    """Hold the shares of the values 0, ..., K - 1 to probabilities (..., K)."""
    expected = np.asarray(expected)
    assert_means(np.asarray(draws)[..., None] == np.arange(expected.shape[-1]), expected)


def assert_sum(model, **values):
    """Hold log Z and all means to a sum over states, and grids of continuous variables."""
    exact = sum_states(model, **values)
    posterior = sample(model, exact.log_z, idata_kwargs={"include_transformed": True})
    for name, mean in exact.means.items():
        assert_means(posterior[name], mean)


# Mixtures and hidden chains ------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize("n_components", [2, 3, 5])
def test_mixture_of_known_components(n_components):
    weights = np.arange(1, n_components + 1) / np.sum(np.arange(1, n_components + 1))
    means, sds = np.linspace(-2.0, 3.0, n_components), np.linspace(0.5, 1.5, n_components)
    model = truth.build_mixture(Y, weights, means, sds)
    posterior = sample(model, truth.log_evidence_mixture(Y, weights, means, sds))
    joint = weights * norm.pdf(Y[:, None], means, sds)
    assert_probabilities(posterior["z"], joint / joint.sum(axis=1, keepdims=True))


@pytest.mark.exhaustive
def test_mixture_of_unknown_means_with_its_indicators_and_without():
    settings = (WEIGHTS[:2] / 0.7, [-1.0, 0.5], 0.8, 0.6)
    exact = truth.log_evidence_mixture_of_unknown_means(Y, *settings)
    posterior = sample(truth.build_mixture_of_unknown_means(Y, *settings), exact)
    with pm.Model() as summed_out:
        mu = pm.Normal("mu", [-1.0, 0.5], 0.8)
        pm.NormalMixture("y", WEIGHTS[:2] / 0.7, mu, 0.6, observed=Y)
    assert_means(posterior["mu"], sample(summed_out, exact)["mu"].mean(("chain", "draw")).values)


@pytest.mark.exhaustive
def test_mixture_of_unknown_weights():
    """Only the prior of the indicators depends on the weights: the likelihood has discrete parents alone."""
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        z = pm.Categorical("z", p=w, shape=6)
        pm.Normal("y", pt.constant(MEANS)[z], 0.7, observed=Y)
    # Given z the weights have the closed form of a Dirichlet-multinomial: p(z) = 2! prod n_k! / (6 + 2)!.
    (z,) = truth.all_states((6,), n_values=3)
    counts = (z[..., None] == np.arange(3)).sum(axis=1)
    log_p = gammaln(3) - gammaln(9) + gammaln(counts + 1.0).sum(axis=1) + norm.logpdf(Y, MEANS[z], 0.7).sum(axis=1)
    posterior = sample(model, logsumexp(log_p))
    expected = np.exp(log_p - logsumexp(log_p)) @ ((counts + 1.0) / 9.0)
    assert_means(posterior["w"], expected)


@pytest.mark.slow
def test_hidden_markov_chain():
    y = np.array([0.3, -1.0, 2.0, 2.5, 0.0, -2.2, -1.9, 0.6, 3.1, 0.2, 0.9, -0.4] * 2)
    model = truth.build_chain(y, WEIGHTS, TRANSITION, MEANS, 0.9)
    posterior = sample(model, truth.log_evidence_chain(y, WEIGHTS, TRANSITION, MEANS, 0.9))
    assert_probabilities(posterior["z"], smoothed(y))


def smoothed(y):
    """Forward and backward: p(z_t | y), (T, K)."""
    emission = norm.pdf(y[:, None], MEANS, 0.9)
    forward, backward = [WEIGHTS * emission[0]], [np.ones(3)]
    for one in emission[1:]:
        forward.append(forward[-1] @ TRANSITION * one)
    for one in emission[:0:-1]:
        backward.append(TRANSITION @ (one * backward[-1]))
    joint = np.array(forward) * np.array(backward[::-1])
    return joint / joint.sum(axis=1, keepdims=True)


# Binary units --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_binary_sparse_coding():
    rng = np.random.default_rng(3)
    basis = rng.normal(size=(6, 8))
    y = basis @ [1, 0, 0, 1, 0, 0, 1, 0] + 0.3 * rng.normal(size=6)
    model = truth.build_sparse_coding(y, basis, 0.2, 0.4)
    posterior = sample(model, truth.log_evidence_sparse_coding(y, basis, 0.2, 0.4))
    assert_means(posterior["s"], sum_states(model, s=[0, 1]).means["s"])


@pytest.mark.every(4)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "coupling"),
    slow_but({(4, 0.3)}, [(4, 0.1), (4, 0.3), (8, ising.CRITICAL_COUPLING), (8, 0.6)]),
)
def test_ising(size, coupling):
    exact = ising.exact_log_z(size, coupling)
    posterior = sample(ising.build_model(size, coupling), exact)
    sigma = 2.0 * posterior["s"].values - 1.0
    bonds = (sigma * (np.roll(sigma, 1, axis=-1) + np.roll(sigma, 1, axis=-2))).sum(axis=(-2, -1))
    # d log Z / d J is the mean of the bonds' sum.
    derivative = (ising.exact_log_z(size, coupling + 1e-4) - ising.exact_log_z(size, coupling - 1e-4)) / 2e-4
    assert_means(bonds, derivative)
    assert_means(sigma, np.zeros((size, size)))


@pytest.mark.slow
@pytest.mark.parametrize("hidden", slow_but({"explicit"}, rbm.HIDDEN, set(rbm.HIDDEN) - {"explicit"}))
def test_restricted_boltzmann_machine(hidden):
    rng = np.random.default_rng(1)
    parameters = rbm.Parameters(rng.normal(size=(12, 6)), rng.normal(size=12), rng.normal(size=6))
    posterior = sample(rbm.build_model(parameters, hidden), rbm.exact_log_z(parameters))
    h = rbm.all_states(6)
    inputs = h @ parameters.weights.T + parameters.visible_bias
    log_p = h @ parameters.hidden_bias + np.logaddexp(0.0, inputs).sum(axis=1)
    p = np.exp(log_p - logsumexp(log_p))
    assert_means(posterior["v"], p @ (1.0 / (1.0 + np.exp(-inputs))))
    if hidden == "explicit":
        assert_means(posterior["h"], p @ h)


@pytest.mark.exhaustive
def test_variable_selection():
    x, y = variable_selection.simulate(n=40, n_covariates=7)
    model = variable_selection.build_model(x, y)
    posterior = sample(model, variable_selection.exact_log_marginal_likelihood(x, y))
    assert_means(posterior["z"], variable_selection.inclusion_probabilities(x, y))


# Counts --------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_thinned_counts():
    """Of n events each is seen with probability 0.3: what is seen has a law of the same kind."""
    with pm.Model() as model:
        n = pm.Poisson("n", [5.0, 2.0])
        pm.Binomial("y", n, 0.3, observed=[2, 1])
    posterior = sample(model, poisson.logpmf([2, 1], [1.5, 0.6]).sum())
    assert_means(posterior["n"], [2 + 0.7 * 5.0, 1 + 0.7 * 2.0])  # those that were not seen


@pytest.mark.exhaustive
def test_thinned_counts_with_more_variance():
    mean, alpha = 4.0, 2.0
    with pm.Model() as model:
        n = pm.NegativeBinomial("n", mu=mean, alpha=alpha)
        pm.Binomial("y", n, 0.4, observed=3)
    # The gamma mixture of thinned Poisson counts.
    posterior = sample(model, nbinom.logpmf(3, alpha, alpha / (alpha + 0.4 * mean)))
    assert_means(posterior["n"], sum_states(model, n=np.arange(200)).means["n"])


@pytest.mark.slow
def test_many_trials():
    """A site of 401 values walks; hits of hits are hits: y ~ Binomial(400, 0.5 * 0.3)."""
    with pm.Model() as model:
        n = pm.Binomial("n", 400, 0.5)
        pm.Binomial("y", n, 0.3, observed=70)
    posterior = sample(model, binom.logpmf(70, 400, 0.15))
    assert_means(posterior["n"], 70 + 330 * 0.5 * 0.7 / (1.0 - 0.5 * 0.3))


@pytest.mark.exhaustive
def test_counts_that_start_at_one():
    with pm.Model() as model:
        n = pm.Geometric("n", 0.3, shape=2)
        pm.Poisson("y", 1.0 * n, observed=[1, 7])
    assert_sum(model, n=np.arange(1, 80))


@pytest.mark.exhaustive
def test_change_point():
    """With the settings by default; the posterior of the year is a table of 111 numbers."""
    found, idata = estimate(change_point.build_model())
    assert_right(found, change_point.exact_log_marginal_likelihood())
    assert found.se <= 0.1
    exact = change_point.switch_probabilities()
    shares = np.bincount(idata["posterior"]["switch"].values.ravel(), minlength=len(exact)) / 1000.0
    # A thousand draws count as 200 independent ones at least: 0.15 is 4.2 standard errors of a half.
    assert np.max(np.abs(shares - exact)) <= 0.15
    assert 0.5 * np.sum(np.abs(shares - exact)) <= 0.25


# What depends on what ------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_probabilities_that_depend_on_a_continuous_variable():
    with pm.Model() as model:
        a = pm.Normal("a")
        z = pm.Bernoulli("z", logit_p=a, shape=4)
        pm.Normal("y", 2.0 * z, 1.0, observed=[0.2, 1.0, 2.0, 3.0])
    assert_sum(model, a=GRID, z=[0, 1])


@pytest.mark.exhaustive
def test_probabilities_that_depend_on_a_discrete_variable():
    table = pt.constant(np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]))
    with pm.Model() as model:
        group = pm.Bernoulli("group", 0.3)
        kind = pm.Categorical("kind", p=table[group], shape=3)
        pm.Normal("y", kind, 1.0, observed=[0.2, 1.0, 2.0])
    assert_sum(model, group=[0, 1], kind=[0, 1, 2])


@pytest.mark.exhaustive
def test_an_index_of_a_continuous_variable():
    with pm.Model() as model:
        which = pm.Categorical("which", p=WEIGHTS)
        mu = pm.Normal("mu", [-1.0, 0.0, 1.0], 0.7)
        pm.Normal("y", mu[which], 0.5, observed=[0.9, 1.2])
    assert_sum(model, which=[0, 1, 2], mu=np.linspace(-5.0, 5.0, 33))


@pytest.mark.exhaustive
def test_scalars_and_matrices_in_any_order():
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.4, shape=(2, 2))
        mu = pm.Normal("mu")
        kind = pm.Categorical("kind", logit_p=[0.0, 1.0, 2.0])
        shift = pm.Normal("shift", 0.0, 0.5)
        pm.Normal("y", mu * z + kind + shift, 1.0, observed=[[0.0, 0.3], [0.7, 1.0]])
    assert_sum(model, z=[0, 1], mu=np.linspace(-5.0, 5.0, 21), kind=[0, 1, 2], shift=np.linspace(-3.0, 3.0, 21))


@pytest.mark.slow
def test_a_mean_that_a_discrete_variable_chooses():
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.3)
        x = pm.Normal("x", 3.0 * z, 1.0)
        pm.Normal("y", x, 1.0, observed=2.0)
    assert_sum(model, z=[0, 1], x=np.linspace(-8.0, 11.0, 200))


@pytest.mark.exhaustive
def test_bounds_that_a_discrete_variable_chooses():
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.3)
        x = pm.Uniform("x", 0.0, 1.0 + z)
        pm.Normal("y", x, 0.5, observed=1.5)
    below = norm.cdf(np.array([0.0, 1.0, 2.0]), 1.5, 0.5)
    log_p = np.log([0.7 * (below[1] - below[0]), 0.3 * (below[2] - below[0]) / 2.0])
    assert_means(sample(model, logsumexp(log_p))["z"], np.exp(log_p[1] - logsumexp(log_p)))


@pytest.mark.exhaustive
def test_limits_that_depend_on_another_count():
    with pm.Model() as model:
        first = pm.DiscreteUniform("first", 0, 6)
        second = pm.DiscreteUniform("second", first, first + 3)
        pm.Normal("y", second, 1.0, observed=4.4)
    assert_sum(model, first=np.arange(7), second=np.arange(12))


@pytest.mark.exhaustive
def test_counts_that_only_their_difference_tells():
    with pm.Model() as model:
        a, b = pm.Poisson("a", 3.0), pm.Poisson("b", 2.0)
        pm.Normal("y", a - b, 1.0, observed=-1.0)
    assert_sum(model, a=np.arange(40), b=np.arange(40))


@pytest.mark.exhaustive
def test_a_function_of_all_sites():
    """Every site interacts with all others, and no slope is exact."""
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.4, shape=6)
        pm.Normal("y", pt.exp(0.3 * z.sum()), 1.0, observed=3.0)
    assert_sum(model, z=[0, 1])


@pytest.mark.parametrize("fewest", slow_but({1}, [1, 3], {3}))
def test_a_hard_constraint(fewest):
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.4, shape=5)
        pm.Potential("some", pt.switch(pt.ge(z.sum(), fewest), 0.0, -np.inf))
    assert_sum(model, z=[0, 1])


@pytest.mark.exhaustive
def test_an_interaction_that_a_rare_state_switches_on():
    """No draw of the prior shows that the kind changes the likelihood, nor that the sites do."""
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.02, shape=4)
        kind = pm.Categorical("kind", p=WEIGHTS)
        pm.Normal("y", 2.0 * z * kind, 0.7, observed=[2.0, 1.5, 2.5, 0.1])
    assert_sum(model, z=[0, 1], kind=[0, 1, 2])


@pytest.mark.exhaustive
def test_an_interaction_that_a_continuous_variable_switches_on():
    """Hardly a draw of the prior is beyond the threshold, and all of the posterior is."""
    with pm.Model() as model:
        x = pm.Normal("x")
        kind = pm.Categorical("kind", p=WEIGHTS, shape=3)
        pm.Normal("y", pt.switch(x > 2.8, 1.0 * kind, 0.0), 0.3, observed=[1.0, 2.0, 1.0])
        pm.Normal("w", x, 0.3, observed=3.3)
    assert_sum(model, x=np.linspace(-7.0, 7.0, 1401), kind=[0, 1, 2])


@pytest.mark.exhaustive
def test_an_interaction_whose_terms_are_alike_by_chance():
    """Of the kinds 0 and 2 the last point says nothing, with all sites on."""
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.02, shape=4)
        kind = pm.Categorical("kind", p=WEIGHTS)
        pm.Normal("y", 2.0 * z * kind, 0.5, observed=[2.0, 2.0, 2.0, 2.0])
    assert_sum(model, z=[0, 1], kind=[0, 1, 2])


def test_data_whose_bound_is_a_count():
    """PyMC rounds the bounds of a uniform variable, here an integer."""
    y = [1, 3, 2]
    with pm.Model() as model:
        n = pm.Geometric("n", 0.4)
        pm.DiscreteUniform("y", 1, n, observed=y)
    possible = np.arange(max(y), 400)
    log_z = logsumexp(geom.logpmf(possible, 0.4) - len(y) * np.log(possible))
    sample(model, log_z, backend="jax")


@pytest.mark.slow
@has_gaps
def test_gaps_in_discrete_data_are_discrete_variables():
    y = np.ma.masked_array([1, 0, 0, 1, 1], mask=[0, 0, 1, 0, 1])
    with pm.Model() as model:
        p = pm.Beta("p", 2.0, 3.0)
        pm.Bernoulli("y", p, observed=y)
    posterior = sample(model, betaln(2 + 2, 3 + 1) - betaln(2, 3))
    assert_means(posterior["y_unobserved"], [4 / 8, 4 / 8])
    assert posterior["y"].sizes["y_dim_0"] == 5


@pytest.mark.exhaustive
@has_gaps
def test_gaps_in_counts_that_something_else_depends_on():
    y = np.ma.masked_array([1, 0, 0, 4], mask=[0, 0, 1, 0])
    with pm.Model() as model:
        count = pm.Poisson("y", 2.0, observed=y)
        pm.Normal("w", count, 0.8, observed=[1.0, 0.2, 3.0, 4.4])
    assert_sum(model, y_unobserved=np.arange(40))
