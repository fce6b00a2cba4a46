"""The time limit of a run, the cost of its parts, and the work that fits into the remaining time."""

import time
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np

#: Particles of a population, at least.
FEWEST = 50


@dataclass(frozen=True)
class Clock:
    """When a call, or a stage of it, began, and how many seconds it may take."""

    limit: float = np.inf
    begin: float = field(default_factory=lambda: time.perf_counter())

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.begin

    @property
    def left(self) -> float:
        """Seconds until the limit, not below 0."""
        return max(0.0, self.limit - self.elapsed)

    def part(self, share: float) -> Self:
        """Start the clock of a stage that may take a share of the seconds left."""
        return type(self)(share * self.left)

    def moves(self, seconds_per_move: float) -> float:
        """Return how many transitions of a particle fit into the share of the time that plans may use."""
        # The rest of the time is for the results, and for mistakes of the forecast.
        return 0.85 * self.left / seconds_per_move if seconds_per_move > 0.0 else np.inf


def start_clock(max_seconds: float | None) -> Clock:
    """Begin to count the seconds of a call."""
    return Clock() if max_seconds is None else Clock(float(max_seconds))


class Size(NamedTuple):
    """How large a round is."""

    n_steps: int
    draws: int  # particles of a chain


def takes(size: Size, n_final_moves: int) -> int:
    """Count the transitions of a chain's particles in a round."""
    return (size.n_steps + n_final_moves) * size.draws


def whole_tiles(draws: int, tile: int) -> int:
    """Round a number of particles to whole tiles of at least ``FEWEST``: a part of one would be compiled anew."""
    return max(draws // tile, -(-FEWEST // tile)) * tile


def fit_into(moves: float, wanted: Size, shortest: int, n_final_moves: int, tile: int = 1) -> Size:
    """Shorten a round to so many temperatures, then take particles from it, until a chain makes no more moves.

    The moves are those of all its particles together, and may be infinite.  Particles are taken by whole tiles, and
    what the last tile saves goes to the temperatures.
    """
    if moves >= takes(wanted, n_final_moves):
        return wanted
    shortest = min(shortest, wanted.n_steps)
    n_steps = int(moves / wanted.draws) - n_final_moves
    if n_steps >= shortest:
        return Size(n_steps, wanted.draws)
    fewer = int(np.clip(moves / (shortest + n_final_moves), min(FEWEST, wanted.draws), wanted.draws))
    draws = min(whole_tiles(fewer, tile), wanted.draws)
    return Size(int(np.clip(moves / draws - n_final_moves, shortest, wanted.n_steps)), draws)


def duration(seconds: float) -> str:
    """Write a time as a person reads it: "7 s", "3 min", "2.5 h"."""
    if seconds < 100.0:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 6000.0 else f"{seconds / 3600.0:.1f} h"
