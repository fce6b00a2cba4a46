"""The discrete free variables of a model, which values each of them can take, and a distribution that counts them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.discrete import DiscreteUniformRV
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import Discrete
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import BernoulliRV, BetaBinomialRV, BinomialRV, CategoricalRV, HyperGeometricRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_hais.core.messages import refuse_unknown, shown
from pymc_hais.density.compiling import evaluate_once, freeze_dims_and_data

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
    op, low = rv.owner.op, 0
    if isinstance(op, BernoulliRV):
        return 0, 2
    is_length = isinstance(op, CategoricalRV)
    numbers = [evaluate_without(one, set() if is_length else free) for one in support_parameters(rv)]
    if not numbers or any(one is None for one in numbers):
        return 0, 0
    if is_length:
        high = int(numbers[0]) - 1
    elif isinstance(op, DiscreteUniformRV | FlatDiscreteRV):
        low, high = int(np.min(numbers[0])), int(np.max(numbers[1]))
    else:
        high = int(min(np.max(one) for one in numbers))
    return low, 0 if high - low >= _MOST_VALUES else high - low + 1


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


def evaluate_without(variable: Variable, free: set[Any]) -> Any:
    """Evaluate a parameter; None where it depends on free variables."""
    return None if free & set(ancestors([variable])) else evaluate_once(variable)


class FlatDiscreteRV(RandomVariable):
    """Uniform draws of the integers from ``lower`` to ``upper``, both included."""

    name = "flat_discrete"
    signature = "(),()->()"
    dtype = "int64"
    _print_name = ("FlatDiscrete", "\\operatorname{FlatDiscrete}")

    @classmethod
    def rng_fn(cls, rng: np.random.Generator, lower: np.ndarray, upper: np.ndarray, size: Any) -> np.ndarray:
        """Draw integers."""
        # Not up to upper + 1: that may be beyond the range of a small integer type.
        return rng.integers(lower, upper, size=size, endpoint=True)


class FlatDiscrete(Discrete):
    r"""Integers with weight one each: the discrete form of ``pm.Flat``.

    .. math:: \log p(x) = 0 \quad \text{for } x \in \{\text{lower}, \ldots, \text{upper}\}

    With it, and a ``pm.Potential`` of the negative energy, log Z of a model is the log partition function of that
    energy.  ``pm.DiscreteUniform`` differs by a constant: it subtracts the log number of states for every element.

    Unlike ``pm.Flat`` it has draws, because the set is finite: they are uniform.

    Parameters
    ----------
    lower : tensor_like of int, default 0
        Smallest integer.
    upper : tensor_like of int, default 1
        Largest integer, not below ``lower``.

    Raises
    ------
    TypeError
        For arguments that no distribution has.
    ValueError
        For limits that are numbers, but not whole ones.

    Examples
    --------
    A lattice of spins::

        with pm.Model():
            s = pymc_hais.FlatDiscrete("s", shape=(8, 8))
            sigma = 2 * s - 1
            pm.Potential("bonds", 0.3 * (sigma[1:] * sigma[:-1]).sum() + 0.3 * (sigma[:, 1:] * sigma[:, :-1]).sum())
    """

    rv_op = FlatDiscreteRV()

    @classmethod
    def dist(cls, lower: Any = 0, upper: Any = 1, **kwargs: Any) -> Any:
        """Create the distribution without a name; limits that are graphs are rounded down."""
        of_every_distribution = ("shape", "size", "dtype", "rng", "name", "return_next_rng", "dims", "initval")
        refuse_unknown("FlatDiscrete", kwargs, ("lower", "upper", *of_every_distribution))
        return super().dist([_round_down("lower", lower), _round_down("upper", upper)], **kwargs)

    def support_point(rv, size, lower, upper):  # noqa: D102 (PyMC's own signature, and name)
        lower = pt.cast(lower, rv.dtype)
        return pt.broadcast_arrays(lower, upper)[0] if rv_size_is_none(size) else pt.full(size, lower)

    def logp(value, lower, upper):  # noqa: D102
        inside = pt.and_(pt.ge(value, lower), pt.le(value, upper))
        log_weight = pt.switch(inside, pt.zeros_like(value, dtype=pytensor.config.floatX), -np.inf)
        return check_parameters(log_weight, lower <= upper, msg="lower <= upper")


def _round_down(name: str, limit: Any) -> Any:
    """Return a limit as integers; a constant that is one stays a constant, and one that is none is refused."""
    given, limit = limit, pt.as_tensor_variable(limit)
    if isinstance(limit, TensorConstant) and not np.all(np.isfinite(limit.data) & (limit.data == np.floor(limit.data))):
        raise ValueError(f"`{name}` of FlatDiscrete must be whole numbers; got {shown(given)}.")
    return pt.cast(pt.floor(limit), "int64") if limit.dtype.startswith("float") else limit
