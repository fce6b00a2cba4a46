"""The discrete free variables of a model, and which values each of them can take."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from pymc.distributions.discrete import DiscreteUniformRV
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import BernoulliRV, BetaBinomialRV, BinomialRV, CategoricalRV, HyperGeometricRV
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compiling import compile_interpreted, freeze_dims_and_data
from pymc_hais.density.sites.flat_discrete import FlatDiscreteRV

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


def is_discrete(rv: TensorVariable) -> bool:
    """Whether a variable takes whole numbers."""
    return str(rv.dtype).startswith(("int", "uint", "bool"))


def distribution_of(rv: TensorVariable) -> Any:
    """Return the Op that draws a variable, without the labelled wrapper of ``pymc.dims``."""
    return getattr(rv.owner.op, "core_op", rv.owner.op)


def refuse_joint_sites(model: pm.Model) -> None:
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


def refuse_endless(model: pm.Model) -> None:
    """Refuse discrete variables with too many values for a fit, which is a table of how likely each of them is."""
    refuse_joint_sites(model)
    frozen = freeze_dims_and_data(model)
    for rv in filter(is_discrete, frozen.free_RVs):
        if not _find_values(rv, set(frozen.free_RVs))[1]:
            raise ValueError(
                f'reference="fitted", or draws, is not for this model: `{rv.name}` has no largest value, or more than '
                f'{_MOST_VALUES}. Pass reference="prior", or a dict with a PyMC distribution for each variable.'
            )


def find_sites(model: pm.Model, places: Mapping[str, tuple[int, int]]) -> tuple[SiteVariable, ...]:
    """Describe the discrete free variables, given where each of them is in the flat vector."""
    frozen = freeze_dims_and_data(model)
    free = set(frozen.free_RVs)
    return tuple(SiteVariable(name, *place, *_find_values(frozen[name], free)) for name, place in places.items())


def find_values(model: pm.Model, name: str) -> tuple[int, int]:
    """Return the least value of any element of a discrete variable, free or observed, and how many; 0 for no end."""
    frozen = freeze_dims_and_data(model)
    return _find_values(frozen[name], set(frozen.free_RVs))


def _find_values(rv: TensorVariable, free: set[Any]) -> tuple[int, int]:
    """Return the least value of any element, and how many there are; 0 for no end of them, or too many."""
    low, high = _support(rv, free)
    return low, 0 if high is None or high - low >= _MOST_VALUES else high - low + 1


def support_parameters(rv: TensorVariable) -> list[Any]:
    """Return what the values of a discrete variable are read from; of a Categorical it is a length."""
    op, parameters = rv.owner.op, rv.owner.inputs[2:]
    if isinstance(op, CategoricalRV):
        return [parameters[0].shape[-1]]
    if isinstance(op, DiscreteUniformRV | FlatDiscreteRV):
        return list(parameters[:2])
    if isinstance(op, BinomialRV | BetaBinomialRV):
        return list(parameters[:1])
    return [parameters[0], parameters[2]] if isinstance(op, HyperGeometricRV) else []


def _support(rv: TensorVariable, free: set[Any]) -> tuple[int, int | None]:
    """Return the least and the largest value of any element; None where there is no largest, or it is not known."""
    op = rv.owner.op
    if isinstance(op, BernoulliRV):
        return 0, 1
    is_length = isinstance(op, CategoricalRV)
    numbers = [evaluate_fixed(one, set() if is_length else free) for one in support_parameters(rv)]
    if not numbers or any(one is None for one in numbers):
        return 0, None
    if is_length:
        return 0, int(numbers[0]) - 1
    if isinstance(op, DiscreteUniformRV | FlatDiscreteRV):
        return int(np.min(numbers[0])), int(np.max(numbers[1]))
    return 0, int(min(np.max(one) for one in numbers))


def evaluate_fixed(variable: Variable, free: set[Any]) -> Any:
    """Evaluate a parameter; None where it depends on free variables."""
    if free & set(ancestors([variable])):
        return None
    return np.asarray(compile_interpreted([], [variable])()[0])
