"""The E-steps of a fit: densities, the last state of each row, and a pass over all rows."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from pymc_hais.learning.binary.density import BinaryDensity, BoundDensity, build_binary
from pymc_hais.learning.binary.statistics import Statistics, Weighted, gather, total
from pymc_hais.learning.binary.strategies import BinaryStates, piece_of
from pymc_hais.learning.family import Family
from pymc_hais.learning.protocol import Batch

#: States of a row that a step along the gradient takes, at most.
_MOST_STATES = 64
#: Groups of rows whose M-steps without them tell the error of a step.
N_GROUPS = 8


class Posteriors(NamedTuple):
    """What E-steps over binary states go on from."""

    strategy: BinaryStates
    density: BinaryDensity
    last: np.ndarray  # int8 (n, H): where the chains of each row are; zeros without chains

    def infer(self, batch: Batch, rng: np.random.Generator) -> list[np.ndarray]:
        """Return states (m, T, H) of the batch's rows and their weights (m, T), for a step along the gradient."""
        parts = []
        size = piece_of(batch.rows.shape[1], self.strategy.width(self.density.n_units))
        bound = self.density.at(batch.parameters)
        for first in range(0, len(batch.rows), size):
            some = slice(first, first + size)
            found = self._explore(bound, batch.rows[some], batch.places[some], batch, rng)
            parts.append(found.draw(_MOST_STATES, self.density.n_units, rng))
        return [np.concatenate(one) for one in zip(*parts, strict=True)]

    def _explore(
        self, bound: BoundDensity, rows: np.ndarray, places: np.ndarray, batch: Batch, rng: np.random.Generator
    ) -> Weighted:
        strategy = self.strategy
        units = strategy.choose(rows, batch.parameters, self.density.n_units)
        start = self.last[places]
        found = strategy.explore(bound, rows, units, start, strategy.exponent(batch.step), rng)
        self.last[places] = start
        return found

    def collect(
        self, rows: np.ndarray, parameters: Mapping[str, np.ndarray], step: int, rng: np.random.Generator
    ) -> list[Statistics]:
        """Make an E-step for all rows (n, D), and return the statistics of groups of them."""
        size = piece_of(rows.shape[1], self.strategy.width(self.density.n_units))
        bound = self.density.at(parameters)
        groups = []
        for i in range(min(N_GROUPS, len(rows))):
            members, sums = np.arange(i, len(rows), N_GROUPS), []
            for first in range(0, len(members), size):
                places = members[first : first + size]
                batch = Batch(np.ascontiguousarray(rows[places]), places, parameters, step)
                found = self._explore(bound, batch.rows, places, batch, rng)
                sums.append(gather(batch.rows, found, self.density.n_units))
                sums = [total(sums)]
            groups.append(sums[0])
        return groups


def begin(strategy: BinaryStates, family: Family, rows: np.ndarray) -> Posteriors:
    """Compile the density; refuse hidden variables that are not binary, or too many."""
    density = build_binary(family)
    strategy.check(density.n_units)
    return Posteriors(strategy, density, np.zeros((len(rows), density.n_units), dtype=np.int8))
