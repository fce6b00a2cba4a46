"""Coordinates in which hierarchies are no funnels: partial non-centring of variables whose prior has parents.

Let x be an element of a variable's unconstrained value, m and s the location and scale of its prior given its parents,
and N(x; h / p, 1 / p) a site that stands for what the data say of it.  Prior times site is a normal with precision
1 / s^2 + p and mean (m / s^2 + h) / (1 / s^2 + p), and z = (x - mean) / sd is the new coordinate: with p = 0 the
non-centred one, with a large p the centred one, and what lies between where the data say something, but not all
(Papaspiliopoulos, Roberts & Skold 2007, Statistical Science 22, 59-73; Gorinova, Moore & Hoffman 2020,
arXiv:1906.03028).  Any location and scale that depend on the parents alone make right coordinates, so these need not
be exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors

from pymc_hais.model.compiling import compile_interpreted
from pymc_hais.model.containers import arguments_for, freeze_with_inputs
from pymc_hais.model.layout import Layout, on_position

#: Unconstrained values of a variable on the real line, a positive one and a probability, by the name of its transform.
_REAL, _POSITIVE, _PROBABILITY = "", "log", "logodds"
#: Flat vectors (n, D) -> location and log scale (n, D) of the prior of each element given its parents.
type Moments = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Sites:
    """What stands for the data: natural parameters of a normal for every coordinate, both 0 for none."""

    precision: np.ndarray  # (D,) p
    shift: np.ndarray  # (D,) h, p times the mean

    @property
    def arrays(self) -> list[np.ndarray]:
        """Return both, in the order of a density's tuned data."""
        return [self.precision, self.shift]


@dataclass(frozen=True)
class Chart:
    """The way from the coordinates z to a model's flat vector x, and back."""

    is_moved: np.ndarray  # of bool (D,): which elements have parents; the others stay as they are
    depth: int  # the longest line of parents
    moments: Moments  # zeros for elements without parents
    moments_of: Callable[[Mapping[str, np.ndarray]], Moments]  # given the data containers that may vary

    def with_data(self, values: Mapping[str, np.ndarray]) -> Chart:
        """Return the chart for other data."""
        return replace(self, moments=self.moments_of(values))

    def without_sites(self) -> Sites:
        """Return the sites of no data: all that can be is non-centred."""
        return Sites(np.zeros(self.is_moved.size), np.zeros(self.is_moved.size))

    def to_model(self, z: np.ndarray, sites: Sites) -> np.ndarray:
        """Return the flat vectors x (n, D) of coordinates z."""
        x = z
        for _ in range(self.depth):
            mean, log_sd = self._normal(x, sites)
            x = np.where(self.is_moved, mean + np.exp(log_sd) * z, z)
        return x

    def to_coordinates(self, x: np.ndarray, sites: Sites) -> np.ndarray:
        """Return the coordinates z (n, D) of flat vectors x."""
        mean, log_sd = self._normal(x, sites)
        return np.where(self.is_moved, (x - mean) * np.exp(-log_sd), x)

    def log_jacobian(self, x: np.ndarray, sites: Sites) -> np.ndarray:
        """Return log of dx / dz (n,) at flat vectors x."""
        return np.sum(np.where(self.is_moved, self._normal(x, sites)[1], 0.0), axis=1)

    def _normal(self, x: np.ndarray, sites: Sites) -> tuple[np.ndarray, np.ndarray]:
        location, log_scale = self.moments(x)
        return _times_site(np, location, log_scale, sites.precision, sites.shift)


def _times_site(xp: Any, location: Any, log_scale: Any, precision: Any, shift: Any) -> tuple[Any, Any]:
    """Return mean and log sd of prior times site."""
    variance = xp.exp(2.0 * log_scale)
    growth = 1.0 + variance * precision
    return (location + variance * shift) / growth, log_scale - 0.5 * xp.log(growth)


def build_chart(model: Any, layout: Layout, containers: Mapping[str, np.ndarray] | None = None) -> Chart | None:
    """Find the elements whose prior has parents, given data containers that may vary; None if there are none."""
    containers = containers or {}
    frozen, targets = freeze_with_inputs(model, list(containers))
    found = _conditionals(frozen, layout)
    if not found:
        return None
    is_moved = np.repeat([owner in found for owner in layout.owners], layout.sizes)
    zeros = [(pt.zeros(shape), pt.zeros(shape)) for shape in layout.shapes]
    pairs = [found.get(owner, zero) for owner, zero in zip(layout.owners, zeros, strict=True)]
    flat = [
        pt.concatenate([pt.broadcast_to(m, shape).ravel() for m, shape in zip(moments, layout.shapes, strict=True)])
        for moments in zip(*pairs, strict=True)
    ]
    position, outputs = on_position(frozen, layout, flat)
    shared = arguments_for(containers)
    if containers:
        outputs = clone_replace(outputs, dict(zip(targets, shared, strict=True)), rebuild_strict=False)
    positions = pt.matrix("positions", dtype=position.dtype, shape=(None, layout.n_dims))
    batched: Any = vectorize_graph(outputs, {position: positions})
    function = compile_interpreted([positions, *shared], list(batched))

    def moments_of(values: Mapping[str, np.ndarray]) -> Moments:
        data = [values[name] for name in containers]

        def moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            location, log_scale = function(np.ascontiguousarray(x, dtype=position.dtype), *data)
            # What depends on no parent has no axis of particles.
            return np.broadcast_to(location, x.shape), np.broadcast_to(log_scale, x.shape)

        return moments

    return Chart(is_moved, _depth(frozen, found), moments_of(containers), moments_of)


def recentre(frozen: Any, layout: Layout, position: Any, sites: list[Any]) -> tuple[dict[Any, Any], Any]:
    """Write a model's value variables as graphs of the coordinates (D,); return them, and the log of dx / dz.

    The sites are precision and shift (D,); none for a model without a chart.
    """
    found = _conditionals(frozen, layout) if sites else {}
    values: dict[Any, Any] = {}
    log_jacobian: Any = pt.zeros((), dtype=position.dtype)
    for i, (owner, shape) in enumerate(zip(layout.owners, layout.shapes, strict=True)):
        value_var = frozen.rvs_to_values[frozen[owner]]
        part = slice(int(layout.offsets[i]), int(layout.offsets[i + 1]))
        value = position[part].reshape(shape)
        if owner in found:
            moments = clone_replace(list(found[owner]), values, rebuild_strict=False)
            mean, log_sd = _times_site(pt, *moments, *(one[part].reshape(shape) for one in sites))
            log_sd = pt.broadcast_to(log_sd, shape)
            value, log_jacobian = mean + pt.exp(log_sd) * value, log_jacobian + log_sd.sum()
        values[value_var] = value_var.type.filter_variable(value.astype(value_var.dtype))
    return values, log_jacobian.astype(position.dtype)


def _conditionals(frozen: Any, layout: Layout) -> dict[str, tuple[Any, Any]]:
    """Return location and log scale of the variables that have parents, as graphs of value variables."""
    found = {}
    for owner, shape in zip(layout.owners, layout.shapes, strict=True):
        moments = _location_and_log_scale(frozen, frozen[owner])
        if moments is None or not any(rv in ancestors(list(moments)) for rv in frozen.free_RVs):
            continue
        if all(moment.ndim <= len(shape) for moment in moments):
            found[owner] = tuple(frozen.replace_rvs_by_values(list(moments)))
    return found


def _depth(frozen: Any, found: dict[str, Any]) -> int:
    """Return the length of the longest line of descent among the variables found."""
    depths: dict[str, int] = {}
    for owner in found:  # parents come before children
        upstream = set(ancestors([frozen[owner]]))
        depths[owner] = 1 + max((depths[other] for other in depths if frozen[other] in upstream), default=0)
    return max(depths.values())


def _location_and_log_scale(frozen: Any, rv: Any) -> tuple[Any, Any] | None:
    """Return both for the unconstrained value, as graphs of random variables; None for a distribution not listed."""
    op = rv.owner.op
    kind = _KINDS.get(type(op).__name__)
    transform = frozen.rvs_to_transforms[rv]
    if kind is None or getattr(transform, "name", "") != kind[0]:
        return None
    parameters = [one.astype(pytensor.config.floatX) for one in op.dist_params(rv.owner)]
    return kind[1](*parameters)


def _digamma(x: Any) -> Any:
    """Approximate the logarithmic derivative of the gamma function, smoothly and cheaply."""
    y = x + _SHIFT
    return pt.log(y) - 0.5 / y - sum(1.0 / (x + i) for i in range(_SHIFT))


def _log_trigamma(x: Any) -> Any:
    """Approximate the logarithm of its derivative."""
    y = x + _SHIFT
    return pt.log(1.0 / y + 0.5 / y**2 + sum(1.0 / (x + i) ** 2 for i in range(_SHIFT)))


_SHIFT = 3


def _of_gamma(shape: Any, scale: Any) -> tuple[Any, Any]:
    return _digamma(shape) + pt.log(scale), 0.5 * _log_trigamma(shape)


def _of_inverse_gamma(shape: Any, scale: Any) -> tuple[Any, Any]:
    return pt.log(scale) - _digamma(shape), 0.5 * _log_trigamma(shape)


def _of_beta(a: Any, b: Any) -> tuple[Any, Any]:
    return _digamma(a) - _digamma(b), 0.5 * pt.logaddexp(_log_trigamma(a), _log_trigamma(b))


def _of_scale(*parameters: Any) -> tuple[Any, Any]:
    """Return both for the logarithm of a variable whose last parameter is its scale."""
    return pt.log(parameters[-1]), pt.zeros_like(parameters[-1])


#: Distribution -> the transform that its variable has, and location and log scale from its parameters.
_KINDS: dict[str, tuple[str, Callable[..., tuple[Any, Any]]]] = {
    "NormalRV": (_REAL, lambda mean, sd: (mean, pt.log(sd))),
    "LaplaceRV": (_REAL, lambda mean, scale: (mean, pt.log(scale))),
    "LogisticRV": (_REAL, lambda mean, scale: (mean, pt.log(scale))),
    "CauchyRV": (_REAL, lambda mean, scale: (mean, pt.log(scale))),
    "StudentTRV": (_REAL, lambda df, mean, scale: (mean, pt.log(scale))),
    "LogNormalRV": (_POSITIVE, lambda mean, sd: (mean, pt.log(sd))),
    "HalfNormalRV": (_POSITIVE, _of_scale),
    "HalfCauchyRV": (_POSITIVE, _of_scale),
    "HalfStudentTRV": (_POSITIVE, _of_scale),
    "ExponentialRV": (_POSITIVE, _of_scale),
    "GammaRV": (_POSITIVE, _of_gamma),
    "InvGammaRV": (_POSITIVE, _of_inverse_gamma),
    "BetaRV": (_PROBABILITY, _of_beta),
}
