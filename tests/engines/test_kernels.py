"""Every kernel runs alike on every engine, and Numba keeps the machine code of two kernels apart."""

import numba
import numpy as np
import pytest

from pymc_hais.density.compat import traceable
from pymc_hais.density.compiling import compile_density
from pymc_hais.engines import compile_engine
from pymc_hais.engines.numba import NumbaEngine, _cache_key
from pymc_hais.engines.python import PythonEngine
from pymc_hais.kernels import Hamiltonian, LinearConstraints, RandomWalk
from pymc_hais.kernels.paths import Geometric, Parameters
from tests.engines.models import build_graph
from tests.marks import slow_but
from tests.populations import run_segment, state_of

KEY = np.array([11, 2**32 - 5], dtype=np.uint32)
#: A few contracting steps: rounding (1e-16 an operation) stays far below this.
TOLERANCE = {"rtol": 0.0, "atol": 1e-10}

WEDGE = LinearConstraints([[1.0, 0.2], [-0.9, -0.5]], [0.8, 0.4])
BOX = LinearConstraints.box([-1.0, -np.inf], [0.6, 0.5])
METRICS = {"diagonal": np.array([0.5, 0.9]), "dense": np.array([[0.6, 0.0], [-0.4, 0.5]])}
# Compiling each for Numba takes seconds, so each shows several things at once.
KERNELS = {
    "drift-kick-drift": (Hamiltonian("drift-kick-drift", 2, constraints=WEDGE), "dense"),
    "kick-drift-kick": (Hamiltonian(n_leapfrog=3, constraints=BOX), "diagonal"),
    "random-walk": (RandomWalk(constraints=WEDGE), "dense"),
}

DOUBLE = np.dtype(float)


def build_density(xp):
    def density(x):
        y = xp.exp(x)
        return -0.5 * xp.sum(x * x), xp.sum(0.7 * x - y), -x, 0.7 - y

    return density


def segment(engine, metric):
    rng = np.random.default_rng(0)
    positions = rng.uniform(-0.5, 0.4, size=(60, 2))
    positions = positions[WEDGE.contains(positions) & BOX.contains(positions)]
    settings = (np.array([0.0, *np.linspace(0.1, 1.0, 12)]), np.full(12, 1.3), np.linspace(0.1, 0.9, 12))
    return run_segment(engine, state_of(engine, positions, KEY), *settings, metric, KEY)


def numba_engine(kernel):
    return NumbaEngine(numba.njit(build_density(np)), [], 2, kernel)


def jax_engine(kernel):
    pytest.importorskip("jax")
    import jax.numpy as jnp

    from pymc_hais.engines.jax import JaxEngine

    return JaxEngine(build_density(jnp), [], 2, kernel)


@pytest.mark.every(8)
@pytest.mark.parametrize("build", [jax_engine, pytest.param(numba_engine, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", slow_but(["kick-drift-kick"], KERNELS))
def test_a_kernel_is_the_same_on_every_engine(name, build):
    kernel, metric = KERNELS[name]
    engines = [PythonEngine(build_density(np), [], 2, "c", kernel), build(kernel)]
    assert engines[1].kernel is kernel
    (ours, trace), (state, their_trace) = (segment(engine, METRICS[metric]) for engine in engines)
    assert np.all(kernel.constraints.contains(ours.position))
    assert 0.2 < trace.acceptance_rate.mean() < 0.99
    for one, other in zip((*ours, *trace), (*state, *their_trace), strict=True):
        np.testing.assert_allclose(one, other, **TOLERANCE)


def test_the_walls_are_met():
    # Else the test above would say nothing about them.
    free, walled = (
        segment(
            PythonEngine(build_density(np), [], 2, "c", Hamiltonian(n_leapfrog=3, constraints=walls)),
            METRICS["diagonal"],
        )[0]
        for walls in (None, BOX)
    )
    assert np.mean(np.abs(free.position - walled.position).max(axis=1) > 1e-3) > 0.5


def compiled_density():
    return traceable(compile_density(build_graph("regression")[0], mode="NUMBA"))


def test_numba_keeps_the_machine_code_of_kernels_and_paths_apart():
    density = compiled_density()
    box = LinearConstraints.box(0.0, np.full(3, 2.0))
    kernels = [Hamiltonian(), Hamiltonian("drift-kick-drift"), Hamiltonian(constraints=box), RandomWalk()]
    paths = (Geometric(), Parameters())
    keys = {_cache_key(density, 3, kernel, path, DOUBLE) for kernel in kernels for path in paths}
    assert None not in keys
    assert len(keys) == 2 * len(kernels)
    other = Hamiltonian(damping=1.0)
    assert _cache_key(density, 3, other, Geometric(), DOUBLE) == _cache_key(
        density, 3, Hamiltonian(), Geometric(), DOUBLE
    )


def test_what_numba_would_take_by_its_address_is_not_cached():
    walls = LinearConstraints(np.ones((50_000, 3)), np.ones(50_000))
    assert _cache_key(compiled_density(), 3, RandomWalk(constraints=walls), Geometric(), DOUBLE) is None


def test_constraints_of_another_dimension_are_refused_before_compiling():
    graph, _ = build_graph("regression")
    with pytest.raises(ValueError, match=r"have 2 dimensions .* has 3: pass normals of shape \(m, 3\)"):
        compile_engine(graph, None, {}, Hamiltonian(constraints=BOX))


def test_compile_engine_passes_the_kernel_on():
    engine = compile_engine(build_graph("regression")[0], "c", {}, RandomWalk())
    assert engine.kernel == RandomWalk()
    positions = build_graph("regression")[1][:5]
    one, state = np.ones(1), state_of(engine, positions, KEY)
    moved, _ = run_segment(engine, state, np.ones(2), 0.1 * one, one, np.ones(3), KEY)
    np.testing.assert_array_equal(moved.momentum, state.momentum)
