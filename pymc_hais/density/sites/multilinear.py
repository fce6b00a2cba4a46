"""Graphs of binary sites -> the same numbers as smooth functions whose slope at a site is an exact difference.

A function of sites s in {0, 1} has many extensions to real s.  Where each site is in it alone, as in log p(y | mu[s]),
f(0) + s (f(1) - f(0)) is one whose derivative is the log odds; where sites meet, as in s' W t, the graph as it is
written may be linear in each of them.  Both are built here; whether the slopes are exact is read from the result.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.rewrites.graphs import LINEAR, scalar_op
from pymc_hais.density.sites.dependence import Dependence
from pymc_hais.density.sites.operations import keeps_numbers
from pymc_hais.density.sites.variables import SiteVariable

_SHAPING = (DimShuffle, Reshape, Subtensor, SpecifyShape, Alloc)


class _Split(NamedTuple):
    """An array whose elements depend on one site each: its values where the site is 0 and where it is 1."""

    sites: Any  # of floats, of the same number of axes
    zero: Any  # an array, which may be split by other sites itself
    one: Any
    linear: Any  # the array as it is written, where that is linear in the sites; else None

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.zero.ndim

    @property
    def broadcastable(self) -> tuple[bool, ...]:
        """Which axes have a single element."""
        return self.zero.broadcastable if isinstance(self.zero, _Split) else self.zero.type.broadcastable


class Extended(NamedTuple):
    """Graphs as smooth functions of real sites."""

    outputs: list[Any]  # with the same values where the sites are 0 or 1
    #: Variable of their graphs -> ``(sites, zero, one)``: it is ``zero + sites * (one - zero)`` by element, whatever
    #: its own operations look like, and ``zero`` and ``one`` are what it is at ``sites = 0`` and 1.
    interpolated: dict[Any, tuple[Any, Any, Any]]


def find_casts(outputs: Sequence[Any], position: Variable) -> list[Any]:
    """Return the arrays of whole numbers that are read off the flat vector."""
    found = []
    for variable in ancestors(list(outputs)):
        if isinstance(scalar_op(variable), ps.Cast) and variable.type.dtype.startswith(("int", "uint", "bool")):
            source = variable.owner.inputs[0]
            while source.owner and isinstance(source.owner.op, _SHAPING):
                source = source.owner.inputs[0]
            if source is position:
                found.append(variable)
    return found


def extend(outputs: list[Any], position: TensorVariable, variables: Sequence[SiteVariable]) -> Extended:
    """Write graphs of floats as smooth functions of real sites: those of some variables with the values 0 and 1."""
    graph = FunctionGraph(outputs=list(outputs), clone=False)
    splits: dict[Any, _Split] = {}
    walk = Dependence(position, position.type.shape[0])
    for whole in find_casts(outputs, position):
        real = whole.owner.inputs[0]
        reach = walk(real)
        places = reach.sites.indices if reach else np.empty(0)
        if any(v.start <= places.min() and places.max() < v.stop for v in variables if places.size):
            splits[whole] = _Split(real, pt.zeros_like(whole), pt.ones_like(whole), real)
    writer = _Writer(splits, walk)
    for node in graph.toposort():
        writer.write(node)
    return Extended([writer.smooth(output) for output in graph.outputs], writer.interpolated)


def _at_both(op: Op, inputs: list[Any]) -> Any:
    """Apply an operation to arrays, some of them split by one set of sites after the other.

    The result is split by the first set whose axes it has; None where there is none, or there are too many.
    """
    splits = [one for one in inputs if isinstance(one, _Split)]
    groups = list({id(one.sites): one.sites for one in splits}.values())
    if not groups:
        return op.make_node(*inputs).outputs[-1]
    if len(groups) > 3:  # each doubles the work
        return None
    groups.sort(key=lambda sites: sum(sites.type.broadcastable) - sites.ndim)
    sites = groups[0]
    ends = []
    for end in ("zero", "one"):
        given = [getattr(v, end) if isinstance(v, _Split) and v.sites is sites else v for v in inputs]
        value = _at_both(op, given)
        if value is None:
            return None
        ends.append(value)
    zero, one = ends
    # Other axes would have to be matched with the sites' own.
    return _Split(sites, zero, one, None) if zero.ndim == sites.ndim else None


def _bounded(value: TensorVariable) -> Any:
    """Keep log densities finite, with NaN as the least: what is impossible at one value says nothing of the other.

    Infinity times a difference of zero would be NaN.
    """
    return pt.minimum(pt.switch(value > -1e30, value, -1e30), 1e30)


class _Writer:
    """Writes node after node; a variable that no site reaches stays as it is."""

    def __init__(self, splits: dict[Any, _Split], walk: Dependence) -> None:
        self._walk = walk
        self._sites: dict[tuple, Any] = {}
        self._splits = {whole: one._replace(sites=self._same(one.sites)) for whole, one in splits.items()}
        self._smooth: dict[Any, Any] = {}
        self._interpolations: dict[int, Any] = {}
        self.interpolated: dict[Any, tuple[Any, Any, Any]] = {}
        self._shapes: dict[tuple, Any] = {}

    def smooth(self, variable: Variable) -> Any:
        """Return a variable as a function of real sites."""
        if variable in self._splits:
            return self._interpolate(self._splits[variable])
        return self._smooth.get(variable, variable)

    def _interpolate(self, split: Any) -> Any:
        """Return a split array as a function of real sites."""
        if not isinstance(split, _Split):
            return split
        if split.linear is not None:
            return split.linear
        if id(split) not in self._interpolations:  # which lives as long as the writer does
            sites = split.sites
            zero, one = (self._interpolate(end).astype(sites.dtype) for end in (split.zero, split.one))
            is_one = sites > 0.5
            slope = _bounded(one) - _bounded(zero)
            smooth: Any = pt.switch(is_one, one, zero) + (sites - is_one.astype(sites.dtype)) * slope
            self.interpolated[smooth] = (sites, zero, one)
            self._interpolations[id(split)] = smooth, split
        return self._interpolations[id(split)][0]

    def write(self, node: Apply) -> None:
        """Take note of a node's output."""
        (*_, output) = node.outputs
        if output in self._splits or not any(v in self._splits or v in self._smooth for v in node.inputs):
            return
        split = self._split(node)
        if split is not None:
            self._splits[output] = split
            return
        # What takes whole numbers only is flat as a function of real sites.
        with contextlib.suppress(IndexError, TypeError, ValueError, NotImplementedError):
            # A sum of whole numbers was made for their type.
            op = Sum(axis=node.op.axis) if isinstance(node.op, Sum) else node.op
            self._smooth[output] = op.make_node(*map(self.smooth, node.inputs)).outputs[-1]

    def _split(self, node: Apply) -> _Split | None:
        """Evaluate a node at both values of the sites that its elements depend on."""
        op, reached = node.op, [v for v in node.inputs if v in self._splits]
        if not reached:
            return None
        if isinstance(op, _SHAPING) and reached == [node.inputs[0]]:
            split = self._splits[node.inputs[0]]  # sites and values get another shape together
            is_whole = split.broadcastable == split.sites.type.broadcastable
            return self._shaped(op, split, node.inputs[1:]) if is_whole or isinstance(op, DimShuffle) else None
        if isinstance(op, Elemwise):
            linear = self._linear(node, reached)
            if linear is None and isinstance(op.scalar_op, ps.Mul) and self._all_linear(reached):
                return None  # of different sites: the product as it is written
        else:  # each element depends on one element of an input that sites reach
            is_chosen = isinstance(op, AdvancedSubtensor | Subtensor) and node.inputs[0] not in reached
            is_checked = isinstance(op, CheckAndRaise) and reached == [node.inputs[0]]
            if not (is_chosen or is_checked or isinstance(op, ScalarFromTensor | TensorFromScalar)):
                return None
            linear = None
        try:
            found = _at_both(op, [self._splits.get(v, self._smooth.get(v, v)) for v in node.inputs])
        except (IndexError, TypeError, ValueError, NotImplementedError):
            return None
        return found._replace(linear=linear) if isinstance(found, _Split) else None

    def _same(self, sites: Variable) -> Any:
        """Return one variable for all arrays of the same sites, so that they are told to be the same."""
        reach = self._walk(sites)
        if reach is None or reach.n_rows != reach.sites.nnz:
            return sites
        return self._sites.setdefault((self._walk.shape(sites), reach.sites.indices.tobytes()), sites)

    def _all_linear(self, reached: list[Any]) -> bool:
        return all(self._splits[v].linear is not None for v in reached)

    def _shaped(self, op: Op, value: Any, rest: list[Any]) -> Any:
        if not isinstance(value, _Split):
            return op.make_node(value, *rest).outputs[0]
        key = (op, value.sites, *rest)
        if key not in self._shapes:
            self._shapes[key] = self._same(op.make_node(value.sites, *rest).outputs[0])
        zero, one = (self._shaped(op, end, rest) for end in (value.zero, value.one))
        linear = None if value.linear is None else op.make_node(value.linear, *rest).outputs[0]
        return _Split(self._shapes[key], zero, one, linear)

    def _linear(self, node: Apply, reached: list[Any]) -> Any:
        """Write an elementwise node with the sites as they are, where that keeps it linear in each of them."""
        if not self._all_linear(reached):
            return None
        op = node.op.scalar_op
        if isinstance(op, ps.Cast):
            return self._splits[reached[0]].linear if keeps_numbers(node) else None
        is_factor = isinstance(op, ps.Mul) and len(reached) == 1 and node.inputs.count(reached[0]) == 1
        is_divided = isinstance(op, ps.TrueDiv) and reached == [node.inputs[0]]
        if not (isinstance(op, LINEAR) or is_factor or is_divided):
            return None
        return node.op.make_node(*map(self.smooth, node.inputs)).outputs[0]
