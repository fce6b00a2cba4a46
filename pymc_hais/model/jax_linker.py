"""Simplified graphs -> JAX, with functions of our own where the usual ones are slow on many particles."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.link.jax.linker import JAXLinker
from pytensor.scalar.basic import Log, Log1p, Neg
from pytensor.scalar.math import GammaLn, Log1mexp, Psi, Sigmoid, Softplus
from pytensor.tensor.math import Dot

from pymc_hais.model import jax_functions
from pymc_hais.model.rewrites import scalar_op

__all__ = ["jax_mode"]

_FUNCTIONS = {
    Log: jax_functions.log,
    Log1p: jax_functions.log1p,
    Log1mexp: jax_functions.log1mexp,
    GammaLn: jax_functions.gammaln,
    Psi: jax_functions.digamma,
    Sigmoid: jax_functions.sigmoid,
    Softplus: jax_functions.softplus,
}
#: XLA sees that f(-x) and f(x) share an exponential only if it is that of the same number.
_OF_NEGATIVES = {Sigmoid: jax_functions.sigmoid_of_negative, Softplus: jax_functions.softplus_of_negative}


class JaxFunction(Op):
    """What another Op computes, by a function of JAX arrays."""

    __props__ = ("function",)

    def __init__(self, function: Callable) -> None:
        self.function = function

    def replace(self, node: Apply) -> Apply:
        """Apply to the same inputs."""
        return Apply(self, node.inputs, [output.type() for output in node.outputs])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Never called: the linker converts the whole graph."""
        raise NotImplementedError


@jax_funcify.register(JaxFunction)
def _(op: JaxFunction, **_: Any) -> Callable:
    return op.function


class DensityLinker(JAXLinker):
    """PyTensor's own, but for the functions above."""

    def fgraph_convert(self, fgraph: Any, **kwargs: Any) -> Any:
        """Exchange functions, then convert."""
        for node in fgraph.toposort():
            if function := _find_function(node):
                exchanged = JaxFunction(function).replace(node)
                fgraph.replace_all(zip(node.outputs, exchanged.outputs, strict=True), reason="jax_functions")
        return super().fgraph_convert(fgraph, **{**kwargs, "order": fgraph.toposort()})


def _find_function(node: Apply) -> Callable | None:
    if any(getattr(x.type, "dtype", None) != "float64" for x in (*node.inputs, *node.outputs)):
        return None
    if isinstance(node.op, Dot):
        return _find_product(node)
    function = type(getattr(node.op, "scalar_op", None))
    if function in _OF_NEGATIVES and isinstance(scalar_op(node.inputs[0]), Neg):
        return _OF_NEGATIVES[function]
    return _FUNCTIONS.get(function)


def _find_product(node: Apply) -> Callable | None:
    a, b = node.inputs
    if a.type.ndim != 2 or b.type.ndim != 2:
        return None
    if b.type.shape[1] == 1:
        return jax_functions.column_product
    return jax_functions.row_product if a.type.shape[0] == 1 else None


@cache
def jax_mode() -> Mode:
    """Return the mode for graphs that :mod:`pymc_hais.model.simplification` has been through already."""
    done = ("canonicalize", "stabilize", "specialize", "fusion")
    return Mode(DensityLinker(), RewriteDatabaseQuery(include=["fast_run", "jax"], exclude=done))
