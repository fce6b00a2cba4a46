"""An objective and its gradient as one compiled program, and its evaluation for all rows."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from pymc_hais.density.compat import unsupported_op
from pymc_hais.density.compiling import quiet_compilation, untraced
from pymc_hais.engines import available_backends
from pymc_hais.learning.family import Arrays, Family
from pymc_hais.learning.protocol import Batch, Method

_log = logging.getLogger("pymc.hais")

#: Most numbers that the terms of the rows of one call hold at once.
HELD = 1_000_000
#: Least number of pieces of the data; the spread of their gradients gives the error of the mean.
N_PIECES = 16
#: PyTensor's names of its linkers.
_MODES = {"jax": "JAX", "numba": "NUMBA", "c": "cvm", "python": "FAST_COMPILE"}


class Gradient(NamedTuple):
    """An objective at some parameters."""

    objective: float
    by_name: dict[str, np.ndarray]  # its gradient in each parameter


def flatten(parts: Arrays) -> np.ndarray:
    """Return all elements as one vector (P,)."""
    return np.concatenate([np.ravel(one) for one in parts.values()])


@dataclass(frozen=True, eq=False)
class Program:
    """Objective and gradient of one batch: rows (m, D), their weights (m,) and extras."""

    function: Callable[..., list[Any]]
    names: tuple[str, ...]
    backend: str
    is_separable: bool  # whether the objective is a mean over rows

    def __call__(self, values: Arrays, rows: np.ndarray, weights: np.ndarray, extras: Sequence[np.ndarray]) -> Gradient:
        """Evaluate one batch; the weights of a mean sum to one."""
        results = self.function(*(values[name] for name in self.names), rows, weights, *extras)
        objective, *gradients = (np.asarray(one, dtype=np.float64) for one in results)
        return Gradient(float(objective), dict(zip(self.names, gradients, strict=True)))


@untraced
def build_program(method: Method, family: Family, batch: Batch, extras: Sequence[np.ndarray]) -> Program:
    """Compile a method's objective for batches of the shapes of a first one, and evaluate it there.

    Raises ValueError if the objective of the method is neither a number nor one for each row.
    """
    rows = pt.tensor("rows", dtype="float64", shape=batch.rows.shape)
    weights = pt.tensor("weights", dtype="float64", shape=batch.rows.shape[:1])
    symbols = [pt.tensor(f"extra_{i}", dtype=one.dtype, shape=one.shape) for i, one in enumerate(extras)]
    terms = method.objective(family, rows, symbols)
    if terms.ndim > 1:
        raise ValueError(f"The objective of {method.name} must be a number or one for each row; has {terms.ndim} axes.")
    objective = (weights * terms).sum() if terms.ndim else terms
    learnt = {**family.parameters, **family.own}
    gradients: Any = pytensor.grad(objective, list(learnt.values()), disconnected_inputs="ignore")
    inputs, outputs = [*learnt.values(), rows, weights, *symbols], [objective, *gradients]
    even = np.full(len(batch.rows), 1.0 / len(batch.rows))
    trial = [*(batch.parameters[name] for name in learnt), batch.rows, even, *extras]
    function, chosen = compile_first(inputs, outputs, trial, method.backend(family))
    return Program(function, tuple(learnt), chosen, bool(terms.ndim))


def compile_first(
    inputs: list[Any], outputs: list[Any], trial: list[np.ndarray], backend: str | None
) -> tuple[Any, str]:
    """Compile for the backend asked for, or the first that takes the graph, and run it once."""
    obstacles = []
    for candidate in [backend] if backend else [*available_backends(), "python"]:
        try:
            with quiet_compilation(), np.errstate(all="ignore"):
                function = pm.compile(inputs, outputs, mode=_MODES[candidate], on_unused_input="ignore")
                function.trust_input = True
                function(*trial)  # JAX and Numba compile at the first call
        except Exception as error:  # linkers and tracers raise whatever the graph makes them raise
            if backend or candidate == "python":
                raise
            _log.debug("The %s linker cannot take the objective", candidate, exc_info=error)
            obstacles.append(f"no {candidate} form ({unsupported_op(error)})")
        else:
            if obstacles:
                _log.info(f"The objective has {' and '.join(obstacles)}; using {candidate} instead.")
            return function, candidate
    raise AssertionError("the interpreter takes any graph")


@dataclass(frozen=True, eq=False)
class Pieces:
    """All rows in pieces of one size, the last one filled up with rows of weight zero."""

    rows: list[np.ndarray]
    weights: list[np.ndarray]
    extras: list[list[np.ndarray]]
    shares: np.ndarray  # of each piece in the data

    def evaluate(
        self, program: Program, values: Arrays, pull: Callable[[Arrays], Any]
    ) -> tuple[Gradient, np.ndarray, np.ndarray]:
        """Return the mean over all rows, and the objectives (K,) and gradients (K, P) of the pieces.

        ``pull`` turns a gradient in the values into one in the coordinates.
        """
        each = [program(values, *piece) for piece in zip(self.rows, self.weights, self.extras, strict=True)]
        objectives, pulled = np.array([one.objective for one in each]), [pull(one.by_name) for one in each]
        mean = {
            name: np.tensordot(self.shares, np.stack([one[name] for one in pulled]), axes=1) for name in program.names
        }
        return Gradient(float(self.shares @ objectives), mean), objectives, np.stack([flatten(one) for one in pulled])


def cut(rows: np.ndarray, extras: Sequence[np.ndarray], size: int) -> Pieces:
    """Cut rows (n, D), and extras with one entry for each, into pieces of one size."""
    n = len(rows)
    places = [np.arange(first, first + size) for first in range(0, n, size)]
    weights = [(place < n) / np.sum(place < n) for place in places]
    places = [place % n for place in places]
    return Pieces(
        [np.ascontiguousarray(rows[place]) for place in places],
        weights,
        [[np.ascontiguousarray(one[place]) for one in extras] for place in places],
        np.array([np.count_nonzero(one) for one in weights]) / n,
    )


def piece_size(n_rows: int, width: int, n_pieces: int = N_PIECES) -> int:
    """Return how many rows a piece has: few enough for the memory, and for at least ``n_pieces`` pieces."""
    size = min(-(-n_rows // n_pieces), max(1, HELD // max(width, 1)))
    return -(-n_rows // -(-n_rows // size))  # as even as can be
