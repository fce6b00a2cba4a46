"""Maximum likelihood by points of the model: from chains that start at the data, annealed, or persistent."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pymc_hais.inputs.arguments import check_integer, check_positive
from pymc_hais.learning.family import Arrays, Family
from pymc_hais.learning.likelihood.phases import Phases, Sampled
from pymc_hais.learning.likelihood.tracking import Tracked, begin_tracking
from pymc_hais.learning.protocol import Batch, Pull


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

    def sample_model(self, state: Phases, batch: Batch, hidden: np.ndarray, rng: np.random.Generator) -> Phases:
        """Start at the rows of the batch."""
        return state.at(state.join(batch.rows, hidden)).move(self.n_moves, batch.parameters, rng)


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

    def sample_hidden(self, state: Phases, batch: Batch, rng: np.random.Generator) -> tuple[np.ndarray, Phases]:
        """Draw hidden variables anew, and move them."""
        if state.of_rows is None:
            return super().sample_hidden(state, batch, rng)
        fresh = state.of_rows.start(len(batch.rows), batch.parameters, rng)
        moved = state.of_rows.move(fresh, self.n_moves, batch.parameters, rng, batch.places)
        state.hidden[batch.places] = moved.x
        return state.hidden[batch.places], state._replace(of_rows=moved.chains)

    def sample_model(self, state: Phases, batch: Batch, hidden: np.ndarray, rng: np.random.Generator) -> Phases:
        """Anneal new points."""
        return state.draw(self.n_chains, batch.parameters, rng)


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
        state = self.begin_chains(family, rows, rng)
        assert state.of_model is not None
        return _follow(state, begin_tracking(state.of_model, self.n_chains, family.first_values(), rng))

    def sample_model(self, state: Phases, batch: Batch, hidden: np.ndarray, rng: np.random.Generator) -> Phases:
        """Continue the chains."""
        assert state.tracked is not None
        return _follow(state, state.tracked.to(batch.parameters, self.n_moves, rng))

    def log_z(self, state: Any) -> tuple[Arrays, float, float]:
        """Return the parameters of the populations, the tracked log Z there, and its error."""
        told = state.tracked.estimate()
        return state.tracked.parameters, told["log_z"], told["log_z_se"]

    def finish(self, state: Phases, parameters: Arrays, pull: Pull, rng: np.random.Generator) -> dict[str, Any]:
        """Return log Z of the final parameters, and its error."""
        return state.tracked.finish(parameters, self.n_moves, rng) if state.tracked else {}


def _follow(state: Phases, tracked: Tracked) -> Phases:
    points, shares = tracked.leading
    return state._replace(tracked=tracked, points=points, shares=shares, of_model=tracked.chains)


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
        return self.begin_chains(family, rows, rng).draw(self.n_chains, first, rng)._replace(fast=fast)

    def sample_model(self, state: Phases, batch: Batch, hidden: np.ndarray, rng: np.random.Generator) -> Phases:
        """Continue the chains at the sum of both parameters."""
        fast = state.fast
        if batch.gradient is not None:
            fast = {name: self.decay * one - self.fast_rate * batch.gradient[name] for name, one in fast.items()}
        moved = {name: batch.parameters[name] + one for name, one in fast.items()}
        return state._replace(fast=fast).move(self.n_moves, moved, rng)
