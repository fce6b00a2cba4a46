"""Rows that are learnt from: where each variable is in them, and what is refused before any work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors

from pymc_hais.density.compat import default_transform
from pymc_hais.density.compiling import compile_interpreted


@dataclass(frozen=True)
class Visible:
    """A variable that the data name, and where its elements are in a row (D,)."""

    name: str
    start: int
    stop: int
    shape: tuple[int, ...]
    dtype: str
    kind: str  # of :data:`pymc_hais.learning.family.KINDS`
    low: int = 0  # the least value of a discrete one
    n_values: int = 0  # of a discrete one; 0 for no end of them


def observed_from(model: pm.Model, name: str) -> list[Any]:
    """Return the random variables that are observed from a variable or container; none for a predictor."""
    if model[name] in model.basic_RVs:
        return [model[name]]
    return [rv for rv in model.observed_RVs if model[name] in ancestors([model.rvs_to_values[rv]])]


def refuse_masked(data: Mapping[str, Any]) -> None:
    """Refuse masked values: an array that is made of them holds what is stored under the mask."""
    for name, given in data.items():
        if np.ma.is_masked(given):
            raise ValueError(
                f"`{name}` is a masked array with {np.ma.count_masked(given):,} masked values: leave their rows out, "
                "or write a model of the values that are there."
            )


def check_values(model: pm.Model, visible: Sequence[Visible], rows: np.ndarray) -> None:
    """Refuse columns of rows (n, D) without spread, and values that a variable cannot take.

    A predictor may be an intercept, and have any values.
    """
    for one in visible:
        variables, part = observed_from(model, one.name), rows[:, one.start : one.stop]
        if not variables:
            continue
        if one.n_values or one.kind == "count":
            top = one.low + one.n_values - 1 if one.n_values else np.inf
            limits = f"whole numbers from {one.low}" + (f" to {top}" if one.n_values else "")
            _refuse_outside(one.name, part, (part < one.low) | (part > top), limits)
            continue
        same = np.flatnonzero(np.ptp(part, axis=0) == 0.0)
        if same.size and len(rows) > 1:
            where = f"Column {same[0]} of `{one.name}`" if one.shape else f"`{one.name}`"
            raise ValueError(
                f"{where} is {part[0, same[0]]:g} in all {len(rows):,} rows: a density has no finite fit to values "
                "without spread. Leave it out of the model and of `data`."
            )
        for rv in variables if one.kind == "restricted" else ():
            if model.rvs_to_values[rv] is model[one.name] or rv is model[one.name]:
                _refuse_outside(
                    one.name,
                    part,
                    _are_outside(model, rv, one, part),
                    f"the support of {getattr(rv.owner.op, '_print_name', ['its distribution'])[0]}",
                )


def _refuse_outside(name: str, rows: np.ndarray, outside: np.ndarray, limits: str) -> None:
    bad = np.flatnonzero(outside.any(axis=1))
    if bad.size:
        value = rows[bad[0]][outside[bad[0]]][0]
        raise ValueError(
            f"{bad.size:,} rows of `{name}` have values that it cannot take: row {bad[0]} has {value:g}, and the model "
            f"allows {limits}. Leave these rows out, or change the distribution."
        )


def _are_outside(model: pm.Model, rv: pt.TensorVariable, one: Visible, rows: np.ndarray) -> np.ndarray:
    """Return which elements of rows (n, D) PyMC's transform of a variable takes to no number.

    None where its limits depend on other variables.
    """
    transform = default_transform(rv.owner.op, rv)
    if transform is None or set(ancestors(rv.owner.inputs)) & set(model.basic_RVs):
        return np.zeros(rows.shape, dtype=bool)
    value = pt.tensor("value", dtype=rv.dtype, shape=one.shape)
    values = pt.tensor("values", dtype=rv.dtype, shape=(None, *one.shape))
    free = vectorize_graph(transform.forward(value, *rv.owner.inputs), {value: values})
    given = rows.reshape((len(rows), *one.shape)).astype(rv.dtype)
    with np.errstate(all="ignore"):
        (found,) = compile_interpreted([values], [free])(given)
    bad = np.isnan(np.asarray(found).reshape(len(rows), -1))
    return bad if bad.shape == rows.shape else np.broadcast_to(bad.any(axis=1, keepdims=True), rows.shape)
