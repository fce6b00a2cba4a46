"""Which discrete sites interact, and whether slopes are log odds: read from the graphs of the log densities.

Nothing is evaluated: what is not proved here is taken to interact, and its sites are visited one by one.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from pytensor.tensor.variable import TensorVariable
from scipy import sparse
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from pymc_hais.density.sites.conditionals import SiteRule, SiteRules
from pymc_hais.density.sites.dependence import Dependence
from pymc_hais.density.sites.multilinear import extend
from pymc_hais.density.sites.reach import Span, columns
from pymc_hais.density.sites.terms import split_terms
from pymc_hais.density.sites.variables import SiteVariable


def find_rules(outputs: list[Any], position: TensorVariable, variables: Sequence[SiteVariable]) -> SiteRules:
    """Find how the sites of each variable learn their conditional distributions, from both log densities.

    By the gradient where both graphs are affine in each site given all others, once they are written as functions of
    real sites; sites of one colour are then in no common product.  Elsewhere sites of one colour are in no common term.
    """
    first = variables[0].start
    rules, smooth = _find_linear(outputs, position, [v for v in variables if v.is_binary], first)
    rules |= _find_terms(outputs, position, [v for v in variables if v not in rules], first)
    return SiteRules(tuple(rules[v] for v in variables), smooth)


def _find_linear(
    outputs: list[Any], position: TensorVariable, variables: Sequence[SiteVariable], first: int
) -> tuple[dict[SiteVariable, SiteRule], list[Any]]:
    """Return the rules of those variables whose slopes are proved to be log odds, and the graphs that they are of."""
    n_sites = position.type.shape[0] - first
    spans = {v: Span(v.start - first, v.stop - first) for v in variables}
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
    arrays = [[_terms_of(term, walk) for term in split_terms(output, position)] for output in outputs]
    rules = {}
    for v in variables:
        span = Span(v.start - first, v.stop - first)
        members: Any = tuple(tuple(sparse.csr_array(columns(one, span).T) for one in side) for side in arrays)
        together = sparse.hstack([one.astype(np.int8) for side in members for one in side], format="csr")
        rules[v] = SiteRule(v, "table" if v.n_values else "walk", _colour_by_terms(together), members)
    return rules


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


def _terms_of(term: TensorVariable, walk: Dependence) -> Any:
    """Return which sites each element of an array of terms depends on, sparse of bool (n, S).

    Raises NotImplementedError where n depends on the sites' values.
    """
    if walk.shape(term)[0] is None:
        raise NotImplementedError(
            "How many terms the log density has depends on the values of a discrete variable, as where x[mask] selects "
            "elements: write them as products, or by pt.switch(mask, x, 0.0), so that their number is fixed."
        )
    return _sites_of(term, walk)


def _sites_of(term: TensorVariable, walk: Dependence) -> Any:
    """Return the same; one row for all elements of an array whose length is not known."""
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
