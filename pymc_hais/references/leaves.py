"""Variables on which no data depend: log Z is without them, and they are drawn from their prior, given all others.

Missing outcomes are such variables, predictions for new units, and the effects of groups without data.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.traversal import ancestors

from pymc_hais.core.messages import quoted
from pymc_hais.density import Model
from pymc_hais.density.compiling import compile_interpreted, freeze_dims_and_data, untraced
from pymc_hais.density.facts import improper_priors, unnormalised_priors
from pymc_hais.density.layout import Layout, build_layout, on_position
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
    arrays: Sequence[Any]  # the variables that they depend on
    sampler: GivenSampler
    integral: None = None

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
    return 0 < len(_find_owners(model)) < len(model.free_RVs)


@untraced
def take_leaves(model: Model) -> Integrated | None:
    """Return a model without its leaves; None if it has none, or nothing beside them.

    Raises whatever PyMC raises for variables that it cannot draw.
    """
    frozen = freeze_dims_and_data(model)
    names = _find_owners(frozen)
    whole = build_layout(frozen)
    owners = tuple(one for one in whole.owners if one in names)
    if not 0 < len(owners) < len(whole.owners):
        return None
    leaves = [frozen[one] for one in owners]
    used = set(ancestors(leaves))
    others = [rv for rv in frozen.free_RVs if rv not in leaves]
    parents = [rv for rv in others if rv in used] or others[:1]  # one at least: it says how many draws are wanted
    numbers = [whole.owners.index(one) for one in owners]
    sampler = build_given(frozen, leaves, [whole.shapes[i] for i in numbers], _start(frozen, whole, parents))
    solution = Leaves(owners, np.arange(whole.n_dims)[place_of(whole, numbers)], leaves, parents, sampler)
    return take_out(model, frozen, whole, solution)


def _start(frozen: pm.Model, layout: Layout, variables: list[Any]) -> dict[Any, np.ndarray]:
    """Return the values that variables have where PyMC starts."""
    point = frozen.initial_point()
    position, outputs = on_position(frozen, layout, frozen.replace_rvs_by_values(variables))
    values = compile_interpreted([position], outputs)(layout.flatten([np.asarray(point[one]) for one in layout.names]))
    return dict(zip(variables, values, strict=True))


def _find_owners(model: pm.Model) -> set[str]:
    """Name the free variables on which neither data nor potentials depend, nor a prior that may not be normalised.

    Some data have one density with those that are missing (``pm.ZeroInflatedPoisson``): these stay together.
    """
    data = [*model.observed_RVs, *model.potentials]
    if not data:
        return set()
    doubtful = {*unnormalised_priors(model), *improper_priors(model)}
    stays = [rv for rv in model.free_RVs if rv.name in doubtful or not set(rv.owner.outputs).isdisjoint(data)]
    used = set(ancestors([*data, *stays]))
    return {rv.name for rv in model.free_RVs if rv not in used}
