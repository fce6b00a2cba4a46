"""Coordinates in which hierarchies are no funnels: partial non-centring of variables whose prior has parents.

Let x be an element of a variable's unconstrained value, m and s the location and scale of its prior given its parents,
and N(x; h / p, 1 / p) a site that stands for what the data say of it.  Prior times site is a normal with precision
1 / s^2 + p and mean (m / s^2 + h) / (1 / s^2 + p), and z = (x - mean) / sd is the new coordinate: with p = 0 the
non-centred one, with a large p the centred one, and what lies between where the data say something, but not all
(Papaspiliopoulos, Roberts & Skold 2007, Statistical Science 22, 59-73; Gorinova, Moore & Hoffman 2020,
arXiv:1906.03028).  Any location and scale that depend on the parents alone make right coordinates, so these need not
be exact.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.facts import find_bounds, is_cut
from pymc_hais.density.layout import Layout
from pymc_hais.latent.fields import Field


def times_site(xp: Any, location: Any, log_scale: Any, precision: Any, shift: Any) -> tuple[Any, Any]:
    """Return mean and log sd of prior times site."""
    variance = xp.exp(2.0 * log_scale)
    growth = 1.0 + variance * precision
    return (location + variance * shift) / growth, log_scale - 0.5 * xp.log(growth)


def find_conditionals(frozen: pm.Model, layout: Layout, fields: Sequence[Field]) -> dict[str, tuple[Any, Any]]:
    """Return location and log scale of the variables that have parents, as graphs of value variables.

    Fields are left out, and what has one for a parent: their coordinates follow those of all other variables.  Beside
    one that fixes its predictor there are none.
    """
    found: dict[str, tuple[Any, Any]] = {}
    if any(field.fixes_predictor for field in fields):
        return found
    own = [frozen[owner] for field in fields for owner in field.owners]
    for owner, shape in zip(layout.owners, layout.shapes, strict=True):
        moments = None if frozen[owner] in own else _location_and_log_scale(frozen, frozen[owner])
        if moments is None:
            continue
        upstream = set(ancestors(list(moments)))
        if not upstream.isdisjoint(own) or upstream.isdisjoint(frozen.free_RVs):
            continue
        if all(moment.ndim <= len(shape) for moment in moments):
            found[owner] = tuple(frozen.replace_rvs_by_values(list(moments)))
    return found


def longest_line(frozen: pm.Model, found: dict[str, Any]) -> int:
    """Return the length of the longest line of descent among the variables found."""
    depths: dict[str, int] = {}
    for owner in found:  # parents come before children
        upstream = set(ancestors([frozen[owner]]))
        depths[owner] = 1 + max((depths[other] for other in depths if frozen[other] in upstream), default=0)
    return max(depths.values(), default=0)


def _location_and_log_scale(frozen: pm.Model, rv: TensorVariable) -> tuple[Any, Any] | None:
    """Return both for the unconstrained value, as graphs of random variables; None for a distribution not listed."""
    op = rv.owner.op
    if isinstance(op, NormalRV) and is_cut(rv, frozen.rvs_to_values[rv], frozen.rvs_to_transforms[rv]):
        mean, sd = op.dist_params(rv.owner)
        return _of_cut_normal(mean, sd, *find_bounds(rv, frozen.rvs_to_transforms[rv]))
    kind = _KINDS.get(type(op).__name__)
    transform = frozen.rvs_to_transforms[rv]
    if kind is None or getattr(transform, "name", "") != kind[0]:
        return None
    parameters = [one.astype(pytensor.config.floatX) for one in op.dist_params(rv.owner)]
    return kind[1](*parameters)


#: Terms of the recurrences by which arguments are raised to where the asymptotic series is accurate.
_SHIFT = 3


def _digamma(x: TensorVariable) -> Any:
    """Approximate the logarithmic derivative of the gamma function, smoothly and cheaply."""
    y = x + _SHIFT
    return pt.log(y) - 0.5 / y - sum(1.0 / (x + i) for i in range(_SHIFT))


def _log_trigamma(x: TensorVariable) -> Any:
    """Approximate the logarithm of its derivative."""
    y = x + _SHIFT
    return pt.log(1.0 / y + 0.5 / y**2 + sum(1.0 / (x + i) ** 2 for i in range(_SHIFT)))


#: Precision of the logarithm of an exponential variable, 6 / pi^2.
_OF_LOG_EXPONENTIAL = 0.61


def _of_cut_normal(mean: Any, sd: Any, lower: Any, upper: Any) -> tuple[Any, Any] | None:
    """Return both for the logarithm of a normal variable's distance from its only bound; None for two bounds.

    Far below its mean the variable is normal, far above it the distance is exponential; between them both are
    approximated. The mean distance is about sd exp(-arcsinh(a / 2)) for a bound that is a sd above the mean.
    """
    if lower is not None and upper is not None:
        return None
    above = (lower - mean if upper is None else mean - upper) / sd
    log_distance = -pt.arcsinh(0.5 * above)
    return pt.log(sd) + log_distance, -0.5 * pt.log(pt.exp(2.0 * log_distance) + _OF_LOG_EXPONENTIAL)


#: Distribution -> the name of its variable's transform, and location and log scale from its parameters.
_KINDS: dict[str, tuple[str, Callable[..., tuple[Any, Any]]]] = {
    **dict.fromkeys(
        ("NormalRV", "LaplaceRV", "LogisticRV", "CauchyRV"), ("", lambda location, scale: (location, pt.log(scale)))
    ),
    "StudentTRV": ("", lambda df, location, scale: (location, pt.log(scale))),
    "LogNormalRV": ("log", lambda mean, sd: (mean, pt.log(sd))),
    **dict.fromkeys(
        ("HalfNormalRV", "HalfCauchyRV", "HalfStudentTRV", "ExponentialRV"),
        ("log", lambda *others: (pt.log(others[-1]), pt.constant(0.0, dtype=others[-1].dtype))),  # of the scale
    ),
    "GammaRV": ("log", lambda shape, scale: (_digamma(shape) + pt.log(scale), 0.5 * _log_trigamma(shape))),
    "InvGammaRV": ("log", lambda shape, scale: (pt.log(scale) - _digamma(shape), 0.5 * _log_trigamma(shape))),
    "BetaRV": (
        "logodds",
        lambda a, b: (_digamma(a) - _digamma(b), 0.5 * pt.logaddexp(_log_trigamma(a), _log_trigamma(b))),
    ),
}
