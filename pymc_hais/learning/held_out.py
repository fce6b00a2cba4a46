"""The log-likelihood of held-out rows during a fit, for methods that track log Z."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_hais.core.messages import quoted
from pymc_hais.learning.family import Arrays, Family, build_family
from pymc_hais.learning.program import Pieces, compile_first, cut, piece_size


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out rows, and their compiled log density, not normalised."""

    pieces: Pieces
    function: Callable[..., list[Any]]
    names: tuple[str, ...]

    def tell(self, values: Arrays, log_z: float, log_z_se: float) -> dict[str, float]:
        """Return the mean over rows, its Monte Carlo error and its spread over other rows of the same kind."""
        known = [values[name] for name in self.names]
        each = [
            np.asarray(self.function(*known, rows)[0], dtype=np.float64)[weights > 0.0]
            for rows, weights in zip(self.pieces.rows, self.pieces.weights, strict=True)
        ]
        log_p = np.concatenate(each) - log_z
        sem = float(log_p.std(ddof=1) / np.sqrt(len(log_p))) if len(log_p) > 1 else np.nan
        return {"held_out": float(log_p.mean()), "held_out_mcse": log_z_se, "held_out_sem": sem}


def build_held_out(given: Any, family: Family) -> HeldOut | None:
    """Check held-out rows, if any are given, and compile their density.

    Raises ValueError for rows that are none of the family, or hidden variables.
    """
    if given is None:
        return None
    names = [one.name for one in family.visible]
    if not isinstance(given, Mapping) or set(given) != set(names):
        what = quoted(given) if isinstance(given, Mapping) else f"a {type(given).__name__}"
        raise ValueError(f"`held_out` must have rows of the variables that `data` has, {quoted(names)}; got {what}.")
    if family.hidden:
        raise ValueError(
            f"`held_out` needs the density of the visible variables, and {quoted(family.hidden)} would have to be "
            "integrated out for each row: sum them out in the model, or pass the rows to pymc_hais.log_likelihood."
        )
    table = {name: given[name] for name in names}
    _, rows = build_family(family.model, table, list(family.parameters), family.backend)
    pieces = cut(rows, [], piece_size(len(rows), family.n_dims))
    symbol = pt.tensor("rows", dtype="float64", shape=pieces.rows[0].shape)
    trial = [*family.first_values().values(), pieces.rows[0]]
    inputs = [*family.parameters.values(), symbol]
    function, _ = compile_first(inputs, [family.log_density(symbol)], trial, family.backend)
    return HeldOut(pieces, function, tuple(family.parameters))
