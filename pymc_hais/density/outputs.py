"""Positions <-> what a user named, and the log-likelihood of rows of data at it: many draws at a time."""

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.model.transform.conditioning import remove_value_transforms
from pytensor.compile.ops import ViewOp
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compat import without_initvals
from pymc_hais.density.compiling import compile_interpreted, freeze_dims_and_data, lower_xtensor
from pymc_hais.density.containers import arguments_for, freeze_with_inputs
from pymc_hais.density.layout import Layout, on_position

#: ``(draws {name: (S, ...)}, table [(n, ...)]) -> log-likelihoods (S, n)``
type Pointwise = Callable[[Mapping[str, np.ndarray], Sequence[np.ndarray]], np.ndarray]

#: Numbers returned by one call of the batched graph, so that memory does not grow with the draws.
_CHUNK_SIZE = 2**21
_MAX_CHUNK = 1000


def build_outputs(
    model: pm.Model,
    layout: Layout,
    var_names: Sequence[str] | None = None,
    include_transformed: bool = False,
    containers: Mapping[str, np.ndarray] | None = None,
) -> Callable[..., dict[str, np.ndarray]]:
    """Build the function from flat positions to named values, as ``pm.sample`` would store them.

    It is ``positions (..., D) -> {name: array (..., *shape)}``, in the model's order.

    ``var_names`` are free variables and Deterministics to keep, all of them by default; others are refused.  Value
    variables (``"tau_log__"``) come with ``include_transformed``.  ``containers`` are data that may vary, with their
    present values; the function takes others as its second argument.
    """
    known = [variable.name for variable in (*model.free_RVs, *model.deterministics)]
    if unknown := [name for name in var_names or () if name not in known]:
        raise ValueError(
            f"`var_names` contains {', '.join(map(repr, unknown))}, but the model's free variables and "
            f"Deterministics are {', '.join(map(repr, known))}."
        )
    names = [name for name in known if var_names is None or name in var_names]
    if include_transformed:
        names += [variable.name for variable in model.value_vars if variable.name not in known]
    containers = containers or {}
    frozen, targets = freeze_with_inputs(model, list(containers))
    graphs = {variable.name: variable for variable in frozen.unobserved_value_vars}
    # PyMC's copies keep one name of Deterministics that are views of one expression.
    shared_by = {_expression(model[name]): graph for name, graph in graphs.items() if name in model.named_vars}
    chosen = [graphs[name] if name in graphs else shared_by[_expression(model[name])] for name in names]
    tensors = [pt.as_tensor(graph, allow_xtensor_conversion=True) for graph in chosen]
    position, outputs = on_position(frozen, layout, tensors)
    shared = arguments_for(containers)
    if containers:
        outputs = clone_replace(outputs, dict(zip(targets, shared, strict=True)), rebuild_strict=False)
    single = compile_interpreted([position, *shared], outputs)
    size = sum(np.size(value) for value in single(np.zeros(layout.n_dims, position.dtype), *containers.values()))
    chunk = int(np.clip(_CHUNK_SIZE // max(size, 1), 1, _MAX_CHUNK))
    function = batch_over_rows(position, outputs, single, dict(zip(shared, containers.values(), strict=True)))

    def evaluate(positions: np.ndarray, data: Mapping[str, np.ndarray] = containers) -> dict[str, np.ndarray]:
        values = [data[name] for name in containers]
        flat = np.ascontiguousarray(positions, dtype=position.dtype).reshape(-1, layout.n_dims)
        joined = _in_parts(lambda part: function(flat[part], *values), len(flat), chunk)
        batch = np.shape(positions)[:-1]
        return {name: a.reshape((*batch, *a.shape[1:])) for name, a in zip(names, joined, strict=True)}

    return evaluate


def _in_parts(function: Callable[[slice], list[np.ndarray]], n: int, size: int) -> list[np.ndarray]:
    """Compute arrays of n rows, so many rows at a time.

    Each part is copied as soon as it is there.  To keep all parts and join them takes twice the memory: gigabytes.
    """
    joined: list[np.ndarray] = []
    for part in (slice(i, i + size) for i in range(0, n, size)):
        found = function(part)
        joined = joined or [np.empty((n, *array.shape[1:]), array.dtype) for array in found]
        for whole, array in zip(joined, found, strict=True):
            whole[part] = array
    return joined


def _expression(variable: Any) -> Any:
    """Return what a variable is a view of, as each Deterministic is a view of its expression.

    >>> with pm.Model():
    ...     total = pm.Normal("x", shape=2).sum()
    ...     first = pm.Deterministic("first", total)
    ...     second = pm.Deterministic("second", first)
    >>> _expression(first) is _expression(second) is total
    True
    """
    while variable.owner is not None and isinstance(variable.owner.op, ViewOp):
        variable = variable.owner.inputs[0]
    return variable


def build_unconstrain(
    model: pm.Model, layout: Layout, shapes: Mapping[str, tuple[int, ...]]
) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    """Build the inverse, given the shape of each free variable in its own space.

    It is ``{free variable: array (n, *shape)} -> positions (n, D)``.
    """
    frozen = freeze_dims_and_data(model)
    variables = [frozen[owner] for owner in layout.owners]
    sizes = [int(np.prod(shapes[owner])) for owner in layout.owners]
    ends = np.cumsum([0, *sizes])
    joined = pt.tensor("values", dtype=pytensor.config.floatX, shape=(int(ends[-1]),))
    named = {}
    for i, variable in enumerate(variables):
        part = joined[ends[i] : ends[i + 1]].reshape(shapes[variable.name]).astype(variable.dtype)
        named[variable] = variable.type.filter_variable(part)
    flat = []
    for variable in variables:
        transform = frozen.rvs_to_transforms[variable]
        value = variable if transform is None else transform.forward(variable, *variable.owner.inputs)
        flat.append(pt.as_tensor(value, allow_xtensor_conversion=True).ravel())
    outputs: list[Any] = clone_replace([pt.concatenate(flat)], named, rebuild_strict=False)
    function = batch_over_rows(joined, outputs, compile_interpreted([joined], outputs))

    def unconstrain(values: Mapping[str, np.ndarray]) -> np.ndarray:
        own = zip(layout.owners, sizes, strict=True)
        rows = [np.asarray(values[owner], joined.dtype).reshape(-1, size) for owner, size in own]
        return np.asarray(function(np.concatenate(rows, axis=1))[0], np.float64)

    return unconstrain


def batch_over_rows(
    position: TensorVariable,
    outputs: list[Any],
    single: Callable[..., Any],
    shared: Mapping[Any, np.ndarray] | None = None,
) -> Callable[..., list[np.ndarray]]:
    """Vectorise graphs of one vector over a leading axis; one row at a time where a graph does not allow it.

    ``single`` is the same, compiled; ``shared`` are further arguments, which all rows share, with possible values.
    """
    shared = shared or {}

    def loop(rows: np.ndarray, *data: np.ndarray) -> list[np.ndarray]:
        return [np.stack(values) for values in zip(*(single(row, *data) for row in rows), strict=True)]

    positions = pt.matrix("positions", dtype=position.dtype, shape=(None, *position.type.shape))
    probe = np.stack([np.zeros(position.type.shape), np.full(position.type.shape, 0.1)]).astype(position.dtype)
    try:
        vectorised: list[Any] = vectorize_graph(outputs, {position: positions})
        complete = [
            batched if batched.ndim > output.ndim else pt.alloc(batched, positions.shape[0], *batched.shape)
            for batched, output in zip(vectorised, outputs, strict=True)
        ]
        function = compile_interpreted([positions, *shared], complete)
        agrees = all(
            a.shape == b.shape and np.allclose(a, b, equal_nan=True)
            for a, b in zip(function(probe, *shared.values()), loop(probe, *shared.values()), strict=True)
        )
    except Exception:  # an Op without a batched form; the loop is always right
        return loop
    return function if agrees else loop


def build_pointwise(model: pm.Model, names: Sequence[str]) -> Pointwise:
    """Compile the log-likelihood of a table of data, summed over observed variables and all axes but the first.

    The model holds a table of n rows, in observed variables and data containers that others of the same shapes replace.
    """
    plain = remove_value_transforms(without_initvals(model))  # a result keeps the variables' own values
    frozen, targets = freeze_with_inputs(plain, names)
    with frozen:
        terms = frozen.logp(vars=frozen.observed_RVs, sum=False)
    terms = [pt.as_tensor(term, allow_xtensor_conversion=True) for term in lower_xtensor(terms)]
    tables = [pt.tensor(f"table_{i}", dtype=t.type.dtype, shape=t.type.shape) for i, t in enumerate(targets)]
    values = {rv.name: frozen.rvs_to_values[rv] for rv in frozen.free_RVs}
    # Summed over all axes but the first: a vector has no other, and stays as it is.  A single number is one row.
    rows = [pt.atleast_1d(term).sum(axis=tuple(range(1, term.ndim))) for term in terms]
    total: Any = functools.reduce(operator.add, rows)
    (total,) = clone_replace([total], dict(zip(targets, tables, strict=True)), rebuild_strict=False)
    batched = {
        v: pt.tensor(f"{v.name}_draws", dtype=v.type.dtype, shape=(None, *v.type.shape)) for v in values.values()
    }
    outputs: Any = vectorize_graph([total], batched)[0]
    if outputs.ndim == total.ndim:  # no parameter matters
        outputs = pt.alloc(outputs, next(iter(batched.values())).shape[0], *outputs.shape)
    function = compile_interpreted([*batched.values(), *tables], [outputs])

    def pointwise(draws: Mapping[str, np.ndarray], table: Sequence[np.ndarray]) -> np.ndarray:
        given = [np.asarray(draws[name], dtype=value.type.dtype) for name, value in values.items()]
        rows = [np.asarray(one, dtype=t.type.dtype) for one, t in zip(table, tables, strict=True)]
        chunk = max(1, _CHUNK_SIZE // max(1, rows[0].size))
        (found,) = _in_parts(lambda part: function(*(one[part] for one in given), *rows), len(given[0]), chunk)
        return found

    return pointwise


def evaluate_tables(
    pointwise: Pointwise, draws: Mapping[str, np.ndarray], table: Sequence[np.ndarray], length: int
) -> np.ndarray:
    """Evaluate the log-likelihood of a table of R rows, as many rows at a time as the model's own table has.

    Many models do not allow another number of rows, because PyMC takes the shape of a variable from its data.  From
    draws (C, S, ...) of all free variables and a table (R, ...) it makes log-likelihoods (C, S, R); refused where a row
    has none of its own, or one that depends on the others or on its place.
    """
    n_rows = len(table[0])
    chains = np.shape(next(iter(draws.values())))[:2]
    flat = {name: np.reshape(value, (-1, *np.shape(value)[2:])) for name, value in draws.items()}

    def evaluate(rows: np.ndarray) -> np.ndarray:
        values = pointwise(flat, [one[rows] for one in table])
        if values.shape[1] != length:
            raise ValueError(
                f"The log-likelihood of {length} rows has {values.shape[1]} entries, so they are not independent given "
                "the parameters (a multivariate distribution over the rows?)."
            )
        return values

    # The last rows are repeated to fill the last table.
    tables = np.minimum(np.arange(-(-n_rows // length) * length), n_rows - 1).reshape(-1, length)
    values = [evaluate(rows) for rows in tables]
    # A row has the same log-likelihood in each place that it fills, and in a random order of the rows: such an order
    # shows a likelihood that depends on the place.
    order = np.random.default_rng(0).permutation(length)
    _, first, same = np.unique(tables[0], return_index=True, return_inverse=True)
    once = values[0][:, first[same]]
    pairs = ((values[0], once), (evaluate(tables[0][order]), once[:, order]))
    if not all(np.allclose(one, other, rtol=1e-6, atol=1e-8, equal_nan=True) for one, other in pairs):
        raise ValueError(
            "The log-likelihood of a row changes with its place in the table or with the rows around it: the rows are "
            "not independent given the parameters, or a variable has an entry for each row of the training data."
        )
    return np.concatenate(values, axis=1)[:, :n_rows].reshape(*chains, n_rows)
