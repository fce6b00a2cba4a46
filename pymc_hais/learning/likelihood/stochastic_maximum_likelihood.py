"""Stochastic maximum likelihood, or persistent contrastive divergence: chains that go on while the parameters move."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pymc_hais.learning.family import Family
from pymc_hais.learning.likelihood.phases import Phases, Sampled, persist, refuse_normalised
from pymc_hais.learning.protocol import Batch
from pymc_hais.request.arguments import check_integer


@dataclass(frozen=True)
class StochasticMaximumLikelihood(Sampled):
    """Take points of the model from chains that go on from step to step (PCD, algorithm 18.3).

    The chains begin as an annealed population.  They follow the model as long as the parameters move more slowly than
    they mix; the falling rate of the optimiser sees to that in the end.

    Parameters
    ----------
    n_moves : int, default 5
        Transitions between two steps.
    kernel : Kernel or pair of them, optional
        As in :func:`pymc_hais.sample_hais`.
    n_chains : int, default 500
        Points of the model.

    References
    ----------
    Younes, L. (1998). Stochastic gradient estimation strategies for Markov random fields. SPIE.

    Tieleman, T. (2008). Training restricted Boltzmann machines using approximations to the likelihood gradient. ICML.
    """

    n_moves: int = 5
    n_chains: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("n_chains", self.n_chains, 1)

    def check(self, family: Family) -> None:
        """Refuse a normalised density, too."""
        super().check(family)
        refuse_normalised(self, family)

    def begin(self, family: Family, rows: np.ndarray, rng: np.random.Generator) -> Phases:
        """Anneal the first points of the model."""
        state = super().begin(family, rows, rng)
        assert state.of_model is not None
        first = {name: family.model[name].get_value() for name in family.parameters}
        return state._replace(points=state.of_model.draw(self.n_chains, first, rng))

    def imagine(self, state: Phases, batch: Batch, hidden: np.ndarray, rng: np.random.Generator) -> Phases:
        """Go on."""
        return persist(state, self.n_moves, batch, rng)
