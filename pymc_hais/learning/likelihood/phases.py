"""The gradient of a log-likelihood by sampling: an expectation given the data, minus one under the model.

``grad log p(x) = E[grad log p~(x, h) | x] - E[grad log p~(x', h')]``, with p~ the density as the model has it, h its
hidden variables given the row, and (x', h') points of the model (Goodfellow et al. 2016, equations 18.4 to 18.14).  The
second part is left out where the model describes its rows by observed variables, whose density is normalised.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pytensor.tensor as pt

from pymc_hais.core.messages import quoted
from pymc_hais.density import observe_first
from pymc_hais.inputs.arguments import check_integer
from pymc_hais.learning.family import Arrays, Family
from pymc_hais.learning.likelihood.blocks import BlockChains, Blocks, Moves, find_blocks
from pymc_hais.learning.likelihood.chains import Chains, build_chains
from pymc_hais.learning.likelihood.tracking import Tracked
from pymc_hais.learning.protocol import Batch, Method


class Phases(NamedTuple):
    """Particles between two steps."""

    of_rows: Moves | None  # moves of the hidden variables given each row; None without hidden variables
    hidden: np.ndarray  # (n, H): the hidden variables of each row
    of_model: Moves | None  # moves of all variables together; None for a normalised density
    points: np.ndarray  # (C, D): points of the model, in the order of its flat vector
    shares: np.ndarray  # (C,): weights of the points, which sum to one
    columns: np.ndarray  # int (D,): places of the elements of a row, and then of the hidden ones, in a point
    tracked: Tracked | None = None  # populations that also estimate log Z, for a method that tracks it
    fast: Mapping[str, np.ndarray] = {}  # added to the parameters at which the points move
    moved_at: Mapping[str, np.ndarray] = {}  # parameters at which the points moved; empty for those of the batch

    def at(self, points: np.ndarray) -> Self:
        """Return a copy with other points, all of the same weight."""
        return self._replace(points=points, shares=np.full(len(points), 1.0 / len(points)))

    def draw(self, n: int, parameters: Arrays, rng: np.random.Generator) -> Self:
        """Return a copy with n new points of the model, annealed from its reference."""
        assert self.of_model is not None
        (points,), *_ = self.of_model.draw(1, n, parameters, rng)
        return self.at(points)

    def move(self, n_moves: int, parameters: Arrays, rng: np.random.Generator) -> Self:
        """Return a copy whose points of the model have moved from where they are."""
        assert self.of_model is not None
        moved = self.of_model.move(self.points, n_moves, parameters, rng)
        return self.at(moved.x)._replace(of_model=moved.chains, moved_at=parameters)

    def join(self, rows: np.ndarray, hidden: np.ndarray) -> np.ndarray:
        """Return the points (m, D) of rows with hidden variables."""
        points = np.empty((len(rows), len(self.columns)))
        points[:, self.columns] = np.hstack([rows, hidden])
        return points


@dataclass(frozen=True)
class Sampled(Method):
    """A method that follows the gradient of the log-likelihood, or of a substitute, by chains."""

    n_moves: int = 10  # transitions of each chain between two steps
    kernel: Any = None  # as in :func:`pymc_hais.sample_hais`

    is_base: ClassVar[bool] = True
    supports: ClassVar[frozenset[str]] = frozenset({"real", "binary", "categorical", "count"})
    takes_hidden: ClassVar[bool] = True
    follows_parameters: ClassVar[bool] = True
    anneals: ClassVar[bool] = True  # whether points of the model are annealed from its reference
    needs_points: ClassVar[bool] = False  # whether a normalised density, which needs no points, is refused

    def __post_init__(self) -> None:
        check_integer("n_moves", self.n_moves, 1)

    def check(self, family: Family) -> None:
        """Refuse a normalised density, too, if the method needs points of the model."""
        super().check(family)
        if self.needs_points and not is_unnormalised(family):
            names = quoted(one.name for one in family.visible)
            raise ValueError(
                f"{self.name} is for densities whose log Z depends on the parameters, and {names} is observed: its "
                "density is normalised. Pass learning.ExpectationMaximization() or learning.MaximumLikelihood()."
            )

    def begin(self, family: Family, rows: np.ndarray, rng: np.random.Generator) -> Any:
        """Compile the chains, tune each by a pilot, and draw the first hidden variables of every row."""
        return self.begin_chains(family, rows, rng)

    def begin_chains(
        self, family: Family, rows: np.ndarray, rng: np.random.Generator, n_temperatures: int | None = None
    ) -> Phases:
        """Return the first state; the hidden variables of the rows may be annealed along ``n_temperatures``."""
        model, names = family.model, tuple(family.parameters)
        hidden, columns = np.empty((len(rows), 0)), np.arange(family.n_dims)
        of_rows: Moves | None = None
        of_model: Moves | None = None
        if blocks := self._find_blocks(family):
            of_rows, of_model = blocks.build_chains(rows)
        elif family.hidden:
            table = {
                one.name: rows[:, one.start : one.stop].reshape((len(rows), *one.shape)).astype(one.dtype)
                for one in family.visible
            }
            observed = observe_first(model, table) if is_unnormalised(family) else model
            of_rows = build_chains(
                observed, names, table, rng, family.backend, self.kernel, n_temperatures=n_temperatures
            )
        if of_rows is not None:
            hidden = of_rows.start(len(rows), family.first_values(), rng)
        if is_unnormalised(family):
            of_model = of_model or build_chains(model, names, None, rng, family.backend, self.kernel, self.anneals)
            columns = np.concatenate(family.places(of_model.layout))
        return Phases(of_rows, hidden, of_model, np.empty((0, len(columns))), np.empty(0), columns)

    def _find_blocks(self, family: Family) -> Blocks | None:
        """Return the blocks in which bits are drawn, if the user chose neither a kernel nor a backend."""
        has_choice = is_unnormalised(family) and self.kernel is None and family.backend is None
        return find_blocks(family) if has_choice else None

    def backend(self, family: Family) -> str | None:
        """Return PyTensor's interpreter for densities of bits in blocks, whose gradients are a few products."""
        return "python" if self._find_blocks(family) else family.backend

    def prepare(self, state: Phases, batch: Batch, rng: np.random.Generator) -> tuple[list[np.ndarray], Phases]:
        """Return hidden variables of the batch (m, H); for points of the model their shares, rows and hidden ones."""
        hidden, state = self.sample_hidden(state, batch, rng)
        n_dims, has_hidden = batch.rows.shape[1], state.of_rows is not None
        extras = []
        if state.of_model is not None:
            state = self.sample_model(state, batch, hidden, rng)
            points = state.points
            if has_hidden and isinstance(state.of_rows, BlockChains) and len(state.of_rows.blocks) == 1:
                # All hidden units have a mean given the visible ones, which is less noisy than a draw.
                points = state.of_rows.expect(points, state.moved_at or batch.parameters)
                joined = state.of_rows.expect(state.join(batch.rows, hidden), batch.parameters)
                hidden = joined[:, state.columns[n_dims:]]
            points = points[:, state.columns]
            extras = [state.shares, points[:, :n_dims], points[:, n_dims:]][: 3 if has_hidden else 2]
        extras = [hidden, *extras] if has_hidden else extras
        return [np.ascontiguousarray(one) for one in extras], state

    def sample_hidden(self, state: Phases, batch: Batch, rng: np.random.Generator) -> tuple[np.ndarray, Phases]:
        """Move the hidden variables of the batch's rows from their last positions."""
        if state.of_rows is None:
            return np.empty((len(batch.rows), 0)), state
        before = state.hidden[batch.places]
        moved = state.of_rows.move(before, self.n_moves, batch.parameters, rng, batch.places)
        state.hidden[batch.places] = moved.x
        return moved.x, state._replace(of_rows=moved.chains)

    def sample_model(self, state: Phases, batch: Batch, hidden: np.ndarray, rng: np.random.Generator) -> Phases:
        """Return the state with new points of the model."""
        raise NotImplementedError

    def objective(self, family: Family, rows: pt.TensorVariable, extras: list[pt.TensorVariable]) -> Any:
        """Return a graph with the gradient of minus the log-likelihood, or of its part for each row (m,)."""
        n_hidden = 1 if family.hidden else 0
        log_density = (self._find_blocks(family) or family).log_density
        of_data = -log_density(rows, *extras[:n_hidden])
        if not extras[n_hidden:]:
            return of_data
        shares, *points = extras[n_hidden:]
        return of_data.mean() + (shares * log_density(*points)).sum()

    def monitors(self, state: Any) -> dict[str, float]:
        """Return the step sizes of the chains, and log Z where it is tracked."""
        told = state.tracked.estimate() if state.tracked else {}
        chains = {"step_size_of_rows": state.of_rows, "step_size_of_model": state.of_model}
        return {name: one.step_size for name, one in chains.items() if isinstance(one, Chains)} | told


def is_unnormalised(family: Family) -> bool:
    """Whether log Z depends on the parameters: the rows are values of free variables."""
    return any(family.model[one.name] in family.model.free_RVs for one in family.visible)
