"""The log-likelihood of each row of a table at many draws of the parameters, compiled once."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.model.transform.conditioning import remove_value_transforms
from pytensor.graph.replace import clone_replace, vectorize_graph

from pymc_hais.model.compat import without_initvals
from pymc_hais.model.compiling import compile_interpreted, lower_xtensor
from pymc_hais.model.containers import freeze_with_inputs

#: ``(draws {name: (S, ...)}, table [(n, ...)]) -> log-likelihoods (S, n)``
type Pointwise = Callable[[Mapping[str, np.ndarray], Sequence[np.ndarray]], np.ndarray]

#: Numbers that one call of the batched graph returns, so that memory does not grow with the draws.
_CHUNK_SIZE = 2**21


def build_pointwise(model: Any, names: Sequence[str]) -> Pointwise:
    """Compile the log-likelihood of a table of data, summed over observed variables and all axes but the first.

    Parameters
    ----------
    model : pymc.Model
        Holding a table of n rows.
    names : sequence of str
        Observed variables and data containers that other tables of the same shapes replace.
    """
    plain = remove_value_transforms(without_initvals(model))  # a result keeps the variables' own values
    frozen, targets = freeze_with_inputs(plain, names)
    with frozen:
        terms = frozen.logp(vars=frozen.observed_RVs, sum=False)
    terms = [pt.as_tensor(term, allow_xtensor_conversion=True) for term in lower_xtensor(terms)]
    tables = [pt.tensor(f"table_{i}", dtype=t.type.dtype, shape=t.type.shape) for i, t in enumerate(targets)]
    values = {rv.name: frozen.rvs_to_values[rv] for rv in frozen.free_RVs}
    total: Any = functools.reduce(operator.add, map(_sum_rows, terms))
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
        parts = [function(*(one[i : i + chunk] for one in given), *rows)[0] for i in range(0, len(given[0]), chunk)]
        return np.concatenate(parts)

    return pointwise


def _sum_rows(term: Any) -> Any:
    """Sum a log-likelihood (n, ...) over all axes but the first; (1,) for one number."""
    if term.ndim == 0:
        return term[None]
    return term.sum(axis=tuple(range(1, term.ndim))) if term.ndim > 1 else term


def evaluate_tables(
    pointwise: Pointwise, draws: Mapping[str, np.ndarray], table: Sequence[np.ndarray], length: int
) -> np.ndarray:
    """Evaluate the log-likelihood of a table of R rows, as many rows at a time as the model's own table has.

    Many models do not allow another number of rows, because PyMC takes the shape of a variable from its data.

    Parameters
    ----------
    pointwise : callable
        As :func:`build_pointwise` compiled it.
    draws : dict of ndarray (C, S, ...)
        Of all free variables.
    table : sequence of ndarray (R, ...)
    length : int
        Of the model's own table.

    Returns
    -------
    ndarray (C, S, R)

    Raises
    ------
    ValueError
        If there is no value for each row, or the value of a row depends on the others or on its place.
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
    turned = evaluate(tables[0][::-1])[:, ::-1]
    if not np.allclose(turned, values[0], rtol=1e-6, atol=1e-8, equal_nan=True):
        raise ValueError(
            "The log-likelihood of a row changes with its place in the table or with the rows around it: the rows are "
            "not independent given the parameters, or a variable has an entry for each row of the training data."
        )
    return np.concatenate(values, axis=1)[:, :n_rows].reshape(*chains, n_rows)
