"""Examples with discrete variables: their exact values against sums over all states of what their models say."""

import numpy as np
import pymc as pm
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, poisson

from examples import change_point, ising, rbm, variable_selection
from tests.discrete_truth import all_states, log_densities

# Restricted Boltzmann machine ----------------------------------------------------------------------------


def machine(n_visible, n_hidden, scale=1.0, seed=1):
    rng = np.random.default_rng(seed)
    shapes = ((n_visible, n_hidden), n_visible, n_hidden)
    return rbm.Parameters(*(scale * rng.normal(size=shape) for shape in shapes))


@pytest.mark.parametrize(("n_visible", "n_hidden"), [(4, 3), (3, 4)])
def test_rbm_against_all_states_of_both_layers(n_visible, n_hidden):
    parameters = machine(n_visible, n_hidden)
    v, h = all_states((n_visible,), (n_hidden,))
    joint = log_densities(rbm.build_model(parameters), v=v, h=h)
    by_hand = np.einsum("nv,vh,nh->n", v, parameters.weights, h) + v @ parameters.visible_bias
    assert joint == pytest.approx(by_hand + h @ parameters.hidden_bias)
    assert rbm.exact_log_z(parameters) == pytest.approx(logsumexp(joint), abs=1e-10)


def test_rbm_with_hidden_units_summed_out():
    parameters = machine(5, 3)
    (v,) = all_states((5,))
    found = log_densities(rbm.build_model(parameters, "summed out"), v=v)
    assert found == pytest.approx(rbm.log_unnormalised(v, parameters))
    assert rbm.exact_log_z(parameters) == pytest.approx(logsumexp(found), abs=1e-10)
    with pytest.raises(ValueError, match=r"must be one of.*summed out"):
        rbm.build_model(parameters, "integrated")


def test_rbm_in_chunks(monkeypatch):
    # Large weights: a sum that is not of logarithms would overflow.
    parameters = machine(7, 6, scale=200.0)
    whole = rbm.exact_log_z(parameters)
    assert whole > 1000.0
    monkeypatch.setattr(rbm, "CHUNK_UNITS", 2)
    assert rbm.exact_log_z(parameters) == pytest.approx(whole, rel=1e-12)
    monkeypatch.setattr(rbm, "MAX_UNITS", 5)
    with pytest.raises(ValueError, match="6 units; the exact sum takes up to 5"):
        rbm.exact_log_z(parameters)


def test_reference_of_the_rbm_has_the_rates_of_the_data():
    data = np.array([[0, 1, 1], [0, 1, 0]])
    reference = rbm.base_rate_reference(data, n_hidden=4)
    assert {name: tuple(part.shape.eval(mode="FAST_COMPILE")) for name, part in reference.items()} == {
        "v": (3,),
        "h": (4,),
    }
    ones = pm.logp(reference["v"], np.ones(3)).eval(mode="FAST_COMPILE")
    assert np.exp(ones) == pytest.approx([0.25, 0.75, 0.5])
    assert list(rbm.base_rate_reference(data)) == ["v"]


def test_training_brings_the_likelihood_of_the_data_above_that_of_independent_units():
    rng = np.random.default_rng(5)
    data = (np.repeat(rng.random((300, 2)) < 0.4, 3, axis=1) ^ (rng.random((300, 6)) < 0.05)).astype(float)
    rates = rbm.base_rates(data)
    independent = (data * np.log(rates) + (1.0 - data) * np.log1p(-rates)).sum(axis=1).mean()
    parameters = rbm.train(data, n_hidden=2, n_epochs=1000, rate=0.3)
    trained = rbm.log_unnormalised(data, parameters).mean() - rbm.exact_log_z(parameters)
    # A group of three is on or off, and each unit is wrong with probability 0.05.
    best = 2.0 * (0.4 * np.log(0.4) + 0.6 * np.log(0.6)) + 6.0 * (0.05 * np.log(0.05) + 0.95 * np.log(0.95))
    assert independent < best - 1.0
    assert trained == pytest.approx(best, abs=0.1)
    assert np.array_equal(parameters.weights, rbm.train(data, n_hidden=2, n_epochs=1000, rate=0.3).weights)


def test_digits_are_binary():
    pytest.importorskip("sklearn")
    data = rbm.load_digits()
    assert data.shape == (1797, 64)
    assert set(np.unique(data)) == {0.0, 1.0}
    assert 0.2 < data.mean() < 0.5


# Ising model ---------------------------------------------------------------------------------------------


def bonds(sigma, periodic):
    """Count the pairs of neighbours of one lattice by hand."""
    size = len(sigma)
    pairs = set()
    for i in range(size):
        for j in range(size):
            for other in ((i + 1, j), (i, j + 1)):
                wrapped = tuple(place % size for place in other)
                if (periodic or other == wrapped) and wrapped != (i, j):
                    pairs.add(frozenset([(i, j), wrapped]))
    return sum(np.prod([sigma[place] for place in pair]) for pair in pairs)


@pytest.mark.parametrize(("size", "n_pairs"), [(1, 0), (2, 4), (3, 18), (4, 32)])
def test_pairs_of_a_torus_count_once(size, n_pairs):
    assert bonds(np.ones((size, size)), True) == n_pairs
    ones = log_densities(ising.build_model(size, 1.0), s=np.ones((1, size, size)))
    assert ones == pytest.approx([n_pairs])


@pytest.mark.every(3)
@pytest.mark.few(5)
@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(("coupling", "field"), [(0.4, 0.0), (0.7, -0.3), (-0.5, 0.2)])
def test_ising_against_all_states(size, periodic, coupling, field):
    (s,) = all_states((size, size))
    found = log_densities(ising.build_model(size, coupling, field, periodic), s=s)
    sigma = 2 * s - 1
    some = slice(None, None, 37)
    by_hand = [coupling * bonds(one, periodic) + field * one.sum() for one in sigma[some]]
    assert found[some] == pytest.approx(by_hand)
    exact = ising.exact_log_z(size, coupling, field, periodic)
    assert exact == pytest.approx(logsumexp(found), abs=1e-10)


def test_ising_without_a_coupling_is_independent_spins():
    assert ising.exact_log_z(8, 0.0, 0.3) == pytest.approx(64 * np.log(2.0 * np.cosh(0.3)))
    assert ising.onsager_free_energy(0.0) == pytest.approx(np.log(2.0))
    # One that is strong has two states, all spins up and all down, each with 2 * 64 bonds.
    assert ising.exact_log_z(8, 20.0) == pytest.approx(2 * 64 * 20.0 + np.log(2.0))


def test_ising_comes_close_to_onsagers_limit():
    differences = [ising.exact_log_z(8, coupling) / 64 - ising.onsager_free_energy(coupling) for coupling in (0.1, 0.2)]
    assert differences == pytest.approx([0.0, 0.0], abs=2e-5)
    at_critical = [ising.exact_log_z(size, ising.CRITICAL_COUPLING) / size**2 for size in (3, 5, 7)]
    # Onsager: ln 2 / 2 + 2 G / pi with Catalan's constant G.
    limit = 0.5 * np.log(2.0) + 2.0 * 0.915965594177219 / np.pi
    assert ising.onsager_free_energy(ising.CRITICAL_COUPLING) == pytest.approx(limit, abs=1e-8)
    assert at_critical[0] > at_critical[1] > at_critical[2] > limit
    with pytest.raises(ValueError, match="sizes up to 12"):
        ising.exact_log_z(13, 0.1)


# Change point --------------------------------------------------------------------------------------------


def test_counts_of_explosions():
    assert (len(change_point.COUNTS), change_point.COUNTS.sum()) == (111, 190)
    assert change_point.FIRST_YEAR + len(change_point.COUNTS) - 1 == 1961


def test_change_point_against_quadrature():
    counts = np.array([3, 1, 4, 0, 1])

    def integrate(some):
        return quad(lambda rate: poisson.pmf(some, rate).prod() * np.exp(-rate), 0.0, 40.0, epsabs=0.0)[0]

    terms = [integrate(counts[: switch + 1]) * integrate(counts[switch + 1 :]) / 5 for switch in range(5)]
    assert np.exp(change_point.log_joint(counts)) == pytest.approx(terms)
    assert change_point.exact_log_marginal_likelihood(counts) == pytest.approx(np.log(sum(terms)))
    assert change_point.switch_probabilities(counts) == pytest.approx(np.array(terms) / sum(terms))


def test_density_of_the_change_point_model():
    counts, early, late = np.array([3, 1, 4, 0, 1]), 2.5, 0.7
    switch = np.array([-1, 0, 2, 4, 5])
    logs = {"early_log__": np.full(5, np.log(early)), "late_log__": np.full(5, np.log(late))}
    found = log_densities(change_point.build_model(counts), switch=switch, **logs)
    # Densities of the logarithms: rate e^-rate.
    prior = np.log(early) - early + np.log(late) - late - np.log(5)
    rates = np.where(np.arange(5) <= switch[1:4, None], early, late)
    assert found[1:4] == pytest.approx(prior + poisson.logpmf(counts, rates).sum(axis=1))
    assert found[[0, 4]].tolist() == [-np.inf, -np.inf]


# Variable selection --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [(0.2, 1.0, 1.0), (0.35, 0.6, 1.7)])
def test_variable_selection_against_normal_marginals(monkeypatch, scale):
    for name, value in zip(("INCLUSION", "SLAB", "SIGMA"), scale, strict=True):
        monkeypatch.setattr(variable_selection, name, value)
    inclusion, slab, sigma = scale
    x, y = variable_selection.simulate(n=12, n_covariates=3)
    (z,) = all_states((3,))
    terms = []
    for chosen in z:
        covariance = sigma**2 * np.eye(12) + slab**2 * (x * chosen) @ x.T
        prior = np.where(chosen, inclusion, 1.0 - inclusion)
        terms.append(np.log(prior).sum() + multivariate_normal(np.zeros(12), covariance).logpdf(y))
    assert variable_selection.log_joint(x, y) == pytest.approx(terms, abs=1e-10)
    exact = variable_selection.exact_log_marginal_likelihood(x, y)
    assert exact == pytest.approx(logsumexp(terms), abs=1e-10)
    assert variable_selection.inclusion_probabilities(x, y) == pytest.approx(np.exp(np.array(terms) - exact) @ z)


def test_density_of_the_variable_selection_model():
    x, y = variable_selection.simulate(n=12, n_covariates=3)
    z, b = np.array([[1, 0, 1], [0, 0, 0]]), np.array([[0.5, -1.0, 2.0], [1.0, 1.0, 1.0]])
    found = log_densities(variable_selection.build_model(x, y), z=z, b=b)
    prior = np.array([2 * np.log(0.2) + np.log(0.8), 3 * np.log(0.8)])
    squares = (b**2).sum(axis=1) + ((y - (z * b) @ x.T) ** 2).sum(axis=1)
    assert found == pytest.approx(prior - 0.5 * squares - 7.5 * np.log(2.0 * np.pi))


def test_all_models_of_20_covariates():
    x, y = variable_selection.simulate()
    p = variable_selection.inclusion_probabilities(x, y)
    assert np.all(p[[2, 9]] > 0.4)
    # One covariate that is left out of all models changes the prior alone.
    without = np.delete(x, 0, axis=1)
    excluded = variable_selection.exact_log_marginal_likelihood(without, y) + np.log(0.8)
    log_z = variable_selection.exact_log_marginal_likelihood(x, y)
    assert np.exp(excluded - log_z) == pytest.approx(1.0 - p[0])
    with pytest.raises(ValueError, match="25 covariates; the exact sum takes up to 24"):
        variable_selection.log_joint(np.ones((3, 25)), np.ones(3))
