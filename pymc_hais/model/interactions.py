"""Which discrete sites interact, and whether slopes are log odds: found by flipping each of them at random states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace
from scipy import sparse

from pymc_hais.model.compat import compile_interpreted
from pymc_hais.model.conditionals import SiteRule, split_terms
from pymc_hais.model.multilinear import extend
from pymc_hais.model.outputs import batch_over_rows
from pymc_hais.model.sites import SiteVariable

__all__ = ["colour", "find_rules", "take_slopes"]

#: Random states at which every site is flipped, and with many sites; and those at which the colours are tried.
_STATES, _FEW_STATES, _MANY, _TRIED = 5, 2, 600, 4
#: States with sites that are uniform on their values.
_UNIFORM = 3
#: Values of sites that are all tried at one state, at most.
_MOST_TRIED = 5000
#: Changes below this share of what changes are rounding, and how many units of the last place.
_ROUNDING, _UNITS = 1e-9, 1e3
#: Beyond this many nats a difference stands for infinity.
_INFINITE = 1e15
#: Terms of one call.
_CHUNK_SIZE = 2**22


class _Terms:
    """Log density, slopes and terms of the path's two ends at many positions; both ends count as one."""

    def __init__(self, outputs: Sequence[Any], position: Any, variables: Sequence[SiteVariable]) -> None:
        binary = [variable for variable in variables if variable.is_binary]
        smooth = extend(list(outputs), position, binary) if binary else list(outputs)
        # Nobody asks for slopes at other sites, and their graphs take seconds to compile.
        slope_of: Any = partial(pytensor.grad, wrt=position, disconnected_inputs="ignore")
        slopes = [slope_of(one) if binary else pt.zeros_like(position) for one in smooth]
        arrays = [split_terms(one, position) for one in outputs]
        self._n_first = len(arrays[0])
        graphs = [pt.stack([*outputs]), pt.stack(slopes), *arrays[0], *arrays[1]]
        graphs = [graph.astype("float64") for graph in graphs]
        single = compile_interpreted([position], graphs)
        self._evaluate = batch_over_rows(position, graphs, single)
        self._dtype = position.dtype
        probe = single(np.zeros(position.type.shape, position.dtype))
        self._chunk = int(np.clip(_CHUNK_SIZE // max(1, sum(one.size for one in probe)), 1, 512))

    def split(self, members: list[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Tell the members of the reference's terms from those of the log ratio's."""
        return tuple(members[: self._n_first]), tuple(members[self._n_first :])

    def __call__(self, x: np.ndarray) -> list[np.ndarray]:
        """Return log densities (n, 2), slopes (n, 2, D) and terms (n, E), ..., at positions (n, D)."""
        x = np.asarray(x, self._dtype)
        parts = [self._evaluate(x[i : i + self._chunk]) for i in range(0, len(x), self._chunk)]
        return [np.concatenate(part) for part in zip(*parts, strict=True)]


@np.errstate(all="ignore")  # impossible values are among those that are tried
def find_rules(
    outputs: Sequence[Any],
    position: Any,
    variables: Sequence[SiteVariable],
    positions: np.ndarray,
    given: Sequence[dict[Any, np.ndarray]] = ({},),
) -> tuple[SiteRule, ...]:
    """Find how the sites of each variable learn their conditional distributions.

    Parameters
    ----------
    outputs : sequence of two TensorVariable
        Log density of the reference, and log ratio.
    position : TensorVariable (D,)
    variables : sequence of SiteVariable
    positions : ndarray (P, D)
        Draws of the reference.
    given : sequence of dict
        Data of some rows: input -> value.

    Returns
    -------
    tuple of SiteRule
        Checked at other states: sites of one colour that are changed together change the log density by the sum of
        what each of them changes alone.  Where that fails every site has a colour of its own.
    """
    rng = np.random.default_rng(0)
    terms = [_Terms(clone_replace(list(outputs), one), position, variables) for one in given]
    n_sites = sum(variable.stop - variable.start for variable in variables)
    n_states, n_tried = (_STATES, _TRIED) if n_sites <= _MANY else (_FEW_STATES, _FEW_STATES)
    x = _usable(terms[0], positions)
    states, tried = np.concatenate([x[:n_states], _unlikely(x[0], variables, rng)]), x[n_states:][:n_tried]
    rules = [_find_rule(terms, variable, states, positions, rng) for variable in variables]
    return tuple(_try_colours(terms, rule, tried, positions, rng) for rule in rules)


def _unlikely(state: np.ndarray, variables: Sequence[SiteVariable], rng: np.random.Generator) -> np.ndarray:
    """Return states that draws of the reference are far from.

    All sites at their least and at their largest value, and all values of each site equally likely.
    """
    states = np.repeat(state[None], 2 + _UNIFORM, axis=0)
    for variable in variables:
        if variable.n_values:
            own, last = slice(variable.start, variable.stop), variable.low + variable.n_values - 1
            states[:2, own] = [[variable.low], [last]]
            states[2:, own] = rng.integers(variable.low, last + 1, size=states[2:, own].shape)
    return states


def take_slopes(variables: Sequence[SiteVariable]) -> tuple[SiteRule, ...]:
    """Give binary sites the slope as a guess of their log odds, exact or not."""
    one_colour = (np.ones((1, variable.stop - variable.start), dtype=bool) for variable in variables)
    return tuple(SiteRule(variable, "slope", colours) for variable, colours in zip(variables, one_colour, strict=True))


def _usable(terms: Callable[[np.ndarray], list[np.ndarray]], positions: np.ndarray) -> np.ndarray:
    """Put states of positive density first."""
    joint = np.sum(terms(positions)[0], axis=1)
    return positions[np.argsort(~np.isfinite(joint), kind="stable")]


def _find_rule(
    terms: Sequence[_Terms],
    variable: SiteVariable,
    states: np.ndarray,
    positions: np.ndarray,
    rng: np.random.Generator,
) -> SiteRule:
    n_sites, is_linear = variable.stop - variable.start, variable.is_binary
    linked = np.zeros((n_sites, n_sites), dtype=bool)
    members: list[Any] = []
    sites = slice(variable.start, variable.stop)
    for one in terms:
        for number, state in enumerate(states):
            here = one(state[None])
            slope = here[1][0, :, sites]
            for values in _others(state[sites], variable, positions[:, sites], number == 0, rng):
                flipped = np.repeat(state[None], n_sites, axis=0)
                flipped[:, sites][np.diag_indices(n_sites)] = values
                try:
                    there = one(flipped)
                except IndexError:  # beyond a table that the model looks up
                    continue
                step = values - state[sites]
                if is_linear:
                    # Each end of the path on its own: what bends in one of them may cancel in their sum.
                    sides = zip((there[0] - here[0]).T, slope, here[0][0], strict=True)
                    is_linear = all(_agree(change, step * of_side, value) for change, of_side, value in sides)
                    linked |= _differ(slope, there[1][:, :, sites]).any(axis=1)
                found = [sparse.csr_array(_differ(*pair)) for pair in zip(here[2:], there[2:], strict=True)]
                members = found if not members else [a + b for a, b in zip(members, found, strict=True)]
    if is_linear:
        return SiteRule(variable, "gradient", colour(linked | linked.T))
    touched = sparse.hstack([m.astype(np.int32) for m in members], format="csr") if members else None
    linked = (touched @ touched.T).toarray() > 0 if touched is not None else linked
    colours = colour(linked)
    if len(colours) == n_sites:
        return _one_by_one(terms[0], variable, [m.shape for m in members])
    return SiteRule(variable, _rule_of(variable), colours, terms[0].split(members))


def _rule_of(variable: SiteVariable) -> str:
    return "table" if variable.n_values else "walk"


def _one_by_one(terms: _Terms, variable: SiteVariable, shapes: Sequence[tuple[int, int]]) -> SiteRule:
    """Visit every site alone, and by all terms: right whatever the model is, also where no state has shown a link."""
    every = [sparse.csr_array(np.ones(shape, dtype=bool)) for shape in shapes]
    colours = np.eye(variable.stop - variable.start, dtype=bool)
    return SiteRule(variable, _rule_of(variable), colours, terms.split(every))


def _others(
    sites: np.ndarray, variable: SiteVariable, drawn: np.ndarray, is_thorough: bool, rng: np.random.Generator
) -> list[np.ndarray]:
    """Choose other values for each site: one at random, and once all of them, or some that are far off."""
    if not is_thorough:
        return [_other(sites, variable, drawn, rng)]
    if not variable.n_values:
        # Not below all draws: a negative count may be no parameter of anything, which would seem to link them all.
        return [_other(sites, variable, drawn, rng), np.full(sites.shape, 2.0 * drawn.max() + 10.0)]
    if variable.n_values * sites.size > _MOST_TRIED:
        return [_other(sites, variable, drawn, rng)]
    turned = (sites - variable.low + shift for shift in range(1, max(2, variable.n_values)))
    return [variable.low + one % variable.n_values for one in turned]


def _other(sites: np.ndarray, variable: SiteVariable, drawn: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Choose another value for each site: any one of its own, or one that is drawn or near."""
    if variable.n_values == 1:
        return sites
    if variable.n_values:
        return (
            variable.low + (sites - variable.low + rng.integers(1, variable.n_values, len(sites))) % variable.n_values
        )
    other = drawn[rng.integers(len(drawn)), :]
    return np.where(other == sites, sites + 1.0, other)


def _rounding() -> float:
    """Say which share of a number is rounding, in the precision in which densities are evaluated."""
    return max(_ROUNDING, _UNITS * float(np.finfo(pytensor.config.floatX).eps))


def _differ(here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Tell which numbers (n, ...) differ from those here (...), beyond rounding."""
    is_close = np.isfinite(there) & (np.abs(there - here) <= _rounding() * (1.0 + np.abs(here))) & np.isfinite(here)
    return ~(is_close | (there == here) | (np.isnan(there) & np.isnan(here)))


def _agree(changes: np.ndarray, predicted: np.ndarray, value: float) -> bool:
    """Whether changes of a log density are as predicted, and infinite where an infinite slope says so."""
    scale = 1.0 + np.abs(changes) + abs(value)
    is_close = np.isfinite(changes) & (np.abs(changes - predicted) <= 1e3 * _rounding() * scale)
    is_far = np.abs(predicted) > _INFINITE
    is_same = np.isnan(changes) | (np.sign(changes) == np.sign(predicted)) & (np.abs(changes) > _INFINITE)
    return bool(np.all(is_close | (is_far & is_same)))


def colour(linked: np.ndarray) -> np.ndarray:
    """Give every site the first colour that none of those it is linked to has, (C, S)."""
    colours = np.zeros(len(linked), dtype=int)
    for site in range(len(linked)):
        taken = set(colours[:site][linked[site, :site]].tolist())
        colours[site] = next(one for one in range(len(linked)) if one not in taken)
    return np.arange(colours.max(initial=0) + 1)[:, None] == colours


def _apart(terms: _Terms, rule: SiteRule, state: np.ndarray) -> SiteRule:
    """Give every site a colour of its own."""
    n_sites = rule.colours.shape[1]
    if rule.rule == "gradient":
        return replace(rule, colours=np.eye(n_sites, dtype=bool))
    return _one_by_one(terms, rule.variable, [(n_sites, one.shape[1]) for one in terms(state[None])[2:]])


def _try_colours(
    terms: Sequence[_Terms], rule: SiteRule, states: np.ndarray, positions: np.ndarray, rng: np.random.Generator
) -> SiteRule:
    """Change random sites of a colour together and alone; give each site its own colour if that is not the same."""
    sites = slice(rule.variable.start, rule.variable.stop)
    n_sites = sites.stop - sites.start
    if len(rule.colours) == n_sites:
        return rule
    for one in terms:
        for state in states:
            own = rule.colours[rng.integers(len(rule.colours))] & (rng.uniform(size=n_sites) < 0.5)
            other = np.where(own, _other(state[sites], rule.variable, positions[:, sites], rng), state[sites])
            rows = np.repeat(state[None], own.sum() + 1, axis=0)
            rows[np.arange(own.sum()), rule.variable.start + np.flatnonzero(own)] = other[own]
            rows[-1, sites] = other
            value = one(state[None])[0][0]
            for change, here in zip((one(rows)[0] - value).T, value, strict=True):
                if np.isfinite(change[:-1]).all() and not _agree(change[-1:], change[:-1].sum(keepdims=True), here):
                    return _apart(terms[0], rule, state)
    return rule
