"""Variables with a conjugate prior that are integrated out: of counts, given all other variables.

A Beta variable has binomial data, a Gamma variable counts with a rate in proportion to it, and a Dirichlet variable
multinomial data.  Its distribution given all else is of its prior's kind, and the integral over it is a ratio of
normalising constants (Gelman et al. 2013, Bayesian Data Analysis, section 2.4; for each element alone).  Each observed
element depends on one of its elements, which is read from the graph: a proof, or nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.random.basic import (
    BernoulliRV,
    BetaRV,
    BinomialRV,
    DirichletRV,
    ExponentialRV,
    GammaRV,
    MultinomialRV,
    PoissonRV,
)
from scipy.special import digamma, gammaln, logsumexp

from pymc_hais.density.compiling import evaluate_known
from pymc_hais.density.layout import Layout
from pymc_hais.density.rewrites.graphs import LAYOUT, count, laid_out, places_of
from pymc_hais.latent.rows.find import elements_of, solve_each

#: A number from which on log Gamma is computed by Stirling's series.
_LARGE = 1e4
#: Elements from which on a variable is integrated out: fewer are sampled as fast.
_FEWEST = 8


class Posterior(NamedTuple):
    """What belongs to one variable: its transformed values are those of its prior's kind, with other parameters."""

    kind: str  # "beta", "gamma" or "dirichlet"
    integral: Any
    arrays: list[Any]  # the parameters: two (K,), or one (n, k) of a Dirichlet variable


@dataclass(frozen=True, eq=False)
class Conjugate:
    """Variables with conjugate priors; see :class:`pymc_hais.latent.integrated.Solution`."""

    owners: tuple[str, ...]
    places: np.ndarray
    replaced: Sequence[Any]
    integral: Any
    arrays: Sequence[Any]
    kinds: tuple[str, ...]

    def draw(self, arrays: Sequence[np.ndarray], rng: np.random.Generator | None) -> np.ndarray:
        """Draw by logarithms of gamma variables, which do not underflow."""
        drawn = []
        for kind, own in self._of_each(arrays):
            logs = _log_gammas(own[0], rng)
            if kind == "gamma":
                values = logs - np.log(own[1])
            elif kind == "beta":
                values = logs - _log_gammas(own[1], rng)
            else:
                values = (logs - logs.mean(axis=-1, keepdims=True))[..., :-1]
            drawn.append(values.reshape(len(values), -1))
        return np.concatenate(drawn, axis=1)

    def log_density(self, arrays: Sequence[np.ndarray], x: np.ndarray) -> np.ndarray:
        """Add up the variables, each as PyMC transforms it."""
        total, start = np.zeros(len(x)), 0
        for kind, own in self._of_each(arrays):
            if kind == "dirichlet":
                (a,) = own
                n = a.shape[-1]
                values = x[:, start : start + a[0, ..., :-1].size].reshape(*a.shape[:-1], n - 1)
                logits = np.concatenate([values, -values.sum(axis=-1, keepdims=True)], axis=-1)
                log_sum = logsumexp(logits, axis=-1)
                log_p = logits - log_sum[..., None]
                each = gammaln(a.sum(axis=-1)) + np.sum((a - 1.0) * log_p - gammaln(a), axis=-1)
                each = each + np.log(n) - n * log_sum
            else:
                a, b = own
                values = x[:, start : start + a[0].size].reshape(a.shape)
                if kind == "gamma":
                    each = a * (np.log(b) + values) - b * np.exp(values) - gammaln(a)
                else:
                    each = -a * np.logaddexp(0.0, -values) - b * np.logaddexp(0.0, values)
                    each = each + gammaln(a + b) - gammaln(a) - gammaln(b)
            total, start = total + each.reshape(len(x), -1).sum(axis=1), start + values[0].size
        return total

    def holds(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Whether the parameters are positive and finite; an infinite inverse scale is a density of zero."""
        within = []
        for kind, own in self._of_each(arrays):
            for i, one in enumerate(own):
                is_within = (one > 0.0) & (np.isfinite(one) | (kind == "gamma" and i == 1))
                within.append(is_within.reshape(len(one), -1).all(axis=1))
        return np.all(within, axis=0)

    def _of_each(self, arrays: Sequence[np.ndarray]) -> Any:
        rest = iter(arrays)
        return [(kind, [next(rest) for _ in range(1 if kind == "dirichlet" else 2)]) for kind in self.kinds]


def _log_gammas(shapes: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
    """Draw logarithms of gamma variables, or return their means."""
    if rng is None:
        return digamma(shapes)
    return np.log(rng.gamma(shapes + 1.0)) + np.log(rng.uniform(size=shapes.shape)) / shapes


def is_candidate(rv: Any) -> bool:
    """Whether a look at a variable leaves it open that it is conjugate to its data."""
    is_prior = isinstance(getattr(rv.owner, "op", None), tuple(_KINDS))
    return is_prior and ((n := count(rv)) is None or n >= _FEWEST)


def find_conjugate(frozen: pm.Model, layout: Layout) -> Conjugate | None:
    """Find variables whose prior is conjugate to all data that depend on them; those with most elements first."""
    found = solve_each(frozen, layout, is_candidate, functools.partial(_posterior, frozen))
    if not found:
        return None
    posteriors = [posterior for posterior, _ in found.values()]
    return Conjugate(
        tuple(found),
        elements_of(layout, found),
        [one for _, replaced in found.values() for one in replaced],
        pt.add(*(posterior.integral for posterior in posteriors), 0.0),
        [one for posterior in posteriors for one in posterior.arrays],
        tuple(posterior.kind for posterior in posteriors),
    )


def _posterior(frozen: pm.Model, rv: Any, later: Sequence[Any]) -> Posterior | None:
    """Return the distribution of a variable given data, and the integral; None if it is not conjugate to them."""
    for prior, (transform, build) in _KINDS.items():
        if isinstance(rv.owner.op, prior) and getattr(frozen.rvs_to_transforms[rv], "name", "") == transform:
            values = [evaluate_known(frozen.rvs_to_values[one]) for one in later]
            shape = rv.type.shape
            if None in shape or rv.dtype != "float64" or any(value is None for value in values):
                return None
            return build(rv, list(zip(later, values, strict=True)))
    return None


def _of_beta(rv: Any, data: Sequence[tuple[Any, Any]]) -> Posterior | None:
    """Count successes and failures of each element."""
    n = count(rv)
    successes, failures, base = np.zeros(n), np.zeros(n), 0.0
    for one, value in data:
        parameters = one.owner.op.dist_params(one.owner)
        if isinstance(one.owner.op, BernoulliRV):
            trials: Any = np.ones(())
            p = parameters[0]
        elif isinstance(one.owner.op, BinomialRV):
            trials, p = evaluate_known(parameters[0]), parameters[1]
        else:
            return None
        places = _places(p, rv)
        if trials is None or places is None or np.any((value < 0) | (value > trials) | (value != np.floor(value))):
            return None
        places, trials, value = np.broadcast_arrays(places, trials, value)
        successes += np.bincount(places.ravel(), value.ravel(), n)
        failures += np.bincount(places.ravel(), (trials - value).ravel(), n)
        base += np.sum(gammaln(trials + 1.0) - gammaln(value + 1.0) - gammaln(trials - value + 1.0))
    a, b = (pt.broadcast_to(one, rv.type.shape).ravel() for one in rv.owner.op.dist_params(rv.owner))
    rises = _log_rising(a, successes) + _log_rising(b, failures) - _log_rising(a + b, successes + failures)
    return Posterior("beta", _where_positive([a, b], rises.sum() + base), [a + successes, b + failures])


def _of_gamma(rv: Any, data: Sequence[tuple[Any, Any]]) -> Posterior | None:
    """Count events, and add up what the rates are in proportion to."""
    n = count(rv)
    counts, exposure, terms, conditions = np.zeros(n), pt.zeros(n), [], []
    for one, value in data:
        if not isinstance(one.owner.op, PoissonRV):
            return None
        (rate,) = one.owner.op.dist_params(one.owner)
        places = _places(rate, rv, is_scaled=True)
        if places is None or np.any((value < 0) | (value != np.floor(value))):
            return None
        (scale,) = graph_replace([rate], {rv: pt.ones(rv.type.shape)}, strict=False)
        places, value = (np.broadcast_to(one, value.shape).ravel() for one in (places, value))
        scale = pt.broadcast_to(scale, one.type.shape).ravel()
        counts += np.bincount(places, value, n)
        exposure = exposure[places].inc(scale)
        happened = np.flatnonzero(value)
        terms.append((value[happened] * pt.log(scale[happened])).sum() - gammaln(value + 1.0).sum())
        conditions.append(pt.all(scale >= 0.0))
    parameters = [pt.broadcast_to(one, rv.type.shape).ravel() for one in rv.owner.op.dist_params(rv.owner)]
    shape, scale = parameters if len(parameters) == 2 else (pt.ones(n), parameters[0])
    grows = pt.log1p(exposure * scale)  # log of the inverse scale, posterior over prior
    each = _log_rising(shape, counts) + counts * pt.log(scale) - (shape + counts) * grows
    within = pt.switch(functools.reduce(pt.and_, conditions), pt.add(each.sum(), *terms), -np.inf)
    return Posterior("gamma", _where_positive([shape, scale], within), [shape + counts, 1.0 / scale + exposure])


def _of_dirichlet(rv: Any, data: Sequence[tuple[Any, Any]]) -> Posterior | None:
    """Count outcomes of each kind."""
    counts, base = np.zeros(rv.type.shape), 0.0
    for one, value in data:
        if not isinstance(one.owner.op, MultinomialRV):
            return None
        parameters = one.owner.op.dist_params(one.owner)
        trials, places = evaluate_known(parameters[0]), _places(parameters[1], rv)
        if trials is None or places is None or np.any((value < 0) | (value != np.floor(value))):
            return None
        if np.any(value.sum(axis=-1) != trials) or np.any(np.diff(places, axis=-1) != 1):
            return None  # outcomes in another order
        places, value = np.broadcast_arrays(places, value)
        counts += np.bincount(places.ravel(), value.ravel(), counts.size).reshape(counts.shape)
        base += np.sum(gammaln(value.sum(axis=-1) + 1.0)) - np.sum(gammaln(value + 1.0))
    (a,) = (pt.broadcast_to(one, rv.type.shape) for one in rv.owner.op.dist_params(rv.owner))
    each = _log_rising(a, counts).sum(axis=-1) - _log_rising(a.sum(axis=-1), counts.sum(axis=-1))
    integral = each.sum() + base
    return Posterior("dirichlet", _where_positive([a], integral), [a + counts])


def _log_rising(a: Any, counts: np.ndarray) -> Any:
    """Return log Gamma(a + k) - log Gamma(a): by Stirling's series where both are large."""
    small, large = pt.minimum(a, _LARGE), pt.maximum(a, _LARGE)
    plain = pt.gammaln(small + counts) - pt.gammaln(small)
    # Beyond 1e15 the rest no longer changes: its gradient would divide by squares that overflow.
    near = pt.minimum(large, 1e15)
    corrections = (1.0 / (near + counts) - 1.0 / near) / 12.0  # the next term is 1 / (360 a^3)
    rest = (near + counts - 0.5) * pt.log1p(counts / near) - counts + corrections
    return pt.switch(a < _LARGE, plain, counts * pt.log(large) + rest)


def _where_positive(parameters: Sequence[Any], integral: Any) -> Any:
    """Return minus infinity where a parameter of the prior is out of its range, or beyond floating point."""
    are_positive = functools.reduce(pt.and_, [pt.all((one > 0.0) & (one < np.inf)) for one in parameters])
    return pt.switch(are_positive, integral, -np.inf)


def _places(variable: Any, rv: Any, is_scaled: bool = False) -> np.ndarray | None:
    """Return which element of a variable each element of an array is; None where that is not proven.

    ``is_scaled`` says whether it may be multiplied by, or divided by, what does not depend on the variable.
    """
    if variable is rv:
        return places_of(rv.type.shape)
    node = variable.owner
    if node is None or rv not in ancestors([variable]) or None in variable.type.shape:
        return None
    if isinstance(node.op, Join):
        parts = [_places(one, rv, is_scaled) for one in node.inputs]
        return None if any(one is None for one in parts) else np.concatenate(parts, node.op.axis)  # type: ignore[arg-type]
    mine = [one for one in node.inputs if rv in ancestors([one])]
    inner = _places(mine[0], rv, is_scaled) if len(mine) == 1 else None
    if inner is None:
        return None
    if isinstance(node.op, ViewOp):
        return inner
    if isinstance(node.op, LAYOUT) and mine[0] is node.inputs[0]:
        known = [evaluate_known(one) for one in node.inputs[1:]]
        return None if any(one is None for one in known) else laid_out(node, inner, known)
    if isinstance(node.op, Elemwise):
        op = node.op.scalar_op
        is_factor = isinstance(op, ps.Mul) or (isinstance(op, ps.TrueDiv) and mine[0] is node.inputs[0])
        is_same = isinstance(op, ps.Identity) or (isinstance(op, ps.Cast) and op.o_type.dtype == "float64")
        if (is_scaled and is_factor) or is_same:
            return np.broadcast_to(inner, variable.type.shape)
    is_outer = isinstance(node.op, Dot) and inner.ndim == 2 and inner.shape[1 if mine[0] is node.inputs[0] else 0] == 1
    if is_scaled and is_outer:
        return np.broadcast_to(inner, variable.type.shape)
    return None


#: Distribution -> the name of its transform, and what makes its posterior.
_KINDS: dict[type, tuple[str, Callable[..., Posterior | None]]] = {
    BetaRV: ("logodds", _of_beta),
    GammaRV: ("log", _of_gamma),
    ExponentialRV: ("log", _of_gamma),
    DirichletRV: ("simplex", _of_dirichlet),
}
