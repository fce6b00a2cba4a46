"""PyMC model -> graphs of the log prior, the log ratio and their gradients on a flat vector."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_hais.model.centring import recentre
from pymc_hais.model.checks import refuse_sums_of_conditions
from pymc_hais.model.compat import with_real_argmax
from pymc_hais.model.compiling import untraced
from pymc_hais.model.containers import Preparation, arguments_for, cut_prepared, freeze_with_inputs
from pymc_hais.model.layout import Layout, build_position, on_position
from pymc_hais.model.rewrites.simplification import lift_data, simplify, simplify_values
from pymc_hais.model.sites.conditionals import SiteRule, add_conditionals
from pymc_hais.model.sites.interactions import find_rules, take_slopes
from pymc_hais.model.sites.lookups import confine_lookups, ranges_of
from pymc_hais.model.sites.terms import open_conditions, reached_from
from pymc_hais.paths import Geometric, Parameters
from pymc_hais.types import Path

#: ``(x, log_prior) -> log density`` of a reference, as graphs.
type LogReference = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class DensityGraph:
    """Symbolic functions of the flat vector, ready for an engine to compile.

    Attributes
    ----------
    model : pymc.Model
        The user's model (compilation happens in its context, which sets ``check_bounds``).
    layout : Layout
    position : TensorVariable (D,)
    density : list of TensorVariable
        What ``path`` describes: ``log_reference, log_ratio, grad_reference, grad_ratio`` on a geometric one.
    path : Path
    betas : list of TensorVariable
        One vector (1,) on a path that has beta in its density, else none.
    inputs, input_values : list
        Data that differ between populations, and one population's values.
    data, data_values : list
        Large arrays that all populations share, and what to pass for them.
    rules : tuple of SiteRule
        Of the discrete variables.
    preparation : Preparation or None
        What computes those of the data that follow a chart's sites; None where no data container varies.
    """

    model: Any
    layout: Layout
    position: Any
    density: list[Any]
    path: Path
    betas: list[Any]
    inputs: list[Any]
    input_values: list[np.ndarray]
    data: list[Any]
    data_values: list[np.ndarray]
    rules: tuple[SiteRule, ...] = ()
    preparation: Preparation | None = None

    @property
    def arguments(self) -> list[Any]:
        """All symbolic inputs, in the order of the compiled function."""
        return [self.position, *self.betas, *self.inputs, *self.data]

    @property
    def width(self) -> int:
        """Elements of the largest array that one particle's density takes or makes.

        A matrix that all particles share, such as that of a Boltzmann machine, makes none of them larger.
        """
        variables = reached_from([self.position], self.density) if self.rules else ancestors(self.density)
        shapes = (getattr(variable.type, "shape", ()) for variable in variables)
        return max(math.prod(shape) for shape in shapes if None not in shape)


@untraced
def build_density(
    model: Any,
    layout: Layout,
    log_reference: LogReference | None = None,
    with_gradients: bool = True,
    rows: Mapping[str, np.ndarray] | None = None,
    has_chart: bool = False,
    takes_slopes: bool = False,
    containers: Mapping[str, np.ndarray] | None = None,
) -> DensityGraph:
    """Build the graphs of the path from a reference to ``model.logp()``, geometric in the densities.

    From the prior the log ratio is ``model.datalogp`` (likelihood, potentials) itself, never the difference of two
    large numbers.  Shapes are frozen so that every backend can compile; the data become arguments, so that compile
    time does not grow with them.

    Parameters
    ----------
    model : pymc.Model
    layout : Layout
    log_reference : callable, optional
        ``(x, log_prior) -> log density`` of the reference, as graphs; the prior by default.
    with_gradients : bool
        Whether the kernel uses them; zeros stand in if not, and cost nothing.
    rows : dict of ndarray, optional
        Observed variables or data containers that differ between populations, with some populations' values (R, ...).
    has_chart : bool
        Whether the position holds the coordinates of :mod:`pymc_hais.model.centring`; the sites are then the first
        two of the data, to be tuned.
    takes_slopes : bool
        Whether guesses of the log odds of binary sites are enough.
    containers : dict of ndarray, optional
        Data containers that may vary, with their present values: what depends on them alone is an argument too.
    """
    tables = [np.asarray(value) for value in (rows or {}).values()]
    values = [table[0] for table in tables]
    containers = containers or {}
    frozen, targets = freeze_with_inputs(model, [*(rows or {}), *containers])
    inputs = [pt.tensor(f"row_{i}", dtype=value.dtype, shape=value.shape) for i, value in enumerate(values)]
    shared = arguments_for(containers)
    given = dict(zip(targets, [*inputs, *shared], strict=True))
    # Before anything else: a value that is computed from a data container would become another variable.
    terms = clone_replace([frozen.varlogp, frozen.datalogp], given, rebuild_strict=False)
    if layout.sites:
        terms, outside = confine_lookups(terms, ranges_of(frozen, layout.sites))
        terms = terms if outside is None else [terms[0], terms[1] + outside]
    position = build_position(layout)
    sites = [position.type(name) for name in ("precision", "shift") if has_chart]
    x, log_jacobian = recentre(frozen, layout, position, sites)
    outputs: list[Any] = clone_replace(terms, x, rebuild_strict=False)
    log_prior, log_rest = outputs
    if log_reference is not None:
        flat = pt.concatenate([value.ravel() for value in x.values()]) if has_chart else position
        reference = log_reference(flat, log_prior).astype(position.dtype)
        outputs = [reference, log_prior + log_rest - reference]
    refuse_sums_of_conditions(outputs)
    outputs = with_real_argmax(outputs)
    if has_chart:
        outputs[0] += log_jacobian
    if containers:  # which the chart depends on as well
        outputs = clone_replace(outputs, given, rebuild_strict=False)
    none = [np.zeros(layout.n_dims, position.dtype) for _ in sites]
    arguments = [position, [], inputs, sites]
    if layout.sites:
        outputs = [open_conditions(output, position, model.check_bounds) for output in outputs]
        found = (take_slopes if takes_slopes else find_rules)(outputs, position, layout.sites)
        density = add_conditionals(outputs, position, found, simplify_values, with_gradients)
        return _assemble(model, layout, Geometric(), arguments, density, values, none, found.rules)
    outputs = simplify_values(outputs)
    gradient = _gradient if with_gradients else lambda _, position: pt.zeros_like(position)
    density = [*outputs, *(gradient(output, position) for output in outputs)]
    return _assemble(model, layout, Geometric(), arguments, density, values, none, (), shared, containers)


@untraced
def build_parameter_density(
    model: Any, layout: Layout, endpoints: Mapping[str, tuple[Any, Any]], with_gradients: bool = True
) -> DensityGraph:
    """Build the graphs of a path that moves data containers of the model: f at beta, its slope in beta, its gradient.

    Parameters
    ----------
    model : pymc.Model
    layout : Layout
    endpoints : dict
        Data container -> its values at beta = 0 and 1.
    with_gradients : bool
    """
    frozen, targets = freeze_with_inputs(model, list(endpoints))
    position, (logp,) = on_position(frozen, layout, [frozen.logp()])
    betas = pt.vector("path_beta", dtype=position.dtype, shape=(1,))
    moved = {
        target: ((1.0 - betas[0]) * np.asarray(first) + betas[0] * np.asarray(last)).astype(target.dtype)
        for target, (first, last) in zip(targets, endpoints.values(), strict=True)
    }
    (value,) = simplify_values([clone_replace(logp, moved, rebuild_strict=False)])
    zeros = pt.zeros_like(position)
    gradient = _gradient(value, position) if with_gradients else zeros
    density = [value, _gradient(value, betas)[0].astype(position.dtype), gradient, zeros]
    return _assemble(model, layout, Parameters(), [position, [betas], [], []], density)


def _assemble(
    model: Any,
    layout: Layout,
    path: Path,
    arguments: list[Any],
    density: list[Any],
    input_values: Sequence[np.ndarray] = (),
    site_values: Sequence[np.ndarray] = (),
    rules: tuple[SiteRule, ...] = (),
    shared: Sequence[Any] = (),
    containers: Mapping[str, np.ndarray] | None = None,
) -> DensityGraph:
    """Simplify values and gradients together; make arguments of what containers lead to, and of large constants."""
    position, betas, inputs, sites = arguments
    graph = simplify([position, *betas, *inputs, *sites, *shared], density, model.check_bounds)
    rest = iter(graph.inputs)
    position = next(rest)
    betas, inputs, sites, shared = (list(itertools.islice(rest, len(one))) for one in (betas, inputs, sites, shared))
    prepared, prepared_values, preparation = cut_prepared(graph, shared, containers) if containers else ([], [], None)
    data, data_values = lift_data(graph)
    return DensityGraph(
        model,
        layout,
        position,
        graph.outputs,
        path,
        betas,
        inputs,
        list(input_values),
        [*sites, *prepared, *data],
        [*site_values, *prepared_values, *data_values],
        rules,
        preparation,
    )


def _gradient(output: Any, position: Any) -> Any:
    if position not in ancestors([output]):  # simplifying may find that it does not matter
        return pt.zeros_like(position)
    return pytensor.grad(output, position)
