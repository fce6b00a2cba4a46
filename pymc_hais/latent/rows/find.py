"""Which variables have rows that can be integrated out: chosen by their shapes, proven by the log density's graph."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.multivariate import ZeroSumNormalRV
from pymc.distributions.timeseries import AutoRegressiveRV, EulerMaruyamaRV, RandomWalkRV
from pymc.distributions.transforms import ZeroSumTransform
from pytensor.graph.replace import clone_replace, graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import MvNormalRV, NormalRV

from pymc_hais.density.compiling import quiet_compilation
from pymc_hais.density.layout import Layout
from pymc_hais.density.proofs.reach import find_reach
from pymc_hais.density.rewrites.simplification import simplify_values
from pymc_hais.latent.fields import Field, find_summed, place_of, write_chain
from pymc_hais.latent.rows.axes import Axis, bound_density, find_parts
from pymc_hais.latent.rows.normal import Normal
from pymc_hais.latent.rows.rows import Rows

#: Rows, at least (fewer are sampled as fast), and elements of one row, at most, that are integrated out.
_FEWEST, _WIDEST = 12, 6
#: Elements of a block, at most, where blocks are linked: those of six take a minute to compile.
_WIDEST_LINKED = 3
_NORMAL = NormalRV | MvNormalRV
#: Processes whose steps may be normal.
_CHAINS = RandomWalkRV | AutoRegressiveRV | EulerMaruyamaRV


class Written(NamedTuple):
    """The log density of rows and of the data that depend on them. Symbols stand for the random variables."""

    log_density: Any
    own: list[Any]  # in the order of the owners
    free: dict[Any, Any]  # other free variables -> symbols
    replaced: list[Any]  # variables of the model that this log density stands for


def is_candidate(rv: Any) -> bool:
    """Whether a look at a variable leaves it open that it has rows which can be integrated out."""
    kinds = _NORMAL | _CHAINS | ZeroSumNormalRV
    may_be_normal = isinstance(getattr(rv.owner, "op", None), kinds) and rv.dtype == "float64"
    return may_be_normal and any(length is None or length >= _FEWEST for length in rv.type.shape)


def find_normal(frozen: pm.Model, layout: Layout) -> Normal | None:
    """Find rows of normal variables with normal data, and write the integral over them."""
    if (rows := find_rows(frozen, layout)) is None:
        return None
    written = write_density(frozen, dict(zip(rows.owners, rows.axes, strict=True)))
    (simple,) = simplify_values([written.log_density])
    integral, arrays = rows.write(simple, written.own)
    back = {symbol: rv for rv, symbol in written.free.items()}  # not by a copy: random variables of it would be others
    graphs = graph_replace([integral, *arrays], back, strict=False)
    return Normal(rows, written.replaced, graphs[0], graphs[1:])


def find_rows(frozen: pm.Model, layout: Layout) -> Rows | None:
    """Find normal variables that can be integrated out row by row: those with most elements first."""
    groups: dict[tuple[int, ...], dict[str, Axis]] = {}
    shapes = dict(zip(layout.owners, layout.shapes, strict=True))
    weights = find_summed(frozen, {one: shape[-1] for one, shape in shapes.items() if shape and shape[-1] >= _FEWEST})
    parts = find_parts(frozen)
    for i, (owner, shape) in enumerate(shapes.items()):
        sums = None
        if owner in weights:
            sums = Field((owner,), place_of(layout, [i]), shape[-1], weights[owner])
        for one in _axes_of(frozen, owner, shape, sums, parts.get(owner)):
            if one.length >= _FEWEST:
                groups.setdefault((*one.lead, one.length), {}).setdefault(owner, one)
    # Of as many elements first chains side by side: their blocks are the smallest.
    for group in sorted(groups.values(), key=lambda group: (_size(group), _is_of_chains(frozen, group)), reverse=True):
        if found := _find_in(frozen, layout, group):
            return found
    return None


def _axes_of(
    frozen: pm.Model, owner: str, shape: tuple[int, ...], sums: Field | None, part: tuple[np.ndarray, int] | None
) -> list[Axis]:
    """Return the axes along which the elements of a variable may be rows; none if it cannot be normal."""
    last = len(shape) - 1
    if _is_bound(frozen, owner):
        return [Axis((*shape[:last], shape[last] + 1), last, is_bound=True)]
    if frozen.rvs_to_transforms[frozen[owner]] is not None or not is_candidate(frozen[owner]):
        return []
    axes = [Axis(shape, axis, False, sums) for axis in ([last] if sums else range(len(shape)))]
    if last:
        axes.append(Axis(shape, last, True, sums))
    elif part is not None:
        axes.insert(0, Axis(shape, last, where=part[0], n_rows=part[1]))
    return axes


def _is_bound(frozen: pm.Model, owner: str) -> bool:
    """Whether a variable is normal, but its elements sum to zero along the last axis."""
    rv = frozen[owner]
    transform = frozen.rvs_to_transforms[rv]
    is_usual = type(transform) is ZeroSumTransform and transform.zerosum_axes == (-1,)
    return isinstance(rv.owner.op, ZeroSumNormalRV) and is_usual


def _size(group: Mapping[str, Axis]) -> int:
    return sum(one.size for one in group.values())


def _is_of_chains(frozen: pm.Model, group: Mapping[str, Axis]) -> bool:
    """Whether a group has chains side by side."""
    return any(
        axis.is_flat and (axis.sums is not None or isinstance(frozen[owner].owner.op, _CHAINS))
        for owner, axis in group.items()
    )


def _find_in(frozen: pm.Model, layout: Layout, group: Mapping[str, Axis]) -> Rows | None:
    """Find variables among those with as many rows: all of them, or as many as can be added one by one."""
    if (reach := _find_reach(frozen, layout, group)) is not None:
        return _number(layout, group, reach)
    chosen: dict[str, Axis] = {}
    for owner in sorted(group, key=lambda owner: (group[owner].is_bound, -group[owner].size)):
        tried = {**chosen, owner: group[owner]}
        if (found := _find_reach(frozen, layout, tried)) is not None:
            chosen, reach = tried, found
    return None if reach is None else _number(layout, chosen, reach)


def _number(layout: Layout, group: Mapping[str, Axis], reach: int) -> Rows:
    """Find the places of each row's elements."""
    owners = tuple(owner for owner in layout.owners if owner in group)
    starts = {owner: layout.offsets[layout.owners.index(owner)] for owner in owners}
    axes = tuple(group[owner] for owner in owners)
    if all(axis.where is not None for axis in axes):  # other rows have no element
        used = np.unique(np.concatenate([axis.rows for axis in axes]))
        axes = tuple(axis._replace(where=np.searchsorted(used, axis.rows), n_rows=used.size) for axis in axes)
    columns = [
        column.ravel() for owner, axis in zip(owners, axes, strict=True) for column in axis.places(starts[owner])
    ]
    return Rows(owners, axes, np.stack(columns, axis=1), reach)


def _find_reach(frozen: pm.Model, layout: Layout, group: Mapping[str, Axis]) -> int | None:
    """Prove that the log density is quadratic in a group, and that no other prior depends on it.

    Returns how many rows apart it couples two; None without a proof, where blocks would be too wide, and where elements
    that sum to zero are coupled with other rows.
    """
    own = [frozen[owner] for owner in group]
    width = sum(one.width for one in group.values())
    if width > _WIDEST:
        return None
    if not set(ancestors([rv for rv in frozen.free_RVs if rv not in own])).isdisjoint(own):
        return None
    if not all(isinstance(one.owner.op, _NORMAL) for one in later_than(frozen, own) if one in frozen.observed_RVs):
        return None  # known before a log density is written
    written = write_density(frozen, group)
    with quiet_compilation():
        (simple,) = simplify_values([written.log_density], are_differentiated=False)
    reach = find_reach(simple, {one: axis.rows for one, axis in zip(written.own, group.values(), strict=True)})
    is_bound = any(axis.is_bound for axis in group.values())
    return None if reach is None or width * reach > _WIDEST_LINKED or (reach and is_bound) else reach


def later_than(frozen: pm.Model, own: Sequence[Any]) -> list[Any]:
    """Return the data and the potentials that depend on variables."""
    return [one for one in (*frozen.observed_RVs, *frozen.potentials) if not set(ancestors([one])).isdisjoint(own)]


def solve_each[S](
    frozen: pm.Model,
    layout: Layout,
    is_candidate: Callable[[Any], bool],
    solve: Callable[[Any, Sequence[Any]], S | None],
) -> dict[str, tuple[S, list[Any]]]:
    """Solve variables one by one, those with most elements first; no two of them share data.

    Only data may depend on them, no other variable and no potential.  ``solve`` takes a variable and these data.

    Returns
    -------
    dict
        By name, in the order of the layout: a solution, and the variables that its integral stands for.
    """
    found: dict[str, tuple[S, list[Any]]] = {}
    taken: set[Any] = set()
    sizes = dict(zip(layout.owners, layout.sizes, strict=True))
    for owner in sorted(layout.owners, key=lambda owner: -sizes[owner]):
        if not is_candidate(rv := frozen[owner]):
            continue
        later = [one for one in frozen.basic_RVs if one is not rv and rv in ancestors([one])]
        are_free = any(one not in frozen.observed_RVs for one in later)
        if not later or are_free or taken & set(later) or rv in ancestors(frozen.potentials):
            continue
        if (solution := solve(rv, later)) is not None:
            found[owner] = solution, [rv, *later]
            taken |= set(later)
    return {owner: found[owner] for owner in layout.owners if owner in found}


def elements_of(layout: Layout, owners: Iterable[str]) -> np.ndarray:
    """Return where the elements of variables are in the flat vector, of int (K,)."""
    return np.arange(layout.n_dims)[place_of(layout, [layout.owners.index(owner) for owner in owners])]


def write_density(frozen: pm.Model, axes: Mapping[str, Axis]) -> Written:
    """Write the log density of variables that have rows along these axes, and of all that depends on them."""
    own = [frozen[owner] for owner in axes]
    symbols = [rv.type.clone(shape=axis.shape)(name=rv.name) for rv, axis in zip(own, axes.values(), strict=True)]
    bound = {rv for rv, axis in zip(own, axes.values(), strict=True) if axis.is_bound}
    later = later_than(frozen, own)
    given, free = terms_given(frozen, dict(zip(own, symbols, strict=True)), bound)
    log_density: Any = pt.add(*(given(one).sum() for one in (*own, *later)), 0.0)
    for i, (symbol, axis) in enumerate(zip(symbols, axes.values(), strict=True)):
        if axis.sums is not None:
            symbols[i] = chain = symbol.type(f"{symbol.name}_sums")
            (log_density,) = write_chain([log_density], axis.sums, symbol, chain)
            steps = axis.sums.differences(pt, chain.ravel()).reshape(chain.type.shape)
            log_density = clone_replace(log_density, {symbol: steps}, rebuild_strict=False)
    return Written(log_density, symbols, free, [*own, *later])


def terms_given(
    frozen: pm.Model, symbols: Mapping[Any, Any], bound: Container[Any] = ()
) -> tuple[Callable[[Any], Any], dict[Any, Any]]:
    """Return what writes the log density of a variable or a potential as a graph of symbols.

    Parameters
    ----------
    symbols : dict
        Variables to be integrated out -> what stands for them.
    bound : set
        Those whose elements sum to zero.

    Returns
    -------
    callable, dict
        Of a random variable or a potential; and the other free variables -> what stands for them.
    """
    free = {rv: rv.type(name=rv.name) for rv in frozen.free_RVs if rv not in symbols}
    values = free | dict(symbols) | {rv: frozen.rvs_to_values[rv] for rv in frozen.observed_RVs}

    def given(one: Any) -> Any:
        """Put values in first: PyMC may move a random variable, which makes it another one."""
        others = {rv: value for rv, value in values.items() if rv is not one}
        copy: Any = clone_replace(one, others, rebuild_strict=False)
        if one in bound:
            return bound_density(copy, values[one])
        return pm.logp(copy, values[one]) if one in values else copy

    return given, free
