"""The values of ``reference=`` bound to one model: they draw positions, and build graphs of the log density."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace

from pymc_hais.core.protocols import Reference
from pymc_hais.density import find_cuts
from pymc_hais.density.compiling import freeze_dims_and_data, untraced
from pymc_hais.density.facts import build_log_mass
from pymc_hais.density.layout import Layout, build_layout, on_position
from pymc_hais.references.base import BoundReference, Direct, Draws
from pymc_hais.references.gaussian import Gaussian
from pymc_hais.references.margins import uniform_margins
from pymc_hais.references.mixture import Mixed, Mixture
from pymc_hais.references.model import has_only_cuts
from pymc_hais.references.prior import PriorSampler, build_prior
from pymc_hais.references.variables import Product, is_distribution


@dataclass(frozen=True)
class Prior(Direct):
    """The model's own prior."""

    layout: Layout
    sampler: PriorSampler
    #: Log of the integral of ``exp(model.varlogp)``, by which its density is normalised where it is part of a mixture.
    log_mass: float = 0.0
    label: str = "the prior"
    is_prior: bool = True

    def draw(self, n: int, seeds: np.random.SeedSequence) -> Draws:
        """Draw joint prior draws."""
        values, clipped = self.sampler.sample(n, int(seeds.generate_state(1)[0]))
        return Draws.independent(self.layout.flatten(values), clipped)

    def find_walls(self, draws: Draws) -> np.ndarray:
        """Return the lowest and the highest value (2, D) of each coordinate; infinite where no draw is clipped."""
        low, high = np.repeat(self.sampler.edges, self.layout.sizes, axis=1)
        clipped = draws.positions[draws.clipped]
        is_low, is_high = np.any(clipped <= low, axis=0), np.any(clipped >= high, axis=0)
        return np.array([np.where(is_low, low, -np.inf), np.where(is_high, high, np.inf)])

    def logp(self, position: pt.TensorVariable, log_prior: pt.TensorVariable) -> Any:
        """Return the model's log prior, normalised."""
        return log_prior - self.log_mass if self.log_mass else log_prior


@dataclass(frozen=True)
class InsidePrior(Prior):
    """Each cut variable is drawn between its bounds, given its parents, and has its prior density over that mass.

    The parents keep their prior, so that the log ratio is the log-likelihood plus the log mass, and log Z that of the
    model as PyMC computes it.
    """

    model: Any = None
    label: str = "the prior between its bounds"
    is_prior: bool = False

    @classmethod
    def build(cls, model: pm.Model) -> Self | None:
        """Bind it to a model; None if another variable is cut off, or has no normalised density."""
        if not has_only_cuts(model):
            return None
        return cls(build_layout(model), build_prior(model, inside=True), model=model)

    def logp(self, position: pt.TensorVariable, log_prior: pt.TensorVariable) -> Any:
        """Return the model's log prior minus the log mass between the bounds."""
        frozen = freeze_dims_and_data(self.model)
        masses = [build_log_mass(rv, frozen.rvs_to_transforms[rv]) for rv in find_cuts(frozen)]
        own, (log_mass,) = on_position(frozen, self.layout, frozen.replace_rvs_by_values([pt.add(*masses, 0.0)]))
        return log_prior - clone_replace(log_mass, {own: position}, rebuild_strict=False)


@dataclass(frozen=True)
class Independent(Direct):
    """A reference that does not depend on the model."""

    reference: Reference
    n_dims: int
    is_prior: bool = False

    @property
    def label(self) -> str:
        """Name the reference."""
        return str(self.reference) if type(self.reference).__str__ is not object.__str__ else repr(self.reference)

    def draw(self, n: int, seeds: np.random.SeedSequence) -> Draws:
        """Draw positions; refuse NaN and wrong shapes."""
        positions = np.asarray(self.reference.sample(n, np.random.default_rng(seeds)), dtype=np.float64)
        if positions.shape != (n, self.n_dims):
            raise ValueError(
                f"The reference's sample({n}, rng) has shape {positions.shape}; it must return ({n}, {self.n_dims}): "
                "one row a draw, one column for each unconstrained dimension of the model."
            )
        if not np.isfinite(positions).all():
            raise ValueError("The reference's sample(n, rng) returned NaN or infinite values.")
        return Draws.independent(positions)

    def logp(self, position: pt.TensorVariable, log_prior: pt.TensorVariable) -> Any:
        """Return the reference's log density; refuse anything but a PyTensor scalar."""
        value = pt.as_tensor_variable(self.reference.logp(position))
        if value.ndim != 0:
            raise ValueError(f"The reference's logp(x) must return a PyTensor scalar; it has {value.ndim} dimensions.")
        return value


@dataclass(frozen=True, eq=False)
class Distribution:
    """A PyMC distribution of the unconstrained vector."""

    dist: Any
    shape: tuple[int, ...]

    @classmethod
    def build(cls, dist: Any, layout: Layout) -> Self:
        """Match a distribution of all D dimensions with a model."""
        with untraced:
            shape = tuple(int(length) for length in dist.shape.eval())
        if int(np.prod(shape)) != layout.n_dims:
            raise ValueError(
                f"The reference distribution has shape {shape}, but the model has {layout.n_dims} unconstrained "
                f"dimensions: pass `shape={layout.n_dims}`, or a dict with a distribution for each variable."
            )
        return cls(dist, shape)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw (n, D) positions."""
        with untraced:
            draws = pm.draw(self.dist, n, random_seed=int(rng.integers(2**31)))
        return np.asarray(draws, dtype=np.float64).reshape(n, -1)

    def logp(self, position: pt.TensorVariable) -> Any:
        """Return the log density as a graph."""
        return pm.logp(self.dist, position.reshape(self.shape)).sum()

    def __str__(self) -> str:
        """Name it in messages."""
        return type(self.dist.owner.op).__name__.removesuffix("RV")


def with_data(reference: BoundReference, values: Mapping[str, np.ndarray]) -> BoundReference:
    """Draw from a reference with other values of the model's data containers, because the prior may depend on them."""
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


def bind(spec: Any, layout: Layout, prior: Prior | None, model: pm.Model) -> BoundReference:
    """Bind what the user passed as ``reference=`` to a model.

    It is "prior" (which is given where :func:`uses_prior` says so), "gaussian", one of this package's references, a
    PyMC distribution or a dict of them, a :class:`Mixture`, or any object with ``sample`` and ``logp``; all else, and
    what does not fit the model's dimensions or the variables' own spaces, is refused.
    """
    n_dims = layout.n_dims
    if isinstance(spec, Mixture):
        return Mixed(tuple(bind(part, layout, prior, model) for part in spec.parts), spec.shares)
    if isinstance(spec, Prior):
        return spec
    if uses_prior(spec):
        assert prior is not None  # the caller compiles it where uses_prior says so
        return prior
    if isinstance(spec, str) and spec == "gaussian":
        spec = Gaussian()
    if isinstance(spec, Mapping):
        return Product.build(spec, model, layout)
    if is_distribution(spec):
        if layout.sites:
            raise ValueError(
                f"`{layout.owners[-1]}` is discrete, so one distribution of all dimensions cannot be the reference: "
                "pass a dict with a PyMC distribution for each variable."
            )
        return Independent(Distribution.build(spec, layout), n_dims)
    if hasattr(spec, "for_dimensions") and not isinstance(spec, type):
        n_free = layout.n_continuous
        fitting: Any = spec.for_dimensions(n_free) if n_free else None
        if layout.sites:
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
