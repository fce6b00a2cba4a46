"""The density that is learnt: of many rows at once, as a function of its parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace, graph_replace, vectorize_graph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors

from pymc_hais.core.messages import quoted
from pymc_hais.density import Layout, build_layout, observe_first
from pymc_hais.density.compat import default_transform, rewrite_for_gradients
from pymc_hais.density.compiling import compile_interpreted, lower_xtensor, untraced
from pymc_hais.density.containers import freeze_with_inputs, refuse_frozen
from pymc_hais.density.rows import as_rows, check_known, check_rows, declared_value
from pymc_hais.density.sites.variables import find_values, is_discrete

#: Kinds of visible variables: real numbers without or with limits; 0 and 1; finitely or infinitely many whole numbers.
KINDS = ("real", "restricted", "binary", "categorical", "count")
#: Arrays by name of the parameter.
type Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Visible:
    """A variable that the data name, and where its elements are in a row (D,)."""

    name: str
    start: int
    stop: int
    shape: tuple[int, ...]
    dtype: str
    kind: str  # of KINDS
    low: int = 0  # the least value of a discrete one
    n_values: int = 0  # of a discrete one; 0 for no end of them


@dataclass(frozen=True, eq=False)
class Family:
    """The densities of one row that a model describes, one for each value of its parameters.

    A visible variable is on its own scale: for one that PyMC would transform, the density is that of its natural value,
    without the Jacobian.  Hidden variables are on PyMC's unconstrained scale, with it.  The density keeps all terms of
    the model, also those that do not depend on the parameters, such as a normalising constant.

    Attributes
    ----------
    model : pymc.Model
        The user's.
    frozen : pymc.Model
        A copy in which the visible variables are observed, and all data but the parameters are constants.
    visible : tuple of Visible
    hidden : tuple of str
        Free variables that the data do not name.
    layout : Layout or None
        Of the hidden ones.
    parameters : dict
        Symbols of the model's parameters, by name, of dtype float64.
    own : dict
        Symbols of the method's own parameters.
    spread : ndarray (D,)
        Standard deviations of the rows' columns, as units for quantities that depend on the columns' units.
    backend : str or None
        The backend of all its programs; None if the package chooses.
    """

    model: pm.Model
    frozen: pm.Model
    visible: tuple[Visible, ...]
    hidden: tuple[str, ...]
    layout: Layout | None
    parameters: Mapping[str, Any]
    spread: np.ndarray
    own: Mapping[str, Any] = field(default_factory=dict)
    backend: str | None = None

    @property
    def n_dims(self) -> int:
        """D, the number of elements of a row."""
        return self.visible[-1].stop

    def first_values(self) -> dict[str, np.ndarray]:
        """Return the present values of the parameters in the model."""
        return {name: np.array(self.model[name].get_value(), dtype=np.float64) for name in self.parameters}

    @untraced
    def log_density(self, rows: pt.TensorVariable, hidden: pt.TensorVariable | None = None) -> Any:
        """Return the graph of the log densities (m,) of rows (m, D), with hidden variables at (m, H) if there are any.

        Not normalised where the model is not.
        """
        logp, _ = self.row_graph
        # Symbols replace the arguments while the graph is rewritten: gradients are taken with respect to the arguments.
        given: dict[Any, Any] = {
            pt.tensor(dtype="float64", shape=one.type.shape): one for one in (rows, hidden) if one is not None
        }
        columns, *others = given
        batched = self.batched(columns)
        if self.layout:
            for i, (owner, shape) in enumerate(zip(self.layout.owners, self.layout.shapes, strict=True)):
                value = self.frozen.rvs_to_values[self.frozen[owner]]
                first, last = self.layout.offsets[i : i + 2]
                batched[value] = _take(others[0], int(first), int(last), shape, value.dtype)
        return graph_replace([batch(logp, batched, columns)], given, strict=False)[0]

    def places(self, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
        """Return where the visible elements and the hidden ones are in a flat vector of all variables."""
        places = {owner: np.arange(*layout.offsets[i : i + 2]) for i, owner in enumerate(layout.owners)}
        hidden = self.layout.owners if self.layout else ()
        of_hidden = [np.empty(0, dtype=int), *(places[name] for name in hidden)]
        return np.concatenate([places[one.name] for one in self.visible]), np.concatenate(of_hidden)

    def batched(self, rows: pt.TensorVariable) -> dict[Any, Any]:
        """Return the parts of rows (m, D) that replace the symbols of one row."""
        _, known = self.row_graph
        return {known[one.name]: _take(rows, one.start, one.stop, one.shape, one.dtype) for one in self.visible}

    @cached_property
    def row_graph(self) -> tuple[Any, dict[str, Any]]:
        """Return the log density of one row, and the symbols of the visible variables in it."""
        variables = {one.name: self.frozen[one.name] for one in self.visible}
        known = {name: self.frozen.rvs_to_values.get(variable, variable) for name, variable in variables.items()}
        (logp,) = lower_xtensor([self.frozen.logp()])
        shared = {self.frozen[name]: symbol for name, symbol in self.parameters.items()}
        # With the shape of a row, which the type of a container does not tell.
        inputs = {one.name: pt.tensor(one.name, dtype=known[one.name].dtype, shape=one.shape) for one in self.visible}
        replaced = {**shared, **{known[name]: symbol for name, symbol in inputs.items()}}
        logp = clone_replace([logp], replaced, rebuild_strict=False)[0]
        # Shapes become numbers, which of a batch they would not.
        return rewrite_graph(logp, include=("ShapeOpt", "canonicalize"), clone=False), inputs


def batch(logp: pt.TensorVariable, batched: Mapping[Any, Any], rows: pt.TensorVariable) -> Any:
    """Return the graph of the log densities (m,) of the replacements of one row's symbols."""
    graph: Any = vectorize_graph(logp, batched)
    # What does not vary with the row has no axis of rows; and a batch of products with one matrix is one product.
    graph = graph if graph.ndim else pt.zeros_like(rows[:, 0]) + graph
    return rewrite_for_gradients(graph, "canonicalize", "stabilize", "specialize")


def _take(rows: pt.TensorVariable, start: int, stop: int, shape: tuple[int, ...], dtype: str) -> Any:
    """Return some columns of rows (m, D) as (m, *shape)."""
    part = rows if (start, stop) == (0, rows.type.shape[1]) else rows[:, start:stop]
    part = part if len(shape) == 1 else part.reshape((part.shape[0], *shape))
    return part if dtype == "float64" else part.astype(dtype)


def build_family(
    model: pm.Model, data: Mapping[str, Any], parameters: Sequence[str], backend: str | None = None
) -> tuple[Family, np.ndarray]:
    """Check data and parameters, and return the family with the rows (n, D).

    Raises ValueError for data as of :func:`pymc_hais.log_likelihood`, and for parameters that are no ``pm.Data`` of
    real numbers, or that the density does not depend on.
    """
    names = check_known(model, data)
    for name, given in data.items():
        if np.ma.is_masked(given):  # np.asarray would return the numbers under the mask
            raise ValueError(
                f"`{name}` is a masked array with {np.ma.count_masked(given):,} masked values: leave their rows out, "
                "or write a model of the values that are there."
            )
    symbols = _read_parameters(model, parameters, names)
    table = {name: as_rows(model, name, data[name], declared_value(model, name)) for name in names}
    is_free = any(model[name] in model.free_RVs for name in names)
    observed = observe_first(model, table) if is_free else model
    table = check_rows(observed, table, is_joint=is_free)
    frozen, _ = freeze_with_inputs(observed, [*names, *parameters])
    visible, start = [], 0
    for name in names:
        shape = table[name].shape[1:]
        stop = start + int(np.prod(shape))
        visible.append(Visible(name, start, stop, shape, str(table[name].dtype), *_kind(model, name)))
        start = stop
    hidden = tuple(rv.name for rv in observed.free_RVs)
    layout = build_layout(observed) if hidden else None
    rows = np.hstack([value.reshape(len(value), -1).astype(np.float64) for value in table.values()])
    rows = np.ascontiguousarray(rows)
    deviations = rows.std(axis=0)
    spread = np.where(deviations > 0.0, deviations, 1.0)
    family = Family(model, frozen, tuple(visible), hidden, layout, symbols, spread, backend=backend)
    used = set(ancestors([family.row_graph[0]]))
    if unused := [name for name, symbol in symbols.items() if symbol not in used]:
        raise ValueError(f"The density does not depend on the parameter `{unused[0]}`: leave it out of `parameters`.")
    for one in visible:
        _check_values(model, one, rows[:, one.start : one.stop])
    return family, rows


def with_own(family: Family, own: Arrays) -> Family:
    """Add symbols of a method's own parameters, which get the shapes of their first values."""
    if taken := set(own) & set(family.parameters):
        raise ValueError(f"The method learns {sorted(taken)} itself: give the model's parameters other names.")
    symbols = {name: pt.tensor(name, dtype="float64", shape=np.shape(value)) for name, value in own.items()}
    return replace(family, own=symbols)


def factor_covariance(rows: np.ndarray) -> np.ndarray:
    """Return the Cholesky factor (D, D) of the covariance of rows, or of their variances where there are few."""
    n, n_dims = rows.shape
    deviations = np.where(rows.std(axis=0) > 0, rows.std(axis=0), 1.0)
    if n <= 2 * n_dims:
        return np.diag(deviations)
    return np.linalg.cholesky(np.atleast_2d(np.cov(rows.T)) + 1e-9 * np.diag(deviations**2))


def _read_parameters(model: pm.Model, parameters: Sequence[str], visible: Sequence[str]) -> dict[str, Any]:
    """Return symbols of the parameters; refuse anything but ``pm.Data`` of real numbers."""
    containers = {variable.name: variable for variable in model.data_vars}
    known = quoted(containers) or "none"
    symbols = {}
    for name in parameters:
        if name not in containers:
            kind = "a variable of the model, but no pm.Data" if name in model.named_vars else "not in the model"
            raise ValueError(
                f"`parameters` names {name!r}, which is {kind}: write what is learnt as pm.Data({name!r}, first "
                f"values). The model's containers: {known}."
            )
        if name in visible:
            raise ValueError(f"`{name}` is named in `parameters` and in `data`: it is one or the other.")
        refuse_frozen(model, [name])
        value = np.asarray(containers[name].get_value())
        if not np.issubdtype(value.dtype, np.floating):
            raise ValueError(f"The parameter `{name}` holds {value.dtype}: write pm.Data({name!r}, real numbers).")
        if not value.size or not np.isfinite(value).all():
            raise ValueError(f"The first value of the parameter `{name}` is empty, missing or infinite.")
        symbols[name] = pt.tensor(name, dtype="float64", shape=value.shape)
    return symbols


def _kind(model: pm.Model, name: str) -> tuple[str, int, int]:
    """Return the kind of a visible variable, the least value of a discrete one, and how many it has."""
    # A container is of the kind of the variables that are observed from it, or depend on it.
    variables = _observed_from(model, name) or [rv for rv in model.observed_RVs if model[name] in ancestors([rv])]
    if not is_discrete(model[name]):
        limited = [rv for rv in variables if not is_discrete(rv) and default_transform(rv.owner.op, rv) is not None]
        return "restricted" if limited else "real", 0, 0
    low, n_values = find_values(model, variables[0].name)
    kind = "binary" if (low, n_values) == (0, 2) else "categorical" if n_values else "count"
    return kind, low, n_values


def _observed_from(model: pm.Model, name: str) -> list[Any]:
    """Return the random variables that are observed from a variable or container; none for a predictor."""
    if model[name] in model.basic_RVs:
        return [model[name]]
    return [rv for rv in model.observed_RVs if model[name] in ancestors([model.rvs_to_values[rv]])]


def _check_values(model: pm.Model, one: Visible, part: np.ndarray) -> None:
    """Refuse columns (n, d) without spread, and values that a variable cannot take.

    A predictor may be an intercept, and have any values.
    """
    variables = _observed_from(model, one.name)
    if not variables:
        return
    if one.n_values or one.kind == "count":
        top = one.low + one.n_values - 1 if one.n_values else np.inf
        limits = f"whole numbers from {one.low}" + (f" to {top}" if one.n_values else "")
        _refuse_outside(one.name, part, (part < one.low) | (part > top), limits)
        return
    same = np.flatnonzero(np.ptp(part, axis=0) == 0.0)
    if same.size and len(part) > 1:
        where = f"Column {same[0]} of `{one.name}`" if one.shape else f"`{one.name}`"
        raise ValueError(
            f"{where} is {part[0, same[0]]:g} in all {len(part):,} rows: a density has no finite fit to values "
            "without spread. Leave it out of the model and of `data`."
        )
    for rv in variables if one.kind == "restricted" else ():
        if model.rvs_to_values[rv] is model[one.name] or rv is model[one.name]:
            support = f"the support of {getattr(rv.owner.op, '_print_name', ['its distribution'])[0]}"
            _refuse_outside(one.name, part, _are_outside(model, rv, one, part), support)


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
