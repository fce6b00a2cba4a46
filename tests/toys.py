"""Toy densities on an engine, without PyMC: JAX where it is installed, else the plain loop."""

import functools
import importlib.util

import numpy as np

from pymc_hais.core.annealing import anneal
from pymc_hais.core.records import KernelParams, Ladder, Noise, ParticleState, Schedule
from pymc_hais.kernels.hamiltonian import build_hamiltonian, persistence
from pymc_hais.kernels.paths import Geometric
from tests.populations import anneal_one, build_key

HAS_JAX = importlib.util.find_spec("jax") is not None
#: Neither the path nor the density takes any.
NO_DATA = ((), ())


@functools.cache
def build_engine(toy):
    """Compile a toy of ``tests/truth.py``, once."""
    if HAS_JAX:
        import jax.numpy as jnp

        from pymc_hais.engines.jax import JaxEngine

        return JaxEngine(toy.density(jnp), [], toy.n_dims)
    from pymc_hais.engines.python import PythonEngine

    return PythonEngine(toy.density(np), [], toy.n_dims, "c")


def build_path(xp, density):
    """Build the geometric path of a density ``x -> values``, which takes no data."""
    return Geometric().build(xp, lambda x, data: density(x))


def build_plan(betas, step_size, metrics, metric_index=None, damping=2.0, n_final_moves=0):
    """Build a plan by hand."""
    n_steps = len(betas) - 1
    index = np.zeros(n_steps, dtype=int) if metric_index is None else np.asarray(metric_index)
    sizes = np.broadcast_to(np.asarray(step_size, dtype=float), n_steps).copy()
    kept = persistence(damping, sizes)
    return Ladder(Schedule(np.asarray(betas)), sizes, index, tuple(metrics), kept, n_final_moves)


def anneal_toy(toy, engine, plan, n_particles, rng, function=anneal):
    """Anneal one population of a toy from exact reference draws."""
    key = build_key(rng)
    return anneal_one(engine, plan, toy.sample(rng, n_particles, 0.0), key, rng, function)


def evaluate(density, positions, momenta):
    """Evaluate particles (P, D) one by one with numpy."""
    rows = [ParticleState(x, v, *density(x)) for x, v in zip(positions, momenta, strict=True)]
    return ParticleState(*(np.stack(leaf) for leaf in zip(*rows, strict=True)))


def iterate(toy, positions, momenta, rng, n_steps, beta, params, build=build_hamiltonian):
    """Apply a transition n times to particles (P, D); return positions, momenta and mean acceptance."""
    run = _iterate_jax if HAS_JAX else _iterate_numpy
    return run(toy, positions, momenta, rng, n_steps, beta, params, build)


def _draw(rng, shape):
    return Noise(rng.standard_normal(shape), rng.random(shape[0]))


def _iterate_jax(toy, positions, momenta, rng, n_steps, beta, params, build):
    import jax
    import jax.numpy as jnp

    density = toy.density(jnp)
    transition = build(jnp, build_path(jnp, density))
    move = jax.jit(jax.vmap(lambda state, noise: transition(state, noise, beta, params, NO_DATA)))
    evaluated = jax.jit(jax.vmap(density))(positions)
    state = ParticleState(jnp.asarray(positions), jnp.asarray(momenta), *evaluated)
    for _ in range(n_steps):
        state, info = move(state, _draw(rng, positions.shape))
    return np.asarray(state.position), np.asarray(state.momentum), float(info.acceptance_rate.mean())


def _iterate_numpy(toy, positions, momenta, rng, n_steps, beta, params, build):
    density = toy.density(np)
    transition = build(np, build_path(np, density))
    state = evaluate(density, positions, momenta)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(n_steps):
            noise = _draw(rng, positions.shape)
            moves = [
                transition(ParticleState(*one), Noise(normal, uniform), beta, params, NO_DATA)
                for *one, normal, uniform in zip(*state, *noise, strict=True)
            ]
            state = ParticleState(*(np.stack(leaf) for leaf in zip(*(m for m, _ in moves), strict=True)))
    rate = float(np.mean([info.acceptance_rate for _, info in moves]))
    return state.position, state.momentum, rate


def build_params(step_size, metric, persistence):
    """Build float64 kernel parameters."""
    return KernelParams(float(step_size), np.asarray(metric, dtype=float), float(persistence))
