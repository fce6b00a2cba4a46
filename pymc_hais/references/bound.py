"""References bound to one model: positions out, graphs of their log density."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_hais.model.layout import Layout
from pymc_hais.references.base import BoundReference, Direct, Draws
from pymc_hais.references.distribution import Distribution, is_distribution
from pymc_hais.references.gaussian import Gaussian
from pymc_hais.references.margins import uniform_margins
from pymc_hais.references.mixture import Mixture, join_parts, share_draws
from pymc_hais.references.prior import PriorSampler
from pymc_hais.references.variables import Product
from pymc_hais.types import Reference


@dataclass(frozen=True)
class Prior(Direct):
    """The model's own prior.

    Attributes
    ----------
    layout : Layout
    sampler : PriorSampler
    log_mass : float
        Log of the integral of ``exp(model.varlogp)``, by which its density is normalised where it is a part of a
        mixture.
    """

    layout: Layout
    sampler: PriorSampler
    log_mass: float = 0.0
    label: str = "the prior"
    is_prior: bool = True

    def draw(self, n: int, seeds: np.random.SeedSequence) -> Draws:
        """Draw joint prior draws."""
        values, clipped = self.sampler.sample(n, int(seeds.generate_state(1)[0]))
        return Draws.independent(self.layout.flatten(values), clipped)

    def logp(self, position: Any, log_prior: Any) -> Any:
        """Return the model's log prior, normalised."""
        return log_prior - self.log_mass if self.log_mass else log_prior


@dataclass(frozen=True)
class Independent(Direct):
    """A reference that knows nothing of the model."""

    reference: Reference
    n_dims: int
    is_prior: bool = False

    @property
    def label(self) -> str:
        """Name the reference."""
        return str(self.reference) if type(self.reference).__str__ is not object.__str__ else repr(self.reference)

    def draw(self, n: int, seeds: np.random.SeedSequence) -> Draws:
        """Draw positions.

        Raises
        ------
        ValueError
            If the reference returns another shape, or NaN.
        """
        positions = np.asarray(self.reference.sample(n, np.random.default_rng(seeds)), dtype=np.float64)
        if positions.shape != (n, self.n_dims):
            raise ValueError(
                f"The reference's sample({n}, rng) has shape {positions.shape}; it must return ({n}, {self.n_dims}): "
                "one row a draw, one column for each unconstrained dimension of the model."
            )
        if not np.isfinite(positions).all():
            raise ValueError("The reference's sample(n, rng) returned NaN or infinite values.")
        return Draws.independent(positions)

    def logp(self, position: Any, log_prior: Any) -> Any:
        """Return the reference's log density.

        Raises
        ------
        ValueError
            If it is no PyTensor scalar.
        """
        value = pt.as_tensor_variable(self.reference.logp(position))
        if value.ndim != 0:
            raise ValueError(f"The reference's logp(x) must return a PyTensor scalar; it has {value.ndim} dimensions.")
        return value


@dataclass(frozen=True)
class Mixed(Direct):
    """Several references, each with its share of the draws."""

    parts: tuple[BoundReference, ...]
    weights: np.ndarray
    is_prior: bool = False

    @property
    def label(self) -> str:
        """Name the parts with their shares."""
        return " and ".join(f"{part.label} ({w:.0%})" for w, part in zip(self.weights, self.parts, strict=True))

    def draw(self, n: int, seeds: np.random.SeedSequence) -> Draws:
        """Draw positions, from each part its share of them."""
        counting, *children = seeds.spawn(1 + len(self.parts))
        counts, is_sure = share_draws(self.weights, n, np.random.default_rng(counting))
        pairs = zip(counts.tolist(), zip(self.parts, children, strict=True), strict=True)
        return join_parts([part.draw(count, one) for count, (part, one) in pairs if count], is_sure)

    def logp(self, position: Any, log_prior: Any) -> Any:
        """Return the log of the weighted sum of the parts' densities."""
        terms = [
            float(np.log(weight)) + part.logp(position, log_prior)
            for weight, part in zip(self.weights, self.parts, strict=True)
        ]
        return functools.reduce(pt.logaddexp, terms)


def with_data(reference: BoundReference, values: Mapping[str, np.ndarray]) -> BoundReference:
    """Draw from a reference given other values of the model's data containers, on which the prior may depend."""
    if isinstance(reference, Mixed):
        return replace(reference, parts=tuple(with_data(part, values) for part in reference.parts))
    if isinstance(reference, Prior):
        return replace(reference, sampler=reference.sampler.with_data(values))
    return reference


def uses_prior(spec: Any) -> bool:
    """Whether a reference, or a part of it, is the prior."""
    if isinstance(spec, Mixture):
        return any(uses_prior(part) for part in spec.parts)
    return isinstance(spec, str) and spec == "prior"


def bind(spec: Any, layout: Layout, prior: Prior | None, model: Any) -> BoundReference:
    """Bind what the user passed as ``reference=`` to a model.

    Parameters
    ----------
    spec : str or object
        "prior", "gaussian", one of this package's references, a PyMC distribution or a dict of them, a
        :class:`Mixture`, or any object with ``sample`` and ``logp``.
    layout : Layout
    prior : Prior or None
        Needed where ``uses_prior(spec)``.
    model : pymc.Model

    Raises
    ------
    ValueError
        If it is none of these, or does not fit the model's dimensions or the variables' own spaces.
    """
    n_dims = layout.n_dims
    if isinstance(spec, Mixture):
        return Mixed(tuple(bind(part, layout, prior, model) for part in spec.parts), spec.shares)
    if uses_prior(spec):
        assert prior is not None  # the caller compiles it where uses_prior says so
        return prior
    if isinstance(spec, str) and spec == "gaussian":
        spec = Gaussian()
    if isinstance(spec, Mapping):
        return Product.build(spec, model, layout)
    if is_distribution(spec):
        if layout.n_sites:
            name = layout.owners[-1]
            raise ValueError(
                f"`{name}` is discrete, so one distribution of all dimensions cannot be the reference: pass a dict "
                "with a PyMC distribution for each variable."
            )
        return Independent(Distribution.build(spec, layout), n_dims)
    if hasattr(spec, "for_dimensions") and not isinstance(spec, type):
        n_free = layout.n_continuous
        fitting: Any = spec.for_dimensions(n_free) if n_free else None
        if layout.n_sites:
            fitting = uniform_margins(fitting, n_free, layout.sites)
        return Independent(fitting, n_dims)
    if isinstance(spec, Reference) and not isinstance(spec, type):
        return Independent(spec, n_dims)
    raise ValueError(
        '`reference` must be "auto", "prior", "gaussian", "fitted", a pymc_hais.Gaussian, StudentT, Box or Mixture, a '
        "PyMC distribution, a dict of them by variable, a DataTree of posterior draws, a pm.Model, or an object with "
        "sample(n, rng) and logp(x); "
        f"got {spec!r}."
    )
