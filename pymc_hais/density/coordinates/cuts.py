"""Variables whose prior is cut by an interval transform: the bounds, and the mass of the prior between them.

An example are the imputed values of censored data, ``pm.Normal("x", mu, sigma, transform=Interval(16, None))``. The
prior divided by the mass between its bounds can be drawn; that mass depends on ``mu`` and ``sigma``.
"""

from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.custom import CustomDistRV
from pymc.distributions.transforms import LogExpM1
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type_other import NoneConst

from pymc_hais.density.compat import IntervalTransform, LogOddsTransform, LogTransform, Transform, logccdf
from pymc_hais.density.compiling import compile_interpreted


def find_bounds(rv: Any, transform: Transform | None) -> tuple[Any, Any]:
    """Return the bounds of a transform's range, given a variable's parameters; None for a side without one."""
    if isinstance(transform, IntervalTransform):
        return transform.args_fn(*rv.owner.inputs)
    if isinstance(transform, LogOddsTransform):
        return 0.0, 1.0
    return (0.0 if isinstance(transform, LogTransform | LogExpM1) else None), None


def is_cuttable(rv: Any, transform: Transform | None) -> bool:
    """Whether the prior between the bounds of a transform can be drawn, and its mass computed."""
    op = rv.owner.op
    is_known = isinstance(op, RandomVariable) and op.ndim_supp == 0 and not isinstance(op, CustomDistRV)
    if not is_known or not rv.dtype.startswith("float"):
        return False
    if all(bound is None for bound in find_bounds(rv, transform)):
        return False
    try:
        [function(rv, pt.zeros_like(rv), warn_rvs=False) for function in (pm.logcdf, pm.icdf)]
    except NotImplementedError:
        return False
    return True


def build_log_mass(rv: Any, transform: Transform | None) -> Any:
    """Return the log mass between a variable's bounds, the sum over its elements, as a graph of its parents."""
    rng, _, *parameters = rv.owner.inputs
    bounds = [None if one is None else pt.as_tensor(one) for one in find_bounds(rv, transform)]
    # One element for all that share parameters and bounds.
    own = rv.owner.op.make_node(rng, NoneConst, *parameters).outputs[1]
    shape = pt.broadcast_shape(*parameters, *(one for one in bounds if one is not None))
    lower, upper = (None if one is None else pt.broadcast_to(one.astype(own.dtype), shape) for one in bounds)
    if upper is None:
        mass = logccdf(own, lower, warn_rvs=False)
    elif lower is None:
        mass = pm.logcdf(own, upper, warn_rvs=False)
    else:
        mass = _between(own, lower, upper)
    n_elements, n_masses = compile_interpreted([], [rv.size, mass.size])()
    return mass.sum() * pt.constant(n_elements / max(n_masses, 1), dtype=mass.dtype)


def _between(rv: Any, lower: Any, upper: Any) -> Any:
    """Return the log mass between two bounds: the difference of the smaller tails, as little is left of ones."""
    below = [pm.logcdf(rv, bound, warn_rvs=False) for bound in (upper, lower)]
    above = [logccdf(rv, bound, warn_rvs=False) for bound in (lower, upper)]
    is_above = pt.gt(below[1], above[0])
    more, less = (pt.switch(is_above, *pair) for pair in zip(above, below, strict=True))
    return pm.math.logdiffexp(more, less)
