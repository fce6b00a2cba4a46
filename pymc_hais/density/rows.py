"""Rows of data that are not the model's own: whether they go together, and models that hold them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_hais.core.messages import quoted
from pymc_hais.density.compat import without_initvals
from pymc_hais.density.compiling import compile_interpreted, evaluate_once
from pymc_hais.density.containers import freeze_with_inputs, refuse_frozen


def declared_value(model: pm.Model, name: str) -> np.ndarray:
    """Return a value of the model's own shape and type: of data, what it holds; of a free variable, a draw's zeros."""
    variable = model[name]
    if variable in model.free_RVs:
        return np.zeros(evaluate_once(variable.shape).astype(int), dtype=variable.dtype)
    return evaluate_once(model.rvs_to_values.get(variable, variable))


def check_known(model: pm.Model, data: object) -> tuple[str, ...]:
    """Refuse data that are no dictionary of the model's variables; return the names."""
    free, observed = [rv.name for rv in model.free_RVs], [rv.name for rv in model.observed_RVs]
    containers = [variable.name for variable in model.data_vars]
    known = quoted((*observed, *containers, *free))
    if not isinstance(data, Mapping) or not data:
        raise ValueError(f"`data` must be a dictionary of variables and their held-out rows, one of {known}.")
    for name in data:
        if name not in (*free, *observed, *containers):
            kind = "a Deterministic or a Potential" if name in model.named_vars else "not in the model"
            raise ValueError(f"`data` names {name!r}, which is {kind}: pass rows of {known}.")
    if set(data) & set(free) and set(data) - set(free):
        raise ValueError(
            f"`data` names free variables ({', '.join(n for n in data if n in free)}) together with data "
            f"({', '.join(n for n in data if n not in free)}): name the variables whose density is wanted alone, and "
            "fix the others with pm.do or pm.observe."
        )
    return tuple(data)


def check_rows(model: pm.Model, data: Mapping[str, Any], is_joint: bool = False) -> dict[str, np.ndarray]:
    """Return the rows (R, ...) by name, for a model that describes one of them.

    Where the joint density is wanted, whatever else the model observes and its potentials are a part of it; else a
    model whose rows are not independent is refused.
    """
    rows = {name: as_rows(model, name, data[name], declared_value(model, name)) for name in check_known(model, data)}
    _check_together(model, rows, is_joint)
    return rows


def check_table(model: pm.Model, data: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return tables of data (R, ...) for a model whose own data are a table with one row per observation."""
    table = {}
    for name in check_known(model, data):
        declared = declared_value(model, name)
        if declared.ndim == 0 or model[name] in model.free_RVs:
            raise ValueError(
                f"With `posterior` the rows go along the first axis of the model's data, and `{name}` "
                f"{'is a free variable' if declared.ndim else 'has no axis'}: name observed tables, such as y (n,)."
            )
        table[name] = as_rows(model, name, data[name], declared[0] if len(declared) else declared.sum(axis=0))
    _check_together(model, table, False)
    return table


def _check_together(model: pm.Model, rows: Mapping[str, np.ndarray], is_joint: bool) -> None:
    """Refuse rows of different numbers, and models in which they reach beyond the likelihood or other data count."""
    lengths = {name: len(values) for name, values in rows.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"The variables in `data` have different numbers of rows: {lengths}.")
    inputs = [model[name] for name in rows]
    # Where the observed value comes from a data container, the container is the input.
    values = [model.rvs_to_values[variable] for variable in inputs if variable in model.rvs_to_values]
    sources = [*inputs, *(variable for variable in ancestors(values) if isinstance(variable, SharedVariable))]
    for rv in model.free_RVs:
        if reached := _reached(rv, sources):
            raise ValueError(
                f"`{reached}` feeds the prior of `{rv.name}`, so the prior would differ from row to row: only the "
                "likelihood may depend on a row."
            )
    for potential in () if is_joint else model.potentials:
        if reached := _reached(potential, sources):
            raise ValueError(
                f"`{reached}` feeds the pm.Potential `{potential.name}`, which need not be a density of the row: write "
                "it as the log density of an observed variable, such as a pm.CustomDist."
            )
    for rv in () if is_joint else model.observed_RVs:
        value = model.rvs_to_values[rv]
        if rv not in inputs and not _reached(value, sources):
            raise ValueError(
                f"The model also observes `{rv.name}`, whose value would count in every row: name it in `data` with a "
                "value for each row, or take it out of the model."
            )
    for name, variable in zip(rows, inputs, strict=True):
        used = [*model.observed_RVs, *(model.rvs_to_values[rv] for rv in model.observed_RVs)]
        if variable not in model.observed_RVs and variable not in ancestors(used):
            raise ValueError(f"No observed variable depends on `{name}`: its rows would make no difference.")
    if doubled := [variable.name for variable in ancestors(values) if variable in inputs]:
        raise ValueError(f"`{doubled[0]}` is given twice, by itself and by a variable that is observed from it.")


def _reached(variable: Variable, sources: list[Any]) -> str:
    """Name the source that a variable depends on, if any."""
    upstream = set(ancestors([variable]))
    return next((str(source.name) for source in sources if source in upstream), "")


def as_rows(model: pm.Model, name: str, given: object, declared: np.ndarray) -> np.ndarray:
    """Return rows (R, ...) in the dtype of the one row that the model declares."""
    if _is_masked(given):
        raise ValueError(
            f"The rows of `{name}` are masked arrays with values that are missing: leave these rows out, or write a "
            "model of the values that are there."
        )
    try:
        rows = np.asarray(given)
    except ValueError:  # of lists in lists
        raise ValueError(f"The rows of `{name}` differ in length: each must have the shape {declared.shape}.") from None
    if rows.ndim == 0 or rows.shape[1:] != declared.shape or len(rows) == 0:
        raise ValueError(_explain_shape(model, name, rows.shape, declared.shape))
    if not np.issubdtype(rows.dtype, np.number) and rows.dtype != bool:
        raise ValueError(f"The rows of `{name}` must be numbers; got dtype {rows.dtype}.")
    if np.issubdtype(rows.dtype, np.floating) and not np.isfinite(rows).all():
        bad = np.flatnonzero(~np.isfinite(rows).reshape(len(rows), -1).all(axis=1))
        raise ValueError(
            f"{bad.size} rows of `{name}` have missing or infinite values (row {bad[0]} first): leave them out, or "
            "write a model of the values that are there."
        )
    cast = rows.astype(declared.dtype)
    if not np.issubdtype(declared.dtype, np.floating) and not np.array_equal(cast, rows):
        raise ValueError(f"The model's `{name}` holds whole numbers ({declared.dtype}); the rows do not.")
    return cast


def _is_masked(given: object) -> bool:
    """Whether an array, or one of a sequence of arrays, hides values behind a mask."""
    if isinstance(given, list | tuple):
        return any(map(_is_masked, given))
    return isinstance(given, np.ma.MaskedArray) and bool(np.ma.getmaskarray(given).any())


def _explain_shape(model: pm.Model, name: str, given: tuple[int, ...], declared: tuple[int, ...]) -> str:
    expected = "(rows" + "".join(f", {n}" for n in declared) + ("," if not declared else "") + ")"
    message = f"The rows of `{name}` must have the shape {expected}, one row of {declared} each; got {given}."
    if given == declared:
        return f"{message} For a single row, add an axis: pass x[None]."
    if declared and len(given) == len(declared) and given[1:] == declared[1:]:
        local = [rv.name for rv in model.free_RVs if rv.type.ndim and rv.shape.eval()[0] == declared[0]]
        message += (
            f" The model's own `{name}` looks like a table of {declared[0]} rows, and the model must describe one."
        )
        if local:
            return f"{message} Drop the first axis of {quoted(local)} too: these belong to a row."
        return f"{message} If its variables are parameters common to all rows, pass their draws as `posterior`."
    return message


def build_row_logp(model: pm.Model, names: tuple[str, ...]) -> Callable[..., float]:
    """Build ``logp(*row) -> float``, the log density of a row in a model without free variables."""
    frozen, targets = freeze_with_inputs(model, names)
    inputs = [target.type() for target in targets]
    (output,) = clone_replace([frozen.datalogp], dict(zip(targets, inputs, strict=True)), rebuild_strict=False)
    function = compile_interpreted(inputs, [output])
    return lambda *row: float(function(*(np.asarray(value) for value in row))[0])


def observe_first(model: pm.Model, rows: Mapping[str, np.ndarray]) -> Any:
    """Return the model with free variables observed, at their first row; the density is then in their own space."""
    return pm.observe(without_initvals(model), {name: value[0] for name, value in rows.items()})


def with_table(model: pm.Model, data: Mapping[str, np.ndarray]) -> Any:
    """Return a copy of the model with other data of the same shapes (n, ...) in place of its own."""
    copied = without_initvals(model).copy()
    # PyMC's copy has its variables in the order in which its graph is walked.
    order = [rv.name for rv in model.free_RVs]
    copied.free_RVs.sort(key=lambda rv: order.index(rv.name))
    containers = {variable.name for variable in copied.data_vars}
    refuse_frozen(copied, data)
    for name, value in data.items():
        if name in containers:
            copied.set_data(name, value)
            continue
        variable = copied[name]
        old, new = copied.rvs_to_values[variable], pt.constant(value, name=name)
        copied.rvs_to_values[variable], copied.values_to_rvs[new] = new, variable
        del copied.values_to_rvs[old]
    return copied
