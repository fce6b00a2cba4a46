"""Fast persistent contrastive divergence: chains that are pushed out of their present modes."""

from dataclasses import dataclass

import numpy as np

from pymc_hais.inputs.arguments import check_positive
from pymc_hais.learning.family import Family
from pymc_hais.learning.likelihood.phases import Phases, draw, persist
from pymc_hais.learning.likelihood.stochastic_maximum_likelihood import Persistent
from pymc_hais.learning.protocol import Batch


@dataclass(frozen=True)
class FastPersistentCD(Persistent):
    """Move persistent chains at parameters that learn faster than the model's, and forget (Tieleman & Hinton 2009).

    The chains see ``theta + fast``: after each step ``fast`` takes a share ``decay`` of itself, minus ``fast_rate``
    times the gradient.  It pushes the chains out of their present modes, so that they mix where plain persistent
    chains would stay.  Their distribution then differs a little from the model's: this gives a small bias, and log Z
    is not tracked.

    Parameters
    ----------
    n_moves, kernel
        As of :class:`StochasticMaximumLikelihood`.
    n_chains : int, default 500
        Points of the model.
    fast_rate : float, default 0.01
        In units of the parameters, per unit of the gradient.
    decay : float, default 0.95
        The paper's 19/20.

    References
    ----------
    Tieleman, T. and Hinton, G. (2009). Using fast weights to improve persistent contrastive divergence. ICML.
    """

    fast_rate: float = 0.01
    decay: float = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("fast_rate", self.fast_rate, "units of the parameters", "0.01")
        if not 0.0 <= self.decay < 1.0:
            raise ValueError(f"`decay` must be at least 0 and below 1; got {self.decay!r}.")

    def begin(self, family: Family, rows: np.ndarray, rng: np.random.Generator) -> Phases:
        """Anneal the first points of the model, and begin with fast parameters of zero."""
        first = family.first_values()
        fast = {name: np.zeros_like(value) for name, value in first.items()}
        return draw(super().begin(family, rows, rng), self.n_chains, first, rng)._replace(fast=fast)

    def imagine(self, state: Phases, batch: Batch, hidden: np.ndarray, rng: np.random.Generator) -> Phases:
        """Continue the chains at the sum of both parameters."""
        fast = state.fast
        if batch.gradient is not None:
            fast = {name: self.decay * one - self.fast_rate * batch.gradient[name] for name, one in fast.items()}
        moved = {name: batch.parameters[name] + one for name, one in fast.items()}
        return persist(state._replace(fast=fast), self.n_moves, batch, rng, **moved)
