"""Populations by hand: particles from positions, and one population through engines that take many."""

from dataclasses import fields, replace

import numpy as np

from pymc_hais.core.annealing import anneal
from pymc_hais.core.records import Particles, ParticleState, Segment


def build_key(rng):
    """Draw the key of a noise stream."""
    return rng.integers(2**32, size=2, dtype=np.uint32)


def gather(state, keys, rngs, inputs=(), alive=None):
    """Make B populations of an evaluated state (B, P, ...), every particle a family of its own."""
    n_populations, n_particles = np.shape(state.log_ratio)
    return Particles(
        state=state,
        alive=np.ones((n_populations, n_particles), dtype=bool) if alive is None else alive,
        ancestors=np.tile(np.arange(n_particles), (n_populations, 1)),
        parts=np.zeros((n_populations, n_particles), dtype=int),
        inputs=list(inputs),
        keys=np.asarray(keys, dtype=np.uint32),
        rngs=list(rngs),
        log_z_dropped=np.full(n_populations, -np.inf),
    )


def start(engine, positions, keys, rngs, inputs=()):
    """Evaluate positions (B, P, D) and make populations of them."""
    positions = np.array(positions)  # JAX may take them over
    return gather(engine.start(positions, list(inputs), np.asarray(keys)), keys, rngs, inputs)


def start_one(engine, positions, key, rng):
    """Make one population (B = 1) of positions (P, D)."""
    return start(engine, np.asarray(positions)[None], key[None], [rng])


def state_of(engine, positions, key):
    """Evaluate positions (P, D) of one population; the state keeps no axis for it."""
    state = engine.start(np.array(positions)[None], [], key[None])
    return ParticleState(*(np.array(leaf[0]) for leaf in state))


def joint_of(state):
    """Return the log density at beta = 1 (P,) of a state, and the size of the numbers that it is made of."""
    log_reference, log_ratio = np.asarray(state.log_reference), np.asarray(state.log_ratio)
    return log_reference + log_ratio, np.abs(log_reference) + np.abs(log_ratio)


def run_segment(engine, state, betas, step_sizes, persistence, metric, key, first_step=0):
    """Move one population (P, ...), the i-th step from ``betas[i]`` to ``betas[i + 1]``; no axis for it."""
    whole = ParticleState(*(np.asarray(leaf)[None] for leaf in state))
    segment = Segment(first_step, betas, step_sizes, persistence, metric)
    moved, trace = engine.run_segment(whole, [], segment, key[None])
    return tuple(type(record)(*(np.asarray(leaf)[0] for leaf in record)) for record in (moved, trace))


def only(run):
    """Return the run of one population without the axis of populations; log Z and the counts are numbers."""
    found = {field.name: getattr(run, field.name) for field in fields(run)}
    state = ParticleState(*(np.asarray(leaf)[0] for leaf in found.pop("state")))
    temperature = {name: values[0] for name, values in found.pop("temperature").items()}
    assert len(run.log_z) == 1
    return replace(run, state=state, temperature=temperature, **{name: value[0] for name, value in found.items()})


def anneal_one(engine, plan, positions, key, rng, function=anneal, **kwargs):
    """Anneal positions (P, D) as one population; the run keeps no axis for it."""
    return only(function(engine, plan, start_one(engine, positions, key, rng), **kwargs))
