"""Whether the transform of a variable keeps all of its prior: read from the graphs, never from draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.transforms import LogExpM1
from pymc.logprob.transforms import LogTransform
from pytensor.graph.basic import equal_computations
from pytensor.xtensor.shape import Transpose

from pymc_hais.model.compat import default_transform
from pymc_hais.model.sites.sites import distribution_of

__all__ = ["keeps_all"]

#: Transforms whose range is all positive numbers: one can stand for another.
_POSITIVE = (LogTransform, LogExpM1)


def keeps_all(rv: Any, value: Any, transform: Any) -> bool:
    """Whether all of a variable's distribution is known to lie in the range of its transform.

    It does where there is no transform, and where the transform is the one that PyMC gives the distribution by default:
    the two are the same graph back from the unconstrained value.  Any other may cut something off.

    Parameters
    ----------
    rv : TensorVariable
    value : TensorVariable
        Its unconstrained value.
    transform : Transform or None
    """
    if transform is None:
        return True
    if getattr(rv.type, "dims", None) is not None:
        return _is_default_of_dims(rv, transform)
    default = default_transform(rv.owner.op, rv)
    if default is None:
        return False
    if type(default) in _POSITIVE and type(transform) in _POSITIVE:
        return True
    parameters = rv.owner.inputs
    return equal_computations([transform.backward(value, *parameters)], [default.backward(value, *parameters)])


def _is_default_of_dims(rv: Any, transform: Any) -> bool:
    """Compare a transform of ``pymc.dims``, which holds what the distribution it was made for was given."""
    from pymc.dims.distributions import transforms  # warns that it is experimental: only for those who use it

    node = rv.owner
    if isinstance(node.op, Transpose):  # the axes in the order that was asked for
        node = node.inputs[0].owner
    default = default_transform(distribution_of(node.outputs[-1]), rv)
    if default is None or default.name != transform.name:
        return False
    if type(transform) is transforms.IntervalTransform:
        parameters = [_plain(one) for one in node.inputs[1 + len(node.op.extra_dims) :]]
        given = zip(default.args_fn(node.inputs[0], None, *parameters), (-np.inf, np.inf), strict=True)
        bounds = [absent if bound is None else getattr(bound, "data", np.nan) for bound, absent in given]
        return all(map(np.array_equal, bounds, (transform.lower.data, transform.upper.data)))
    if type(transform) is transforms.SimplexTransform:
        return node.op.core_dims[1] == (transform.core_dim,)
    if type(transform) is transforms.ZeroSumTransform:
        return set(node.op.core_dims[1]) == set(transform.dims)
    return type(transform) in (transforms.LogTransform, transforms.LogOddsTransform) or transform.name == "circular"


def _plain(parameter: Any) -> Any:
    """Return a labelled constant without its labels."""
    data = getattr(parameter, "data", None)
    return parameter.values if data is None else pt.constant(data)
