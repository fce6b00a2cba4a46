"""One tree of seeds: every random number belongs to a purpose, a round, a row of data and a chain."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
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


class Use(Enum):
    """One use of random numbers: its purpose, and its number within it."""

    SHAPES = Purpose.CHECK, 0  # the prior draw whose shapes the layout has
    DENSITY = Purpose.CHECK, 1  # reference draws at which densities are checked
    PRIOR_FIT = Purpose.CHECK, 2  # prior draws that a reference is fitted to, where the prior cannot be annealed from
    ROWS = Purpose.CHECK, 2  # reference draws that show how likely each row is; its streams are children of the seed
    COVERAGE = Purpose.CHECK, 3  # prior draws that a reference must reach
    KEPT_SHARE = Purpose.CHECK, 3  # prior draws that transforms keep, in a branch of their own
    REFERENCE = Purpose.CHECK, 4  # draws that are compared with the density of a reference
    SITES = Purpose.CHECK, 5  # draws at which values of discrete sites are checked
    MARGINS = Purpose.CHECK, 6  # draws that show the margins of a reference
    RAYS = Purpose.CHECK, 7  # directions along which tails are measured
    LIKELIEST = Purpose.CHECK, 8  # draws whose likeliest one bounds a sum over states
    INTEGRATED = Purpose.CHECK, 9  # posterior draws of variables that are integrated out

    MISSED = Purpose.MODES, 0  # choices of the search after a run, and draws around its modes
    SEARCH = Purpose.MODES, 1  # reference draws that this search starts from
    GIVEN = Purpose.MODES, 2  # draws around modes near given points
    SCALES = Purpose.MODES, 3  # reference draws that show scales
    NEAR = Purpose.MODES, 4  # draws around the mode near which a run may start
    NEAR_STARTS = Purpose.MODES, 5  # prior draws that lead to it
    JUDGED_FIT = Purpose.MODES, 6  # draws of a fit that are weighted
    FIELD_STARTS = Purpose.MODES, 7  # prior draws that lead to the mode of integrated fields
    FIELDS = Purpose.MODES, 8  # draws around that mode
    EXCHANGED = Purpose.MODES, 9  # reference draws whose variables are exchanged with those of particles
    TRADES = Purpose.MODES, 11  # reference draws at which labels trade places


class PilotNumber(IntEnum):
    """The number of a pilot among those of a run; strategies of users take other ones."""

    FIRST = 0
    FITTED = 1  # from a fit to the first one's particles
    REFITTED = 2  # from a fit to the particles that refuted that one
    NEAR_MODE = 3
    DOUBT = 4  # from the prior, to confirm a start near the mode
    FROM_MODES = 5  # around the mode of integrated fields, or modes that a run has missed
    FITTED_AGAIN = 6  # from a second fit, to the particles of the pilot FITTED


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

    def of(self, use: Use, row: int = 0) -> np.random.SeedSequence:
        """Return the seed of one use."""
        return self.sequence(*use.value, row)

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
