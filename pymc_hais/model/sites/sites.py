"""The discrete free variables of a model, and which values each of them can take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pymc.distributions.discrete import DiscreteUniformRV
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import BernoulliRV, BetaBinomialRV, BinomialRV, CategoricalRV, HyperGeometricRV

from pymc_hais.model.compiling import compile_interpreted, freeze_dims_and_data
from pymc_hais.model.sites.flat_discrete import FlatDiscreteRV

#: More values than this are not all tried: the site walks.
_MOST_VALUES = 256


@dataclass(frozen=True)
class SiteVariable:
    """A discrete free variable."""

    name: str
    start: int  # of its elements in the flat vector
    stop: int
    low: int  # the least value
    n_values: int  # 0 for no end of them, or too many

    @property
    def is_binary(self) -> bool:
        """Whether the values are 0 and 1."""
        return (self.low, self.n_values) == (0, 2)

    @property
    def support(self) -> str:
        """Describe the values in a message."""
        return f"whole numbers from {self.low} to {self.low + self.n_values - 1}" if self.n_values else "whole numbers"


def is_discrete(rv: Any) -> bool:
    """Whether a variable takes whole numbers."""
    return str(rv.dtype).startswith(("int", "uint", "bool"))


def distribution_of(rv: Any) -> Any:
    """Return the Op that draws a variable, without the labelled wrapper of ``pymc.dims``."""
    return getattr(rv.owner.op, "core_op", rv.owner.op)


def refuse_joint_sites(model: Any) -> None:
    """Refuse discrete variables whose elements cannot change one at a time."""
    for rv in model.free_RVs:
        op = distribution_of(rv)
        if is_discrete(rv) and getattr(op, "ndim_supp", 0) > 0:
            kind = type(op).__name__.removesuffix("RV")
            raise NotImplementedError(
                f"`{rv.name}` is a discrete variable whose elements depend on one another by definition ({kind}), so "
                "that no element can change alone. Write it with independent elements, such as a pm.Categorical for "
                "each object that is counted, or sum it out of the likelihood."
            )


def refuse_endless(model: Any) -> None:
    """Refuse discrete variables with too many values for a fit, which is a table of how likely each of them is."""
    refuse_joint_sites(model)
    frozen = freeze_dims_and_data(model)
    for rv in filter(is_discrete, frozen.free_RVs):
        if not _find_values(rv, set(frozen.free_RVs))[1]:
            raise ValueError(
                f'reference="fitted", or draws, is not for this model: `{rv.name}` has no largest value, or more than '
                f'{_MOST_VALUES}. Pass reference="prior", or a dict with a PyMC distribution for each variable.'
            )


def find_sites(model: Any, places: Mapping[str, tuple[int, int]]) -> tuple[SiteVariable, ...]:
    """Describe the discrete free variables, given where each of them is in the flat vector."""
    frozen = freeze_dims_and_data(model)
    free = set(frozen.free_RVs)
    return tuple(SiteVariable(name, *place, *_find_values(frozen[name], free)) for name, place in places.items())


def _find_values(rv: Any, free: set[Any]) -> tuple[int, int]:
    """Return the least value of any element, and how many there are; 0 for no end of them, or too many."""
    low, high = _support(rv, free)
    return low, 0 if high is None or high - low >= _MOST_VALUES else high - low + 1


def _support(rv: Any, free: set[Any]) -> tuple[int, int | None]:
    """Return the least and the largest value of any element; None where there is no largest, or it is not known."""
    op, parameters = rv.owner.op, rv.owner.inputs[2:]
    if isinstance(op, BernoulliRV):
        return 0, 1
    if isinstance(op, CategoricalRV):
        return 0, int(evaluate_fixed(parameters[0].shape[-1], set())) - 1
    if isinstance(op, DiscreteUniformRV | FlatDiscreteRV):
        low, high = (evaluate_fixed(one, free) for one in parameters[:2])
        return (0, None) if low is None or high is None else (int(np.min(low)), int(np.max(high)))
    if isinstance(op, BinomialRV | BetaBinomialRV):
        n = evaluate_fixed(parameters[0], free)
        return 0, None if n is None else int(np.max(n))
    if isinstance(op, HyperGeometricRV):
        good, _, n = (evaluate_fixed(one, free) for one in parameters[:3])
        return 0, None if good is None or n is None else int(min(np.max(good), np.max(n)))
    return 0, None


def evaluate_fixed(variable: Any, free: set[Any]) -> Any:
    """Evaluate a parameter; None where it depends on free variables."""
    if free & set(ancestors([variable])):
        return None
    return np.asarray(compile_interpreted([], [variable])()[0])
