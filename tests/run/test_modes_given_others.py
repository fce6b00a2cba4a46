"""Modes of one variable beside a funnel: found, and measured, with the other variables held at particles."""

import numpy as np
import pytest

from pymc_hais.core.process import one_blas_thread
from pymc_hais.run.modes.given_others import Particles, find_modes_given_others

#: Variables: x (2,), the log scale s, and y (3,) with that scale.
OFFSETS = np.array([0, 2, 3, 6])
RATIO = 1.5


class Funnel:
    """s ~ N(0, 1), y ~ N(0, exp(s)), and x in a hill at -5, or in one at 5 + s whose mass grows with s."""

    precision = np.finfo(np.float64)

    def __call__(self, z):
        x, s, y = z[:, :2], z[:, 2], z[:, 3:]
        near, far = x + 5.0, x - 5.0 - s[:, None]
        log_a = -0.5 * np.sum(near**2, axis=1)
        log_b = np.log(RATIO) + 0.5 * s - 0.5 * np.sum(far**2, axis=1)
        value = np.logaddexp(log_a, log_b)
        b = np.exp(log_b - value)[:, None]
        scaled = y * np.exp(-2.0 * s)[:, None]
        by_s = b[:, 0] * (0.5 + far.sum(axis=1)) - s - 3.0 + np.sum(y * scaled, axis=1)
        gradient = np.hstack([-(1.0 - b) * near - b * far, by_s[:, None], -scaled])
        return value - 0.5 * s**2 - 3.0 * s - 0.5 * np.sum(y * scaled, axis=1), gradient


def particles(rng, share_of_b, n=4000):
    """Draw from the density with another share of the second hill."""
    is_b = rng.random(n) < share_of_b
    s = rng.normal(0.5 * is_b, 1.0)  # exp(s / 2) moves the mean of s by a half
    x = rng.normal(np.where(is_b, 5.0 + s, -5.0)[:, None], 1.0, (n, 2))
    positions = np.hstack([x, s[:, None], np.exp(s)[:, None] * rng.normal(size=(n, 3))])
    return Particles(positions, np.full(n, -np.log(n)), np.arange(n), positions.std(axis=0))


def search(share_of_b, seed=0, density=Funnel, offsets=OFFSETS):
    rng = np.random.default_rng(seed)
    drawn = np.hstack([rng.normal(0.0, 6.0, (400, 2)), rng.normal(size=(400, 4))])
    with one_blas_thread:
        return find_modes_given_others(density(), particles(rng, share_of_b), drawn, offsets, 0.0, rng, lambda *_: True)


def test_gradients_of_the_funnel_are_right():
    z, width = np.random.default_rng(1).normal(size=(1, 6)), 1e-6
    ahead, behind = (Funnel()(z + sign * width * np.eye(6))[0] for sign in (1.0, -1.0))
    np.testing.assert_allclose(Funnel()(z)[1][0], (ahead - behind) / (2.0 * width), rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_a_hill_without_particles_is_measured(seed):
    peaks, compared = search(0.0, seed)
    exact = RATIO * np.exp(0.125)  # the mean of 1.5 exp(s / 2) over the other hill
    (which,) = compared.missed.which
    mass = compared.masses[which]
    assert compared.missed.is_certain
    assert mass.is_reliable
    assert mass.relative_se < 0.15
    assert abs(np.exp(mass.log_mass) / exact - 1.0) < 4.5 * mass.relative_se + 0.02
    np.testing.assert_allclose(peaks[which].position[:2], 5.0, atol=1.0)


@pytest.mark.parametrize("seed", range(3))
def test_particles_in_their_right_shares_miss_nothing(seed):
    ratio = RATIO * np.exp(0.125)
    found = search(ratio / (1.0 + ratio), seed)
    assert found is None or not found[1].missed.is_certain


def test_twice_as_many_blocks_take_less_than_twice_as_many_calls_of_the_density():
    """A program evaluates hundreds of positions in a call: blocks that climb one by one waste most of it."""
    calls = []

    class Hill:
        precision = np.finfo(np.float64)

        def __call__(self, z):
            calls.append(len(z))
            return -0.25 * np.sum(z**4, axis=1), -(z**3)

    numbers = []
    for offsets in (OFFSETS, np.arange(7)):  # six blocks, and twelve
        calls.clear()
        assert search(0.0, density=Hill, offsets=offsets) is None
        numbers.append(len(calls))
    assert numbers[1] < 1.9 * numbers[0]
