"""The counting measure on a finite set of integers, as a PyMC distribution."""

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import Discrete
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorConstant

from pymc_hais.core.messages import refuse_unknown, shown

#: What distributions of PyMC take beside their parameters.
_OF_EVERY_DISTRIBUTION = ("shape", "size", "dtype", "rng", "name", "return_next_rng", "dims", "initval")


class FlatDiscreteRV(RandomVariable):
    """Uniform draws of the integers from ``lower`` to ``upper``, both included."""

    name = "flat_discrete"
    signature = "(),()->()"
    dtype = "int64"
    _print_name = ("FlatDiscrete", "\\operatorname{FlatDiscrete}")

    @classmethod
    def rng_fn(cls, rng: np.random.Generator, lower: Any, upper: Any, size: Any) -> np.ndarray:
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
        refuse_unknown("FlatDiscrete", kwargs, ("lower", "upper", *_OF_EVERY_DISTRIBUTION))
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
