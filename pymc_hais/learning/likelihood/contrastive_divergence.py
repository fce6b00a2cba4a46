"""Contrastive divergence: short chains that start at the data."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pymc_hais.learning.likelihood.phases import Phases, Sampled
from pymc_hais.learning.protocol import Batch


@dataclass(frozen=True)
class ContrastiveDivergence(Sampled):
    """Take points of the model from chains of ``n_moves`` transitions from the data (CD-k, algorithm 18.2).

    It is biased: the points never reach regions in which the model has mass and the data have none, so the fit has a
    small error for any number of rows.  More transitions make it smaller.

    Parameters
    ----------
    n_moves : int, default 1
        k.
    kernel : Kernel or pair of them, optional
        As in :func:`pymc_hais.sample_hais`.

    References
    ----------
    Hinton, G. E. (2002). Training products of experts by minimizing contrastive divergence. Neural Computation 14,
    1771-1800.
    """

    n_moves: int = 1

    anneals: ClassVar[bool] = False
    needs_points: ClassVar[bool] = True

    def imagine(self, state: Phases, batch: Batch, hidden: np.ndarray, rng: np.random.Generator) -> Phases:
        """Start at the rows of the batch."""
        return state.at(state.join(batch.rows, hidden)).move(self.n_moves, batch.parameters, rng)
