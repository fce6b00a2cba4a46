"""Variables with an ``ordered`` transform whose elements are exchangeable: they keep 1/n! of their prior, exactly."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.transforms import Ordered
from pytensor.tensor.random.op import RandomVariable
from scipy.special import gammaln

from pymc_hais.density.compat import Transform
from pymc_hais.density.compiling import compile_interpreted
from pymc_hais.density.layout import steps_of


def is_sortable(rv: pt.TensorVariable, transform: Transform | None) -> bool:
    """Whether a transform orders elements that are independent and identical, given the parents."""
    return any(isinstance(step, Ordered) for step in steps_of(transform)[-1:]) and _is_exchangeable(rv)


def _is_exchangeable(rv: pt.TensorVariable) -> bool:
    op = rv.owner.op
    if not isinstance(op, RandomVariable) or op.ndim_supp != 0 or rv.ndim == 0:
        return False
    parameters: list[Any] = list(op.dist_params(rv.owner))
    return all(p.ndim == 0 or p.type.broadcastable[-1] or _is_constant_row(p) for p in parameters)


def _is_constant_row(parameter: pt.TensorVariable) -> bool:
    data = getattr(parameter, "data", None)
    return data is not None and bool(np.all(data == np.asarray(data)[..., :1]))


def log_share_of_order(rv: pt.TensorVariable) -> float:
    """Return the log probability that each row of a variable with exchangeable elements is ordered: -log n! a row."""
    (shape,) = compile_interpreted([], [rv.shape])()
    return float(-np.prod(shape[:-1]) * gammaln(shape[-1] + 1.0))
