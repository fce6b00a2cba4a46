"""Random discrete and mixed models with their exact log Z.

``random_model(seed)`` is model number ``seed``; ``models()`` is a Hypothesis strategy of the same, which can shrink.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm

from tests.random_models.draft import Choices, Draft, Drawn, Seeded, Unsuitable
from tests.random_models.observed import OBSERVED
from tests.random_models.oracle import Truth, UnknownTruth, exact_log_z
from tests.random_models.terms import TERMS
from tests.random_models.variables import MOST_STATES, add_real, add_sites

__all__ = ["RandomModel", "draft_model", "models", "random_model"]

_TRIES = 30


@dataclass(frozen=True, eq=False)
class RandomModel:
    """A model, its parts in words, its exact log Z, and the draws before it whose log Z could not be known."""

    model: pm.Model
    parts: tuple[str, ...]
    truth: Truth
    rejected: tuple[str, ...] = ()


def random_model(seed: int, without: Collection[int] = ()) -> RandomModel:
    """Return model number ``seed``: the first of its draws whose log Z is known.

    ``without`` leaves out some of its terms, by number, and changes no other: so a failure is made small by hand.
    """
    rejected: list[str] = []
    for attempt in range(_TRIES):
        key = [seed, attempt]
        draft = draft_model(Seeded, key)
        try:
            truth = exact_log_z(draft.model, draft.axes())
        except UnknownTruth as reason:
            rejected.append(str(reason))
            continue
        if without:
            draft = draft_model(Seeded, key, without)
            truth = exact_log_z(draft.model, draft.axes())
        return RandomModel(draft.model, tuple(draft.parts), truth, tuple(rejected))
    raise UnknownTruth(f"none of {_TRIES} draws: {rejected}")


def models() -> Any:
    """Return a strategy of models, whose structure shrinks; the numbers within come from one seed."""
    from hypothesis import assume
    from hypothesis import strategies as st

    @st.composite
    def drawn(draw: Callable) -> RandomModel:
        draft = draft_model(lambda _: Drawn(draw), [draw(st.integers(0, 999))])
        try:
            truth = exact_log_z(draft.model, draft.axes())
        except UnknownTruth:
            assume(False)
        return RandomModel(draft.model, tuple(draft.parts), truth)

    return drawn()


def draft_model(
    choices: Callable[[np.random.Generator], Choices], key: list[int], without: Collection[int] = ()
) -> Draft:
    """Draw variables and terms; each term has a stream of its own, so that the others stay when one is left out."""
    streams = (np.random.default_rng([*key, i]) for i in range(10**6))
    rng = next(streams)
    draft = Draft(choices(rng), rng)
    with draft.model:
        _add_variables(draft)
        for number in range(draft.choose.integer(1, 5)):
            draft.rng = next(streams)
            draft.choose = choices(draft.rng)
            if number not in without:
                _add_term(draft)
    return draft


def _add_variables(draft: Draft) -> None:
    n_continuous = draft.choose.pick([0, 0, 0, 1, 1, 1, 1, 2, 2, 3])
    while draft.n_continuous < n_continuous:
        add_real(draft, n_continuous - draft.n_continuous)
    for _ in range(draft.choose.integer(1, 4)):
        for _ in _tries():
            try:
                add_sites(draft, MOST_STATES[n_continuous])
                break
            except Unsuitable:
                continue


def _add_term(draft: Draft) -> None:
    for _ in _tries():
        try:
            draft.parts.append(draft.choose.pick(draft.choose.pick([TERMS, OBSERVED]))(draft))
            return
        except Unsuitable:
            continue


def _tries() -> Iterator[int]:
    return iter(range(20))
