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
from pymc_hais.latent.integrated import Integrated, log_density_at, take_out
from pymc_hais.latent.rows.find import elements_of
from pymc_hais.references.prior import GivenSampler, build_given

_log = logging.getLogger("pymc.hais")

#: Draws that are averaged where a mean is asked for.
_OF_MEAN = 200


@dataclass(frozen=True, eq=False)
class Leaves:
    """Variables on which no data depend; see :class:`pymc_hais.latent.integrated.Solution`."""

    owners: tuple[str, ...]
    places: np.ndarray
    replaced: Sequence[Any]
    arrays: Sequence[Any]  # the variables that they depend on, and their log density at one point
    sampler: GivenSampler
    integral: None = None

    def draw(self, arrays: Sequence[np.ndarray], rng: np.random.Generator | None) -> np.ndarray:
        """Draw forward; without random numbers return means, of whole numbers rounded ones."""
        given = arrays[:-1]
        if rng is None:
            many, _ = self.sampler.draw([np.repeat(one, _OF_MEAN, axis=0) for one in given], 0)
            means = many.reshape(-1, _OF_MEAN, many.shape[1]).mean(axis=1)
            return np.where(self.sampler.is_whole, np.round(means), means)
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


@untraced
def take_leaves(model: Model) -> Integrated | None:
    """Return a model without its leaves; None if it has none."""
    if not (names := find_leaves(model)):
        return None
    frozen = freeze_dims_and_data(model)
    whole = build_layout(frozen)
    owners = tuple(owner for owner in whole.owners if owner in names)
    leaves, start = [frozen[owner] for owner in owners], start_of(frozen, whole)
    sampler = build_given(frozen, whole, leaves, start)
    arrays = [*sampler.given, log_density_at(frozen, {rv: start[rv] for rv in leaves})]
    return take_out(model, frozen, whole, Leaves(owners, elements_of(whole, owners), leaves, arrays, sampler))
