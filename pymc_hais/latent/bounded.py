"""Variables within bounds that are integrated out exactly: of normal data, given all other variables.

The log density of a half-normal, exponential, uniform or truncated normal variable is h x - a x^2 / 2 between its
bounds l and u, up to a constant.  Normal data whose means are linear in x, each of them in one element, add
g x - A x^2 / 2 to each: given all else, theta, x is a normal between bounds, with the precision P = A + a and the mean
m = (g + h) / P.  With alpha = (l - m) sqrt(P) and beta = (u - m) sqrt(P)

    log p(y | theta) = log p(x, y | theta) + P (x - m)^2 / 2 + log(2 pi / P) / 2 + log(Phi(beta) - Phi(alpha))

summed over the elements, for any x.  Inefficiencies of a stochastic frontier are such variables (Aigner, Lovell &
Schmidt 1977, J. Econometrics 6, 21-37), and so are missing covariates with a uniform prior.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.continuous import TruncatedNormalRV
from pytensor.graph.replace import clone_replace, graph_replace
from pytensor.tensor.random.basic import ExponentialRV, HalfNormalRV, NormalRV, UniformRV
from scipy.special import log_ndtr, ndtri_exp

from pymc_hais.density.compat import IntervalTransform, LogTransform
from pymc_hais.density.compiling import evaluate_known, quiet_compilation
from pymc_hais.density.layout import Layout
from pymc_hais.density.proofs.reach import find_reach
from pymc_hais.density.rewrites.gradients import Held
from pymc_hais.density.rewrites.graphs import count, places_of
from pymc_hais.density.rewrites.simplification import simplify_values
from pymc_hais.latent.rows.find import elements_of, solve_each, terms_given

_PRIORS = HalfNormalRV | ExponentialRV | UniformRV | TruncatedNormalRV
#: Elements from which on a variable is integrated out: fewer are sampled as fast.
_FEWEST = 12
#: The least precision: the square of this, divided by the width or times the slope of a prior without an upper bound.
#: So the mean is finite where data tell nothing; an element's log integral changes by 1e-8 at most.
_FLAT = 1e-4


class _Prior(NamedTuple):
    """A prior's slope at zero and its precision (K,), and its bounds; no upper one is None."""

    slope: Any
    precision: Any
    lower: Any
    upper: Any


@dataclass(frozen=True, eq=False)
class Bounded:
    """Variables within bounds that are integrated out; see :class:`pymc_hais.latent.integrated.Solution`."""

    owners: tuple[str, ...]
    places: np.ndarray
    replaced: Sequence[Any]
    integral: Any
    arrays: Sequence[Any]  # mean, precision, lower and upper bound, each (K,)

    def draw(self, arrays: Sequence[np.ndarray], rng: np.random.Generator | None) -> np.ndarray:
        """Invert the distribution function, from above where the mean is below both bounds; medians without numbers."""
        mean, precision, lower, upper = arrays
        below, above, sign = _tails(arrays)
        u = np.full(mean.shape, 0.5) if rng is None else 1.0 - rng.random(mean.shape)
        with np.errstate(divide="ignore"):
            log_p = np.logaddexp(np.log1p(-u) + log_ndtr(below), np.log(u) + log_ndtr(above))
        x = mean + sign * np.clip(ndtri_exp(np.minimum(log_p, 0.0)), below, above) / np.sqrt(precision)
        tiny = np.finfo(float).tiny  # of draws that are rounded to a bound
        log_left, log_right = np.log(np.maximum(x - lower, tiny)), np.log(np.maximum(upper - x, tiny))
        return np.where(np.isinf(upper), log_left, log_left - log_right)

    def log_density(self, arrays: Sequence[np.ndarray], x: np.ndarray) -> np.ndarray:
        """Evaluate the normal between its bounds, of values as PyMC transforms them."""
        mean, precision, lower, upper = arrays
        is_open = np.isinf(upper)
        width = np.where(is_open, 1.0, upper - lower)
        log_left = np.where(is_open, x, np.log(width) - np.logaddexp(0.0, -x))  # of the distance from the lower bound
        log_slope = np.where(is_open, x, log_left - np.logaddexp(0.0, x))
        value = lower + np.exp(log_left)
        below, above, _ = _tails(arrays)
        log_share = log_ndtr(above) + np.log1p(-np.exp(log_ndtr(below) - log_ndtr(above)))
        squares = 0.5 * precision * (value - mean) ** 2
        each = 0.5 * np.log(precision / (2.0 * np.pi)) - squares - log_share + log_slope
        return np.sum(each, axis=1)

    def holds(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Whether the numbers are finite: relative to the log density, no more digits are lost than by the data's."""
        mean, precision, *_ = arrays
        return (np.isfinite(mean) & (precision > 0.0) & np.isfinite(precision)).all(axis=1)


def _tails(arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return both bounds in standard deviations from the mean, mirrored, and the sign that undoes this."""
    mean, precision, lower, upper = arrays
    alpha, beta = (lower - mean) * np.sqrt(precision), (upper - mean) * np.sqrt(precision)
    return *_mirror(np, alpha, beta), np.where(alpha > 0.0, -1.0, 1.0)


def _mirror(xp: Any, alpha: Any, beta: Any) -> tuple[Any, Any]:
    """Mirror two bounds around zero where both are above it: there Phi has more digits below than above."""
    return xp.where(alpha > 0.0, -beta, alpha), xp.where(alpha > 0.0, -alpha, beta)


def is_candidate(rv: Any) -> bool:
    """Whether a look at a variable leaves it open that it is a normal between bounds."""
    may_be = isinstance(getattr(rv.owner, "op", None), _PRIORS) and rv.dtype == "float64"
    return may_be and ((n := count(rv)) is None or n >= _FEWEST)


def find_bounded(frozen: pm.Model, layout: Layout) -> Bounded | None:
    """Find variables within bounds whose data are normal, those with most elements first, and write the integral."""
    found = solve_each(frozen, layout, is_candidate, functools.partial(_integrate, frozen))
    if not found:
        return None
    integrals, arrays = zip(*(written for written, _ in found.values()), strict=True)
    return Bounded(
        tuple(found),
        elements_of(layout, found),
        [one for _, replaced in found.values() for one in replaced],
        pt.add(*integrals, 0.0),
        [pt.concatenate(parts) for parts in zip(*arrays, strict=True)],
    )


def _prior(rv: Any, transform: Any) -> _Prior | None:
    """Read a variable's prior: None if it has another form or no bounds, or other ones than its transform."""
    if None in rv.type.shape:
        return None
    parameters = rv.owner.op.dist_params(rv.owner)
    zero = pt.zeros(rv.type.shape)
    if isinstance(rv.owner.op, HalfNormalRV | ExponentialRV):
        *loc, scale = parameters
        is_at_zero = all((known := evaluate_known(one)) is not None and not np.any(known) for one in loc)
        if type(transform) is not LogTransform or not is_at_zero:
            return None
        is_normal = isinstance(rv.owner.op, HalfNormalRV)
        slope, precision = (zero, scale**-2.0) if is_normal else (-1.0 / scale, zero)
        return _Prior(zero + slope, zero + precision, pt.zeros(()), None)
    if not isinstance(transform, IntervalTransform):
        return None
    lower, upper = transform.args_fn(*rv.owner.inputs)
    mean, scale = parameters[:2] if isinstance(rv.owner.op, TruncatedNormalRV) else (None, None)
    ends = [evaluate_known(one) for one in parameters[-2:]]
    is_infinite = any(one is not None and np.isinf(one).any() for one in ends)  # PyMC's slopes can be NaN there
    if is_infinite or lower is not parameters[-2] or upper is not parameters[-1]:
        return None
    bounds = (one.astype(rv.dtype) for one in (lower, upper))
    slope, precision = (zero, zero) if scale is None else (mean * scale**-2.0, scale**-2.0)
    return _Prior(zero + slope, zero + precision, *bounds)


def _integrate(frozen: pm.Model, rv: Any, later: Sequence[Any]) -> tuple[Any, list[Any]] | None:
    """Write the logarithm of the integral, and the arrays of its distribution; None without a proof."""
    are_normal = all(isinstance(one.owner.op, NormalRV) for one in later)
    prior = _prior(rv, frozen.rvs_to_transforms[rv]) if are_normal else None
    if prior is None:
        return None
    symbol = rv.type(name=rv.name)
    given, free = terms_given(frozen, {rv: symbol})
    of_data: Any = pt.add(*(given(one).sum() for one in later), 0.0)
    with quiet_compilation():
        (simple,) = simplify_values([of_data], are_differentiated=False)
    if find_reach(simple, {symbol: places_of(rv.type.shape)}) != 0:
        return None
    (simple,) = simplify_values([of_data])
    slopes: Any = pytensor.grad(simple, symbol)
    ones = pt.ones(rv.type.shape)
    product: Any = pytensor.grad(None, symbol, known_grads={slopes: ones}, disconnected_inputs="ignore")
    # In symbols before anything is copied: a copy of a random variable is another one.
    prior = _Prior(*(one if one is None else clone_replace(one, free, rebuild_strict=False) for one in prior))
    lower, upper, start = prior.lower, prior.upper, ones * prior.lower
    slope, product = clone_replace([slopes, product], {symbol: start}, rebuild_strict=False)
    slope = slope + prior.slope - prior.precision * start  # at the bound: the least precision bends from there
    least = prior.slope if upper is None else 1.0 / (upper - lower)
    precision = pt.maximum(prior.precision - product, (_FLAT * least) ** 2)
    mean, root = start + slope / precision, pt.sqrt(precision)
    nearest = pt.maximum(Held()(mean), lower)  # at the mean nothing changes with it to the first order
    nearest = nearest if upper is None else pt.minimum(nearest, upper)
    log_density: Any = clone_replace(simple + given(rv).sum(), {symbol: nearest}, rebuild_strict=False)
    share = _log_share((lower - mean) * root, None if upper is None else (upper - mean) * root)
    total = log_density + (share - pt.log(root) + 0.5 * np.log(2.0 * np.pi)).sum()
    ends = ones * lower, pt.constant(np.full(rv.type.shape, np.inf)) if upper is None else ones * upper
    graphs = [pt.switch(pt.isnan(total), -np.inf, total), *(one.ravel() for one in (mean, precision, *ends))]
    integral, *arrays = graph_replace(graphs, {one: own for own, one in free.items()}, strict=False)
    return integral, arrays


def _log_share(alpha: Any, beta: Any) -> Any:
    """Write log(Phi(beta) - Phi(alpha)) + d^2 / 2, where d is the distance from zero to the interval (alpha, beta).

    Both terms can be large; their sum is not.  If ``beta`` is None, the interval has no upper end.
    """
    if beta is None:
        return _log_scaled(-alpha)
    below, above = _mirror(pt, alpha, beta)
    first, last = pt.minimum(below, 0.0), pt.minimum(above, 0.0)
    log_above = _log_scaled(above)
    return log_above + pt.log1mexp(_log_scaled(below) - log_above + 0.5 * (last - first) * (last + first))


def _log_scaled(z: Any) -> Any:
    """Write log Phi(z) + min(z, 0)^2 / 2, whose slope is finite in both tails."""
    low, high = pt.minimum(z, -1.0), pt.maximum(z, -1.0)
    near = pt.log1p(-0.5 * pt.erfc(high / np.sqrt(2.0))) + 0.5 * pt.minimum(high, 0.0) ** 2
    return pt.switch(z < -1.0, pt.log(0.5 * pt.erfcx(-low / np.sqrt(2.0))), near)
