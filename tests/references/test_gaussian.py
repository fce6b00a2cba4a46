"""Several Gaussians in one reference: its density is SciPy's, and its draws follow it."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from pymc_hais.references import Gaussian, Gaussians
from tests.statistical import assert_mean

PARTS = [
    Gaussian(np.array([1.0, -2.0]), np.array([[0.5, 0.0], [0.3, 0.2]])),
    Gaussian(np.array([-3.0, 4.0]), np.array([[2.0, 0.0], [-1.0, 1.0]])),
]


def test_the_density_is_the_mean_of_the_parts():
    x = pt.vector("x", dtype="float64")
    logp = pytensor.function([x], Gaussians(PARTS).logp(x), mode="FAST_COMPILE")
    points = np.random.default_rng(0).normal(size=(10, 2)) * 3.0
    parts = [multivariate_normal(part.loc, part.scale @ part.scale.T).logpdf(points) for part in PARTS]
    assert np.allclose([logp(point) for point in points], logsumexp(parts, axis=0) - np.log(2.0))


def test_the_draws_have_its_moments():
    drawn = Gaussians(PARTS).sample(20_000, np.random.default_rng(1))
    assert_mean(drawn, np.mean([part.loc for part in PARTS], axis=0))
    second = np.mean([np.outer(part.loc, part.loc) + part.scale @ part.scale.T for part in PARTS], axis=0)
    assert_mean(drawn[:, :, None] * drawn[:, None, :], second)
