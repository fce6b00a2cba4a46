"""Populations cut into tiles of one shape, so that one compiled program moves them all.

The shape depends on the number of particles and on the device alone.  Programs of different shapes round differently,
so results would otherwise change with the number of populations, of threads or of rows.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_hais.core.records import ParticleState, SegmentTrace


class Tile(NamedTuple):
    """Indices of ``shape``, filled up by repeating the last, and how many of them count."""

    populations: np.ndarray  # (b,)
    particles: np.ndarray  # (p,)
    counted: tuple[int, int]

    @property
    def numbers(self) -> np.ndarray:
        """Numbers of the particles; their noise depends on these."""
        return self.particles.astype(np.uint32)


def tile_shape(n_particles: int, most: int) -> tuple[int, int]:
    """Return the shape of a tile: numbers of populations and of particles of each, with a product of at most ``most``.

    Few populations would leave the rest of a tile empty, so only small populations share one.
    """
    n_parts = -(-n_particles // most)
    size = -(-n_particles // n_parts)
    return max(1, most // (4 * size)), size


@functools.lru_cache(maxsize=128)
def cut_tiles(n_populations: int, n_particles: int, most: int) -> list[Tile]:
    """Cut (B, P) particles into tiles."""
    b, p = tile_shape(n_particles, most)
    return [
        Tile(
            np.minimum(np.arange(first, first + b), n_populations - 1),
            np.minimum(np.arange(start, start + p), n_particles - 1),
            (min(b, n_populations - first), min(p, n_particles - start)),
        )
        for first in range(0, n_populations, b)
        for start in range(0, n_particles, p)
    ]


def cut(array: Any, tile: Tile) -> Any:
    """Copy a tile out of an array (B, P, ...)."""
    populations, particles, counted = tile
    if counted == (len(populations), len(particles)):
        if counted == array.shape[:2]:
            return array  # stays on the device
        rows, columns = slice(populations[0], populations[-1] + 1), slice(particles[0], particles[-1] + 1)
        return array[rows, columns]
    return array[np.ix_(populations, particles)]


def merge(parts: Sequence[Any], tiles: Sequence[Tile], shape: tuple[int, int], axis: int = 1) -> Any:
    """Put arrays (b, p, ...), one a tile, together to (B, P, ...); the particles may be another ``axis``."""
    first = np.asarray(parts[0])
    inner = list(first.shape)
    inner[0], inner[axis] = shape
    whole = np.empty(inner, first.dtype)
    between = (slice(None),) * (axis - 1)
    for part, (populations, particles, (b, p)) in zip(parts, tiles, strict=True):
        rows, columns = slice(populations[0], populations[0] + b), slice(particles[0], particles[0] + p)
        whole[(rows, *between, columns)] = np.asarray(part)[(slice(b), *between, slice(p))]
    return whole


def join_traces(traces: Sequence[SegmentTrace], tiles: Sequence[Tile], shape: tuple[int, int], n: int) -> SegmentTrace:
    """Join the traces of tiles, of n steps each, to that of populations (B, P)."""
    if len(traces) == 1:
        return SegmentTrace(*(np.asarray(leaf)[: shape[0], :n, : shape[1]] for leaf in traces[0]))
    columns = (merge(leaves, tiles, shape, axis=2)[:, :n] for leaves in zip(*traces, strict=True))
    return SegmentTrace(*columns)


def join_states(parts: Sequence[ParticleState], tiles: Sequence[Tile], shape: tuple[int, ...]) -> ParticleState:
    """Join the states of tiles to that of populations (B, P)."""
    if len(parts) == 1:
        if np.shape(parts[0].log_ratio) == shape:
            return parts[0]  # stays on the device
        return ParticleState(*(np.asarray(leaf)[: shape[0], : shape[1]] for leaf in parts[0]))
    return ParticleState(*(merge(leaves, tiles, (shape[0], shape[1])) for leaves in zip(*parts, strict=True)))
