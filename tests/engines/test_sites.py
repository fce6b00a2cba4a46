"""Discrete sites move alike on every engine, and the numbers that move them are uniform and their own."""

import inspect
from functools import cache

import numba
import numpy as np
import pytest
from scipy import stats

from pymc_hais.core import noise as noise_module
from pymc_hais.core.noise import INITIAL_STEP, build_noise, check_counters
from pymc_hais.engines.numba import NumbaEngine, _cache_key, _namespace
from pymc_hais.engines.python import PythonEngine
from pymc_hais.kernels import Block, Composed, Gibbs, Hamiltonian, RandomWalk, SiteBlock, random_walk
from pymc_hais.kernels.paths import Geometric
from tests.engines.test_kernels import KEY, TOLERANCE, compiled_density
from tests.kernels.site_targets import alternate, mixed, one_by_one
from tests.kernels.sweeps import in_turn
from tests.marks import fast_but
from tests.populations import run_segment, state_of
from tests.statistical import assert_distribution, assert_mean, assert_uncorrelated
from tests.toys import HAS_JAX

needs_jax = pytest.mark.skipif(not HAS_JAX, reason="needs JAX")

# The engines ---------------------------------------------------------------------------------------------

N_PARTICLES, N_STEPS = 30, 12
LEAST, MOST = np.repeat([0.0, 1.0, 0.0], [5, 2, 2]), np.repeat([1.0, 4.0, np.inf], [5, 2, 2])
#: How the sites pull at x, and at one another: neighbours of one kind only.
PULL = np.array([[1.0, 1.0, 0.5, -0.4, 0.8, 0.0, 0.6, 0.3, -0.2], [0.3, 0.0, -0.9, 0.8, 0.5, 1.0, -1.1, 0.0, 0.2]])
LINKS = np.diag([0.9, -1.1, 0.0, 1.3, 0.0, -0.7, 0.0, 0.4], 1)
LINKS = LINKS + LINKS.T


def build_zoo(xp):
    """Two continuous x, three binary sites and two more, two of the values 1 to 4, two counts: all depend on x."""

    def density(z):
        x, level, n = z[:2], z[7:9], z[9:]
        h = xp.concatenate((z[2:7], 0.4 * level * level - level, n))
        pull = x @ PULL
        log_ratio = xp.sum(h * pull) + 0.5 * xp.sum(h * (LINKS @ h)) - 0.1 * xp.sum(x**4)
        # No density below zero: its logarithm is minus infinity, or no number.
        m = n + 1.0
        of_n = 1.7 * n - (m - 0.5) * xp.log(m)
        log_reference = -0.5 * xp.sum(x * x) - 0.4 * xp.sum(z[2:5]) + xp.sum(of_n)
        slopes = pull + LINKS @ h
        ratio = xp.concatenate((PULL @ h - 0.4 * x**3, slopes[:3], (h * slopes)[3:]))
        return log_reference, log_ratio, xp.concatenate((-x, 0.0 * z[2:5] - 0.4, 0.0 * z[5:9], of_n)), ratio

    return density


def build_cage(xp, jit=lambda f: f):
    """Build the density of the sites alone, at some x."""
    zoo, x = jit(build_zoo(xp)), np.array([0.4, -0.7])

    def density(z):
        log_reference, log_ratio, reference, ratio = zoo(xp.concatenate((x, z)))
        return log_reference, log_ratio, reference[2:], ratio[2:]

    return density


def blocks(start, coloured):
    """The sites from a dimension on; some are coloured where they may be."""
    two = one_by_one(2)
    of_f = SiteBlock(start + 3, start + 5, two, "table")
    rest = SiteBlock(start + 5, start + 7, two, "table", 1, 4), SiteBlock(start + 7, start + 9, two, "walk", 0, 0)
    return SiteBlock(start, start + 3, alternate(3) if coloured else one_by_one(3), "gradient"), of_f, *rest


DIAGONAL = np.concatenate([[0.5, 0.7], np.full(9, 1.2)])
DENSE = np.diag(DIAGONAL)
DENSE[1, 0] = -0.4
THREE = (
    Block(Hamiltonian("drift-kick-drift"), 0, 1),
    Block(RandomWalk(step_size=0.7), 1, 2),
    Block(Gibbs(blocks(2, True)), 2, 11),
)
# Compiling each for Numba takes seconds, more with a dense metric: the first shows all kinds of sites at once.
KERNELS = {
    "kick-drift-kick": (in_turn(Hamiltonian(), Gibbs(blocks(2, True))), DIAGONAL),
    "drift-kick-drift": (in_turn(Hamiltonian("drift-kick-drift", 2), Gibbs(blocks(2, False))), DENSE),
    "random-walk": (in_turn(RandomWalk(), Gibbs(blocks(2, True))), DENSE),
    "three-blocks": (Composed(THREE), DENSE),
    "sites-alone": (in_turn(None, Gibbs(blocks(0, True))), DIAGONAL[2:]),
}
ENGINES = {
    "python": lambda name: PythonEngine(density(name, np), [], n_dims(name), "c", KERNELS[name][0]),
    "numba": lambda name: NumbaEngine(numba.njit(density(name, np, numba.njit)), [], n_dims(name), KERNELS[name][0]),
}
if HAS_JAX:
    import jax
    import jax.numpy as jnp

    from pymc_hais.engines.jax import JaxEngine

    ENGINES["jax"] = lambda name: JaxEngine(density(name, jnp), [], n_dims(name), KERNELS[name][0])


def n_dims(name):
    return 9 if name == "sites-alone" else 11


def density(name, xp, jit=lambda f: f):
    return build_cage(xp, jit) if name == "sites-alone" else build_zoo(xp)


def start_of(name):
    rng = np.random.default_rng(4)
    sites = rng.integers(LEAST, np.minimum(MOST, 3) + 1, size=(N_PARTICLES, 9)).astype(float)
    return sites if name == "sites-alone" else np.hstack([rng.normal(size=(N_PARTICLES, 2)), sites])


def segment(engine, name, dtype=float):
    positions = start_of(name).astype(dtype)
    settings = np.array([0.0, *np.linspace(0.1, 1.0, N_STEPS)]), np.full(N_STEPS, 1.2), np.linspace(0.1, 0.9, N_STEPS)
    return run_segment(engine, state_of(engine, positions, KEY), *settings, KERNELS[name][1], KEY)


@cache
def specified(name):
    """Return what the plain loop makes of a segment."""
    return segment(ENGINES["python"](name), name)


def assert_same(found, expected, tolerance):
    sites = slice(-9, None)
    np.testing.assert_array_equal(found[0].position[:, sites], expected[0].position[:, sites])
    for one, other in zip((*found[0], *found[1]), (*expected[0], *expected[1]), strict=True):
        np.testing.assert_allclose(one, other, **tolerance)


@pytest.mark.every(3)
@pytest.mark.slow
@needs_jax
@pytest.mark.parametrize("name", fast_but(["random-walk"], KERNELS))
def test_sites_are_the_same_on_jax(name):
    assert_same(segment(ENGINES["jax"](name), name), specified(name), TOLERANCE)


@pytest.mark.every(5)
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", KERNELS)
def test_sites_are_the_same_on_numba(name):
    assert_same(segment(ENGINES["numba"](name), name), specified(name), TOLERANCE)


@pytest.mark.parametrize("name", KERNELS)
def test_all_kinds_of_sites_move_and_stay_whole_and_in_range(name):
    # Else the tests above would say nothing about them.
    state, trace = specified(name)
    start, sites = start_of(name)[:, -9:], state.position[:, -9:]
    assert np.all(np.mean(sites != start, axis=0) > 0.2)
    np.testing.assert_array_equal(sites, np.rint(sites))
    assert np.all((sites >= LEAST) & (sites <= MOST))
    assert state.momentum.shape == (N_PARTICLES, n_dims(name) - 9)
    assert trace.acceptance_rate.mean() == 1.0 if name == "sites-alone" else 0.2 < trace.acceptance_rate.mean() < 0.99
    fresh = [density(name, np)(z) for z in state.position]
    for carried, *values in zip(state[2:], *fresh, strict=True):
        np.testing.assert_allclose(carried, values, rtol=1e-12, atol=1e-12)


def test_single_precision_on_the_plain_loop_keeps_sites_whole():
    kernel = KERNELS["kick-drift-kick"][0]
    engine = PythonEngine(build_zoo(np), [], 11, "c", kernel, dtype=np.float32)
    sites = segment(engine, "kick-drift-kick", np.float32)[0].position[:, -9:]
    np.testing.assert_array_equal(sites, specified("kick-drift-kick")[0].position[:, -9:])


@pytest.mark.slow
@needs_jax
def test_single_precision_on_jax_keeps_sites_whole():
    name = "kick-drift-kick"
    with jax.enable_x64(False):
        state, trace = segment(ENGINES["jax"](name), name, np.float32)
    assert {leaf.dtype for leaf in state} == {np.dtype(np.float32)}
    assert_same((state, trace), specified(name), {"rtol": 1e-3, "atol": 1e-3})


# The noise -----------------------------------------------------------------------------------------------


def column(n):
    return np.arange(n, dtype=np.uint32)[:, None]


@pytest.fixture(scope="module")
def sample():
    """Noise of 20,000 particles at 5 steps, of three dimensions and five sites: arrays (steps, particles, ...)."""
    noise = build_noise(np, 3, n_uniforms=5)
    drawn = [noise(KEY, column(20_000), np.uint32(step)) for step in range(5)]
    return [np.stack(leaves) for leaves in zip(*drawn, strict=True)]


def test_numbers_of_sites_are_uniform(sample):
    _, _, sites = sample
    assert sites.shape == (5, 20_000, 5)
    assert np.all((sites > 0.0) & (sites < 1.0))
    assert_distribution(sites, stats.uniform.cdf)
    powers = sites.reshape(-1, 5, 1) ** np.array([1, 2, 3, 4])
    assert_mean(powers, 1.0 / np.array([2.0, 3.0, 4.0, 5.0]))


def test_numbers_of_sites_depend_on_nothing_else(sample):
    # Products of two numbers each, from one counter or two, in one particle, in neighbours and in steps.
    normal, uniform, sites = sample
    centred, others = sites - 0.5, np.concatenate([normal, np.abs(normal), uniform[..., None]], axis=-1)
    pairs = [centred[..., i] * centred[..., j] for i in range(5) for j in range(i)]
    squares = [(sites[..., i] ** 2 - 1 / 3) * (sites[..., j] ** 2 - 1 / 3) for i in range(5) for j in range(i)]
    assert_mean(np.stack([*pairs, *squares], axis=-1).reshape(-1, 20), np.zeros(20))
    products = (centred[..., :, None] * others[..., None, :]).reshape(-1, 35)
    assert_mean(products, np.zeros(35))
    assert_uncorrelated(sites[:, 1:], sites[:, :-1])
    assert_uncorrelated(sites[:, 1:, :4], sites[:, :-1, 1:])
    assert_uncorrelated(sites[1:], sites[:-1])


def test_no_number_of_a_site_is_used_twice(sample):
    # 500,000 words of 32 bits hold some 29 equal pairs by chance, and none is a whole row.
    sites = sample[2].reshape(-1, 5)
    assert len(np.unique(sites)) > 0.9998 * sites.size
    assert len(np.unique(sites[:, :2], axis=0)) == len(sites)
    assert not np.any(sites[:, 0] == sample[1].ravel())


@pytest.mark.parametrize("n_dims", [0, 1, 2, 5])
def test_without_sites_the_numbers_are_what_they_were(n_dims):
    plain, without = build_noise(np, n_dims), build_noise(np, n_dims, n_uniforms=0)
    for step in (0, 7, INITIAL_STEP):
        one, other = (noise(KEY, column(50), np.uint32(step)) for noise in (plain, without))
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
        assert one.sites.shape == (50, 0)
        # Sites widen the counters of a particle at their end: the first particle keeps its own.
        wide = build_noise(np, n_dims, n_uniforms=3)(KEY, column(1), np.uint32(step))
        np.testing.assert_array_equal(wide.normal, one.normal[:1])
        np.testing.assert_array_equal(wide.uniform, one.uniform[:1])


@pytest.mark.parametrize("n_dims", [0, 1, 4])
@pytest.mark.parametrize("n_uniforms", [0, 1, 2, 5])
def test_particles_count_apart_and_no_further_than_is_checked(n_dims, n_uniforms, monkeypatch):
    counters = []

    def counting(k0, k1, first, second):
        counters.append(second)
        return first, second

    monkeypatch.setattr(noise_module, "_threefry", counting)
    build_noise(np, n_dims, n_uniforms=n_uniforms)(KEY, column(7), np.uint32(0))
    counted = np.concatenate([one.ravel() for one in counters])
    assert len(np.unique(counted)) == counted.size
    width = counted.size // 7
    check_counters(2**32 // width, n_dims, n_uniforms)
    with pytest.raises(ValueError, match=f"pass at most {2**32 // width} draws"):
        check_counters(2**32 // width + 1, n_dims, n_uniforms)


@pytest.mark.parametrize(("n_dims", "n_uniforms"), [pytest.param(0, 3, marks=pytest.mark.slow), (3, 4)])
def test_numbers_of_sites_are_the_same_in_three_namespaces(n_dims, n_uniforms):
    particle, step = np.array([123], dtype=np.uint32), np.uint32(7)
    ours = build_noise(np, n_dims, n_uniforms=n_uniforms)(KEY, particle, step)
    others = [numba.njit(build_noise(_namespace(), n_dims, numba.njit, n_uniforms=n_uniforms))(KEY, particle, step)]
    if HAS_JAX:
        others.append(jax.jit(build_noise(jnp, n_dims, n_uniforms=n_uniforms))(KEY, particle, step))
    for theirs in others:
        np.testing.assert_array_equal(np.asarray(theirs.sites), ours.sites)
        np.testing.assert_array_equal(np.asarray(theirs.uniform), ours.uniform)
        np.testing.assert_allclose(theirs.normal, ours.normal, rtol=1e-13, atol=1e-15)


def test_the_cache_key_of_a_composed_kernel_holds_the_source_of_its_parts():
    kernel = in_turn(RandomWalk(), Gibbs((mixed().block,)))
    key = _cache_key(compiled_density(), 5, kernel, Geometric(), np.dtype(float))
    assert inspect.getsource(random_walk) in key
