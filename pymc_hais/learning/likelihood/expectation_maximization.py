"""Expectation maximisation with chains that go on from step to step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from pymc_hais.learning.family import Family, first_values
from pymc_hais.learning.likelihood.phases import Phases, Sampled, is_unnormalised
from pymc_hais.learning.protocol import Batch
from pymc_hais.request.arguments import check_integer

#: ``(rows (m, D), hidden (m, H), parameters, rng) -> hidden (m, H)``, on the unconstrained scale.
type EStep = Callable[[np.ndarray, np.ndarray, Mapping[str, np.ndarray], np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class ExpectationMaximization(Sampled):
    """Fit a model with hidden variables by points of their posterior, one chain for each row of data.

    The E-step moves the hidden variables of the rows in a batch on from where they were, by Hamiltonian transitions,
    Gibbs draws, or what the user has; the M-step is a step of the optimiser along the gradient of ``log p(x, h)``.

    Parameters
    ----------
    n_moves : int, default 10
        Transitions of an E-step.
    kernel : Kernel or pair of them, optional
        As in :func:`pymc_hais.sample_hais`: :class:`pymc_hais.Hamiltonian` for continuous and
        :class:`pymc_hais.Gibbs` for discrete hidden variables by default.
    e_step : callable, optional
        ``(rows (m, D), hidden (m, H), parameters, rng) -> hidden (m, H)`` instead: must leave the posterior invariant,
        or draw from it.  Hidden variables are on the unconstrained scale, in the order of the model's free variables,
        discrete ones last.
    n_settle : int, default 100
        Transitions of every row before the first step: what is far from its posterior tears at the parameters.

    References
    ----------
    Neal, R. M. and Hinton, G. E. (1998). A view of the EM algorithm that justifies incremental, sparse, and other
    variants. In: Learning in Graphical Models.

    Sohl-Dickstein, J. and Culpepper, B. J. (2012). arXiv:1205.1925, section 4.2 (persistent chains in the E-step).
    """

    e_step: EStep | None = None
    n_settle: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("n_settle", self.n_settle, 1)
        if self.e_step is not None and not callable(self.e_step):
            raise ValueError(
                "`e_step` must be a function (rows, hidden, parameters, rng) -> hidden, or None for our own moves; got "
                f"{self.e_step!r}."
            )

    def check(self, family: Family) -> None:
        """Ask for hidden variables, and for a normalised density."""
        super().check(family)
        if is_unnormalised(family):
            raise ValueError(
                f"{self.name} is for models whose rows are observed variables, and here log Z depends on the "
                "parameters. Pass learning.StochasticMaximumLikelihood()."
            )
        if not family.hidden:
            raise ValueError(f"{self.name} needs hidden variables, and the model has none: pass MaximumLikelihood().")

    def begin(self, family: Family, rows: np.ndarray, rng: np.random.Generator) -> Phases:
        """Let all hidden variables settle."""
        state = super().begin(family, rows, rng)
        chains = state.of_rows
        assert chains is not None
        first = first_values(family.model, family)
        moved = chains.move(state.hidden, self.n_settle, first, rng, np.arange(len(rows)))
        return state._replace(hidden=moved.x, of_rows=moved.chains)

    def infer(self, state: Phases, batch: Batch, rng: np.random.Generator) -> tuple[np.ndarray, Phases]:
        """Make an E-step for the rows of the batch."""
        if self.e_step is None:
            return super().infer(state, batch, rng)
        before = state.hidden[batch.places]
        moved = np.asarray(self.e_step(batch.rows, before, batch.parameters, rng), dtype=np.float64)
        if moved.shape != before.shape or not np.isfinite(moved).all():
            raise ValueError(
                f"`e_step` must return finite hidden variables of shape {before.shape}; got shape {moved.shape}."
            )
        state.hidden[batch.places] = moved
        return moved, state
