"""Maximum likelihood with new chains in each step."""

from dataclasses import dataclass

import numpy as np

from pymc_hais.inputs.arguments import check_integer
from pymc_hais.learning.likelihood.phases import Phases, Sampled, draw, settle
from pymc_hais.learning.protocol import Batch


@dataclass(frozen=True)
class MaximumLikelihood(Sampled):
    """Follow the gradient of the log-likelihood, with new points of the model in each step (algorithm 18.1).

    Points of the model are annealed from its reference along the ladder of a pilot, and resampled: the weights correct
    for regions that a chain of any length would miss.  Hidden variables start from their prior in each step, and make
    ``n_moves`` transitions.  It is the slowest method, and the standard for the others.  A normalised density without
    hidden variables needs no points at all: its log-likelihood is maximised directly.

    Parameters
    ----------
    n_moves : int, default 50
        Transitions of the hidden variables in each step.
    kernel : Kernel or pair of them, optional
        As in :func:`pymc_hais.sample_hais`.
    n_chains : int, default 500
        Points of the model.

    References
    ----------
    Goodfellow, I., Bengio, Y. and Courville, A. (2016). Deep Learning, chapter 18. MIT Press.
    """

    n_moves: int = 50
    n_chains: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("n_chains", self.n_chains, 100)

    def infer(self, state: Phases, batch: Batch, rng: np.random.Generator) -> tuple[np.ndarray, Phases]:
        """Draw hidden variables anew, and move them."""
        if state.of_rows is None:
            return super().infer(state, batch, rng)
        state = settle(state, self.n_moves, batch, rng)
        return state.hidden[batch.places], state

    def imagine(self, state: Phases, batch: Batch, hidden: np.ndarray, rng: np.random.Generator) -> Phases:
        """Anneal new points."""
        return draw(state, self.n_chains, batch.parameters, rng)
