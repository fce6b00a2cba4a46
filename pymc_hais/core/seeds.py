"""One tree of seeds: every random number belongs to a purpose, a round, a row of data and a chain."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple, Self

import numpy as np


class Purpose(IntEnum):
    """The purpose of random numbers."""

    CHECK = 0  # draws that check a model before any long work
    PILOT = 1
    ROUND = 2
    POSTERIOR = 3  # resampling of the final particles, and the moves after it
    MODES = 4  # where the search for modes starts, and draws around those found
    REVERSE = 5  # the way back to the reference
    SIMULATION = 6  # of data sets from the model
    OPINION = 7  # other estimates of log Z


class Branch(IntEnum):
    """A run within a run, with a tree of its own."""

    REFERENCE_MODEL = 0
    PRIOR_MASS = 1
    LOG_Z = 2  # of an unnormalised model whose rows are scored
    EXTENSION = 3  # of a finished run; each has a number of its own
    FROM_MODES = 4  # that the first run has missed


class Place(NamedTuple):
    """Populations that are annealed together: their purpose, round or pilot, rows of data, and chains."""

    purpose: Purpose
    number: int
    rows: Sequence[int]
    chains: Sequence[int]

    @property
    def populations(self) -> list[tuple[int, int]]:
        """The row and the chain of each."""
        return [(row, chain) for row in self.rows for chain in self.chains]


class Stream(NamedTuple):
    """The randomness of one population."""

    draws: np.random.SeedSequence  # for the reference draws
    key: np.ndarray  # uint32 (2,), names the noise of its particles
    rng: np.random.Generator  # for resampling


@dataclass(frozen=True)
class Seeds:
    """The user's seed, and the branches taken from the root of the tree."""

    entropy: tuple[int, ...]
    branches: tuple[int, ...] = ()

    def branch(self, branch: Branch, *numbers: int) -> Self:
        """Return the tree of a run within this one; numbers tell runs of one kind apart."""
        return replace(self, branches=(*self.branches, int(branch), *numbers))

    def sequence(self, purpose: Purpose, number: int = 0, row: int = 0, chain: int = 0) -> np.random.SeedSequence:
        """Return the seed of one place: ``number`` tells rounds and pilots apart."""
        place = (len(self.branches), *self.branches, int(purpose), int(number), int(row), int(chain))
        return np.random.SeedSequence(self.entropy, spawn_key=place)

    def stream(self, purpose: Purpose, number: int = 0, row: int = 0, chain: int = 0) -> Stream:
        """Return the randomness of one population."""
        draws, noise, resampling = self.sequence(purpose, number, row, chain).spawn(3)
        return Stream(draws, noise.generate_state(2), np.random.default_rng(resampling))

    def streams(self, place: Place) -> list[Stream]:
        """Return the randomness of each population of a place."""
        return [self.stream(place.purpose, place.number, row, chain) for row, chain in place.populations]

    def name(self, place: Place) -> str:
        """Name a place, for a file."""
        ends = [f"{name}-{some[0]}-{some[-1]}" for name, some in (("rows", place.rows), ("chains", place.chains))]
        return "_".join(map(str, [*self.branches, place.purpose.name.lower(), place.number, *ends]))
