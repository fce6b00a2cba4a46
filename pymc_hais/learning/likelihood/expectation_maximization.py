"""Expectation maximisation with chains that continue from step to step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc_hais.inputs.arguments import check_integer
from pymc_hais.learning.binary.density import BinaryDensity, Bound, build_binary
from pymc_hais.learning.binary.strategies import BinaryStates, Statistics, Weighted, gather, piece_of, total
from pymc_hais.learning.family import Arrays, Family
from pymc_hais.learning.likelihood.chains import Chains
from pymc_hais.learning.likelihood.phases import Phases, Sampled, is_unnormalised
from pymc_hais.learning.protocol import Batch

#: Groups of rows for the jackknife, which gives the error of an M-step.
N_GROUPS = 8
#: ``(rows (m, D), hidden (m, H), parameters, rng) -> hidden (m, H)``, on the unconstrained scale.
type EStep = Callable[[np.ndarray, np.ndarray, Arrays, np.random.Generator], np.ndarray]
#: ``(statistics, parameters) -> parameters``, all of them by name.
type MStep = Callable[[Statistics, dict[str, np.ndarray]], Arrays]


class Posteriors(NamedTuple):
    """The state of E-steps over binary states."""

    strategy: BinaryStates
    density: BinaryDensity
    last: np.ndarray  # int8 (n, H): where the chains of each row are; zeros without chains

    def sample_hidden(self, batch: Batch, rng: np.random.Generator) -> list[np.ndarray]:
        """Return states (m, T, H) of the batch's rows and their weights (m, T), for a step along the gradient."""
        explored = self._explore(self.density.at(batch.parameters, batch.rows[0]), batch, rng)
        parts = [found.draw(64, self.density.n_units, rng) for _, found in explored]  # at most 64 states of a row
        return [np.concatenate(one) for one in zip(*parts, strict=True)]

    def collect(self, rows: np.ndarray, parameters: Arrays, step: int, rng: np.random.Generator) -> list[Statistics]:
        """Make an E-step for all rows (n, D), and return the statistics of groups of them."""
        bound, groups = self.density.at(parameters, rows[0]), []
        for i in range(min(N_GROUPS, len(rows))):
            places = np.arange(i, len(rows), N_GROUPS)
            explored = self._explore(bound, Batch(rows[places], places, parameters, step), rng)
            parts = (gather(some, found, self.density.n_units) for some, found in explored)
            groups.append(reduce(lambda one, other: total([one, other]), parts))
        return groups

    def _explore(self, bound: Bound, batch: Batch, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, Weighted]]:
        """Yield the rows of a batch, a few at a time, with their weighted states."""
        strategy, n_units = self.strategy, self.density.n_units
        size = piece_of(batch.rows.shape[1], strategy.width(n_units))
        for first in range(0, len(batch.rows), size):
            rows, places = batch.rows[first : first + size], batch.places[first : first + size]
            units, start = strategy.choose(rows, batch.parameters, n_units), self.last[places]
            found = strategy.explore(bound(rows, units), units, start, strategy.exponent(batch.step), rng)
            self.last[places] = start
            yield rows, found


def begin(strategy: BinaryStates, family: Family, rows: np.ndarray) -> Posteriors:
    """Compile the density; refuse hidden variables that are not binary, or too many."""
    density = build_binary(family)
    strategy.check(density.n_units)
    return Posteriors(strategy, density, np.zeros((len(rows), density.n_units), dtype=np.int8))


@dataclass(frozen=True)
class ExpectationMaximization(Sampled):
    """Fit a model with hidden variables by points of their posterior, one chain for each row of data.

    The E-step moves the hidden variables of the rows in a batch from their last positions, by Hamiltonian transitions,
    Gibbs draws, or the user's function; the M-step is a step of the optimiser along the gradient of ``log p(x, h)``.
    If all hidden variables are binary, the E-step may be a weighted sum over states, and the M-step have a closed form.

    Parameters
    ----------
    n_moves : int, default 10
        Transitions of an E-step.
    kernel : Kernel or pair of them, optional
        As in :func:`pymc_hais.sample_hais`: :class:`pymc_hais.Hamiltonian` for continuous and
        :class:`pymc_hais.Gibbs` for discrete hidden variables by default.
    e_step : callable or one of Enumeration, Selection, GibbsSampling, SelectAndSample, optional
        ``(rows (m, D), hidden (m, H), parameters, rng) -> hidden (m, H)`` instead, which must leave the posterior
        invariant or draw from it.  Hidden variables are on the unconstrained scale, in the order of the model's free
        variables, discrete ones last.
        For binary hidden variables :class:`Enumeration`, :class:`Selection`, :class:`GibbsSampling` or
        :class:`SelectAndSample` chooses the states that are evaluated.  If the log density is proven to be quadratic in
        them, a state costs a few operations for each unit, else an evaluation of the density.
    n_settle : int, default 100
        Temperatures along which the hidden variables of every row are annealed before the first step: variables far
        from their posterior would distort the parameters.  A narrow and curved posterior, as in a bilinear model, needs
        hundreds.  With a kernel of a given step size it is the number of transitions instead.
    m_step : callable, optional
        ``(statistics, parameters) -> parameters``, by name, instead of steps along the gradient, with one of the
        E-steps over binary states; ``statistics`` are :class:`Statistics` of all rows.  Each step of the fit then takes
        all rows, and has converged when it changes the parameters by less than ``tolerance`` standard errors of that
        change (jackknife over groups of rows), with the annealing exponent at one.  With an E-step that samples, all
        ``n_steps`` are made, 100 by default, and the last change must be below one standard error.  The ``objective``
        is minus the mean log-likelihood of a row for :class:`Enumeration`; minus that of the selected states for
        :class:`Selection`, which is no less; and minus the mean of ``log p(x, s)`` over the states for sampling.

    References
    ----------
    Neal, R. M. and Hinton, G. E. (1998). A view of the EM algorithm that justifies incremental, sparse, and other
    variants. In: Learning in Graphical Models.

    Sohl-Dickstein, J. and Culpepper, B. J. (2012). arXiv:1205.1925, section 4.2 (persistent chains in the E-step).
    """

    e_step: EStep | BinaryStates | None = None
    n_settle: int = 100
    m_step: MStep | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("n_settle", self.n_settle, 1)
        if self.e_step is not None and not callable(self.e_step) and not isinstance(self.e_step, BinaryStates):
            raise ValueError(
                "`e_step` must be a function (rows, hidden, parameters, rng) -> hidden, an E-step over binary states "
                f"such as Enumeration(), or None for our own moves; got {self.e_step!r}."
            )
        if self.m_step is not None and not (callable(self.m_step) and isinstance(self.e_step, BinaryStates)):
            raise ValueError(
                "`m_step` must be a function (statistics, parameters) -> parameters, beside an `e_step` over binary "
                f"states such as Enumeration(); got {self.m_step!r} with e_step={self.e_step!r}."
            )

    @property
    def is_closed(self) -> bool:
        """Whether the M-step is the user's."""
        return self.m_step is not None

    def is_final(self, step: int) -> bool:
        """Whether the annealing exponent is one."""
        return not isinstance(self.e_step, BinaryStates) or self.e_step.exponent(step) == 1.0

    def check(self, family: Family) -> None:
        """Refuse families without hidden variables, and unnormalised ones."""
        super().check(family)
        if is_unnormalised(family):
            raise ValueError(
                f"{self.name} is for models whose rows are observed variables, and here log Z depends on the "
                "parameters. Pass learning.StochasticMaximumLikelihood()."
            )
        if not family.hidden:
            raise ValueError(f"{self.name} needs hidden variables, and the model has none: pass MaximumLikelihood().")

    def begin(self, family: Family, rows: np.ndarray, rng: np.random.Generator) -> Any:
        """Anneal the hidden variables of all rows; of binary states, compile their density."""
        if isinstance(self.e_step, BinaryStates):
            return begin(self.e_step, family, rows)
        state = self.begin_chains(family, rows, rng, self.n_settle)
        chains = state.of_rows
        assert isinstance(chains, Chains)
        first = family.first_values()
        if chains.ladder is not None:
            return state._replace(hidden=chains.draw_rows(len(rows), first, rng))
        moved = chains.move(state.hidden, self.n_settle, first, rng, np.arange(len(rows)))
        return state._replace(hidden=moved.x, of_rows=moved.chains)

    def prepare(self, state: Any, batch: Batch, rng: np.random.Generator) -> tuple[list[np.ndarray], Any]:
        """Return hidden variables of the batch (m, H); or several states of each (m, T, H) and their weights (m, T)."""
        if isinstance(state, Posteriors):
            return state.sample_hidden(batch, rng), state
        return super().prepare(state, batch, rng)

    def objective(self, family: Family, rows: pt.TensorVariable, extras: list[pt.TensorVariable]) -> Any:
        """Return minus the log density (m,), averaged over the states of each row."""
        if not isinstance(self.e_step, BinaryStates):
            return super().objective(family, rows, extras)
        states, weights = extras
        n, n_states, n_units = states.type.shape
        repeated = pt.repeat(rows, n_states, axis=0)
        terms = family.log_density(repeated, states.reshape((n * n_states, n_units)))
        return -(weights * terms.reshape((n, n_states))).sum(axis=1)

    def monitors(self, state: Any) -> dict[str, float]:
        """Return the step size of the chains; for binary states, the number of states evaluated for a row."""
        if isinstance(state, Posteriors):
            return {"states_per_row": float(state.strategy.n_states(state.density.n_units))}
        return super().monitors(state)

    def sample_hidden(self, state: Phases, batch: Batch, rng: np.random.Generator) -> tuple[np.ndarray, Phases]:
        """Make an E-step for the rows of the batch."""
        if self.e_step is None:
            return super().sample_hidden(state, batch, rng)
        before = state.hidden[batch.places]
        assert callable(self.e_step)
        moved = np.asarray(self.e_step(batch.rows, before, batch.parameters, rng), dtype=np.float64)
        if moved.shape != before.shape or not np.isfinite(moved).all():
            raise ValueError(
                f"`e_step` must return finite hidden variables of shape {before.shape}; got shape {moved.shape}."
            )
        state.hidden[batch.places] = moved
        return moved, state
