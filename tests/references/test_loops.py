import numpy as np
import pymc as pm
import pytensor
import pytest
from pymc.pytensorf import collect_default_updates
from pytensor.scan.op import Scan

from pymc_hais.references.prior import build_prior

N = 12

pytestmark = pytest.mark.skipif(
    not hasattr(Scan, "outer_untraced_sit_sot"), reason="an older PyTensor passes generators to a loop in another way"
)


def covariance(matrix: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return the covariance of x where matrix @ x are independent with these variances."""
    inverse = np.linalg.inv(matrix)
    return inverse @ np.diag(noise) @ inverse.T


def drawn(model):
    sampler = build_prior(model)
    values, clipped = sampler.sample(20_000, 3)
    assert not clipped.any()
    return sampler.batch_size, dict(zip(sampler.names, values, strict=True))


def assert_covariance(x, exact):
    scale = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    assert np.abs((np.cov(x.T) - exact) / scale).max() < 6.0 * np.sqrt(2.0 / len(x))


def test_an_autoregression_of_two_lags_has_its_covariance():
    with pm.Model() as model:
        pm.AR("x", [0.3, 0.5], sigma=2.0, init_dist=pm.Normal.dist(0.0, 3.0), shape=N)
    batch_size, values = drawn(model)
    assert batch_size > 1
    matrix = np.eye(N) - 0.3 * np.eye(N, k=-1) - 0.5 * np.eye(N, k=-2)
    matrix[1, 0] = 0.0
    assert_covariance(values["x"], covariance(matrix, np.array([9.0, 9.0, *[4.0] * (N - 2)])))


@pytest.mark.filterwarnings("ignore:Scan return signature:DeprecationWarning")
def test_a_loop_over_a_sequence_has_the_parameters_of_its_own_draw():
    def build(scale, size):
        def step(weight, before, scale):
            new = pm.Normal.dist(weight * before, scale)
            return new, collect_default_updates([new])

        return pytensor.scan(
            step, sequences=[np.linspace(0.2, 0.9, N)], outputs_info=[np.float64(1.0)], non_sequences=[scale]
        )[0]

    with pm.Model() as model:
        pm.CustomDist("x", pm.HalfNormal("scale"), dist=build)
    batch_size, values = drawn(model)
    assert batch_size > 1
    weights = np.linspace(0.2, 0.9, N)
    deviations = (values["x"] - np.cumprod(weights)) / np.exp(values["scale"])[:, None]
    assert_covariance(deviations, covariance(np.eye(N) - np.diag(weights[1:], k=-1), np.ones(N)))


def test_a_loop_of_very_many_steps_is_drawn_one_at_a_time():
    with pm.Model() as model:
        pm.AR("x", [0.5], sigma=1.0, init_dist=pm.Normal.dist(0.0, 1.0), shape=4000)
    assert build_prior(model).batch_size == 1
