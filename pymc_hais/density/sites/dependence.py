"""Which sites each element of a graph depends on, and how: read from the graph, never from its values at some states.

Every operation is taken by its rule; one that has none is taken to make each of its elements from everything, in any
way.  So what is found may be more than there is, and is never less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor import constant
from pytensor.tensor.variable import TensorVariable
from scipy import sparse

from pymc_hais.density.compat import infer_shape, inline_inner_graph
from pymc_hais.density.compiling import evaluate_known

#: Elements times sites, or pairs of sites, beyond which single elements are no longer told apart.
_MOST = 30_000_000


class Reach(NamedTuple):
    """The sites on which the elements of an array depend, as sparse arrays of bool."""

    sites: Any  # (N, S) by element, in C order; (1, S) if all elements have the same
    bent: Any  # (N, S) those in which an element may not be affine, given all others

    @property
    def n_rows(self) -> int:
        """N, or 1."""
        return self.sites.shape[0]

    def mapped(self, by: Callable[[Any], Any]) -> Reach:
        """Apply the same to both."""
        return Reach(by(self.sites), by(self.bent))

    def take(self, places: np.ndarray) -> Reach:
        """Choose elements by their places in C order; a shared row serves every element."""
        return self if self.n_rows == 1 else self.mapped(lambda rows: rows[np.asarray(places).ravel()])

    def gather(self, matrix: sparse.csr_array) -> Reach:
        """Unite elements, as chosen by row i of a sparse matrix (M, N)."""
        return self if self.n_rows == 1 else self.mapped(lambda rows: matrix.astype(bool) @ rows)

    def united(self) -> Reach:
        """Unite all elements, (1, S)."""
        return self.gather(sparse.csr_array(np.ones((1, self.n_rows), dtype=bool)))

    def spread(self, n_rows: int) -> Reach:
        """Give each of N elements a row of its own."""
        if self.n_rows == n_rows:
            return self
        return self.mapped(lambda rows: rows[np.zeros(n_rows, dtype=int)])


def either(parts: Iterable[Any]) -> Any:
    """Unite sparse arrays of bool of one shape, or of one row."""
    whole, *others = parts
    for part in others:
        if part.nnz or part.shape[0] > whole.shape[0]:
            whole = (whole + part).astype(bool)
    return sparse.csr_array(whole)


def columns(rows: sparse.csr_array, span: range) -> Any:
    """Choose the sites of one variable, counted from the first site."""
    whole = span.start == 0 and span.stop == rows.shape[1]
    return rows if whole else sparse.csr_array(rows[:, span.start : span.stop])


class Dependence:
    """Reads off a graph of a flat vector (D,) which of the sites, its last elements, its variables depend on.

    ``interpolated`` maps variables known to be ``zero + sites * (one - zero)`` by element to ``(sites, zero, one)``;
    ``spans`` are those whose sites are to be told which of them meet where the graph is not a sum: see :meth:`links`.
    """

    def __init__(
        self,
        position: TensorVariable,
        n_sites: int,
        interpolated: Mapping[Any, tuple[Any, Any, Any]] | None = None,
        spans: Sequence[range] = (),
    ) -> None:
        n_dims = position.type.shape[0]
        own = sparse.csr_array(np.eye(n_sites, dtype=bool))
        none = sparse.csr_array((n_dims - n_sites, n_sites), dtype=bool)
        rows = sparse.vstack([none, own], format="csr")
        self.n_sites = n_sites
        self._interpolated = interpolated or {}
        self._links = {span: sparse.csr_array((span.stop - span.start,) * 2, dtype=bool) for span in spans}
        self._crowded = {span: np.zeros(span.stop - span.start, dtype=bool) for span in spans}
        self._found: dict[Any, Reach | None] = {position: Reach(rows, sparse.csr_array(rows.shape, dtype=bool))}
        self._values: dict[Any, np.ndarray | None] = {}
        self._shapes: dict[Any, Any] = {}
        self._outputs: dict[Any, list[Any]] = {}

    def __call__(self, variable: Variable) -> Reach | None:
        """Return what a variable depends on; None if it is no site at all."""
        waiting = [variable]
        while waiting:
            one = waiting[-1]
            if one in self._found:
                waiting.pop()
                continue
            parents = self._parents(one)
            missing = [parent for parent in parents if parent not in self._found]
            if missing:
                waiting.extend(missing)
                continue
            self._found[one] = self._read(one, parents)
            waiting.pop()
        return self._found[variable]

    def _parents(self, variable: Variable) -> Sequence[Any]:
        if variable in self._interpolated:
            return self._interpolated[variable]
        node = variable.owner
        if node is None:
            return ()
        if isinstance(node.op, OpFromGraph):
            if node not in self._outputs:
                self._outputs[node] = inline_inner_graph(node)
            return (self._outputs[node][node.outputs.index(variable)],)
        return node.inputs

    def _read(self, variable: Variable, parents: Sequence[Any]) -> Reach | None:
        if all(self._found[parent] is None for parent in parents):
            return None
        found: Reach | None
        if variable in self._interpolated:
            sites, *ends = self.aligned(parents, variable)
            # Affine in one site each, between values that depend on others.
            found = self.multiply([self.add(ends), sites])
        elif isinstance(variable.owner.op, OpFromGraph):
            found = self._found[parents[0]]
        else:
            found = reach_of(variable.owner.op, variable.owner, self)
        return found if found is not None and found.sites.nnz else None

    # What rules of operations ask -------------------------------------------------------------------------

    def found(self, variable: Variable) -> Reach | None:
        """Return what was found of an operation's input."""
        return self._found[variable]

    def value(self, variable: Variable) -> np.ndarray | None:
        """Return the value of a variable that is the same wherever the graph is evaluated; None if there is none."""
        if variable not in self._values:
            self._values[variable] = evaluate_known(variable)
        return self._values[variable]

    def shape(self, variable: Variable) -> Any:
        """Return how large a variable is, with None where that is not the same wherever the graph is evaluated."""
        static = getattr(variable.type, "shape", ())
        if None not in static:
            return static
        if variable not in self._shapes:
            value = self.value(variable)
            self._shapes[variable] = _infer_shape(variable) if value is None else value.shape
        return self._shapes[variable]

    def nothing(self, n_rows: int) -> Reach:
        """Return what depends on no site."""
        none = sparse.csr_array((n_rows, self.n_sites), dtype=bool)
        return Reach(none, none)

    def aligned(self, variables: Iterable[Any], like: Variable) -> list[Reach]:
        """Broadcast what was found of variables to another's shape; to one shared row if it is large, or not known."""
        variables, shape = list(variables), self.shape(like)
        reaches = [self._found[variable] or self.nothing(1) for variable in variables]
        densest = max(1.0, *(reach.sites.nnz / max(1, reach.n_rows) for reach in reaches))  # sites of an element
        if None in shape or np.prod(shape, dtype=float) * densest > _MOST:
            return [reach.united() for reach in reaches]
        n_rows = int(np.prod(shape, dtype=int))
        if all(reach.n_rows == 1 for reach in reaches):
            return reaches
        out = []
        for variable, reach in zip(variables, reaches, strict=True):
            if reach.n_rows > 1:
                places = np.arange(reach.n_rows).reshape(self.shape(variable))
                reach = reach.take(np.broadcast_to(places, shape))
            out.append(reach.spread(n_rows))
        return out

    # How elements are combined ----------------------------------------------------------------------------

    def add(self, parts: Sequence[Reach]) -> Reach:
        """Elements that are sums."""
        return Reach(either(part.sites for part in parts), either(part.bent for part in parts))

    def multiply(self, parts: Sequence[Reach]) -> Reach:
        """Elements that are products: affine in a site of one factor alone, given the other factors."""
        whole = parts[0]
        for part in parts[1:]:
            self._link(whole.sites, part.sites)
            shared = whole.sites.multiply(part.sites).astype(bool)
            whole = Reach(either((whole.sites, part.sites)), either((whole.bent, part.bent, shared)))
        return whole

    def choose(self, which: Reach, values: Sequence[Reach]) -> Reach:
        """Elements one of some values, as a condition says: given the condition they are affine where that value is."""
        whole = self.add([which, *values])
        self._link(which.sites, whole.sites)
        return Reach(whole.sites, either((whole.bent, which.sites)))

    def mix(self, parts: Sequence[Reach]) -> Reach:
        """Elements that depend on their parts in any way."""
        sites = either(part.sites for part in parts)
        self._link(sites, sites)
        return Reach(sites, sites)

    def _link(self, first: sparse.csr_array, second: sparse.csr_array) -> None:
        """Note that sites of two sets meet, element by element."""
        for span, links in self._links.items():
            one, other = (columns(rows, span) for rows in (first, second))
            pairs = np.diff(one.indptr).astype(float) @ np.diff(other.indptr)
            if not pairs or (first is second and pairs == one.nnz):
                continue  # no pair, or of a site with itself
            if pairs > _MOST:
                self._crowded[span][np.concatenate([one.indices, other.indices])] = True
                continue
            met = (one.T @ other).astype(bool)
            self._links[span] = either((links, met, met.T))

    def links(self, span: range) -> tuple[Any, np.ndarray]:
        """Return which sites of a variable are not in a sum of what each of them adds.

        By pairs (n, n); and those (n,) that are taken to meet all others, as there would be too many pairs.
        """
        return self._links[span], self._crowded[span]


def _infer_shape(variable: Variable) -> tuple[int | None, ...]:
    """Work out a shape from those of the graph's inputs."""
    roots = [one for one in graph_inputs([variable]) if not isinstance(one, Constant) and hasattr(one.type, "shape")]
    known = [[constant(size) for size in root.type.shape] for root in roots if None not in root.type.shape]
    if len(known) < len(roots):
        return variable.type.shape
    (sizes,) = infer_shape([variable], roots, known)
    values = [evaluate_known(size) for size in sizes]
    return tuple(None if value is None else int(value) for value in values)


@singledispatch
def reach_of(op: Op, node: Apply, walk: Dependence) -> Reach | None:
    """Return what an operation's output depends on: `operations` registers a rule for each it knows."""
    return anything(node, walk)


def anything(node: Apply, walk: Dependence) -> Reach:
    """Return the reach of an unknown operation: each element depends on every input in any way."""
    return walk.mix([reach.united() for reach in map(walk.found, node.inputs) if reach is not None])
