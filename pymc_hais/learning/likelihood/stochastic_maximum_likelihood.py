"""Stochastic maximum likelihood, or persistent contrastive divergence: chains that follow changing parameters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pymc_hais.inputs.arguments import check_integer
from pymc_hais.learning.family import Family
from pymc_hais.learning.likelihood.phases import Phases, Sampled
from pymc_hais.learning.likelihood.tracking import Tracked, begin_tracking
from pymc_hais.learning.protocol import Batch, Pull


@dataclass(frozen=True)
class Persistent(Sampled):
    """A method whose points of the model continue from step to step."""

    n_moves: int = 5
    n_chains: int = 500

    is_base: ClassVar[bool] = True
    needs_points: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("n_chains", self.n_chains, 1)


@dataclass(frozen=True)
class StochasticMaximumLikelihood(Persistent):
    """Take points of the model from chains that continue from step to step (PCD, algorithm 18.3).

    The chains begin as annealed populations.  Then they follow the changing parameters as in annealed importance
    sampling: weights correct for moves that lag behind, and give log Z at every step, with an error from the spread of
    ten populations (Desjardins et al. 2011; Carbone et al. 2023).  The result holds ``log_z`` and ``log_z_se`` of the
    fitted values, reached from the last step in twenty small ones; ``learning`` holds both step by step.

    Parameters
    ----------
    n_moves : int, default 5
        Transitions between two steps.
    kernel : Kernel or pair of them, optional
        As in :func:`pymc_hais.sample_hais`.
    n_chains : int, default 500
        Points of the model for the gradient, rounded up to ten populations of the same size.  The same number of other
        points only estimates log Z, because the points of the gradient would give a value that is too low.

    References
    ----------
    Younes, L. (1998). Stochastic gradient estimation strategies for Markov random fields. SPIE.

    Tieleman, T. (2008). Training restricted Boltzmann machines using approximations to the likelihood gradient. ICML.

    Desjardins, G., Courville, A. and Bengio, Y. (2011). On tracking the partition function. NIPS.

    Carbone, D., Hua, M., Coste, S. and Vanden-Eijnden, E. (2023). Efficient training of energy-based models using
    Jarzynski equality. NeurIPS; arXiv:2305.19414.
    """

    knows_log_z: ClassVar[bool] = True

    def begin(self, family: Family, rows: np.ndarray, rng: np.random.Generator) -> Phases:
        """Anneal the first points of the model."""
        state = super().begin(family, rows, rng)
        assert state.of_model is not None
        first = family.first_values()
        return _follow(state, begin_tracking(state.of_model, self.n_chains, first, rng))

    def imagine(self, state: Phases, batch: Batch, hidden: np.ndarray, rng: np.random.Generator) -> Phases:
        """Continue the chains."""
        assert state.tracked is not None
        return _follow(state, state.tracked.to(_own(state, batch.parameters), self.n_moves, rng))

    def log_z(self, state: Any) -> tuple[Mapping[str, np.ndarray], float, float]:
        """Return the parameters of the populations, the tracked log Z there, and its error."""
        told = state.tracked.tell()
        return state.tracked.parameters, told["log_z"], told["log_z_se"]

    def finish(
        self, state: Phases, parameters: Mapping[str, np.ndarray], pull: Pull, rng: np.random.Generator
    ) -> dict[str, Any]:
        """Return log Z of the final parameters, and its error."""
        return state.tracked.finish(_own(state, parameters), self.n_moves, rng) if state.tracked else {}


def _own(state: Phases, parameters: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return those parameters that the density has."""
    assert state.tracked is not None
    return {name: parameters[name] for name in state.tracked.parameters}


def _follow(state: Phases, tracked: Tracked) -> Phases:
    points, shares = tracked.leading
    return state._replace(tracked=tracked, points=points, shares=shares, of_model=tracked.chains)
