"""How each discrete site learns its conditional distribution, and which sites interact.

The log density is a sum of terms, arrays of them as PyMC writes it.  Where it is linear in a binary site, its slope is
the log odds.  Elsewhere the terms that a site is in tell by how much the log density changes with its value, for all
sites at a time that have no term in common.

Which of these holds is read from the graphs of the log densities.  Nothing is evaluated: what is not proved here is
taken to interact, and its sites are visited one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.discrete import DiscreteUniformRV
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from pytensor.tensor.variable import TensorVariable
from scipy import sparse
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from pymc_hais.density.rewrites.simplification import simplify_values
from pymc_hais.density.sites.dependence import Dependence, columns
from pymc_hais.density.sites.multilinear import extend
from pymc_hais.density.sites.terms import split_terms
from pymc_hais.density.sites.variables import SiteVariable

#: Terms that a site is in, at most, if they are to be gathered one by one.
_GATHERED = 32
#: Elements of a matrix of zeros and ones, at most, by which terms are multiplied.
_MOST_DENSE = 4_000_000


@dataclass(frozen=True, eq=False)
class SiteRule:
    """How the sites of one variable learn their conditional distributions."""

    variable: SiteVariable
    rule: str  # "gradient", "table" or "walk": see :class:`pymc_hais.kernels.SiteBlock`
    colours: np.ndarray  # of int (S,): sites of one colour, 0 to C - 1, are drawn together
    #: For each array of terms of the reference and of the log ratio, in the order of :func:`split_terms`: a sparse
    #: matrix of bool (S, terms) that says which terms a site is in.  Empty where the gradient is taken.
    members: tuple[tuple[Any, ...], tuple[Any, ...]] = ((), ())


def find_rules(
    outputs: list[Any], position: TensorVariable, variables: Sequence[SiteVariable]
) -> tuple[tuple[SiteRule, ...], list[Any]]:
    """Find how the sites of each variable learn their conditional distributions, from both log densities.

    By the gradient where both graphs are affine in each site given all others, once they are written as functions of
    real sites; sites of one colour are then in no common product.  Elsewhere sites of one colour are in no common term.
    Returns the rules, and both log densities as functions of real sites, where a rule is the gradient.
    """
    first = variables[0].start
    rules, smooth = _find_linear(outputs, position, [v for v in variables if v.is_binary], first)
    rules |= _find_terms(outputs, position, [v for v in variables if v not in rules], first)
    return tuple(rules[v] for v in variables), smooth


def _find_linear(
    outputs: list[Any], position: TensorVariable, variables: Sequence[SiteVariable], first: int
) -> tuple[dict[SiteVariable, SiteRule], list[Any]]:
    """Return the rules of those variables whose slopes are proved to be log odds, and the graphs that they are of."""
    n_sites = position.type.shape[0] - first
    spans = {v: range(v.start - first, v.stop - first) for v in variables}
    while spans:
        # Which of them are real decides how the graph of the others is written.
        extended = extend(outputs, position, list(spans))
        walk = Dependence(position, n_sites, extended.interpolated, list(spans.values()))
        found = [reach for reach in map(walk, extended.outputs) if reach is not None]
        bent = [v for v, span in spans.items() if any(columns(reach.bent, span).nnz for reach in found)]
        if not bent:
            rules = {v: SiteRule(v, "gradient", colour(*walk.links(span))) for v, span in spans.items()}
            return rules, extended.outputs
        for v in bent:
            del spans[v]
    return {}, outputs


def _find_terms(
    outputs: Sequence[Any], position: TensorVariable, variables: Sequence[SiteVariable], first: int
) -> dict[SiteVariable, SiteRule]:
    """Give each variable the terms that its sites are in, and sites without a common term one colour."""
    if not variables:
        return {}
    walk = Dependence(position, position.type.shape[0] - first)
    terms = [split_terms(output, position) for output in outputs]
    if any(walk.shape(one)[0] is None for side in terms for one in side):
        raise NotImplementedError(
            "How many terms the log density has depends on the values of a discrete variable, as where x[mask] selects "
            "elements: write them as products, or by pt.switch(mask, x, 0.0), so that their number is fixed."
        )
    arrays = [[_sites_of(one, walk) for one in side] for side in terms]
    rules = {}
    for v in variables:
        span = range(v.start - first, v.stop - first)
        members: Any = tuple(tuple(sparse.csr_array(columns(one, span).T) for one in side) for side in arrays)
        together = sparse.hstack([one.astype(np.int8) for side in members for one in side], format="csr")
        rules[v] = SiteRule(v, "table" if v.n_values else "walk", _colour_by_terms(together), members)
    return rules


def _sites_of(term: TensorVariable, walk: Dependence) -> Any:
    """Return which sites each term (n,) depends on, sparse of bool (n, S); (1, S) for all terms if n is not known."""
    reach, (n_terms,) = walk(term) or walk.nothing(1), walk.shape(term)
    return reach.united().sites if n_terms is None else reach.spread(n_terms).sites


def colour(linked: csr_array, is_crowded: np.ndarray | None = None) -> np.ndarray:
    """Give every site the first colour that none of its neighbours has, and each crowded one its own, (S,)."""
    linked = sparse.csr_array(linked)
    colours = np.full(linked.shape[0], -1)
    is_crowded = np.zeros(len(colours), dtype=bool) if is_crowded is None else is_crowded
    for site in np.flatnonzero(~is_crowded):
        near = linked.indices[linked.indptr[site] : linked.indptr[site + 1]]
        colours[site] = _first_free(sum(1 << int(one) for one in np.unique(colours[near[near < site]]) if one >= 0))
    colours[is_crowded] = colours.max(initial=-1) + 1 + np.arange(is_crowded.sum())
    return colours


def _colour_by_terms(members: csr_array) -> np.ndarray:
    """Give every site (S, terms) the first colour that none has which it shares a term with, (S,)."""
    n_sites, n_terms = members.shape
    colours, taken = np.zeros(n_sites, dtype=int), [0] * n_terms
    for site in range(n_sites):
        own = members.indices[members.indptr[site] : members.indptr[site + 1]]
        every = 0
        for term in own:
            every |= taken[term]
        colours[site] = _first_free(every)
        for term in own:
            taken[term] |= 1 << int(colours[site])
    return colours


def _first_free(taken: int) -> int:
    """Return the place of the first zero bit."""
    return ((taken + 1) & ~taken).bit_length() - 1


class Meetings(NamedTuple):
    """Which sites meet in a term of the log density, as arrays of numbers from 0 to S - 1."""

    groups: tuple[np.ndarray, ...] = ()  # given all else independent of one another; together all sites
    together: tuple[np.ndarray, ...] = ()  # two sites or more that are in one element of a term; some of them


def find_meetings(outputs: Sequence[Any], position: TensorVariable, n_sites: int) -> Meetings:
    """Find which sites, the last dimensions, meet in both log densities."""
    walk = Dependence(position, n_sites)
    terms = [_sites_of(term, walk) for output in outputs for term in split_terms(output, position)]
    if not terms:
        return Meetings(tuple(np.arange(n_sites)[:, None]))
    members = sparse.csr_array(sparse.vstack(terms, format="csr")).astype(np.int8)
    n_terms = members.shape[0]
    # Sites and terms are the nodes of one graph: no matrix of pairs of sites is made.
    graph = sparse.block_array([[None, members], [members.T, None]], format="csr")
    labels = connected_components(graph, directed=False)[1][n_terms:]
    order = np.argsort(labels, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    counts = np.diff(members.indptr)
    # At most 1,000 of the elements of terms, which have at most 256 sites each.
    rows = np.flatnonzero((counts > 1) & (counts <= 256))
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), 1000)).astype(int)]
    sets = dict.fromkeys(tuple(sorted(members.indices[members.indptr[i] : members.indptr[i + 1]])) for i in rows)
    return Meetings(tuple(groups), tuple(np.array(one) for one in sets))


def add_conditionals(
    outputs: Sequence[Any],
    position: TensorVariable,
    rules: Sequence[SiteRule],
    smooth: Sequence[Any],
    with_gradients: bool,
) -> list[Any]:
    """Build the log densities of reference and ratio, and what stands in their gradients' place at each site.

    They are simplified before they are differentiated; the gradients in continuous dimensions may be left out.
    """
    linear = [rule.variable for rule in rules if rule.rule == "gradient"]
    # A copy: what simplifies graphs changes them.
    smooth = simplify_values(clone_replace(smooth))
    n_continuous = rules[0].variable.start
    gradients = []
    for side, (raw, output) in enumerate(zip(outputs, smooth, strict=True)):
        gradient = pt.zeros_like(position)
        if position in ancestors([output]) and (linear or (with_gradients and n_continuous)):
            gradient = pytensor.grad(output, position, disconnected_inputs="ignore")
        terms = split_terms(raw, position)
        parts = [gradient[:n_continuous] if with_gradients else pt.zeros_like(position[:n_continuous])]
        for rule in rules:
            own = slice(rule.variable.start, rule.variable.stop)
            if rule.variable in linear:
                parts.append(gradient[own])
                continue
            total = pt.zeros_like(position[own])
            for members, one in zip(rule.members[side], terms, strict=True):
                if members.nnz:
                    # In full precision: PyTensor keeps what is computed from some numbers in single precision.
                    total = total + _sum_members(members, one.astype(position.dtype))
            parts.append(total)
        gradients.append(pt.concatenate([part.astype(position.dtype) for part in parts]))
    return [*smooth, *gradients]


def _sum_members(members: csr_array, terms: TensorVariable) -> Any:
    """Sum the terms that each site is in, (S,)."""
    n_sites, n_terms = members.shape
    counts, used = np.diff(members.indptr), np.unique(members.indices)
    if members.nnz == counts.astype(bool).sum() * used.size:  # every site is in all of the terms, or in none
        total = terms.sum() if used.size == n_terms else terms[used].sum()
        return pt.switch(counts > 0, total, 0.0)
    if counts.max() <= _GATHERED:
        # The first term of every site, the second, ...
        ranks = np.arange(members.nnz) - np.repeat(members.indptr[:-1], counts)
        places = np.full((n_sites, counts.max()), n_terms)
        places[np.repeat(np.arange(n_sites), counts), ranks] = members.sorted_indices().indices
        if places.shape == (n_terms, 1) and np.array_equal(places[:, 0], np.arange(n_terms)):
            return terms
        padded = pt.concatenate([terms, pt.zeros((1,), dtype=terms.dtype)])
        return sum(padded[column] for column in places.T)
    # An impossible term of one site is not to make another's sum NaN, which 0 times infinity is.
    finite = pt.maximum(pt.switch(pt.isnan(terms), -1e30, terms), -1e30)
    if n_sites * n_terms <= _MOST_DENSE:
        return pt.dot(members.toarray().astype(terms.dtype), finite)
    rows = np.repeat(np.arange(n_sites), counts)
    return pt.inc_subtensor(pt.zeros((n_sites,), dtype=terms.dtype)[rows], finite[members.indices])


def summable(model: pm.Model, rules: Sequence[SiteRule]) -> tuple[str, ...]:
    """Name the variables whose elements are independent of one another given all else: they could be summed out."""
    summed = BernoulliRV | CategoricalRV | DiscreteUniformRV  # by pymc_extras
    names = (rule.variable.name for rule in rules if rule.rule in ("gradient", "table") and not rule.colours.any())
    return tuple(name for name in names if isinstance(model[name].owner.op, summed))
