"""Observed variables of a random model, with data from near the model or from anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from tests.random_models.draft import Draft, Unsuitable


def _normal(draft: Draft, mean: Any, sd: Any, text: str) -> str:
    """Observe a Normal; around the mean of a true state, or of any."""
    at = draft.at_truth(mean)
    spread = float(draft.at_truth(sd)) if not isinstance(sd, float) else sd
    y = at + max(spread, 0.3) * draft.rng.normal(size=at.shape)
    if draft.choose.integer(0, 3) == 3:
        y = draft.rng.normal(0.0, 2.0, size=at.shape)
    for r in draft.reals:
        if not r.is_positive:
            for value in {round(float(one), 3) for one in (y.min(), np.median(y), y.max())}:
                r.cut_at(value)
    pm.Normal(draft.name("y"), mean, sd, observed=y)
    return f"Normal({text}, {sd if isinstance(sd, float) else sd.name}) x {y.size}"


def mixture(draft: Draft) -> str:
    vector, n, low, high = draft.vector(fewest=draft.choose.pick([2, 3]))
    means = np.sort(draft.rng.normal(0.0, 3.0, size=high - low + 1))
    mean = pt.constant(means)[vector - low]
    shifts = [r for r in draft.reals if not r.is_positive]
    if shifts and draft.choose.integer(0, 1):
        x, r = draft.real(is_positive=False)
        return _normal(draft, mean + x, draft.scale(), f"m[vector of {n}] + {r.name}")
    return _normal(draft, mean, draft.scale(), f"m[vector of {n}]")


def rows(draft: Draft) -> str:
    """Each data point has the index of the element that it is about."""
    vector, n, low, high = draft.vector()
    group = draft.rng.integers(n, size=draft.choose.integer(4, 9))
    return _normal(draft, (2.0 / max(1, high - low)) * vector[group], draft.scale(), f"vector of {n}[rows]")


def regression(draft: Draft) -> str:
    vector, n, low, high = draft.vector()
    basis = draft.rng.normal(size=(draft.choose.integer(4, 8), n)) / max(1, abs(low), abs(high)) * 2
    mean, text = pt.dot(basis, vector), f"B @ vector of {n}"
    if draft.reals and draft.choose.integer(0, 1):
        x, r = draft.real()
        mean, text = mean + pt.minimum(x, 30.0), f"{text} + {r.name}"
        r.cut_at(30.0)
    return _normal(draft, mean, draft.scale(), text)


def spike_and_slab(draft: Draft) -> str:
    vectors = [s for s in draft.sites if s.size >= 2 and len(s.shape) == 1 and (s.low, s.high) == (0, 1)]
    if not vectors:
        raise Unsuitable
    s = draft.choose.pick(vectors)
    basis = draft.rng.normal(size=(draft.choose.integer(6, 12), s.size))
    slabs = [r for r in draft.reals if r.shape == (2,) and not r.is_positive]
    if slabs and s.size == 2:
        slab, text = slabs[0].rv, slabs[0].name
    else:
        slab, text = pt.constant(draft.rng.normal(0.0, 2.0, size=s.size)), "b"
    return _normal(draft, pt.dot(basis, s.rv * slab), draft.scale(), f"X @ ({s.name} * {text})")


def indicators(draft: Draft) -> str:
    """A matrix of which element has which value."""
    vector, n, low, high = draft.vector()
    which = pt.eq(vector[:, None], np.arange(low, high + 1))
    means = draft.rng.normal(0.0, 2.0, size=high - low + 1)
    return _normal(draft, pt.dot(which, means), draft.scale(), f"(vector of {n} == values) @ m")


def kinds(draft: Draft) -> str:
    """A site that matters where others are on."""
    vector, n, _, high = draft.vector()
    element, s = draft.element(most=8)
    mean = 2.0 / max(1, high * s.high) * vector * element
    return _normal(draft, mean, draft.choose.pick([0.5, 1.0]), f"vector of {n} * {s.name}")


def counts(draft: Draft) -> str:
    element, s = draft.element(most=11)
    high = max(abs(s.low), abs(s.high))
    kind = draft.choose.pick(["2**k", "exp", "k + 0.1", "indexed rates"])
    rate = {
        "2**k": lambda: 2.0**element,
        "exp": lambda: pt.exp(element / max(1.0, high / 3.0)),
        "k + 0.1": lambda: element - s.low + 0.1,
        "indexed rates": lambda: pt.constant(draft.rng.gamma(2.0, 2.0, size=s.n_values))[element - s.low],
    }[kind]()
    factors = [r for r in draft.reals if r.is_positive and not r.shape]
    if factors and draft.choose.integer(0, 2) == 2:
        rate = rate * pt.minimum(factors[0].rv, 50.0)
        factors[0].cut_at(50.0)
    y = draft.rng.poisson(float(draft.at_truth(rate)), size=draft.choose.integer(1, 3))
    pm.Poisson(draft.name("y"), rate, observed=y)
    return f"Poisson({kind} of {s.name}) x {len(y)}"


def coins(draft: Draft) -> str:
    chosen = draft.elements(draft.choose.integer(1, 2), most=8)
    p = pt.constant(draft.rng.uniform(0.02, 0.98, size=tuple(s.n_values for _, s in chosen)))
    y = draft.rng.integers(0, 2, size=draft.choose.integer(2, 6))
    pm.Bernoulli(draft.name("y"), p[tuple(one - s.low for one, s in chosen)], observed=y)
    return f"Bernoulli(p[{', '.join(s.name for _, s in chosen)}]) x {len(y)}"


def logits(draft: Draft) -> str:
    vector, n, low, high = draft.vector()
    basis = draft.rng.normal(size=(draft.choose.integer(3, 8), n)) * 2 / max(1, abs(low), abs(high))
    logit, text = pt.dot(basis, vector), f"vector of {n}"
    if draft.reals:
        x, r = draft.real()
        logit, text = logit + pt.tanh(x), f"{text}, {r.name}"
    y = draft.rng.integers(0, 2, size=basis.shape[0])
    pm.Bernoulli(draft.name("y"), logit_p=logit, observed=y)
    return f"Bernoulli(logit of {text}) x {len(y)}"


def of_real(draft: Draft) -> str:
    x, r = draft.real()
    if r.is_positive:
        y = draft.rng.gamma(2.0, min(r.middle, 5.0) / 2, size=3)
        pm.Exponential(draft.name("y"), scale=x, observed=y)
        return f"Exponential(mean {r.name}) x 3"
    return _normal(draft, x + np.zeros(3), draft.choose.pick([0.3, 1.0]), r.name)


OBSERVED = [
    *[mixture, regression, spike_and_slab] * 2,
    *[rows, indicators, kinds, counts, coins, logits, of_real],
]
