"""Lopsided targets that can be sampled exactly, moved by a kernel and looked at in x, v and x v."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from tests.statistical import is_mean
from tests.toys import HAS_JAX, build_params, iterate
from tests.truth import LogGamma

if HAS_JAX:
    from pymc_hais.engines.jax import build_loop as LOOP
else:
    from pymc_hais.kernels.metropolis import plain_loop as LOOP

BETA = 0.6
N_PARTICLES = 40_000 if HAS_JAX else 10_000
MIX = np.array([[1.0, 0.0], [-0.8, 0.7]])
METRICS = {"diagonal": np.array([1.0, 0.6]), "dense": MIX @ np.diag([1.1, 0.6])}

needs_jax = pytest.mark.skipif(not HAS_JAX, reason="needs JAX: to move so many particles one by one takes minutes")


def skewed_toy(mix=None):
    # At beta = 0.6: shapes 0.9 and 2, skewness -1.2 and -0.8.
    return LogGamma(np.array([0.6, 1.4]), np.array([0.5, 1.0]), np.array([0.5, 1.0]), np.array([1.0, 3.0]), mix=mix)


@dataclass(frozen=True, eq=False)
class Truncated:
    """x = mix y, y_d normal of precision p_d + beta q_d and shift beta h_d, lower_d <= y_d <= upper_d."""

    # log density -p y^2 / 2 + beta (h y - q y^2 / 2): a normal of precision P = p + beta q and mean beta h / P,
    # truncated.  The density goes on outside, so that a particle that leaks stays where it can be seen.
    p: np.ndarray
    q: np.ndarray
    h: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    mix: np.ndarray

    def density(self, xp):
        p, q, h, inverse = (xp.asarray(array) for array in (self.p, self.q, self.h, np.linalg.inv(self.mix)))

        def density(x, *data):
            y = inverse @ x
            log_reference, log_ratio = -0.5 * xp.sum(p * y * y), xp.sum(h * y - 0.5 * q * y * y)
            return log_reference, log_ratio, inverse.T @ (-p * y), inverse.T @ (h - q * y)

        return density

    def _law(self, beta):
        precision = self.p + beta * self.q
        mean, sd = beta * self.h / precision, 1.0 / np.sqrt(precision)
        return stats.truncnorm((self.lower - mean) / sd, (self.upper - mean) / sd, mean, sd)

    def sample(self, rng, n, beta):
        return self._law(beta).rvs(size=(n, len(self.p)), random_state=rng) @ self.mix.T

    def standardise(self, x, beta):
        """Return y (N, D) scaled to mean 0 and variance 1 under pi_beta, and its skewness (D,)."""
        mean, variance, skewness = self._law(beta).stats("mvs")
        return (x @ np.linalg.inv(self.mix).T - mean) / np.sqrt(variance), skewness


def observables(toy, x, v):
    """Return moments (N, K) of x, v and x v, and their exact expectations (K,)."""
    s, skewness = toy.standardise(x, BETA)
    pairs = (s[:, :, None] * v[:, None, :]).reshape(len(s), -1)
    squares = (s[:, :, None] ** 2 * v[:, None, :]).reshape(len(s), -1)
    swapped = (s[:, :, None] * v[:, None, :] ** 2).reshape(len(s), -1)
    columns = [s, s**2, s**3, v, v**2, v**3, v**4, pairs, squares, swapped]
    expected = [np.zeros(2), np.ones(2), skewness, np.zeros(2), np.ones(2), np.zeros(2), np.full(2, 3.0)]
    return np.hstack(columns), np.concatenate([*expected, np.zeros(12)])


def move(toy, build, n_steps, step_size, metric, persistence=0.7):
    """Start from exact draws of pi_beta x N(0, I) and move them; return positions, momenta and acceptance."""
    rng = np.random.default_rng(20240 + n_steps)
    x = toy.sample(rng, N_PARTICLES, BETA)
    v = rng.standard_normal(x.shape)
    params = build_params(step_size, metric, persistence)
    return iterate(toy, x, v, rng, n_steps, BETA, params, lambda xp, path: build(xp, path, loop=LOOP))


def is_seen(toy, build, *settings):
    """Whether the moments show, after ten steps or one, that a transition is wrong."""
    for n_steps in (10, 1):
        x, v, _ = move(toy, build, n_steps, *settings)
        if not (np.all(np.isfinite(x)) and np.all(np.isfinite(v)) and is_mean(*observables(toy, x, v))):
            return True
    return False
