"""Paths: value, gradient and increment at a beta; the two agree where the parameter's density is linear in beta."""

from types import SimpleNamespace

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_hais.core.records import ParticleState
from pymc_hais.engines.numba import NumbaEngine
from pymc_hais.engines.python import PythonEngine
from pymc_hais.kernels import Hamiltonian, RandomWalk
from pymc_hais.kernels import paths as parameters
from pymc_hais.kernels.paths import Geometric, Parameters
from pymc_hais.tuning import run_pilot
from tests.mutants import mutate
from tests.populations import anneal_one, start_one
from tests.toys import HAS_JAX, NO_DATA, build_engine, build_plan
from tests.truth import LogGamma

TOY = LogGamma(np.array([0.8, 1.4]), np.array([0.5, 1.0]), np.array([3.0, 1.0]), np.array([2.0, 6.0]), -0.3)
KEY = np.array([1, 2], dtype=np.uint32)
NAMESPACES = {"numpy": np}
if HAS_JAX:
    import jax.numpy as jnp

    from pymc_hais.engines.jax import JaxEngine

    NAMESPACES["jax"] = jnp


def linear(xp):
    """Write the toy as a parameter path: f = log q + beta log ratio, with its slope in beta and its gradient in x."""
    density = TOY.density(xp)

    def at(x, beta):
        log_reference, log_ratio, grad_reference, grad_ratio = density(x)
        zeros = xp.zeros(2)
        return log_reference + beta * log_ratio, log_ratio, grad_reference + beta * grad_ratio, zeros

    return at


def build_both(xp):
    """Build the functions of the geometric and of the parameter path to the same target."""
    density, at = TOY.density(xp), linear(xp)
    return Geometric().build(xp, lambda x, data: density(x)), Parameters().build(xp, lambda x, b, data: at(x, b))


def state_at(path, x, beta):
    return ParticleState(x, np.zeros_like(x), *path.evaluate(x, beta, NO_DATA))


points = st.tuples(st.floats(-2.0, 1.0), st.floats(-2.0, 1.0)).map(np.array)
betas = st.floats(0.0, 1.0)


@pytest.mark.parametrize("name", NAMESPACES)
@given(x=points, first=betas, last=betas)
def test_a_density_linear_in_beta_is_the_same_on_both_paths(name, x, first, last):
    xp = NAMESPACES[name]
    one, other = build_both(xp)
    arrived = []
    for path in (one, other):
        start = state_at(path, xp.asarray(x), first)
        state, increment = path.arrive(start, first, last, NO_DATA)
        log_density = path.log_density(state.log_reference, state.log_ratio, last)
        gradient = path.gradient(state.grad_reference, state.grad_ratio, last)
        np.testing.assert_array_equal(state.position, x)
        arrived.append([start.log_ratio, increment, log_density, *gradient])
    np.testing.assert_allclose(*arrived, rtol=1e-9, atol=1e-9)
    log_reference, log_ratio, grad_reference, grad_ratio = TOY.density(np)(x)
    expected = [log_ratio, (last - first) * log_ratio, log_reference + last * log_ratio]
    np.testing.assert_allclose(arrived[0], [*expected, *(grad_reference + last * grad_ratio)], rtol=1e-9, atol=1e-9)


def curved(x, beta, data=()):
    """Interpolate the logarithm of a precision: f = (beta log 3 - 3^beta x^2) / 2, which no line in beta is."""
    precision = 3.0**beta
    slope = 0.5 * np.log(3.0) * (1.0 - precision * x[0] ** 2)
    return 0.5 * (beta * np.log(3.0) - precision * x[0] ** 2), slope, -precision * x, np.zeros(1)


@given(x=st.floats(-3, 3), first=betas, last=betas)
def test_on_a_curved_path_increments_are_differences_of_the_density(x, first, last):
    path, position = Parameters().build(np, curved), np.array([x])
    state, increment = path.arrive(state_at(path, position, first), first, last, NO_DATA)
    value, slope, gradient, _ = curved(position, last)
    np.testing.assert_allclose(increment, value - curved(position, first)[0], atol=1e-12)
    np.testing.assert_allclose(path.log_density(state.log_reference, state.log_ratio, last), value, atol=1e-12)
    np.testing.assert_allclose(path.gradient(state.grad_reference, state.grad_ratio, last), gradient)
    np.testing.assert_allclose(state.log_ratio, slope)


def test_a_slope_instead_of_the_difference_would_be_seen():
    wrong = mutate(
        parameters,
        ("log_density(log_reference, log_ratio, beta) - value", "(beta - before) * log_ratio"),
    ).Parameters()
    path, position = wrong.build(np, curved), np.array([1.5])
    _, increment = path.arrive(state_at(path, position, 0.2), 0.2, 0.9, NO_DATA)
    assert abs(increment - (curved(position, 0.9)[0] - curved(position, 0.2)[0])) > 0.1


# Particles of probability zero ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMESPACES)
def test_a_particle_of_probability_zero_keeps_it_on_both_paths(name):
    xp = NAMESPACES[name]
    none, slope = xp.asarray(-np.inf), xp.asarray(0.7)
    zeros = xp.zeros(1)
    one = Geometric().build(xp, lambda x, data: (xp.asarray(-0.5), none, zeros, zeros))
    other = Parameters().build(xp, lambda x, beta, data: (none, slope, zeros, zeros))
    for path in (one, other):
        state = state_at(path, zeros, 0.2)
        for before, beta in ((0.2, 0.5), (0.5, 1.0)):
            with np.errstate(invalid="ignore"):  # as the Python engine does
                state, increment = path.arrive(state, before, beta, NO_DATA)
            assert increment == -np.inf


def hole(x, beta):
    """Standard normal, of which nothing is left beyond 0.3 at any beta: Z = P(x < 0.3)."""
    return -0.5 * np.sum(x * x) if x[0] < 0.3 else -np.inf, 0.0, -x, np.zeros(1)


def engine_of(density, path=None, kernel=None, n_dims=1):
    """Build an engine of a density ``(x, betas (1,))``."""
    return PythonEngine(lambda x, betas: density(x, betas[0]), [], n_dims, "c", kernel, path or Parameters())


def test_dead_particles_are_no_nan_and_count_in_the_denominator():
    positions, plan = np.linspace(-1.0, 2.0, 50)[:, None], build_plan(np.linspace(0, 1, 6), 0.8, [np.ones(1)])
    run = anneal_one(engine_of(hole), plan, positions, KEY, np.random.default_rng(0))
    alive = positions[:, 0] < 0.3
    np.testing.assert_array_equal(np.isfinite(run.log_weights), alive)
    np.testing.assert_allclose(run.log_z, np.log(alive.mean()))
    assert (run.n_nan, run.n_infinite) == (0, 0)
    unguarded = mutate(parameters, ("xp.where(value == -xp.inf, -xp.inf, increment)", "increment")).Parameters()
    assert anneal_one(engine_of(hole, unguarded), plan, positions, KEY, np.random.default_rng(0)).n_nan > 0


# Engines --------------------------------------------------------------------------------------------------


def on_vector(xp):
    """Write the linear density as engines call it: with beta as a vector of one."""
    at = linear(xp)
    return lambda x, betas: at(x, betas[0])


def linear_engines():
    yield PythonEngine(on_vector(np), [], 2, "c", path=Parameters())
    density = TOY.density(np)

    @numba.njit
    def compiled(x, betas):
        log_reference, log_ratio, grad_reference, grad_ratio = inner(x)
        value, gradient = log_reference + betas[0] * log_ratio, grad_reference + betas[0] * grad_ratio
        return value, log_ratio, gradient, np.zeros(2)

    inner = numba.njit(density)
    yield NumbaEngine(compiled, [], 2, path=Parameters())
    if HAS_JAX:
        yield JaxEngine(on_vector(jnp), [], 2, path=Parameters())


@pytest.mark.exhaustive
def test_a_whole_run_is_the_same_on_both_paths_and_on_every_engine():
    plan = build_plan(np.linspace(0, 1, 31), 0.4, [np.array([1.0, 0.6]), 0.5 * np.eye(2)], [0] * 15 + [1] * 15)
    positions = TOY.sample(np.random.default_rng(1), 30, 0.0)
    expected = anneal_one(build_engine(TOY), plan, positions, KEY, np.random.default_rng(3))
    for engine in linear_engines():
        run = anneal_one(engine, plan, positions, KEY, np.random.default_rng(3))
        np.testing.assert_allclose(run.log_z, expected.log_z, rtol=1e-9, err_msg=engine.name)
        np.testing.assert_allclose(run.log_weights, expected.log_weights, atol=1e-8, err_msg=engine.name)
        np.testing.assert_allclose(run.state.position, expected.state.position, atol=1e-8, err_msg=engine.name)
        np.testing.assert_array_equal(run.ancestors, expected.ancestors)


# What a path costs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [Hamiltonian(), Hamiltonian("drift-kick-drift", 2), RandomWalk()], ids=repr)
@pytest.mark.parametrize("path", [Geometric(), Parameters()], ids=["geometric", "parameters"])
def test_a_step_costs_the_evaluations_that_kernel_and_path_say(kernel, path):
    calls, n_particles, n_steps = [], 6, 7
    at, density = linear(np), TOY.density(np)

    def counted(x, *betas):
        calls.append(x)
        return at(x, betas[0][0]) if betas else density(x)

    engine = PythonEngine(counted, [], 2, "c", kernel, path)
    plan = build_plan(np.linspace(0, 1, n_steps + 1), 0.3, [np.ones(2)])
    anneal_one(engine, plan, TOY.sample(np.random.default_rng(0), n_particles, 0.0), KEY, np.random.default_rng(1))
    assert len(calls) == n_particles * (1 + n_steps * (kernel.n_gradients + path.n_evaluations))


def test_a_pilot_counts_the_evaluations_of_the_path_too():
    rng, calls = np.random.default_rng(0), SimpleNamespace(n=0)

    def counted(x, beta):
        calls.n += 1
        return curved(x, beta)

    engine = engine_of(counted)
    particles = start_one(engine, rng.standard_normal((100, 1)), KEY, rng)
    assert run_pilot(engine, particles).n_gradients == calls.n
