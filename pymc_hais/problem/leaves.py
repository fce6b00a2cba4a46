"""Variables on which no data depend: log Z is without them, and they are drawn from their prior, given all others.

Missing outcomes are such variables, predictions for new units, and the effects of groups without data.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_hais.core.messages import quoted
from pymc_hais.density import Model
from pymc_hais.density.compiling import freeze_dims_and_data, untraced
from pymc_hais.density.facts import find_leaves
from pymc_hais.density.layout import build_layout
from pymc_hais.latent.fields import place_of
from pymc_hais.latent.integrated import Integrated, take_out
from pymc_hais.references.prior import GivenSampler, build_given

_log = logging.getLogger("pymc.hais")


@dataclass(frozen=True, eq=False)
class Leaves:
    """Variables on which no data depend; see :class:`pymc_hais.latent.integrated.Solution`."""

    owners: tuple[str, ...]
    places: np.ndarray
    replaced: Sequence[Any]
    sampler: GivenSampler
    integral: None = None

    @property
    def arrays(self) -> Sequence[Any]:
        """The variables that they depend on."""
        return self.sampler.given

    def draw(self, arrays: Sequence[np.ndarray], rng: np.random.Generator | None) -> np.ndarray:
        """Draw forward, also where a point in the middle is asked for; NaN where PyMC cannot draw."""
        rng = np.random.default_rng(0) if rng is None else rng
        drawn, n_failed = self.sampler.draw(arrays, int(rng.integers(2**32)))
        if n_failed:
            _log.warning(f"PyMC could not draw {quoted(self.owners)} for {n_failed} of {len(drawn)} draws: NaN there.")
        return drawn

    def holds(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Whether PyMC can draw in most places; the integral is one in all of them."""
        drawn, n_failed = self.sampler.draw(arrays, 0)
        return np.array([2 * n_failed < len(drawn)])


def has_leaves(model: Model) -> bool:
    """Whether a model has variables on which no data depend, beside others."""
    return 0 < len(find_leaves(model)) < len(model.free_RVs)


@untraced
def take_leaves(model: Model) -> Integrated | None:
    """Return a model without its leaves; None if it has none, or nothing beside them.

    Raises whatever PyMC raises for variables that it cannot draw.
    """
    frozen = freeze_dims_and_data(model)
    names, whole = find_leaves(frozen), build_layout(frozen)
    numbers = [i for i, owner in enumerate(whole.owners) if owner in names]
    if not 0 < len(numbers) < len(whole.owners):
        return None
    owners, places = tuple(whole.owners[i] for i in numbers), np.arange(whole.n_dims)[place_of(whole, numbers)]
    leaves = [frozen[one] for one in owners]
    return take_out(model, frozen, whole, Leaves(owners, places, leaves, build_given(frozen, whole, leaves)))
