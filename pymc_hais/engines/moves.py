"""The functions that a JAX engine compiles: starts, segments of the annealing, and both in one."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pymc_hais.core.noise import INITIAL_STEP
from pymc_hais.core.records import Compiled, KernelParams, Noise, ParticleState, PathFunctions, SegmentTrace


class Parts(NamedTuple):
    """What moves one particle, and the axes of its data."""

    path: PathFunctions
    noise: Compiled
    transition: Compiled
    axes: tuple[tuple[int | None, ...], tuple[int | None, ...]]  # 0 for arrays with one row a population
    has_start: bool  # whether a step of length zero starts particles


def build_start(parts: Parts) -> Any:
    """Build ``start(positions, data, keys, particles)``: positions (B, P, D), evaluated, with fresh momenta."""

    def one(position, particle, data, key):
        values = parts.path.evaluate(position, jnp.zeros((), position.dtype), data)
        momentum = parts.noise(key, particle[None], jnp.uint32(INITIAL_STEP)).normal
        return ParticleState(position, momentum.astype(position.dtype), *values)

    population = jax.vmap(one, (0, 0, None, None))

    def start(positions, data, keys, particles):
        return jax.vmap(population, (0, None, parts.axes, 0))(positions, particles, data, keys)

    return start


def build_segment(parts: Parts) -> Any:
    """Build ``segment(state, data, keys, particles, *steps)``: one transition at each beta.

    A population alone has no axis in the loop: every mapped axis takes JAX time to trace.
    """

    def one(state, particle, data, key, step, before, beta, params):
        normal, uniform, sites = parts.noise(key, particle[None], step)
        noise = Noise(normal.astype(state.position.dtype), uniform, sites)
        is_start = step == np.uint32(INITIAL_STEP)  # as a Python number it overflows without 64 bits
        if parts.has_start:  # a negative number accepts any proposal
            noise = noise._replace(uniform=jnp.where(is_start, -1.0, noise.uniform))
        state, increment = parts.path.arrive(state, before, beta, data)
        moved, info = parts.transition(state, noise, beta, params, data)
        if parts.has_start:  # a gradient that is not finite must not reach the momentum
            moved = moved._replace(momentum=jnp.where(is_start, noise.normal, moved.momentum))
        return moved, SegmentTrace(increment, info.acceptance_rate, info.is_divergent)

    population = jax.vmap(one, (0, 0, *(None,) * 6))
    populations = jax.vmap(population, (0, None, parts.axes, 0, *(None,) * 4))

    def segment(state, data, keys, particles, betas, step_sizes, persistence, metric, first_step, n_steps):
        def body(i, carry):
            state, trace = carry
            params = KernelParams(step_sizes[i], metric, persistence[i])
            step = first_step + i.astype(jnp.uint32)
            moved, row = move(state, particles, data, keys, step, betas[i], betas[i + 1], params)
            return moved, jax.tree.map(lambda whole, new: whole.at[..., i, :].set(new), trace, row)

        move, is_alone = populations, len(keys) == 1
        shape: tuple[int, ...] = len(keys), len(step_sizes), len(particles)
        if is_alone:
            move, shape, keys = population, shape[1:], keys[0]
            state = jax.tree.map(lambda leaf: leaf[0], state)
            data = tuple(tuple(map(_first, *pair)) for pair in zip(data, parts.axes, strict=True))
        empty = jnp.zeros(shape, state.position.dtype)
        moved = jax.lax.fori_loop(0, n_steps, body, (state, SegmentTrace(empty, empty, jnp.zeros(shape, bool))))
        return jax.tree.map(lambda leaf: leaf[None], moved) if is_alone else moved

    return segment


def build_visit(parts: Parts) -> Any:
    """Build ``visit(positions, data, keys, particles, *steps)``: a start and a segment from there."""
    start, segment = build_start(parts), build_segment(parts)

    def visit(positions, data, keys, particles, *steps):
        first = start(positions, data, keys, particles)
        return first, *segment(first, data, keys, particles, *steps)

    return visit


def _first(array: Any, axis: int | None) -> Any:
    """Return the first population's part of an array."""
    return array if axis is None else array[0]
