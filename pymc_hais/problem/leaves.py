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
from pymc_hais.density.points import start_of
from pymc_hais.latent.fields import place_of
from pymc_hais.latent.integrated import Integrated, log_density_at, take_out
from pymc_hais.references.prior import GivenSampler, build_given

_log = logging.getLogger("pymc.hais")


#: Draws that have the mean of a variable in their middle.
_OF_MEAN = 200


@dataclass(frozen=True, eq=False)
class Leaves:
    """Variables on which no data depend; see :class:`pymc_hais.latent.integrated.Solution`."""

    owners: tuple[str, ...]
    places: np.ndarray
    replaced: Sequence[Any]
    arrays: Sequence[Any]  # the variables that they depend on, and their log density at one point
    sampler: GivenSampler
    are_whole: np.ndarray  # of bool (K,)
    integral: None = None

    def draw(self, arrays: Sequence[np.ndarray], rng: np.random.Generator | None) -> np.ndarray:
        """Draw forward; without random numbers return means, of whole numbers rounded ones."""
        given = arrays[:-1]
        if rng is None:
            many, _ = self.sampler.draw([np.repeat(one, _OF_MEAN, axis=0) for one in given], 0)
            means = many.reshape(-1, _OF_MEAN, many.shape[1]).mean(axis=1)
            return np.where(self.are_whole, np.round(means), means)
        drawn, failed = self.sampler.draw(given, int(rng.integers(2**32)))
        lacking = int((failed | np.isnan(drawn).any(axis=1)).sum())
        if lacking:
            _log.warning(
                f"PyMC could not draw {quoted(self.owners)} for {lacking} of {len(drawn)} draws. They are NaN there, "
                "or 2**53 if they are whole numbers."
            )
        return drawn

    def holds(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Whether the variables have a density (n,) and, in most places, draws that their transforms can take.

        Where they have none, as a parameter is outside its domain, that of the model is zero, and so is the integral.
        """
        drawn, failed = self.sampler.draw(arrays[:-1], 0)
        return np.isfinite(arrays[-1]) & (failed | ~np.isnan(drawn).any(axis=1)) & (2 * failed.sum() < len(drawn))


def has_leaves(model: Model) -> bool:
    """Whether a model has variables on which no data depend, beside others."""
    return 0 < len(find_leaves(model)) < len(model.free_RVs)


@untraced
def take_leaves(model: Model) -> Integrated | None:
    """Return a model without its leaves; None if it has none, or nothing beside them."""
    frozen = freeze_dims_and_data(model)
    names, whole = find_leaves(frozen), build_layout(frozen)
    numbers = [i for i, owner in enumerate(whole.owners) if owner in names]
    if not 0 < len(numbers) < len(whole.owners):
        return None
    owners, places = tuple(whole.owners[i] for i in numbers), np.arange(whole.n_dims)[place_of(whole, numbers)]
    leaves, start = [frozen[one] for one in owners], start_of(frozen, whole)
    sampler = build_given(frozen, whole, leaves, start)
    are_whole = np.repeat(sampler.are_whole, [whole.sizes[i] for i in numbers])
    arrays = [*sampler.given, log_density_at(frozen, {rv: start[rv] for rv in leaves})]
    return take_out(model, frozen, whole, Leaves(owners, places, leaves, arrays, sampler, are_whole))
