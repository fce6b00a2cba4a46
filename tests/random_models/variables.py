"""Random variables of a random model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import stats

from pymc_hais import FlatDiscrete
from tests.random_models.draft import Draft, Real, Sites, Unsuitable

#: Most discrete states, by the number of continuous dimensions.
MOST_STATES = {0: 4096, 1: 512, 2: 64, 3: 12}
_SHAPES = [(), (), (2,), (3,), (3,), (4,), (5,), (6,), (2, 2), (2, 3)]


# Continuous ---------------------------------------------------------------------------------------------


def add_real(draft: Draft, room: int) -> None:
    """Add a continuous variable of at most so many dimensions."""
    family = draft.choose.pick([_normal, _normal, _half_normal, _uniform, _uniform, _exponential, _gamma, _beta])
    family(draft, f"x{len(draft.reals)}", (2,) if room >= 2 and draft.choose.integer(0, 3) == 3 else ())


def _normal(draft: Draft, name: str, shape: tuple[int, ...]) -> None:
    sd = draft.choose.pick([1.0, 1.0, 3.0, 30.0])
    rv = pm.Normal(name, 0.0, sd, shape=shape)
    edges = [float(one) * sd for one in (-10, -6, -4, -2.5, -1, 0, 1, 2.5, 4, 6, 10)]
    truth = draft.rng.normal(0.0, min(sd, 3.0), size=shape)
    draft.reals.append(Real(name, rv, shape, name, edges, float, 0.0, 2.5 * sd, truth, False))
    draft.parts.append(f"{name} ~ Normal(0, {sd:g}) {shape}")


def _positive(draft: Draft, name: str, rv: object, prior: object, text: str, shape: tuple[int, ...]) -> None:
    far = float(np.log(prior.isf(1e-14)))  # type: ignore[attr-defined]
    edges = [far - d for d in (0.0, 0.15, 1.0, 2.0, 3.5, 5.0, 7.0, 9.0, 12.0, 16.0, 24.0, 45.0)]
    middle, tail = float(prior.median()), float(prior.isf(0.01))  # type: ignore[attr-defined]
    truth = np.minimum(np.exp(draft.rng.normal(0.0, 0.5, size=shape)), middle * 2)
    draft.reals.append(Real(name, rv, shape, f"{name}_log__", edges, np.log, middle, tail, truth, True))
    draft.parts.append(f"{name} ~ {text} {shape}")


def _half_normal(draft: Draft, name: str, shape: tuple[int, ...]) -> None:
    sd = draft.choose.pick([1.0, 2.0, 50.0])
    _positive(draft, name, pm.HalfNormal(name, sd, shape=shape), stats.halfnorm(0, sd), f"HalfNormal({sd:g})", shape)


def _exponential(draft: Draft, name: str, shape: tuple[int, ...]) -> None:
    rate = draft.choose.pick([1.0, 0.3])
    rv = pm.Exponential(name, rate, shape=shape)
    _positive(draft, name, rv, stats.expon(0, 1 / rate), f"Exponential({rate:g})", shape)


def _gamma(draft: Draft, name: str, shape: tuple[int, ...]) -> None:
    a, b = draft.choose.pick([2.0, 1.0, 5.0]), draft.choose.pick([1.0, 0.1])
    rv = pm.Gamma(name, a, b, shape=shape)
    _positive(draft, name, rv, stats.gamma(a, 0, 1 / b), f"Gamma({a:g}, {b:g})", shape)


def _interval(width: float) -> Callable[[float], float]:
    return lambda value: float(np.log(value) - np.log(width - value)) if 0 < value < width else np.nan


def _uniform(draft: Draft, name: str, shape: tuple[int, ...]) -> None:
    width = draft.choose.pick([1.0, 5.0, 50.0, 300.0, 5000.0])
    rv = pm.Uniform(name, 0.0, width, shape=shape)
    edges = [-40.0, -25, -17, -13, -10, -8, -6, -4.5, -3, -1.5, 0, 1.5, 4, 9, 16, 25]
    truth = np.minimum(np.exp(draft.rng.normal(0.0, 0.5, size=shape)), 0.8 * width)
    tail = width * draft.choose.pick([0.98, 0.01])
    draft.reals.append(
        Real(name, rv, shape, f"{name}_interval__", edges, _interval(width), width / 2, tail, truth, True)
    )
    draft.parts.append(f"{name} ~ Uniform(0, {width:g}) {shape}")


def _beta(draft: Draft, name: str, shape: tuple[int, ...]) -> None:
    a, b = draft.choose.pick([1.0, 2.0, 5.0]), draft.choose.pick([1.0, 2.0])
    rv = pm.Beta(name, a, b, shape=shape)
    edges = [-40.0, -20, -10, -6, -4, -2.5, -1, 0, 1, 2.5, 4, 6, 10, 20, 40]
    truth = draft.rng.beta(a, b, size=shape)
    tail = float(stats.beta(a, b).isf(0.01))
    draft.reals.append(Real(name, rv, shape, f"{name}_logodds__", edges, _interval(1.0), 0.5, tail, truth, True))
    draft.parts.append(f"{name} ~ Beta({a:g}, {b:g}) {shape}")


# Discrete -----------------------------------------------------------------------------------------------


def add_sites(draft: Draft, most_states: int) -> None:
    """Add a discrete variable, such that there are at most so many states.

    Raises
    ------
    Unsuitable
        If what was chosen has too many.
    """
    families = [_bernoulli, _bernoulli, _bernoulli, _categorical, _categorical, _switched, _flat, _flat]
    family = draft.choose.pick([*families, _discrete_uniform, _binomial, _poisson, _limited])
    family(draft, f"s{len(draft.sites)}", draft.choose.pick(_SHAPES), most_states)


def _add(draft: Draft, most: int, name: str, rv: Callable, shape: tuple, low: int, high: int, text: str, **kw) -> None:
    size = int(np.prod(shape, dtype=int))
    sizes = size + sum(s.size for s in draft.sites)
    if draft.n_states * float(high - low + 1) ** size > most or sizes > 8:
        raise Unsuitable
    truth = draft.rng.integers(low, min(high, low + 5) + 1, size=shape)
    draft.sites.append(Sites(name, rv(), shape, low, high, truth, **kw))
    draft.parts.append(f"{name} ~ {text} {shape}")


def _bernoulli(draft: Draft, name: str, shape: tuple[int, ...], most: int) -> None:
    fractions = [r for r in draft.reals if r.value_name.endswith("odds__") and not r.shape]
    p: Any = draft.choose.pick([0.5, 0.3, 0.02, None])
    text = f"Bernoulli({p or 'array'})"
    if p is None:
        p = draft.rng.uniform(0.1, 0.9, size=shape)
    if fractions and draft.choose.integer(0, 1):
        theta = draft.choose.pick(fractions)
        p, text = theta.rv, f"Bernoulli({theta.name})"
    _add(draft, most, name, lambda: pm.Bernoulli(name, p, shape=shape), shape, 0, 1, text)


def _categorical(draft: Draft, name: str, shape: tuple[int, ...], most: int) -> None:
    k = draft.choose.integer(2, 5)
    p = draft.rng.dirichlet(np.ones(k))
    _add(draft, most, name, lambda: pm.Categorical(name, p=p, shape=shape), shape, 0, k - 1, f"Categorical({k})")


def _switched(draft: Draft, name: str, shape: tuple[int, ...], most: int) -> None:
    """Its probabilities are a table of another variable."""
    above, s = draft.element(most=6)
    k = draft.choose.integer(2, 4)
    table = pt.constant(draft.rng.dirichlet(np.full(k, 0.5), size=s.n_values))
    text = f"Categorical({k}, p[element of {s.name}])"
    if k == 2:
        rate = pt.constant(draft.rng.uniform(0.02, 0.98, size=s.n_values))[above - s.low]
        text = f"Bernoulli(p[element of {s.name}])"
        _add(draft, most, name, lambda: pm.Bernoulli(name, rate, shape=shape), shape, 0, 1, text)
        return
    if draft.choose.integer(0, 1) and s.shape:
        above, shape, text = s.rv, s.shape, f"Categorical({k}, p[{s.name}])"
    p = table[above - s.low]
    _add(draft, most, name, lambda: pm.Categorical(name, p=p, shape=shape), shape, 0, k - 1, text)


def _flat(draft: Draft, name: str, shape: tuple[int, ...], most: int) -> None:
    low, high = draft.choose.pick([(0, 1), (0, 1), (0, 3), (-1, 1), (2, 4)])
    text = f"Flat({low}, {high})"
    _add(draft, most, name, lambda: FlatDiscrete(name, low, high, shape=shape), shape, low, high, text)


def _discrete_uniform(draft: Draft, name: str, shape: tuple[int, ...], most: int) -> None:
    low = draft.choose.pick([0, -1, 3])
    high = low + draft.choose.integer(1, 9)
    text = f"DiscreteUniform({low}, {high})"
    _add(draft, most, name, lambda: pm.DiscreteUniform(name, low, high, shape=shape), shape, low, high, text)


def _binomial(draft: Draft, name: str, shape: tuple[int, ...], most: int) -> None:
    n, p = draft.choose.integer(2, 4), draft.choose.pick([0.5, 0.2])
    _add(draft, most, name, lambda: pm.Binomial(name, n, p, shape=shape), shape, 0, n, f"Binomial({n}, {p})")


def _limited(draft: Draft, name: str, shape: tuple[int, ...], most: int) -> None:
    """A count that another one limits."""
    above, s = draft.element(most=8)
    if s.low < 0:
        raise Unsuitable
    text = f"Binomial({s.name} + 1)"
    _add(draft, most, name, lambda: pm.Binomial(name, above + 1, 0.4, shape=shape), shape, 0, s.high + 1, text)


def _poisson(draft: Draft, name: str, shape: tuple[int, ...], most: int) -> None:
    mu = draft.choose.pick([0.5, 2.0])
    high = int(stats.poisson(mu).isf(1e-10))
    _add(draft, most, name, lambda: pm.Poisson(name, mu, shape=shape), shape, 0, high, f"Poisson({mu})", is_cut=True)
