"""PyMC model -> graphs of the log prior, the log ratio and their gradients on a flat vector."""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import apply_ancestors
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.checks import refuse_shapes, refuse_sums_of_conditions
from pymc_hais.density.compat import indices_from_subtensor, unsupported_op, with_real_argmax
from pymc_hais.density.compiling import untraced
from pymc_hais.density.containers import Preparation, arguments_for, cut_prepared, freeze_with_inputs
from pymc_hais.density.coordinates.chart import Chart, recentre
from pymc_hais.density.layout import Layout, build_position, on_position
from pymc_hais.density.proofs.tables import merge_equal_rows
from pymc_hais.density.rewrites.simplification import lift_data, simplify, simplify_values, sum_fewer_squares
from pymc_hais.density.sites.conditionals import Meetings, SiteRule, add_conditionals, find_meetings, find_rules
from pymc_hais.density.sites.lookups import confine_lookups, ranges_of
from pymc_hais.density.sites.terms import open_conditions

#: ``(x, log_prior) -> log density`` of a reference, as graphs.
type LogReference = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class DensityGraph:
    """Symbolic functions of the flat vector, ready for an engine to compile."""

    model: Any  # the user's (compilation happens in its context, which sets ``check_bounds``)
    layout: Layout
    position: Any  # (D,)
    #: Log reference, log ratio and their gradients; with ``betas`` f at beta, df / dbeta, its gradient, and zeros.
    density: list[Any]
    betas: list[Any]  # one vector (1,) on a path that has beta in its density, else none
    inputs: list[Any]  # data that differ between populations
    input_values: list[np.ndarray]  # one population's
    data: list[Any]  # large arrays that all populations share
    data_values: list[np.ndarray]
    rules: tuple[SiteRule, ...] = ()  # of the discrete variables
    #: What computes those of the data that follow a chart's sites; None where no data container varies.
    preparation: Preparation | None = None
    meetings: Meetings = field(default_factory=Meetings)  # of the sites of discrete variables

    @property
    def arguments(self) -> list[Any]:
        """All symbolic inputs, in the order of the compiled function."""
        return [self.position, *self.betas, *self.inputs, *self.data]

    def without_model(self) -> Self:
        """Return the graphs in an empty model, which lets the user's own go."""
        return replace(self, model=pm.Model(check_bounds=self.model.check_bounds))

    def floats(self) -> AbstractContextManager[Any]:
        """Let PyTensor compute in the precision in which the graphs were built."""
        return pytensor.config.change_flags(floatX=self.position.dtype)


@untraced
def build_density(
    model: pm.Model,
    layout: Layout,
    log_reference: LogReference | None = None,
    with_gradients: bool = True,
    rows: Mapping[str, np.ndarray] | None = None,
    chart: Chart | None = None,
    containers: Mapping[str, np.ndarray] | None = None,
    walls: np.ndarray | None = None,
) -> DensityGraph:
    """Build the graphs of the path from a reference, or the prior, to ``model.logp()``, geometric in the densities.

    From the prior the log ratio is ``model.datalogp`` (likelihood, potentials) itself, never the difference of two
    large numbers.  Shapes are frozen so that every backend can compile; the data become arguments, so that compile
    time does not grow with them.

    Without gradients zeros stand in, which cost nothing.  ``rows`` (R, ...) are observed variables or data containers
    that differ between populations.  The position holds the coordinates of a ``chart``, whose sites are then the first
    of the data, to be tuned.  What depends on ``containers`` alone, data that may vary, with their present values,
    is an argument too.  Beyond the ``walls`` (2, D) of the flat vector the density is zero.
    """
    values = [np.asarray(table)[0] for table in (rows or {}).values()]
    containers = containers or {}
    frozen, targets = freeze_with_inputs(model, [*(rows or {}), *containers])
    refuse_shapes(frozen)
    inputs = [pt.tensor(f"row_{i}", dtype=value.dtype, shape=value.shape) for i, value in enumerate(values)]
    shared = arguments_for(containers)
    given = dict(zip(targets, [*inputs, *shared], strict=True))
    # Before anything else: a value that is computed from a data container would become another variable.
    terms: Any = clone_replace([frozen.varlogp, frozen.datalogp], given, rebuild_strict=False)
    if layout.sites:
        terms, outside = confine_lookups(terms, ranges_of(frozen, layout.sites))
        terms = terms if outside is None else [terms[0], terms[1] + outside]
    position = build_position(layout)
    terms, x, log_jacobian, sites, no_sites = recentre(frozen, layout, chart, position, terms)
    if walls is not None and np.isfinite(walls).any():
        terms = [terms[0] + _confine(_flat(x, position, chart), walls), terms[1]]
    outputs: Any = terms
    if log_reference is not None:
        log_prior, log_rest = terms
        reference = log_reference(_flat(x, position, chart), log_prior).astype(position.dtype)
        outputs = [reference, log_prior + log_rest - reference]
    refuse_sums_of_conditions(outputs)
    outputs = with_real_argmax(outputs)
    if chart:
        outputs[0] += log_jacobian
    if containers:  # which the chart depends on as well
        outputs = clone_replace(outputs, given, rebuild_strict=False)
    graph = DensityGraph(model, layout, position, outputs, [], inputs, values, sites, no_sites)
    return _simplified(_with_slopes(graph, with_gradients), shared, containers)


def _with_slopes(graph: DensityGraph, with_gradients: bool) -> DensityGraph:
    """Add the gradients to the two log densities, and what stands in their place at discrete sites."""
    outputs, position, layout = graph.density, graph.position, graph.layout
    if layout.sites:
        outputs = [open_conditions(output, position, graph.model.check_bounds) for output in outputs]
        rules, smooth = find_rules(outputs, position, layout.sites)
        density = add_conditionals(outputs, position, rules, smooth, with_gradients)
        return replace(graph, density=density, rules=rules, meetings=find_meetings(outputs, position, layout.n_sites))
    outputs = sum_fewer_squares(simplify_values(outputs))
    gradients = [gradient_of(one, position) if with_gradients else pt.zeros_like(position) for one in outputs]
    return replace(graph, density=[*outputs, *gradients])


def _confine(flat: Any, walls: np.ndarray) -> Any:
    """Return 0 between the walls and minus infinity beyond.

    Prior draws that floating point cannot hold count with weight zero.  Without walls, moves would lead the others to
    where these draws should be, and none would come back.
    """
    low, high = walls
    below, above = np.flatnonzero(np.isfinite(low)), np.flatnonzero(np.isfinite(high))
    is_inside = pt.and_(pt.all(flat[below] >= low[below]), pt.all(flat[above] <= high[above]))
    return pt.switch(is_inside, 0.0, -np.inf).astype(flat.dtype)


def _flat(x: Mapping[Any, Any], position: TensorVariable, chart: Chart | None) -> Any:
    """Return the flat vector of the model; the position itself where it has no chart."""
    return pt.concatenate([value.ravel() for value in x.values()]) if chart else position


@untraced
def build_parameter_density(
    model: pm.Model, layout: Layout, endpoints: Mapping[str, tuple[Any, Any]], with_gradients: bool = True
) -> DensityGraph:
    """Build the graphs of a path that moves data containers of the model between values at beta = 0 and 1.

    They are f at beta, its slope in beta, and its gradient.
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
    gradient = gradient_of(value, position) if with_gradients else zeros
    density = [value, gradient_of(value, betas)[0].astype(position.dtype), gradient, zeros]
    return _simplified(DensityGraph(model, layout, position, density, [betas], [], [], [], []))


def _simplified(
    graph: DensityGraph, shared: Sequence[Any] = (), containers: Mapping[str, np.ndarray] | None = None
) -> DensityGraph:
    """Simplify values and gradients together; make arguments of what containers lead to, and of large constants.

    The data of the graph given are the sites of a chart alone; the shared variables stand for the data containers.
    """
    groups = [graph.position], graph.betas, graph.inputs, graph.data, shared
    whole = simplify([*itertools.chain(*groups)], graph.density, graph.model.check_bounds)
    rest: Any = iter(whole.inputs)
    (position,), betas, inputs, sites, known = (list(itertools.islice(rest, len(one))) for one in groups)
    prepared, prepared_values, preparation = cut_prepared(whole, known, containers) if containers else ([], [], None)
    density, data, data_values = merge_equal_rows(whole.outputs, *lift_data(whole))
    return replace(
        graph,
        position=position,
        density=density,
        betas=betas,
        inputs=inputs,
        data=[*sites, *prepared, *data],
        data_values=[*graph.data_values, *prepared_values, *data_values],
        preparation=preparation,
    )


def gradient_of(output: TensorVariable, position: TensorVariable) -> Any:
    """Differentiate by each part of the position that the graph takes, and join what comes of it.

    By the position as a whole, every part would be added to a vector of zeros of its own.
    """
    parts, is_taken_whole = _parts_of(output, position)
    try:
        slopes: Any = pytensor.grad(output, list(parts), disconnected_inputs="ignore") if parts else []
        # Simplifying may find that the position does not matter, or only its shape.
        rest = pytensor.grad(output, position, list(parts), "ignore") if is_taken_whole or not parts else 0.0
    except (NotImplementedError, NullTypeGradError) as error:
        reason = unsupported_op(error)
        raise NotImplementedError(
            f"The model has an operation without a gradient ({reason}): pass kernel=pymc_hais.RandomWalk(), which "
            "needs none, or give the operation a gradient."
        ) from error
    n_dims, end, pieces = position.type.shape[0], 0, []
    for start, stop in sorted(set(parts.values())):
        own = [slope.ravel() for slope, span in zip(slopes, parts.values(), strict=True) if span == (start, stop)]
        pieces += [pt.zeros(start - end, position.dtype), functools.reduce(pt.add, own)]
        end = stop
    pieces = [one for one in (*pieces, pt.zeros(n_dims - end, position.dtype)) if one.type.shape != (0,)]
    return rest + pt.concatenate(pieces)


def _parts_of(output: TensorVariable, position: TensorVariable) -> tuple[dict[Any, tuple[int, int]], bool]:
    """Return the parts of the position (D,) that a graph takes, with their ends, and whether it takes anything else.

    A part that overlaps with an earlier one counts as more than parts.
    """
    parts: dict[Any, tuple[int, int]] = {}
    is_taken_whole, is_taken = output is position, np.zeros(position.type.shape[0], bool)
    for node in (node for node in apply_ancestors([output]) if position in node.inputs):
        first, last = _ends_of(node, len(is_taken))
        if (first, last) in parts.values() or (first < last and not is_taken[first:last].any()):
            parts[node.outputs[0]] = first, last
            is_taken[first:last] = True
        else:
            is_taken_whole = True
    return parts, is_taken_whole


def _ends_of(node: Apply, n_dims: int) -> tuple[int, int]:
    """Return the first place that a node takes of a vector and the one after the last; (0, 0) if these do not tell."""
    indices = list[Any](node.inputs[1:])
    if not isinstance(node.op, Subtensor) or not all(isinstance(index, Constant) for index in indices):
        return 0, 0
    numbers: Any = [int(index.data) for index in indices]
    entries: Any = indices_from_subtensor(numbers, node.op.idx_list)
    places = np.ravel(np.arange(n_dims)[tuple(entries)])
    return (int(places[0]), int(places[-1]) + 1) if places.size and np.all(np.diff(places) == 1) else (0, 0)
