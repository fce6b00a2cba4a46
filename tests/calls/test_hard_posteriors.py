"""Posteriors that annealing finds only with help: a spike that nothing leads to, correlations in many dimensions."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

from pymc_hais import Gaussian, Mixture
from tests.front_door import assert_right, estimate


@pytest.mark.slow
def test_a_spike_on_a_hill_counts_where_the_reference_has_it():
    """Annealing from the prior alone leaves it out without a finding, as docs/when_not_to_trust.md says."""
    shape, centre = 20, 0.1

    def log_sum(x, mean, sd):
        return (-0.5 * ((x - mean) / sd) ** 2 - np.log(sd * np.sqrt(2 * np.pi))).sum()

    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=shape)
        spike = np.log(100.0) + log_sum(x, centre, 0.02)
        pm.Potential("hill and spike", pt.logaddexp(log_sum(x, 0.0, 0.3), spike))

    def evidence(mean, sd):
        variance = 1.0 + sd**2
        return -0.5 * shape * (mean**2 / variance + np.log(2 * np.pi * variance))

    found, _ = estimate(model, reference=Mixture(["prior", Gaussian(centre, 0.02)]))
    # Steps fit for the spike leave the particles of the prior where they are, so that the hill, half a percent of the
    # mass, is not found: log Z lies between that of the spike alone and that of both.
    of_spike = np.log(100.0) + evidence(centre, 0.02)
    assert of_spike - 4 * found.se <= found.value <= np.logaddexp(evidence(0.0, 0.3), of_spike) + 4 * found.se


@pytest.mark.exhaustive
def test_150_correlated_coefficients():
    """Scales of the posterior differ sixtyfold along directions that no coordinate shows."""
    rng, n = np.random.default_rng(7), 150
    design, y = 3.0 * rng.normal(size=(n, n)) / np.sqrt(n), 2.0 * rng.normal(size=n)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=n)
        pm.Normal("y", design @ b, 0.1, observed=y)
    found, idata = estimate(model, draws=1000, chains=4)
    assert_right(found, stats.multivariate_normal.logpdf(y, np.zeros(n), design @ design.T + 0.01 * np.eye(n)))
    assert found.se <= 0.1
    assert idata["posterior"].attrs["n_temperatures"] < 1000
