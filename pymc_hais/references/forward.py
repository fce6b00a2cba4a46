"""The graph of one joint prior draw in the unconstrained space, and the same graph for many draws at once."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.truncated import TruncatedRV
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.rewriting.basic import MergeOptimizer
from pytensor.scan.op import Scan
from pytensor.tensor.random.basic import UniformRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType

from pymc_hais.density.compat import Transform, replace_rng_nodes, toposort_replace
from pymc_hais.density.compiling import compile_interpreted, lower_xtensor, write_out_inner
from pymc_hais.density.facts import find_bounds, find_cuts, is_sortable, keeps_all
from pymc_hais.density.layout import free_variables, steps_of
from pymc_hais.density.markov.markov import draw_right

#: How far a draw may come back from where it was, relative to one or to its size: no more than rounding explains, lest
#: draws near a set of no volume are taken for draws in it.
_ROUNDING = {"float32": 1e-4, "float64": 1e-7}

#: Nodes of all the steps of a loop, at most: each takes a millisecond to be given an axis of draws.
_MOST_NODES = 6000


def forward_graph(model: pm.Model, inside: bool = False, given: Mapping[Any, Any] | None = None) -> list[Any]:
    """Return the unconstrained value of each free variable that is not given, in the order of the flat vector.

    A draw outside the range of its transform comes out as NaN: the log density has no mass there, so such joint draws
    are to be rejected.  Where a transform may cut something off, that is a draw which does not come back: what a
    simplex, say, makes of three normal draws is no draw of their density.  A variable with an ``ordered`` transform is
    sorted where all its elements have the same prior, which is the same and wastes nothing.  Where a free variable
    depends on an observed one, as a missing value does on those that are not missing, that is the data.  The generators
    are copies: seeding them leaves the model's own alone.

    With ``inside`` a variable is drawn between the bounds of its transform, given its parents, where the mass of its
    prior between them is known.  ``given`` are free variables -> what stands for them.
    """
    given = given or {}
    variables = [rv for rv in free_variables(model) if rv not in given]
    transforms = [model.rvs_to_transforms[rv] for rv in variables]
    data = {rv: model.rvs_to_values[rv].astype(rv.dtype) for rv in model.observed_RVs}
    children = graph_replace(variables, {**data, **given}, strict=False)
    graph = FunctionGraph(outputs=children, clone=True, copy_inputs=False)
    draw_right(graph)
    cuts = find_cuts(model) if inside else []
    for i in reversed([i for i, rv in enumerate(variables) if rv in cuts]):  # children first: these have drawn parents
        drawn: Any = graph.outputs[i]
        bounds = find_bounds(drawn, transforms[i])
        truncated = pm.Truncated.dist(drawn, *bounds, shape=shapes_of([drawn])[0])
        # No draw lies beyond a bound by rounding.
        lower, upper = (limit if one is None else one for one, limit in zip(bounds, (-np.inf, np.inf), strict=True))
        between = pt.clip(truncated, lower, upper).astype(drawn.dtype)
        toposort_replace(graph, ((drawn, between),), reverse=True)
    draw_beyond_bounds(graph)
    draws: list[Any] = list(graph.outputs)
    replacements = [
        (draw, _arrange(draw, transform))
        for draw, transform in zip(draws, transforms, strict=True)
        if is_sortable(draw, transform)
    ]
    # Children see the arranged variable, as they do in the log density.
    toposort_replace(graph, tuple(replacements), reverse=True)
    values = []
    for rv, draw, output, transform in zip(variables, draws, graph.outputs, transforms, strict=True):
        parameters = draw.owner.inputs
        value: Any = _plain(output if transform is None else transform.forward(output, *parameters))
        if rv not in cuts and not keeps_all(rv, model.rvs_to_values[rv], transform):
            value = pt.switch(is_outside(output, transform, parameters), np.nan, value)
        values.append(value)
    return replace_rng_nodes(values)


def is_outside(draw: Variable, transform: Transform, parameters: Sequence[Any] = ()) -> Any:
    """Build a test whether a draw changes on its way to the unconstrained space and back, given its parameters."""
    back = transform.backward(transform.forward(draw, *parameters), *parameters)
    back = back.transpose(*draw.dims) if hasattr(draw, "dims") else back
    distance: Any = pt.abs(_plain(back) - _plain(draw))
    # A simplex with an element that underflowed is inf - inf: beyond floating point, not outside.
    nan = pt.zeros_like(distance, dtype="bool") if transform.name == "simplex" else pt.isnan(distance)
    return pt.any(nan | (distance > _ROUNDING[distance.dtype] * (1.0 + pt.abs(_plain(draw)))))


def _plain(value: Any) -> Any:
    """Return a labelled variable of ``pymc.dims`` as an ordinary one."""
    return pt.as_tensor(value, allow_xtensor_conversion=True)


def _arrange(draw: pt.TensorVariable, transform: Transform) -> Any:
    """Sort a draw so that the input of its ordered transform is ordered."""
    *before, ordered = steps_of(transform)
    value = draw
    for step in before:  # a default transform, such as the logarithm of a positive variable
        value = step.forward(value, *draw.owner.inputs)
    order = pt.argsort(value, axis=-1)
    return pt.take_along_axis(draw, order if ordered.ascending else order[..., ::-1], axis=-1)


def batch(
    outputs: list[Any], n: int, inputs: Mapping[Any, np.ndarray] | None = None, by_row: bool = False
) -> tuple[list[Any], int, list[Any]]:
    """Give a forward graph a leading axis of n independent draws.

    ``inputs`` are those of the graph, each with a possible value.  All draws share them, or, if they are ``by_row``,
    each draw has its own.  Returns the new outputs, how many draws they are, and the new inputs.

    Every random node is drawn with its own fixed shape after the new axis, with the parameters of the same row.
    Nothing is left to PyTensor's own rule for vectorising random variables, which draws wrong shapes when only the
    second parameter of a distribution gains an axis.  A few more draws are made if a dimension of the model has the
    same length, so that a misplaced axis cannot go unnoticed.  For a graph that cannot be batched (a loop that stops on
    a condition) PyTensor raises one or another exception.
    """
    graph = FunctionGraph(outputs=_inline(outputs), clone=False)
    random_nodes = [node for node in graph.toposort() if isinstance(node.op, RandomVariable)]
    inputs = inputs or {}
    shapes = dict(zip(random_nodes, shapes_of([node.outputs[1] for node in random_nodes], inputs), strict=True))
    lengths = set(itertools.chain.from_iterable(shapes.values()))
    n = next(size for size in itertools.count(n) if size not in lengths)
    of_rows = [one.type.clone(shape=(n, *one.type.shape))(name=one.name) for one in inputs] if by_row else list(inputs)
    mapped: dict[Any, Any] = dict(zip(inputs, of_rows, strict=True)) if by_row else {}
    generators: set[Any] = set()
    for node in graph.toposort():
        if isinstance(node.op, RandomVariable):
            new = _batch_random(node, mapped, (n, *shapes[node]), generators)
        elif any(variable in mapped for variable in node.inputs):
            known = {v: mapped[v] for v in node.inputs if v in mapped}
            new = vectorize_graph(node.outputs, known)
        else:
            continue
        mapped.update(zip(node.outputs, new, strict=True))
    return [_with_axis(output, mapped, n) for output in graph.outputs], n, of_rows


def _inline(outputs: list[Any]) -> list[Any]:
    """Open up PyMC's composite distributions until only elementary random nodes are left."""
    graph = FunctionGraph(outputs=lower_xtensor(outputs), clone=True, copy_inputs=False)
    write_out_inner(graph, lambda node: isinstance(node.op, SymbolicRandomVariable))
    # Loops that draw random numbers are replaced by their steps: PyTensor cannot vectorise these loops.
    for node in graph.toposort():
        if isinstance(node.op, Scan) and any(isinstance(one.type, RandomType) for one in node.inputs):
            outputs = _write_out(node)
            pairs = [(old, new) for old, new in zip(node.outputs, outputs, strict=True) if new is not None]
            graph.replace_all(tuple(pairs), import_missing=True)
    return list(graph.outputs)


def _write_out(node: Apply) -> list[Any]:
    """Return the outputs of a loop: each state's start and steps, and the generators after the last step.

    A loop that stops on a condition, or has too many steps, is a NotImplementedError.
    """
    op: Any = node.op
    outer: list[Any] = list(node.inputs)
    info, inner = op.info, op.fgraph.unfreeze()
    n_steps = int(compile_interpreted([], [outer[0]])()[0])
    if info.as_while or info.mit_mot_in_slices or n_steps * len(inner.apply_nodes) > _MOST_NODES:
        raise NotImplementedError(f"a loop of {n_steps} steps is not written out")
    MergeOptimizer().rewrite(inner)  # a draw that stands twice, for its value and for its generator, is one draw
    taps = [*info.mit_sot_in_slices, *info.sit_sot_in_slices]
    starts = [*op.outer_mitsot(outer), *op.outer_sitsot(outer)]
    # The values of each state: those before the first step, the earliest first, and one after each step.
    states = [[start[i] for i in range(-min(lags))] for start, lags in zip(starts, taps, strict=True)]
    collected: list[list[Any]] = [[] for _ in range(info.n_nit_sot)]
    nodes, generators = inner.toposort(), list(op.outer_untraced_sit_sot(outer))
    for t in range(n_steps):
        before = [state[t + lag - min(lags)] for state, lags in zip(states, taps, strict=True) for lag in lags]
        values = [*(one[t] for one in op.outer_seqs(outer)), *before, *generators, *op.outer_non_seqs(outer)]
        known = {own: own.type.filter_variable(value) for own, value in zip(inner.inputs, values, strict=True)}
        for step in nodes:
            copy = step.clone_with_new_inputs([known.get(one, one) for one in step.inputs], strict=False)
            known.update(zip(step.outputs, copy.outputs, strict=True))
        new = [known.get(one, one) for one in inner.outputs]
        for kept, value in zip([*states, *collected], new, strict=False):
            kept.append(value)
        generators = new[len(states) + len(collected) :]
    return [*(pt.stack(values) if values else None for values in [*states, *collected]), *generators]


def shapes_of(variables: list[Any], inputs: Mapping[Any, np.ndarray] | None = None) -> list[tuple[int, ...]]:
    """Evaluate shapes, given values of inputs; in a PyMC model they do not depend on the values drawn."""
    inputs = inputs or {}
    shapes = compile_interpreted(list(inputs), [variable.shape for variable in variables])(*inputs.values())
    return [tuple(int(length) for length in shape) for shape in shapes]


def _batch_random(node: Apply, mapped: dict[Any, Any], shape: tuple[int, ...], generators: set[Any]) -> list[Any]:
    op = node.op
    inputs: list[Any] = node.inputs
    rng, _, *parameters = inputs
    # PyTensor does not advance a generator with two users (pm.Truncated has one): every call would draw the same.
    rng = pytensor.shared(np.random.default_rng()) if rng in generators else rng
    generators.add(rng)
    size = shape[: len(shape) - op.ndim_supp]
    aligned = []
    for parameter, ndim_core in zip(parameters, op.ndims_params, strict=True):
        if parameter in mapped:
            missing = len(size) - 1 - (parameter.ndim - ndim_core)
            parameter = pt.expand_dims(mapped[parameter], tuple(range(1, 1 + missing)))
        aligned.append(parameter)
    return op.make_node(mapped.get(rng, rng), pt.constant(np.array(size, dtype="int64")), *aligned).outputs


def _with_axis(output: Variable, mapped: dict[Any, Any], n: int) -> Any:
    if output in mapped:
        return mapped[output]
    if isinstance(output, Constant):
        return pt.alloc(output, n, *output.type.shape)
    raise NotImplementedError(f"{output} does not vary from draw to draw")


def draw_beyond_bounds(graph: FunctionGraph) -> None:
    """Let truncated variables of a graph draw between bounds that may be infinite: there the function is 0 or 1."""
    for node in graph.toposort():
        if isinstance(node.op, TruncatedRV) and (op := _with_known_ends(node.op)) is not None:
            new = op.make_node(*node.inputs)
            graph.replace_all(tuple(zip(node.outputs, new.outputs, strict=True)), import_missing=True)


def _with_known_ends(op: Any) -> Any:
    """Return the same operation with a uniform draw between known ends; None for one that draws by rejection."""
    inner = op.fgraph.unfreeze()
    uniform = inner.outputs[1].owner
    if uniform is None or not isinstance(uniform.op, UniformRV):
        return None
    lower, upper = inner.inputs[-2:]
    rng, size, low, high = uniform.inputs
    ends = pt.switch(pt.eq(lower, -float("inf")), 0.0, low), pt.switch(pt.eq(upper, float("inf")), 1.0, high)
    new = uniform.op.make_node(rng, size, *(end.astype(low.dtype) for end in ends))
    inner.replace_all(tuple(zip(uniform.outputs, new.outputs, strict=True)), import_missing=True)
    return TruncatedRV(
        base_rv_op=op.base_rv_op,
        inputs=list(inner.inputs),
        outputs=list(inner.outputs),
        ndim_supp=op.ndim_supp,
        max_n_steps=op.max_n_steps,
    )
