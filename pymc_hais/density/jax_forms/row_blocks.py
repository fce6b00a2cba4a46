"""Many rows of data in blocks, whose arrays stay in the cache: more particles go together, in less memory."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, toposort
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.scan.op import Scan

from pymc_hais.density.compat import Cholesky, SolveTriangular
from pymc_hais.density.compiling import freeze_dims_and_data, untraced
from pymc_hais.density.density import DensityGraph
from pymc_hais.density.jax_forms.linker import exchange, jax_mode
from pymc_hais.density.proofs.tables import Rows, find_rows
from pymc_hais.density.rewrites.gradients import InverseFactor
from pymc_hais.density.rewrites.graphs import core_op, sizes
from pymc_hais.density.sites.terms import reached_from

#: Rows from which on they are cut: of fewer, the arrays of a few particles stay in the cache as they are.
_FEWEST = 2**15
#: Rows of a block, about.
_SIZE = 8192
#: Loops and factors take and make whole arrays, which should all stay in the cache; elementwise operations need one
#: array at a time.  A loop runs on one core, so several cores need particles of their own.
_WHOLE = (Scan, Cholesky, SolveTriangular, InverseFactor)
_OF_LOOPS = 4096


class RowBlocks(Op):
    """Totals over the rows of tables, and what is the same for all rows, by blocks of rows."""

    def __init__(self, rows: Rows) -> None:
        shapes = [(*one.type.shape[:axis], None, *one.type.shape[axis + 1 :]) for one, axis in rows.given.items()]
        given = [one.type.clone(shape=shape)() for one, shape in zip(rows.given, shapes, strict=True)]
        free = [one.type() for one in rows.free]
        made = dict(zip([*rows.given, *rows.free], [*given, *free], strict=True))
        for node in toposort(list(rows.totals), blockers=list(made)):  # anew, as types tell how many rows there are
            outputs: Any = node.op(*(made.get(one, one) for one in node.inputs), return_list=True)
            made.update(zip(node.outputs, outputs, strict=True))
        self.inputs, self.totals, self.rows = [*given, *free], [made[one] for one in rows.totals], rows

    def make_node(self, *inputs: Any) -> Apply:
        """Apply to the tables and to the rest."""
        return Apply(self, list(inputs), [one.type() for one in self.rows.totals])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Never called: the linker converts the whole graph."""
        raise NotImplementedError


def _n_blocks(rows: Rows) -> int:
    return -(-rows.n // _SIZE)


@jax_funcify.register(RowBlocks)
def _(op: RowBlocks, **_: Any) -> Callable:
    graph = FunctionGraph(op.inputs, op.totals, clone=True)
    jax_mode().optimizer.rewrite(graph)
    exchange(graph)
    function = jax_funcify(graph)
    axes, n_blocks = tuple(op.rows.given.values()), _n_blocks(op.rows)
    size = op.rows.n // n_blocks
    together = [getattr(jnp, one.function.__name__) for one in op.rows.totals.values()]
    starts = [jnp.full(one.type.shape, how.neutral, one.type.dtype) for one, how in op.rows.totals.items()]

    def compute(*inputs: Any) -> Any:
        tables, free = inputs[: len(axes)], inputs[len(axes) :]

        def add(first: Any, totals: list[Any], length: int) -> list[Any]:
            cut = (
                jax.lax.dynamic_slice_in_dim(table, first, length, axis)
                for table, axis in zip(tables, axes, strict=True)
            )
            return [put(a, b) for put, a, b in zip(together, totals, function(*cut, *free), strict=True)]

        totals = jax.lax.fori_loop(0, n_blocks, lambda i, totals: add(i * size, totals, size), starts)
        rest = op.rows.n - n_blocks * size
        totals = add(n_blocks * size, totals, rest) if rest else totals
        return totals if len(totals) > 1 else totals[0]

    return compute


def in_blocks(graph: DensityGraph) -> tuple[DensityGraph, int]:
    """Return a density that goes through many rows in blocks, if it can, and how wide it is.

    That is how many elements the largest array has that one particle needs, or those together that loops and factors
    go through: what all particles share, such as a design matrix, makes none of them larger.
    """
    rows = find_rows(graph.density, [*graph.data, *graph.inputs], _FEWEST)
    if rows is None:
        return graph, _width(graph)
    made = RowBlocks(rows).make_node(*rows.given, *rows.free).outputs
    blocked = replace(graph, density=clone_replace(graph.density, dict(zip(rows.totals, made, strict=True))))
    inner = [one for one in reached_from([graph.position, *graph.betas], graph.density) if one in rows.axes]
    return blocked, max(_width(blocked), max(sizes(inner)) // _n_blocks(rows))


def _width(graph: DensityGraph) -> int:
    reached = reached_from([graph.position, *graph.betas], graph.density)
    made = [one for one in reached if core_op(one, *_WHOLE)]
    taken = dict.fromkeys(one for made_here in made for one in made_here.owner.inputs if one in reached)
    kept = sum(sizes({**dict.fromkeys(made), **taken}))
    return max(*sizes(reached), kept, _OF_LOOPS if kept else 1)


@untraced
def widest_term(model: Any) -> str:
    """Name the variable or potential whose log density has the largest array, and that array's shape."""
    frozen, found = freeze_dims_and_data(model), []
    for variable in (*frozen.basic_RVs, *frozen.potentials):
        (term,) = [variable] if variable in frozen.potentials else frozen.logp([variable], sum=False)
        shapes = [getattr(one.type, "shape", (None,)) for one in ancestors([term])]
        shape = max(
            (shape for shape in shapes if None not in shape),
            key=lambda shape: (math.prod(shape), len(shape)),
            default=(),
        )
        found.append((math.prod(shape), f"`{variable.name}`, with an array of {' x '.join(f'{n:,}' for n in shape)}"))
    return max(found)[1]
