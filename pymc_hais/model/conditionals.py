"""How each discrete site learns its conditional distribution: found once, by evaluating the density at flips.

The log density is a sum of terms, arrays of them as PyMC writes it.  Where it is linear in a binary site, its slope is
the log odds.  Elsewhere the terms that a site is in tell by how much the log density changes with its value, for all
sites at a time that have no term in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Sum

from pymc_hais.model.multilinear import extend, find_casts
from pymc_hais.model.sites import SiteVariable

__all__ = ["SiteRule", "add_conditionals", "split_terms"]

#: Terms that a site is in, at most, if they are to be gathered one by one.
_GATHERED = 32
#: What stands for an infinite term where terms are multiplied by 0 and 1.
_FAR = 1e30


@dataclass(frozen=True, eq=False)
class SiteRule:
    """How the sites of one variable learn their conditional distributions.

    Attributes
    ----------
    variable : SiteVariable
    rule : {"gradient", "table", "walk", "slope"}
        See :class:`pymc_hais.kernels.sites.SiteBlock`.
    colours : ndarray of bool (C, S)
    members : tuple
        For each array of terms of the reference and of the log ratio, in the order of :func:`split_terms`: a sparse
        matrix of bool (S, terms) that says which terms a site is in.  Empty where the slope is taken.
    """

    variable: SiteVariable
    rule: str
    colours: np.ndarray
    members: tuple[tuple[Any, ...], tuple[Any, ...]] = ((), ())


def split_terms(output: Any, position: Any) -> list[Any]:
    """Cut a log density into arrays of terms (n,) whose sum it is, but for constants."""
    casts = set(find_casts([output], position))

    def is_reached(variable: Any) -> bool:
        return bool(casts & set(ancestors([variable])))

    return [leaf for leaf in _peel(output, None, is_reached) if position in ancestors([leaf])]


def _peel(variable: Any, factor: Any, is_reached: Callable[[Any], bool]) -> list[Any]:
    """Open sums, differences and products with numbers; return vectors."""
    op = variable.owner.op if variable.owner else None
    inputs = variable.owner.inputs if variable.owner else []
    if isinstance(op, Sum) and variable.ndim == 0:
        (inner,) = inputs
        if inner.owner and isinstance(inner.owner.op, MakeVector):
            return [leaf for one in inner.owner.inputs for leaf in _peel(one, factor, is_reached)]
        return _peel(inner, factor, is_reached) if inner.ndim == 0 else [_times(inner, factor)]
    scalar_op = op.scalar_op if isinstance(op, Elemwise) and variable.ndim == 0 else None
    if isinstance(scalar_op, ps.Add):
        return [leaf for one in inputs for leaf in _peel(one, factor, is_reached)]
    negative = -1.0 if factor is None else -factor
    if isinstance(scalar_op, ps.Sub):
        return [*_peel(inputs[0], factor, is_reached), *_peel(inputs[1], negative, is_reached)]
    if isinstance(scalar_op, ps.Neg):
        return _peel(inputs[0], negative, is_reached)
    if isinstance(scalar_op, ps.Cast | ps.Identity) and variable.dtype.startswith("float"):
        return _peel(inputs[0], factor, is_reached)
    if isinstance(scalar_op, ps.Mul):
        reached = [one for one in inputs if is_reached(one)]
        if len(reached) == 1 and inputs.count(reached[0]) == 1:
            for one in inputs:
                if one is not reached[0]:
                    factor = one if factor is None else factor * one
            return _peel(reached[0], factor, is_reached)
    return [_times(variable, factor)]


def _times(terms: Any, factor: Any) -> Any:
    flat = terms.ravel()
    return flat if factor is None else factor * flat


def add_conditionals(
    outputs: Sequence[Any], position: Any, rules: Sequence[SiteRule], simplify: Any, with_gradients: bool = True
) -> list[Any]:
    """Build the densities, and what stands in their gradients' place at each site.

    Parameters
    ----------
    outputs : sequence of two TensorVariable
        Log density of the reference, and log ratio.
    position : TensorVariable (D,)
    rules : sequence of SiteRule
        Of all discrete variables, which are the last dimensions.
    simplify : callable
        Applied to the log densities before they are differentiated.
    with_gradients : bool
        Whether those in the continuous dimensions are used.

    Returns
    -------
    list of TensorVariable
        As :class:`pymc_hais.types.Path` describes them.
    """
    linear = [rule.variable for rule in rules if rule.rule in ("gradient", "slope")]
    # A copy: what simplifies graphs changes them.
    smooth = simplify(clone_replace(extend(list(outputs), position, linear)))
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


def _local(rule: SiteRule, side: int, terms: Sequence[Any], sites: Any) -> Any:
    """Sum the terms that each site is in, (S,)."""
    total = pt.zeros_like(sites)
    for members, one in zip(rule.members[side], terms, strict=True):
        if members.nnz:
            total = total + _sum_members(members, one)
    return total


def _sum_members(members: Any, terms: Any) -> Any:
    n_sites, n_terms = members.shape
    counts, used = np.diff(members.indptr), np.unique(members.indices)
    if members.nnz == counts.astype(bool).sum() * used.size:  # every site is in all of the terms, or in none
        total = terms.sum() if used.size == n_terms else terms[used].sum()
        return pt.switch(counts > 0, total, 0.0)
    if counts.max() > _GATHERED:
        return pt.dot(members.toarray().astype(terms.dtype), pt.clip(terms, -_FAR, _FAR))
    places = np.full((n_sites, counts.max()), n_terms)
    for site in range(n_sites):
        own = members.indices[members.indptr[site] : members.indptr[site + 1]]
        places[site, : len(own)] = np.sort(own)
    if places.shape == (n_terms, 1) and np.array_equal(places[:, 0], np.arange(n_terms)):
        return terms
    padded = pt.concatenate([terms, pt.zeros((1,), dtype=terms.dtype)])
    return sum(padded[column] for column in places.T)
