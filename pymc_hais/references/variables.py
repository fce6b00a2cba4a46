"""One PyMC distribution for each variable, on the variable's own space."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.custom import CustomDistRV, CustomSymbolicDistRV
from pytensor.graph.traversal import ancestors

from pymc_hais.core.messages import quoted
from pymc_hais.density import custom_names, unnormalised_densities
from pymc_hais.density.compat import Transform, find_rng_nodes, replace_rng_nodes, reseed_rngs
from pymc_hais.density.compiling import compile_interpreted, freeze_dims_and_data
from pymc_hais.density.facts import flat_names
from pymc_hais.density.layout import Layout
from pymc_hais.density.sites.variables import is_discrete
from pymc_hais.references.base import Direct, Draws
from pymc_hais.references.forward import batch, is_outside, shapes_of
from pymc_hais.references.model import logp_at
from pymc_hais.references.prior import PriorSampler, build_prior

#: Draws that must be inside the variables' spaces, and where they cannot be drawn at once.
_TRIED, _TRIED_SINGLY = 4000, 500
_INSTEAD = "or pass one reference of the whole unconstrained vector, such as pymc_hais.Gaussian()."


@dataclass(frozen=True, eq=False)
class Product(Direct):
    """Independent distributions of the variables, taken to the unconstrained space by the model's own transforms.

    Together they are the prior of a second model with the same variables and transforms.
    """

    model: pm.Model  # the second one
    layout: Layout  # of both
    sampler: PriorSampler  # of the second one
    is_prior: bool = False

    @classmethod
    def build(cls, spec: Mapping[str, Any], model: pm.Model, layout: Layout) -> Self:
        """Give each free variable of a model its unregistered PyMC distribution, of its shape, on its own space.

        Raises ValueError, naming the variable: if names are missing or unknown, a shape differs, a distribution is
        discrete and the variable is not (or the other way round), has random parameters, is not normalised or leaves
        the variable's space, or if the variable's transform depends on other variables.
        """
        if set(spec) != set(layout.owners):
            raise ValueError(
                f"The reference names the variables {sorted(spec)}, but the model's free variables are "
                f"{sorted(layout.owners)}: give each of them one distribution."
            )
        if len({id(part) for part in spec.values()}) < len(spec):
            raise ValueError("The reference has one distribution for several variables: make one for each of them.")
        frozen = freeze_dims_and_data(model)
        with pm.Model(model=None) as second:  # a child of no model that may be open
            for owner in layout.owners:
                _check_distribution(owner, spec[owner], frozen[owner])
                node = spec[owner].owner
                part = node.clone().outputs[node.outputs.index(spec[owner])]
                second.register_rv(part, owner, default_transform=None, transform=_transform(frozen, owner))
        _check_density(second)
        try:
            sampler = build_prior(second)
        except (NotImplementedError, ValueError) as error:
            raise ValueError(f"The distributions of the reference cannot be drawn. {error}") from error
        _check_space(second)
        return cls(second, layout, sampler)

    @property
    def label(self) -> str:
        """Name the distributions."""
        return " x ".join(type(rv.owner.op).__name__.removesuffix("RV") for rv in self.model.free_RVs)

    def draw(self, n: int, seeds: np.random.SeedSequence) -> Draws:
        """Draw every variable from its own distribution."""
        values, clipped = self.sampler.sample(n, int(seeds.generate_state(1)[0]))
        return Draws.independent(self.layout.flatten(values), clipped)

    def logp(self, position: pt.TensorVariable, log_prior: pt.TensorVariable) -> Any:
        """Return the log density on the unconstrained space."""
        return logp_at(self.model, self.layout, position)


class _Bound(Transform):
    """The transform of a model's variable, with the parameters of that variable and not of the distribution given."""

    def __init__(self, transform: Transform, rv: pt.TensorVariable) -> None:
        self.name = transform.name
        self.ndim_supp = getattr(transform, "ndim_supp", None)
        self._transform, self._inputs = transform, rv.owner.inputs
        self._dims = getattr(rv.type, "dims", None)

    def forward(self, value: pt.TensorVariable, *inputs: pt.TensorVariable) -> Any:
        """Return the unconstrained value."""
        return self._apply(self._transform.forward, value)

    def backward(self, value: pt.TensorVariable, *inputs: pt.TensorVariable) -> Any:
        """Return the variable's own value."""
        return self._apply(self._transform.backward, value)

    def log_jac_det(self, value: pt.TensorVariable, *inputs: pt.TensorVariable) -> Any:
        """Return the log Jacobian of ``backward``."""
        return self._apply(self._transform.log_jac_det, value)

    def _apply(self, function: Callable[..., Any], value: pt.TensorVariable) -> Any:
        if self._dims is None:
            return function(value, *self._inputs)
        from pytensor.xtensor import as_xtensor  # warns that it is experimental: only for those who use it

        return function(as_xtensor(value, dims=self._dims), *self._inputs).values


def is_distribution(spec: Any) -> bool:
    """Whether ``spec`` is an unregistered PyMC distribution such as ``pm.Normal.dist(0, 2, shape=36)``."""
    node = getattr(spec, "owner", None)
    return node is not None and hasattr(spec, "eval") and hasattr(node.op, "ndim_supp")


def draws_itself(rv: pt.TensorVariable) -> bool:
    """Whether PyMC itself draws a variable and computes its density, without code of the user."""
    parts = [rv.owner, *(one.owner for one in rv.owner.inputs)]  # components of a mixture are inputs
    ops = [getattr(part.op, "core_op", part.op) for part in parts if part]
    ops += [op.base_rv_op for op in ops if hasattr(op, "base_rv_op")]
    custom, known = CustomDistRV | CustomSymbolicDistRV, ("pymc.", "pytensor.", "pymc_hais.")
    return all(not isinstance(op, custom) and type(op).__module__.startswith(known) for op in ops)


def _transform(frozen: pm.Model, owner: str) -> Transform | None:
    transform = frozen.rvs_to_transforms[frozen[owner]]
    if transform is None:
        return None
    bound = _Bound(transform, frozen[owner])
    value = bound.backward(pt.as_tensor(frozen.rvs_to_values[frozen[owner]], allow_xtensor_conversion=True).type())
    parents = [rv.name for rv in frozen.free_RVs if rv in set(ancestors([value]))]
    if parents:
        raise ValueError(
            f"The bounds of `{owner}` depend on {quoted(parents)}, so a distribution of `{owner}` alone cannot keep to "
            f'them: pass reference="prior", {_INSTEAD}'
        )
    return bound


def _check_distribution(owner: str, part: pt.TensorVariable, rv: pt.TensorVariable) -> None:
    kind, example = (
        ("discrete", "pm.Bernoulli.dist(0.5)") if is_discrete(rv) else ("continuous", "pm.Normal.dist(0, 1)")
    )
    if not is_distribution(part) or is_discrete(part) != is_discrete(rv):
        raise ValueError(
            f"The reference of `{owner}` must be a {kind} PyMC distribution such as {example}; got {part!r}."
        )
    given, wanted = shapes_of([pt.as_tensor(one, allow_xtensor_conversion=True) for one in (part, rv)])
    if given != wanted:
        raise ValueError(f"The reference of `{owner}` has shape {given}, but the variable has shape {wanted}.")


def _check_density(second: pm.Model) -> None:
    """Refuse distributions whose density is no normalised function of the variables."""
    for rv in second.free_RVs:
        try:
            second.logp(rv)
        except (NotImplementedError, ValueError) as error:
            raise ValueError(f"The reference of `{rv.name}` has no log density of its own: {error}") from error
    doubtful = [name for name in unnormalised_densities(second) if name not in custom_names(second)]
    suspects = [*flat_names(second), *doubtful]
    if suspects:
        raise ValueError(
            f"The reference of `{suspects[0]}` may not integrate to one in PyMC, which would move log Z: pass "
            f'reference="prior", {_INSTEAD}'
        )


def _check_space(second: pm.Model) -> None:
    """Refuse distributions with draws outside the support of the variable."""
    pairs = [(rv, second.rvs_to_transforms[rv]) for rv in second.free_RVs]
    tests = [pt.isnan(rv.sum()) if transform is None else is_outside(rv, transform) for rv, transform in pairs]
    for rv, outside in zip(second.free_RVs, _draw(tests), strict=True):
        if outside.any():
            transform = second.rvs_to_transforms[rv].name
            raise ValueError(
                f"{int(outside.sum())} of {len(outside)} draws of the reference of `{rv.name}` are outside the space "
                f"of that variable, which has the transform `{transform}`. A dict gives distributions on the "
                "variables' own space: for example pm.HalfNormal or pm.LogNormal for a positive variable, pm.Dirichlet "
                f"for probabilities; {_INSTEAD}"
            )


def _draw(outputs: list[Any]) -> list[np.ndarray]:
    outputs = replace_rng_nodes(outputs)
    try:
        batched, n, _ = batch(outputs, _TRIED)
        rows = _call(batched, 1)
        if all(row.shape == (n,) for row in rows):
            return rows
    except Exception:  # a graph that cannot be batched
        pass
    return _call(outputs, _TRIED_SINGLY)


def _call(outputs: list[Any], n_calls: int) -> list[np.ndarray]:
    function = compile_interpreted([], outputs)
    reseed_rngs(find_rng_nodes(function.maker.fgraph.outputs), 0)
    calls = [function() for _ in range(n_calls)]
    return [np.concatenate([np.atleast_1d(call[i]) for call in calls]) for i in range(len(outputs))]
