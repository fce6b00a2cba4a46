"""Checks of an integral over variables of a model: its value, its gradient, the density of the draws, and log Z."""

import numpy as np
import pymc as pm

import pymc_hais
from pymc_hais.latent.integrated import integrate
from tests.statistical import assert_mean


def assert_calibrated(model, owner, truth):
    """Assert that calls that integrate one variable out have an unbiased Z, and right errors of log Z."""
    of_chains, z = [], []
    for seed in range(20):
        idata = pm.sample_hais(200, model=model, random_seed=seed, quiet=True, target_se=None)
        estimate = pymc_hais.log_marginal_likelihood(idata)
        of_chains.append(np.exp(np.array(estimate.per_chain) - truth))
        z.append((estimate.value - truth) / estimate.se)
    assert idata["posterior"].attrs["integrated_out"] == owner
    assert_mean(np.concatenate(of_chains), 1.0)
    assert np.mean(np.square(z)) < 2.4  # chi-square of 20: 1e-3


def assert_exact(model, owners, width=0.3):
    """Assert that log p(x, y) - log p(x | y) is the log density without x, whatever x is, and has its gradient."""
    found = integrate(model)
    assert found is not None
    assert set(found.owners) == owners
    rng = np.random.default_rng(2)
    of_whole, rest = model.compile_logp(mode="FAST_COMPILE"), found.model
    of_rest = rest.compile_fn([rest.logp(), rest.dlogp()], mode="FAST_COMPILE")  # one program for both

    def value(theta):
        return of_rest(found.layout.unflatten(theta))[0]

    for _ in range(3):
        theta = width * rng.normal(size=found.layout.n_dims)
        for away in (0.0, 0.1):  # another x, of the same theta
            x, one, log_conditional = theta, found, 0.0
            while one is not None:
                arrays, places = one.compute(x[None]), one.solution.places
                x = one.add_own(x, rng)
                x[places] += away * rng.normal(size=places.size)
                log_conditional += one.solution.log_density(arrays, x[None, places])[0]
                one = one.before
            joint = of_whole(found.whole.unflatten(x))
            np.testing.assert_allclose(value(theta), joint - log_conditional, rtol=1e-7, atol=1e-9)
    slope = of_rest(found.layout.unflatten(theta))[1]
    steps = 1e-5 * np.eye(theta.size)
    expected = [(value(theta + step) - value(theta - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    return found
