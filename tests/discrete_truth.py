"""Models with explicit discrete latents, as a PyMC user writes them, and their exact log marginal likelihoods.

``tests/test_discrete_truth.py`` checks each against a sum over all states of the model's own density.
"""

import itertools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import vectorize_graph
from scipy.special import logsumexp
from scipy.stats import norm

from pymc_hais import FlatDiscrete
from pymc_hais.density.compiling import compile_interpreted
from tests.truth import log_evidence_normal

# Sums over states ----------------------------------------------------------------------------------------


def all_states(*shapes, n_values=2):
    """Return every combination of the values 0 to n_values - 1 of variables of some shapes: arrays (n, *shape)."""
    sizes = [int(np.prod(shape, dtype=int)) for shape in shapes]
    states = np.array(list(itertools.product(range(n_values), repeat=sum(sizes))))
    parts = np.split(states, np.cumsum(sizes)[:-1], axis=1)
    return [part.reshape(-1, *shape) for part, shape in zip(parts, shapes, strict=True)]


def log_densities(model, **values):
    """Return model.logp() (n,) at n values (n, *shape) of each value variable, by name."""
    start, batched = model.initial_point(), {}
    for value in model.value_vars:
        given = np.asarray(values[value.name], dtype=value.dtype)
        assert given.shape[1:] == start[value.name].shape  # what is too small would be broadcast in silence
        batched[value] = pt.constant(given)
    return compile_interpreted([], [vectorize_graph(model.logp(), batched)])()[0]


# Mixtures ------------------------------------------------------------------------------------------------


def log_evidence_mixture(y, weights, means, sds):
    """Return log p(y) for z_i ~ Categorical(weights), y_i ~ N(means[z_i], sds[z_i]^2)."""
    # The points are independent: p(y) = prod_i sum_k w_k N(y_i; m_k, s_k^2).
    return float(logsumexp(np.log(weights) + norm.logpdf(np.asarray(y)[:, None], means, sds), axis=1).sum())


def build_mixture(y, weights, means, sds):
    with pm.Model() as model:
        z = pm.Categorical("z", p=np.asarray(weights), shape=len(y))
        pm.Normal("y", pt.constant(means)[z], pt.constant(sds)[z], observed=y)
    return model


def log_evidence_mixture_of_unknown_means(y, weights, prior_means, prior_sd, sigma):
    """Return log p(y) for mu_k ~ N(prior_means[k], prior_sd^2), z_i as above, y_i ~ N(mu[z_i], sigma^2)."""
    # Given z the clusters are independent, and the points of one have the closed form of a normal with unknown mean:
    # p(y) = sum_z prod_i w[z_i] prod_k p(y_i: z_i = k), over all n_components^n assignments.
    y, weights = np.asarray(y, dtype=float), np.asarray(weights)
    terms = []
    for z in itertools.product(range(len(weights)), repeat=len(y)):
        z = np.array(z)
        clusters = [(y[z == k], prior_means[k]) for k in np.unique(z)]
        of_data = sum(log_evidence_normal(cluster, mean, prior_sd, sigma) for cluster, mean in clusters)
        terms.append(np.log(weights[z]).sum() + of_data)
    return float(logsumexp(terms))


def build_mixture_of_unknown_means(y, weights, prior_means, prior_sd, sigma):
    with pm.Model() as model:
        mu = pm.Normal("mu", np.asarray(prior_means), prior_sd, shape=len(weights))
        z = pm.Categorical("z", p=np.asarray(weights), shape=len(y))
        pm.Normal("y", mu[z], sigma, observed=y)
    return model


# Chains --------------------------------------------------------------------------------------------------


def log_evidence_chain(y, initial, transition, means, sigma):
    """Return log p(y) for z_0 ~ initial, z_t ~ transition[z_(t - 1)], y_t ~ N(means[z_t], sigma^2)."""
    # Forward algorithm, with a_t(k) = p(y_0, ..., y_t, z_t = k):
    # a_t(k) = N(y_t; m_k, s^2) sum_j a_(t - 1)(j) P(j, k), and p(y) is the sum over k of the last one.
    emission = norm.logpdf(np.asarray(y)[:, None], means, sigma)
    forward = np.log(initial) + emission[0]
    for one in emission[1:]:
        forward = logsumexp(forward[:, None] + np.log(transition), axis=0) + one
    return float(logsumexp(forward))


def build_chain(y, initial, transition, means, sigma):
    log_transition = pt.constant(np.log(transition))
    with pm.Model() as model:
        z = FlatDiscrete("z", lower=0, upper=len(initial) - 1, shape=len(y))
        pm.Potential("start", pt.constant(np.log(initial))[z[0]])
        pm.Potential("transitions", log_transition[z[:-1], z[1:]].sum())
        pm.Normal("y", pt.constant(means)[z], sigma, observed=y)
    return model


# Binary sparse coding ------------------------------------------------------------------------------------


def log_evidence_sparse_coding(y, basis, inclusion, sigma):
    """Return log p(y) for s_h ~ Bernoulli(inclusion), y ~ N(basis s, sigma^2 I), with a basis (D, H)."""
    # p(y) = sum over s in {0, 1}^H of pi^|s| (1 - pi)^(H - |s|) N(y; W s, sigma^2 I): 2^H terms.
    (states,) = all_states((basis.shape[1],))
    n_active = states.sum(axis=1)
    prior = n_active * np.log(inclusion) + (basis.shape[1] - n_active) * np.log1p(-inclusion)
    return float(logsumexp(prior + norm.logpdf(y, states @ basis.T, sigma).sum(axis=1)))


def build_sparse_coding(y, basis, inclusion, sigma):
    with pm.Model() as model:
        s = pm.Bernoulli("s", inclusion, shape=basis.shape[1])
        pm.Normal("y", pt.dot(basis, s), sigma, observed=y)
    return model
