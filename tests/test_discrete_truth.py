"""Exact values of models with discrete latents, against sums over all states of the models' own densities."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from tests import discrete_truth as truth

WEIGHTS, MEANS, SDS = np.array([0.2, 0.5, 0.3]), np.array([-2.0, 0.5, 3.0]), np.array([0.5, 1.0, 2.0])
TRANSITION = np.array([[0.7, 0.2, 0.1], [0.05, 0.9, 0.05], [0.4, 0.3, 0.3]])


def test_mixture():
    y = np.array([-1.8, 0.2, 4.0, 1.0])
    model = truth.build_mixture(y, WEIGHTS, MEANS, SDS)
    (z,) = truth.all_states((4,), n_values=3)
    assert logsumexp(truth.log_densities(model, z=z)) == pytest.approx(
        truth.log_evidence_mixture(y, WEIGHTS, MEANS, SDS), abs=1e-10
    )


def test_mixture_of_unknown_means():
    y, settings = np.array([-1.2, 0.9, 1.4]), (WEIGHTS[:2] / 0.7, [-1.0, 0.5], 0.8, 0.6)
    model = truth.build_mixture_of_unknown_means(y, *settings)
    # The integrand is smooth and vanishes at the ends, so sums on a grid converge faster than any power of its step.
    grid, step = np.linspace(-7.0, 7.0, 71, retstep=True)
    mu = np.array(np.meshgrid(grid, grid)).reshape(2, -1).T
    (z,) = truth.all_states((3,))
    rows = truth.log_densities(model, mu=np.repeat(mu, len(z), axis=0), z=np.tile(z, (len(mu), 1)))
    expected = truth.log_evidence_mixture_of_unknown_means(y, *settings)
    assert logsumexp(rows) + 2.0 * np.log(step) == pytest.approx(expected, abs=1e-8)


def test_mixture_of_unknown_means_in_one_cluster_is_a_normal():
    y = np.array([-1.2, 0.9, 1.4])
    covariance = 0.64 * np.ones((3, 3)) + 0.36 * np.eye(3)
    found = truth.log_evidence_mixture_of_unknown_means(y, [1.0], [0.5], 0.8, 0.6)
    assert found == pytest.approx(multivariate_normal(np.full(3, 0.5), covariance).logpdf(y))


def test_chain():
    y, settings = np.array([0.3, -1.0, 2.0, 2.5, 0.0]), (WEIGHTS, TRANSITION, MEANS, 0.9)
    model = truth.build_chain(y, *settings)
    (z,) = truth.all_states((5,), n_values=3)
    assert logsumexp(truth.log_densities(model, z=z)) == pytest.approx(
        truth.log_evidence_chain(y, *settings), abs=1e-10
    )


def test_chain_without_memory_is_a_mixture():
    y = np.array([0.3, -1.0, 2.0, 2.5, 0.0])
    found = truth.log_evidence_chain(y, WEIGHTS, np.tile(WEIGHTS, (3, 1)), MEANS, 0.9)
    assert found == pytest.approx(truth.log_evidence_mixture(y, WEIGHTS, MEANS, 0.9))


def test_sparse_coding():
    rng = np.random.default_rng(3)
    basis = rng.normal(size=(4, 5))
    y = basis @ [1, 0, 0, 1, 0] + 0.3 * rng.normal(size=4)
    model = truth.build_sparse_coding(y, basis, 0.2, 0.4)
    (s,) = truth.all_states((5,))
    expected = truth.log_evidence_sparse_coding(y, basis, 0.2, 0.4)
    assert logsumexp(truth.log_densities(model, s=s)) == pytest.approx(expected, abs=1e-10)


def test_sparse_coding_of_one_unit_by_hand():
    basis, y = np.array([[1.0], [2.0]]), np.array([0.5, 1.5])
    on, off = norm.pdf(y, basis[:, 0], 0.7).prod(), norm.pdf(y, 0.0, 0.7).prod()
    found = truth.log_evidence_sparse_coding(y, basis, 0.1, 0.7)
    assert found == pytest.approx(np.log(0.1 * on + 0.9 * off))


def test_states_are_all_of_them_and_in_step():
    a, b = truth.all_states((2, 2), (1,), n_values=3)
    assert (a.shape, b.shape) == ((243, 2, 2), (243, 1))
    assert len(np.unique(np.hstack([a.reshape(243, 4), b]), axis=0)) == 243
