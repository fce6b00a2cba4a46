"""Potentials of a random model: each takes a draft, adds one, and says what it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from tests.random_models.draft import Draft, Sites, Unsuitable

_SMALL_TABLE = 100


def _amount(draft: Draft) -> float:
    return draft.choose.pick([1.0, -1.0, 2.5, -0.7, 4.0, -5.0])


def _penalty(draft: Draft) -> float:
    return draft.choose.pick([-np.inf, -5.0, 2.5, -np.inf, -1.0, 6.0, -40.0])


def _condition(draft: Draft, element: Any, s: Sites) -> tuple[Any, str]:
    value = draft.choose.integer(s.low, min(s.high, s.low + 4))
    kind = draft.choose.pick(["==", "==", ">=", "!=", ">", "bool"])
    if kind == "bool" and s.low == 0 and s.high == 1:
        return pt.cast(element, "bool"), f"bool({s.name})"
    made = {"==": pt.eq, ">=": pt.ge, "!=": pt.neq, ">": pt.gt, "bool": pt.eq}[kind](element, value)
    return made, f"{s.name} {'==' if kind == 'bool' else kind} {value}"


# Conditions ---------------------------------------------------------------------------------------------


def switch_on_conditions(draft: Draft) -> str:
    chosen = draft.elements(draft.choose.integer(1, 3))
    made = [_condition(draft, element, s) for element, s in chosen]
    conditions, texts = [one for one, _ in made], [text for _, text in made]
    join, penalty = draft.choose.pick(["all", "any", "and_", "or_"]), _penalty(draft)
    if join in ("all", "any"):
        joined = getattr(pt, join)(pt.stack(conditions))
    else:
        joined = conditions[0]
        for one in conditions[1:]:
            joined = getattr(pt, join)(joined, one)
    draft.term(pt.switch(joined, penalty, 0.0))
    return f"switch({join}({', '.join(texts)}), {penalty:g}, 0)"


def codes(draft: Draft) -> str:
    """A pair of rows that must not stand one above the other."""
    matrices = [s for s in draft.sites if len(s.shape) == 2 or (s.shape and s.size >= 2)]
    if not matrices:
        raise Unsuitable
    s, penalty = draft.choose.pick(matrices), _penalty(draft)
    first, second = (draft.choose.integer(s.low, min(s.high, s.low + 4)) for _ in range(2))
    upper, lower = (s.rv[0], s.rv[1]) if len(s.shape) == 2 else (s.rv[:-1], s.rv[1:])
    both = pt.eq(upper, first) & pt.eq(lower, second)
    if draft.choose.integer(0, 1):
        draft.term(pt.switch(pt.any(both), penalty, 0.0))
        return f"switch(any({s.name}[0] == {first} & {s.name}[1] == {second}), {penalty:g}, 0)"
    draft.term(pt.switch(both, penalty, 0.0).sum())
    return f"switch({s.name}[0] == {first} & {s.name}[1] == {second}, {penalty:g}, 0).sum()"


def hard_constraint(draft: Draft) -> str:
    vector, n, low, high = draft.vector()
    kind = draft.choose.pick(["at least", "at most", "exactly", "one of two", "even"])
    total = draft.choose.integer(n * low + 1, max(n * low + 1, min(n * high - 1, n * low + n)))
    allowed = {
        "at least": lambda: pt.ge(vector.sum(), total),
        "at most": lambda: pt.le(vector.sum(), total),
        "exactly": lambda: pt.eq(vector.sum(), total),
        "one of two": lambda: pt.neq(vector[0], vector[1]),
        "even": lambda: pt.eq(vector.sum() % 2, 0),
    }[kind]()
    penalty = draft.choose.pick([-np.inf, -np.inf, -4.0])
    draft.term(pt.switch(allowed, 0.0, penalty))
    return f"sum of {n} sites: {kind} {total} (else {penalty:g})"


# Pairs and triples --------------------------------------------------------------------------------------


def product(draft: Draft) -> str:
    n, strength = draft.choose.integer(2, 3), _amount(draft)
    chosen = draft.elements(n)
    factors, names = [one for one, _ in chosen], " ".join(s.name for _, s in chosen)
    kind = draft.choose.pick(["*", "spins", "eq", "prod", "and", "or", "max"])
    bits = [pt.gt(one, s.low) for one, s in chosen]
    if kind == "*" or (kind == "spins" and any(s.n_values > 2 for _, s in chosen)):
        made = factors[0]
        for one in factors[1:]:
            made = made * one
        made = made * (1.0 if max(s.high for _, s in chosen) <= 4 else 0.1)
    elif kind == "spins":
        made = pt.prod(pt.stack([2 * (one - s.low) - 1 for one, s in chosen]))
    elif kind == "eq":
        made = pt.eq(factors[0], factors[1]) * (1 if n == 2 else factors[2])
    elif kind == "prod":
        made = pt.prod(pt.stack([pt.cast(one, "float64") for one in bits]))
    elif kind == "max":
        made = pt.max(pt.stack(factors))
    else:
        made = bits[0]
        for one in bits[1:]:
            made = (pt.and_ if kind == "and" else pt.or_)(made, one)
    draft.term(strength * made)
    return f"{strength:g} * {kind}({names})"


def chain(draft: Draft) -> str:
    vector, n, low, high = draft.vector()
    strength = _amount(draft)
    kind = draft.choose.pick(["eq", "switch", "transitions", "differences"])
    if kind == "eq":
        draft.term(strength * pt.eq(vector[1:], vector[:-1]).sum())
    elif kind == "switch":
        draft.term(pt.switch(pt.neq(vector[1:], vector[:-1]), -abs(strength), 0.0).sum())
    elif kind == "differences":
        draft.term(-0.1 * abs(strength) * pt.sqr(vector[1:] - vector[:-1]).sum())
    else:
        table = np.log(draft.rng.dirichlet(np.full(high - low + 1, 0.5), size=high - low + 1) + 1e-12)
        draft.term(pt.constant(table)[vector[:-1] - low, vector[1:] - low].sum())
    return f"chain of {n}, {kind}, {strength:g}"


def quadratic(draft: Draft) -> str:
    vector, n, low, high = draft.vector()
    weights = draft.rng.normal(size=(n, n)) * draft.choose.pick([0.3, 1.0]) / max(abs(low), abs(high))
    if draft.choose.integer(0, 1):
        weights *= draft.rng.random((n, n)) < 0.4
    draft.term(pt.dot(pt.dot(vector, weights), vector))
    return f"s W s of {n} sites"


# Tables, powers, casts ----------------------------------------------------------------------------------


def table(draft: Draft) -> str:
    size, n = draft.choose.pick([1.0, 3.0]), draft.choose.integer(1, 3)
    if n == 3:
        vector, length, low, high = draft.vector()
        values = draft.rng.normal(size=high - low + 1) * size
        draft.term(pt.constant(values)[vector - low].sum())
        return f"T[vector of {length}].sum(), {size:g}"
    chosen = draft.elements(n)
    shape = tuple(s.n_values for _, s in chosen)
    if np.prod(shape) > _SMALL_TABLE:
        raise Unsuitable
    values = pt.constant(draft.rng.normal(size=shape) * size)
    cast = (lambda one: pt.cast(one, "int32")) if draft.choose.integer(0, 2) == 2 else (lambda one: one)
    index = tuple(cast(one - s.low) for one, s in chosen)
    draft.term(values[index])
    return f"T[{', '.join(s.name for _, s in chosen)}], {size:g}"


def power(draft: Draft) -> str:
    element, s = draft.element(most=11)
    kind = draft.choose.pick(["2**k", "k**2", "base**k", "sum**2", "exp", "real**k"])
    high = max(abs(s.low), abs(s.high))
    amount = draft.choose.pick([0.3, -0.3, -1.0])
    if kind == "real**k":
        x, r = draft.real(is_positive=True)
        draft.term(-(pt.minimum(x, 20.0) ** element) / 20.0**high)
        for value in (20.0,):
            r.cut_at(value)
        return f"-min({r.name}, 20)**{s.name}"
    if kind == "sum**2":
        vector, n, low, top = draft.vector()
        draft.term(amount * pt.cast(vector.sum(), "float64") ** 2 / (n * max(abs(low), abs(top))))
        return f"{amount:g} * sum(of {n})**2"
    made = {
        "2**k": lambda: 2.0**element / 2.0 ** max(high - 3, 0),
        "k**2": lambda: element**2 / max(1.0, high / 3.0),
        "base**k": lambda: pt.power(0.5, element),
        "exp": lambda: pt.exp(element / max(1.0, high / 2.0)),
    }[kind]()
    draft.term(amount * made)
    return f"{amount:g} * {kind} of {s.name}"


def cast_real(draft: Draft) -> str:
    """The whole part of a continuous variable, beside a site."""
    x, r = draft.real()
    element, s = draft.element()
    for value in (1.0, 2.0, 3.0):
        r.cut_at(value)
    whole = pt.clip(pt.cast(pt.clip(x, 0.0, 3.5), "int64"), 0, 3)
    draft.term(pt.constant(draft.rng.normal(size=(4, 2)))[whole, pt.cast(pt.gt(element, s.low), "int64")])
    return f"T[int({r.name}), {s.name} > {s.low}]"


def big_constant(draft: Draft) -> str:
    sign = draft.choose.pick([-1.0, 1.0])
    if draft.choose.integer(0, 1):
        draft.term(pt.constant(sign * 2e6))
        return f"constant {sign * 2e6:g}"
    vector, n, _, high = draft.vector()
    with draft.model:
        pm.Potential(draft.name("term"), 0.7 / max(1, high) * vector + sign * 2e6)
    return f"each of {n}: 0.7 s + {sign * 2e6:g}"


# Functions of many sites --------------------------------------------------------------------------------


def of_many(draft: Draft) -> str:
    vector, n, low, high = draft.vector()
    amount, scale = _amount(draft), max(1, abs(low), abs(high))
    places = draft.rng.permutation(n)
    kind = draft.choose.pick(
        [
            *["cumsum", "cumsum**2", "max", "min", "sort", "set_subtensor", "inc_subtensor", "indexed pairs", "prod"],
            *["argmax", "concatenate", "reversed", "unequal sums"],
        ]
    )
    numbers, weights = pt.cast(vector, "float64"), pt.constant(draft.rng.normal(size=n))
    made = {
        "cumsum": lambda: (pt.cumsum(vector) * weights).sum() / scale,
        "cumsum**2": lambda: pt.sqr(pt.cumsum(vector) - 1.0).sum() / (n * scale) ** 2,
        "max": lambda: pt.max(vector) / scale,
        "min": lambda: pt.min(vector) / scale,
        "sort": lambda: pt.dot(weights, pt.sort(vector)) / scale,
        "set_subtensor": lambda: pt.sqr(pt.set_subtensor(numbers[0], vector[-1] * 2.0).sum() / (n * scale)),
        "inc_subtensor": lambda: pt.sqr(pt.inc_subtensor(pt.zeros(2)[places % 2], vector / scale)).sum() / n,
        "indexed pairs": lambda: (vector[places] * vector[np.roll(places, 1)] * weights).sum() / scale**2,
        "prod": lambda: pt.prod(numbers / scale),
        "argmax": lambda: weights[pt.argmax(vector)],
        "concatenate": lambda: pt.sqr(pt.concatenate([vector[: n // 2], [1], vector[n // 2 :]]).sum() / (n * scale)),
        "reversed": lambda: (vector * vector[::-1]).sum() / scale**2,
        "unequal sums": lambda: pt.neq(vector[: n // 2].sum(), vector[n // 2 :].sum()),
    }[kind]()
    draft.term(amount * made)
    return f"{amount:g} * {kind} of {n}"


# With continuous variables ------------------------------------------------------------------------------


def tail_switch(draft: Draft) -> str:
    """An interaction that a threshold in the tail of a continuous variable switches on; data are often beyond it."""
    x, r = draft.real()
    pair, strength = draft.elements(2), _amount(draft)
    bits = [pt.gt(one, s.low) for one, s in pair]
    kind = draft.choose.pick(["eq", "and", "first"])
    made = {"eq": lambda: pt.eq(*(one for one, _ in pair)), "and": lambda: bits[0] & bits[1], "first": lambda: bits[0]}[
        kind
    ]()
    threshold = r.tail if draft.choose.integer(0, 3) else r.middle
    r.cut_at(threshold)
    beyond = draft.choose.pick(["", "data", "data"])
    draft.term(pt.switch(x > threshold, strength * made, 0.0))
    if beyond and r.tail > 0:
        where = threshold * 1.05 + 0.1 * abs(r.tail - r.middle)
        r.cut_at(where)
        pm.Normal(draft.name("y"), x, 0.1 * abs(r.tail - r.middle), observed=where)
    return (
        f"switch({r.name} > {threshold:.3g}, {strength:g} * {kind}({pair[0][1].name}, {pair[1][1].name}), 0) {beyond}"
    )


def product_with_real(draft: Draft) -> str:
    x, r = draft.real()
    element, s = draft.element()
    strength = draft.choose.pick([1.0, -1.0, 3.0])
    bounded = pt.tanh(x) if draft.choose.integer(0, 1) else pt.exp(-pt.sqr(x))
    draft.term(strength * bounded * element / max(1, abs(s.high)))
    return f"{strength:g} * f({r.name}) * {s.name}"


#: What is hard stands more often.
TERMS = [
    *[switch_on_conditions, codes, hard_constraint] * 2,
    *[product, chain, quadratic, table, table, power, power, big_constant, of_many, of_many],
    *[tail_switch] * 3,
    cast_real,
    product_with_real,
]
