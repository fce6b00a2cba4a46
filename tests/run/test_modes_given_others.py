"""Modes of one variable beside a funnel: found, and measured, with the other variables held at particles."""

import numpy as np
import pytest

from pymc_hais.core.process import one_blas_thread
from pymc_hais.run.modes.given_others import Particles, find_modes_given_others
from pymc_hais.runner.timing import Clock

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
    return equally_weighted(positions)


def equally_weighted(positions):
    n = len(positions)
    return Particles(positions, np.full(n, -np.log(n)), np.arange(n), positions.std(axis=0))


def search(share_of_b, seed=0, density=Funnel, offsets=OFFSETS, clock=None):
    rng = np.random.default_rng(seed)
    drawn = np.hstack([rng.normal(0.0, 6.0, (400, 2)), rng.normal(size=(400, 4))])
    own, clock = particles(rng, share_of_b), clock or Clock()
    with one_blas_thread:
        return find_modes_given_others(density(), own, drawn, offsets, 0.0, rng, clock)


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


def test_four_times_as_many_blocks_take_less_than_twice_as_many_calls_of_the_density():
    """A program evaluates hundreds of positions in a call: blocks that climb one by one waste most of it."""
    calls = []

    class Hill:
        precision = np.finfo(np.float64)

        def __call__(self, z):
            calls.append(len(z))
            distance = np.sqrt(1.0 + z**2)
            return -np.sum(distance, axis=1), -z / distance

    numbers = []
    for offsets in ([0, 3, 6], [0, 1, 2, 3, 6]):  # two blocks, and eight
        calls.clear()
        assert search(0.0, density=Hill, offsets=np.array(offsets)) is None
        numbers.append(len(calls))
    assert numbers[1] < 2 * numbers[0]


class Hills:
    """Three normal hills in x (10,), whose widths differ by a factor of five, and y ~ N(0, 1)."""

    precision = np.finfo(np.float32)
    heights = np.array([1.0, 0.0, -0.3])

    def __init__(self):
        rng = np.random.default_rng(0)
        directions = rng.normal(size=(3, 10))
        self.means = 60.0 * directions / np.linalg.norm(directions, axis=1, keepdims=True)
        turns = [np.linalg.qr(rng.normal(size=(10, 10)))[0] for _ in range(3)]
        covariances = np.stack([turn @ np.diag(np.geomspace(0.2, 5.0, 10)) @ turn.T for turn in turns])
        covariances[2] *= np.exp(0.5)  # so that the last hill has most of the mass
        self.covariances, self.precisions = covariances, np.linalg.inv(covariances)

    def __call__(self, z):
        z = z.astype(np.float32).astype(np.float64)
        away = z[:, None, :10] - self.means
        slopes = np.einsum("nkd,kde->nke", away, self.precisions)
        each = self.heights - 0.5 * np.sum(away * slopes, axis=2)
        value = np.logaddexp.reduce(each, axis=1)
        shares = np.exp(each - value[:, None])[:, :, None]
        gradient = np.hstack([-np.sum(shares * slopes, axis=1), -z[:, 10:]])
        return value - 0.5 * z[:, 10] ** 2, gradient.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("seed", range(3))
def test_many_ends_at_one_mode_do_not_hide_a_lower_one_with_more_mass(seed):
    hills, rng = Hills(), np.random.default_rng(seed)
    x = rng.multivariate_normal(hills.means[0], hills.covariances[0], 2000)
    own = equally_weighted(np.hstack([x, rng.normal(size=(2000, 1))]))
    between = 0.3 * hills.means[1] + 0.2 * hills.means[2]
    drawn = np.hstack([rng.normal(between, 10.0, (400, 10)), rng.normal(size=(400, 1))])
    log_z = 1.0 + 0.5 * np.linalg.slogdet(hills.covariances[0])[1] + 5.5 * np.log(2.0 * np.pi)
    with one_blas_thread:
        peaks, compared = find_modes_given_others(hills, own, drawn, np.array([0, 10, 11]), log_z, rng, Clock())
    nearest = [int(np.linalg.norm(peak.position[:10] - hills.means, axis=1).argmin()) for peak in peaks]
    missed = {nearest[which] for which in compared.missed.which}
    assert missed == {1, 2}


class Counted:
    """A clock whose seconds are evaluations of a density."""

    def __init__(self, calls, limit):
        self.calls, self.limit = calls, limit

    @property
    def left(self):
        return max(0.0, self.limit - sum(self.calls))

    def part(self, share):
        return Counted(self.calls, sum(self.calls) + share * self.left)


@pytest.mark.parametrize("seed", range(3))
def test_climbs_leave_time_to_measure_what_they_have_found(seed):
    calls = []

    class Counting(Funnel):
        def __call__(self, z):
            calls.append(len(z))
            return super().__call__(z)

    # All climbs take 4,800 evaluations. Climbs that follow the modes take 1,400, and measuring these modes takes 1,200.
    assert search(0.0, seed, Counting, clock=Counted(calls, 6000)) is not None
