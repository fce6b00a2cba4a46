"""A second model as the reference: log Z is then the log ratio of two partition functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pymc.model.transform.optimization import freeze_dims_and_data
from pytensor.graph.replace import clone_replace

from pymc_hais.model import check_model, improper_priors
from pymc_hais.model.density import on_position
from pymc_hais.model.layout import Layout, build_layout

__all__ = ["ModelStart", "check_same_variables"]

#: ``(n, seed) -> positions (n, D), first ancestors (n,)``
type Draw = Callable[[int, int], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class ModelStart:
    """Draws of another model's own annealed populations, with that model's unnormalised log density.

    Attributes
    ----------
    model : pymc.Model
    layout : Layout
        Of both models.
    draw : callable
        ``(n, seed) -> positions (n, D), first ancestors (n,)`` of one population annealed to that model.
    """

    model: Any
    layout: Layout
    draw: Draw
    label: str = "the reference model"
    is_prior: bool = False
    _families: dict[tuple[int, int], np.ndarray] = field(default_factory=dict, repr=False)

    def sample(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Anneal a population of n particles to the reference model."""
        positions, self._families[n, seed] = self.draw(n, seed)
        return positions, np.zeros(n, dtype=bool)

    def families(self, n: int, seed: int) -> np.ndarray:
        """Tell which of the draws (n,) of a seed share a first ancestor: these are not independent."""
        return self._families.pop((n, seed))

    def logp(self, position: Any, log_prior: Any) -> Any:
        """Return the reference model's own log density, not normalised."""
        frozen = freeze_dims_and_data(self.model)
        own, (logp,) = on_position(frozen, self.layout, [frozen.logp()])
        return clone_replace(logp, {own: position}, rebuild_strict=False)


def check_same_variables(model: Any, reference: Any) -> Layout:
    """Build the layout that two models share; their data may differ.

    Raises
    ------
    ValueError
        If their free variables differ in name, transform or shape, the reference has an improper prior with data or
        without any other term, or the model has minibatches.
    NotImplementedError
        If the model has discrete free variables or a ``pm.Simulator``.
    """
    check_model(model, from_prior=not improper_priors(model))
    _refuse_improper(reference)
    layout, other = (build_layout(one) if one.free_RVs else None for one in (model, reference))
    if layout is None or other is None or (layout.names, layout.shapes) != (other.names, other.shapes):
        described = [
            "none" if one is None else ", ".join(f"`{n}` {s}" for n, s in zip(one.names, one.shapes, strict=True))
            for one in (layout, other)
        ]
        raise ValueError(
            "A model as the reference must have the same free variables in the same order, with the same transforms "
            f"and shapes: the model has {described[0]}; the reference has {described[1]}."
        )
    return layout


def _refuse_improper(reference: Any) -> None:
    names = ", ".join(f"`{name}`" for name in improper_priors(reference))
    if names and reference.observed_RVs:
        raise ValueError(
            f"In the model that is the reference the prior of {names} is improper although it has data: give it a "
            "proper prior, or write its density as a pm.Potential without observed variables."
        )
    if names and not reference.potentials:
        raise ValueError(
            f"In the model that is the reference the prior of {names} is improper and nothing bounds it, so its "
            "integral is not finite: add a pm.Potential, or give it a proper prior."
        )
