"""How each discrete site learns its conditional distribution.

The log density is a sum of terms, arrays of them as PyMC writes it.  Where it is linear in a binary site, its slope is
the log odds.  Elsewhere the terms that a site is in tell by how much the log density changes with its value, for all
sites at a time that have no term in common.
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
from scipy.sparse import csr_array

from pymc_hais.density.rewrites.simplification import simplify_values
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


class SiteRules(NamedTuple):
    """The rules of all discrete variables, which are the last dimensions."""

    rules: tuple[SiteRule, ...]
    smooth: list[Any]  # both log densities as functions of real sites, where a rule is the gradient


def add_conditionals(
    outputs: Sequence[Any], position: TensorVariable, found: SiteRules, with_gradients: bool = True
) -> list[Any]:
    """Build the log densities of reference and ratio, and what stands in their gradients' place at each site.

    They are simplified before they are differentiated; the gradients in continuous dimensions may be left out.
    """
    rules = found.rules
    linear = [rule.variable for rule in rules if rule.rule == "gradient"]
    # A copy: what simplifies graphs changes them.
    smooth = simplify_values(clone_replace(found.smooth))
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
            parts.append(gradient[own] if rule.variable in linear else _local(rule, side, terms, position[own]))
        gradients.append(pt.concatenate([part.astype(position.dtype) for part in parts]))
    return [*smooth, *gradients]


def _local(rule: SiteRule, side: int, terms: Sequence[Any], sites: TensorVariable) -> Any:
    """Sum the terms that each site is in, (S,)."""
    total = pt.zeros_like(sites)
    for members, one in zip(rule.members[side], terms, strict=True):
        if members.nnz:
            # In full precision: PyTensor keeps what is computed from some numbers in single precision.
            total = total + _sum_members(members, one.astype(sites.dtype))
    return total


def _sum_members(members: csr_array, terms: TensorVariable) -> Any:
    n_sites, n_terms = members.shape
    counts, used = np.diff(members.indptr), np.unique(members.indices)
    if members.nnz == counts.astype(bool).sum() * used.size:  # every site is in all of the terms, or in none
        total = terms.sum() if used.size == n_terms else terms[used].sum()
        return pt.switch(counts > 0, total, 0.0)
    if counts.max() <= _GATHERED:
        return _gather(members, counts, terms)
    # An impossible term of one site is not to make another's sum NaN, which 0 times infinity is.
    finite = pt.maximum(pt.switch(pt.isnan(terms), -1e30, terms), -1e30)
    if n_sites * n_terms <= _MOST_DENSE:
        return pt.dot(members.toarray().astype(terms.dtype), finite)
    rows = np.repeat(np.arange(n_sites), counts)
    return pt.inc_subtensor(pt.zeros((n_sites,), dtype=terms.dtype)[rows], finite[members.indices])


def _gather(members: csr_array, counts: np.ndarray, terms: TensorVariable) -> Any:
    """Take the first term of every site, the second, ..."""
    n_sites, n_terms = members.shape
    ranks = np.arange(members.nnz) - np.repeat(members.indptr[:-1], counts)
    places = np.full((n_sites, counts.max()), n_terms)
    places[np.repeat(np.arange(n_sites), counts), ranks] = members.sorted_indices().indices
    if places.shape == (n_terms, 1) and np.array_equal(places[:, 0], np.arange(n_terms)):
        return terms
    padded = pt.concatenate([terms, pt.zeros((1,), dtype=terms.dtype)])
    return sum(padded[column] for column in places.T)


def summable(model: pm.Model, rules: Sequence[SiteRule]) -> tuple[str, ...]:
    """Name the variables whose elements are independent of one another given all else: they could be summed out."""
    summed = BernoulliRV | CategoricalRV | DiscreteUniformRV  # by pymc_extras
    names = (rule.variable.name for rule in rules if rule.rule in ("gradient", "table") and not rule.colours.any())
    return tuple(name for name in names if isinstance(model[name].owner.op, summed))
