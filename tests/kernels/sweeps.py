"""Targets with discrete sites moved by a kernel: many particles by chance, or one in all the ways that there are."""

import itertools

import numpy as np

from pymc_hais.core.records import Noise, ParticleState
from pymc_hais.kernels import Block, Composed
from tests.kernels.targets import BETA, LOOP
from tests.statistical import is_mean
from tests.toys import HAS_JAX, NO_DATA, build_params, build_path

N_PARTICLES = 40_000 if HAS_JAX else 2_000


def in_turn(kernel, sites, module_composed=Composed):
    """Let a kernel move the continuous dimensions, and another one the sites after them."""
    first, stop = sites.blocks[0].start, sites.blocks[-1].stop
    continuous = () if kernel is None else (Block(kernel, 0, first),)
    return module_composed((*continuous, Block(sites, first, stop)))


def moved(target, kernel, n_steps, metric, step_size=1.0, persistence=0.7):
    """Move exact draws; return features and their expectations after each of some numbers of steps, and acceptance."""
    rng = np.random.default_rng(31)
    x = target.sample(rng, N_PARTICLES)
    v = rng.standard_normal((N_PARTICLES, x.shape[1] - kernel.n_sites))
    params = build_params(step_size, metric, persistence)
    move, state = (_start_jax if HAS_JAX else _start_numpy)(target, kernel, x, v, params)
    found, rates = [], []
    for step in range(1, max(n_steps) + 1):
        numbers = rng.random((N_PARTICLES, kernel.n_uniforms))
        state, rate = move(state, Noise(rng.standard_normal(v.shape), rng.random(N_PARTICLES), numbers))
        rates.append(float(np.mean(rate)))
        if step in n_steps:
            found.append((target.features(*map(np.asarray, state[:2])), target.expected()))
    return found, float(np.mean(rates))


def is_seen(target, kernel, *settings):
    """Whether the features show, after a step or ten, that a transition is wrong."""
    return not all(is_mean(*features) for features in moved(target, kernel, (1, 10), *settings)[0])


def _start_jax(target, kernel, x, v, params):
    import jax
    import jax.numpy as jnp

    density = target.density(jnp)
    transition = kernel.build(jnp, build_path(jnp, density), loop=LOOP)

    def one(state, noise):
        moved, info = transition(state, noise, BETA, params, NO_DATA)
        return moved, info.acceptance_rate

    return jax.jit(jax.vmap(one)), ParticleState(jnp.asarray(x), jnp.asarray(v), *jax.jit(jax.vmap(density))(x))


def _start_numpy(target, kernel, x, v, params):
    density = target.density(np)
    transition = kernel.build(np, build_path(np, density))

    def move(state, noise):
        with np.errstate(all="ignore"):
            ends = [
                transition(ParticleState(*one), Noise(*own), BETA, params, NO_DATA)
                for one, own in zip(zip(*state, strict=True), zip(*noise, strict=True), strict=True)
            ]
        state = ParticleState(*(np.stack(leaf) for leaf in zip(*(end for end, _ in ends), strict=True)))
        return state, [info.acceptance_rate for _, info in ends]

    rows = [(one, own, *density(one)) for one, own in zip(x, v, strict=True)]
    return move, ParticleState(*(np.stack(leaf) for leaf in zip(*rows, strict=True)))


# Every way a sweep can go -------------------------------------------------------------------------------

#: The scale of the sites' walks; with it every step that stays within three values has a share above 1 / _GRID.
WIDTH = 1.3
_GRID = 16


def transition_matrix(target, gibbs, tolerance=1e-8):
    """Return the probabilities (n, n + 1) of a sweep from state to state; those of leaving all of them come last.

    Exact but for a few times ``tolerance`` where each number decides about its own site only, and no outcome of it has
    a share below 1 / ``_GRID``: outcomes change where the number passes certain values, found by halving intervals.
    """
    inner, known = target.density(np), {}

    def density(x):
        # The few states are evaluated thousands of times.
        key = x.tobytes()
        if key not in known:
            known[key] = inner(x)
        return known[key]

    sweep = gibbs.build(np, build_path(np, density))
    places = {tuple(state): i for i, state in enumerate(target.states)}
    matrix = np.zeros((len(places), len(places) + 1))
    params = build_params(1.0, np.full(target.states.shape[1], WIDTH), 0.0)
    for row, state in zip(matrix, target.states, strict=True):
        start = ParticleState(state, np.zeros(0), *density(state))

        def end(numbers, start=start):
            return places.get(tuple(sweep(start, numbers, BETA, params, NO_DATA).position), -1)

        # A number this low accepts whatever is proposed, so that proposals show.
        for share, place in _outcomes(end, _order(gibbs), np.full(gibbs.n_uniforms, 1e-300), tolerance):
            row[place] += share
    return matrix


def _order(gibbs):
    """Return the uniform numbers in the order in which they decide."""
    order, first = [], 0
    for block in gibbs.blocks:
        parts = (0, block.n_sites) if block.rule == "walk" else (0,)
        sites = np.argsort(block.colours, kind="stable")
        order += [first + site + part for site in sites for part in parts]
        first += block.n_uniforms
    return order


def _outcomes(end, order, numbers, tolerance):
    """Yield the shares and ends of all ways to go on, given the numbers that have decided."""
    if not order:
        yield 1.0, end(numbers)
        return

    def with_number(number):
        return np.where(np.arange(len(numbers)) == order[0], number, numbers)

    grid = (np.arange(_GRID) + 0.5) / _GRID
    ends = [end(with_number(number)) for number in grid]
    cuts = [0.0]
    for i in range(_GRID - 1):
        if ends[i] != ends[i + 1]:
            low, high = grid[i], grid[i + 1]
            while high - low > tolerance:
                middle = 0.5 * (low + high)
                low, high = (middle, high) if end(with_number(middle)) == ends[i] else (low, middle)
            cuts.append(low)
    for low, high in itertools.pairwise([*cuts, 1.0]):
        for share, place in _outcomes(end, order[1:], with_number(0.5 * (low + high)), tolerance):
            yield (high - low) * share, place


def expected_matrix(target):
    """Multiply the conditional distributions of the colours; a walk judges its proposals."""
    log_density, states = np.log(target.probabilities()), target.states
    product, n = np.eye(len(states)), len(states)
    for colour in range(target.block.n_colours):
        matrix = np.ones((n, n))
        for site in range(states.shape[1]):
            values = states[:, site]
            if target.block.colours[site] != colour:
                matrix *= values[:, None] == values
                continue
            is_line = np.all(np.delete(states[:, None] == states, site, axis=2), axis=2)
            chances = is_line * np.exp(log_density - log_density.max())
            if target.block.rule == "walk":
                steps = np.abs(values[:, None] - values)
                proposed = 0.5 * (np.exp(-(steps - 1.0) / WIDTH) - np.exp(-steps / WIDTH))
                chances = is_line * (steps > 0) * proposed * np.exp(np.minimum(0.0, log_density - log_density[:, None]))
                chances += np.diag(1.0 - chances.sum(axis=1))
            chances = chances / chances.sum(axis=1, keepdims=True)
            # The chance of each value of this site, whatever the others do.
            matrix *= np.stack([chances[:, values == value].sum(axis=1) for value in values], axis=1)
        product = product @ matrix
    return product
