"""Draws of truncated distributions whose cumulative distribution function is NaN at infinity, as pm.StudentT's is."""

from typing import Any

import pytensor.tensor as pt
from pymc.distributions.truncated import TruncatedRV
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.basic import UniformRV


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
