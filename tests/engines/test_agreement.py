"""One kernel, three engines: the same noise gives the same run."""

import dataclasses
from functools import cache

import numba
import numpy as np
import pytest

from pymc_hais.core import noise as noise_module
from pymc_hais.core.annealing import move
from pymc_hais.core.noise import INITIAL_STEP, build_noise
from pymc_hais.core.records import ParticleState
from pymc_hais.core.weights import systematic
from pymc_hais.engines.numba import NumbaEngine, _namespace
from pymc_hais.kernels import Hamiltonian
from pymc_hais.tuning import Recipe, build_ladder, run_pilot
from tests.engines.models import build_engine, build_graph
from tests.populations import anneal_one, run_segment, start_one, state_of
from tests.processes import run_apart
from tests.toys import HAS_JAX

pytestmark = pytest.mark.usefixtures("c_compiler")

KEY = np.array([11, 2**32 - 5], dtype=np.uint32)
#: Runs are deterministic and contract, so rounding (1e-16 an operation) stays far below this.
TOLERANCE = {"rtol": 0.0, "atol": 1e-10}

needs_jax = pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed: its engine cannot be compared")
BACKENDS = [pytest.param("jax", marks=needs_jax), "c"]
ALL_BACKENDS = ["numba", *BACKENDS]


@cache
def plan(name, metric):
    """Learn a plan on one engine; it is frozen, so every engine can follow it."""
    engine, positions = build_engine(name, "numba"), build_graph(name)[1]
    particles = start_one(engine, positions, KEY, np.random.default_rng(3))
    learnt = build_ladder(run_pilot(engine, particles), 40, Recipe(3), Hamiltonian())
    scales = [m if m.ndim == 1 else np.sqrt((m**2).sum(axis=1)) for m in learnt.metrics]
    if metric == "diagonal":
        return dataclasses.replace(learnt, metrics=tuple(scales))
    n_dims = build_graph(name)[0].layout.n_dims
    factor = np.tril(np.full((n_dims, n_dims), 0.3) + 0.7 * np.eye(n_dims))
    return dataclasses.replace(learnt, metrics=tuple(scale[:, None] * factor for scale in scales))


@cache
def population(name, backend, metric):
    """Anneal one population, and make draws of it; return the run, and the draws' positions."""
    engine, positions = build_engine(name, backend), build_graph(name)[1]
    run = anneal_one(engine, plan(name, metric), positions, KEY, np.random.default_rng(4))
    whole = ParticleState(*(leaf[None] for leaf in run.state))
    drawn = engine.take(whole, systematic(run.log_weights, 0.4)[None])
    moves = plan(name, metric).n_final_moves
    return run, np.asarray(move(engine, plan(name, metric), drawn, [], KEY[None], moves, 50).position)


@pytest.mark.parametrize("metric", ["diagonal", "dense"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_whole_run_is_the_same_on_every_engine(backend, metric):
    (ours, draws), (theirs, their_draws) = (population("regression", name, metric) for name in ("numba", backend))
    assert ours.n_resampled > 0
    assert 0.2 < ours.acceptance_rate.mean() < 0.99
    np.testing.assert_allclose(ours.log_z, theirs.log_z, **TOLERANCE)
    np.testing.assert_allclose(ours.log_weights, theirs.log_weights, **TOLERANCE)
    np.testing.assert_allclose(draws, their_draws, **TOLERANCE)
    np.testing.assert_allclose(ours.state.position, theirs.state.position, **TOLERANCE)
    np.testing.assert_allclose(ours.acceptance_rate, theirs.acceptance_rate, **TOLERANCE)
    np.testing.assert_array_equal(ours.ancestors, theirs.ancestors)


#: Numba's compilation alone takes as long as the others together.
PAIRS = [pytest.param("c", "jax", marks=needs_jax), pytest.param("numba", "c", marks=pytest.mark.slow)]
BETAS = np.array([0.0, *np.linspace(0.2, 1.0, 6)])


def segment(engine, positions, steps=slice(0, 6), state=None, step_size=0.5):
    """Move the particles of an engine by some steps of a path of six."""
    n_dims = positions.shape[1]
    state = state_of(engine, positions, KEY) if state is None else state
    settings = (np.full(6, step_size), np.linspace(0.1, 0.9, 6))
    return run_segment(
        engine,
        state,
        BETAS[steps.start : steps.stop + 1],
        *(setting[steps] for setting in settings),
        np.linspace(0.5, 1.0, n_dims),
        KEY,
        steps.start,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_what_is_not_finite_is_rejected_alike(one, other):
    positions = build_graph("cliff")[1]
    (ours, trace), (theirs, their_trace) = (
        segment(build_engine("cliff", name), positions, step_size=1.5) for name in (one, other)
    )
    np.testing.assert_array_equal(trace.is_divergent, their_trace.is_divergent)
    np.testing.assert_allclose(trace.acceptance_rate, their_trace.acceptance_rate, **TOLERANCE)
    np.testing.assert_allclose(trace.log_increment, their_trace.log_increment, **TOLERANCE)
    np.testing.assert_allclose(ours.position, theirs.position, **TOLERANCE)
    # Leaving through the hole is a rejection, leaving through the cut a divergence, and nobody gets through.
    inside = np.isfinite(trace.log_increment[0])
    rejected = trace.acceptance_rate[:, inside] == 0.0
    assert trace.is_divergent[:, inside].sum() > 10
    assert (rejected & ~trace.is_divergent[:, inside]).sum() > 10
    assert np.all(np.isfinite(ours.log_ratio[inside]))


@pytest.mark.parametrize("backend", ALL_BACKENDS)
def test_two_short_segments_make_one_long(backend):
    engine, positions = build_engine("regression", backend), build_graph("regression")[1]
    whole, trace = segment(engine, positions)
    state, first = segment(engine, positions, slice(0, 2))
    state, second = segment(engine, positions, slice(2, 6), state)
    for one, two in zip(whole, state, strict=True):
        np.testing.assert_array_equal(one, two)
    for one, *two in zip(trace, first, second, strict=True):
        np.testing.assert_array_equal(one, np.concatenate(two))


# LAPACK's compilation alone takes most of a minute.
@pytest.mark.parametrize("name", ["regression", pytest.param("cholesky", marks=pytest.mark.exhaustive)])
def test_threads_do_not_change_the_result(name):
    engine, positions = build_engine(name, "numba"), build_graph(name)[1]
    results = []
    for cores in (2, 1):
        engine.set_cores(cores)
        results.append(segment(engine, positions))
    (two, trace_two), (one, trace_one) = results
    for left, right in zip((*two, *trace_two), (*one, *trace_one), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.exhaustive
@needs_jax
def test_particles_in_several_calls_are_the_particles_of_one(monkeypatch):
    from pymc_hais.engines import jax as jax_module

    engine, positions = build_engine("regression", "jax"), build_graph("regression")[1]
    n_particles = len(positions)
    assert n_particles % 2 == 0
    state, trace = segment(engine, positions)
    monkeypatch.setattr(engine, "is_accelerated", True)
    monkeypatch.setattr(jax_module, "_PARTICLES_ACCELERATOR", n_particles // 2)
    start_in_two = state_of(engine, positions, KEY)
    state_in_two, trace_in_two = segment(engine, positions, state=start_in_two)
    assert trace_in_two.log_increment.shape == (6, n_particles)
    for one, two in zip((*state, *trace), (*state_in_two, *trace_in_two), strict=True):
        np.testing.assert_allclose(two, one, **TOLERANCE)


@needs_jax
def test_an_accelerator_takes_wide_densities_and_leaves_narrow_ones_to_the_cpu(monkeypatch):
    from types import SimpleNamespace

    from pymc_hais.engines import jax as jax_module

    gpu = SimpleNamespace(platform="gpu")
    assert jax_module._choose_device(10**6, gpu) is gpu
    assert jax_module._choose_device(10, gpu).platform == "cpu"

    def no_cpu(backend):
        raise RuntimeError("Unknown backend cpu")

    monkeypatch.setattr(jax_module.jax, "local_devices", no_cpu)
    assert jax_module._choose_device(10, gpu) is gpu


def test_a_segment_leaves_its_input_alone():
    engine, positions = build_engine("regression", "numba"), build_graph("regression")[1]
    state = state_of(engine, positions, KEY)
    before = [leaf.copy() for leaf in state]
    segment(engine, positions, state=state)
    for one, two in zip(before, state, strict=True):
        np.testing.assert_array_equal(one, two)


# The noise -----------------------------------------------------------------------------------------------


def test_numba_encrypts_in_32_bits():
    words = np.random.default_rng(0).integers(2**32, size=(4, 500), dtype=np.uint32)
    ours, theirs = numba.njit(noise_module._threefry)(*words), noise_module._threefry(*words)
    for one, two in zip(ours, theirs, strict=True):
        assert one.dtype == np.uint32
        np.testing.assert_array_equal(one, two)


@cache
def compiled_noises(n_dims):
    """Compile the noise for Numba and, where it is installed, JAX."""
    compiled = [numba.njit(build_noise(_namespace(), n_dims, numba.njit))]
    if HAS_JAX:
        import jax
        import jax.numpy as jnp

        compiled.append(jax.jit(build_noise(jnp, n_dims)))
    return compiled


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize("n_dims", [1, 4])
@pytest.mark.parametrize("step", [0, 7, INITIAL_STEP])
def test_noise_is_the_same_in_three_namespaces(n_dims, step):
    particle, step = np.array([123], dtype=np.uint32), np.uint32(step)
    expected = build_noise(np, n_dims)(KEY, particle, step)
    for noise in compiled_noises(n_dims):
        drawn = noise(KEY, particle, step)
        # The uniforms are the bits themselves; the normals are logarithms and sines of them.
        np.testing.assert_array_equal(np.asarray(drawn.uniform), expected.uniform)
        np.testing.assert_allclose(drawn.normal, expected.normal, rtol=1e-13, atol=1e-15)


# What is particular to Numba -----------------------------------------------------------------------------


@pytest.mark.slow
def test_an_error_in_the_model_comes_through_the_threads():
    @numba.njit
    def density(x):
        if x[0] > 2.0:
            raise ValueError("beyond the model")
        return 0.0, 0.0, np.ones(1), np.ones(1)

    engine = NumbaEngine(density, [], 1)
    state, one = state_of(engine, np.zeros((40, 1)), KEY), np.ones(20)
    with pytest.raises(ValueError, match="beyond the model"):
        run_segment(engine, state, np.ones(21), one, one, np.ones(1), KEY)


@pytest.mark.exhaustive
def test_single_precision_is_widened():
    @numba.njit
    def density(x):
        half = np.float32(0.5)
        return np.array(-half * np.float32(x[0]) ** 2), half, -x[::-1].astype(np.float32), np.zeros(2)[::-1]

    engine = NumbaEngine(density, [], 2)
    state, trace = segment(engine, np.zeros((5, 2)))
    assert {leaf.dtype for leaf in state} == {np.dtype(float)}
    np.testing.assert_array_equal(trace.log_increment, np.tile(0.5 * np.diff(BETAS)[:, None], (1, 5)))


@pytest.mark.slow
def test_another_process_finds_the_machine_code():
    build_engine("regression", "numba")
    hits = "sum(build_engine('regression', 'numba')._segment.stats.cache_hits.values())"
    program = f"from tests.engines.models import build_engine; print({hits})"
    assert run_apart(program).strip() == "1"
