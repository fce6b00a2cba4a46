"""Variables that are integrated out of a model, exactly, and drawn again given all others.

What is sampled is another model, without these variables: a potential, the logarithm of the integral over them, stands
in place of their priors and of the data that depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from pymc_hais.density.compiling import compile_interpreted, freeze_dims_and_data, untraced
from pymc_hais.density.layout import Layout, build_layout, on_position
from pymc_hais.density.outputs import batch_over_rows
from pymc_hais.density.rewrites.graphs import sizes
from pymc_hais.density.sites.terms import reached_from
from pymc_hais.latent import bounded, conjugate, kronecker
from pymc_hais.latent.rows import find

#: Elements of the largest array that draws take at a time: larger ones have to be fetched from memory, page by page.
_DRAWN = 500_000
#: Relative difference of two forms of one log density: PyMC computes that of counts to about 1e-8.
_AGREEING = 1e-7


class Solution(Protocol):
    """Variables that can be integrated out, and the distribution of their unconstrained values given all others."""

    @property
    def owners(self) -> tuple[str, ...]:
        """Which variables they are."""

    @property
    def places(self) -> np.ndarray:
        """Where their elements are in the flat vector, of int (K,)."""

    @property
    def replaced(self) -> Sequence[Any]:
        """What the integral stands for: variables and potentials."""

    @property
    def integral(self) -> Any:
        """Its logarithm, as a graph of random variables; None for zero."""

    @property
    def arrays(self) -> Sequence[Any]:
        """Graphs of random variables: what the methods take, for one set of values of all other variables."""

    def draw(self, arrays: Sequence[np.ndarray], rng: np.random.Generator | None) -> np.ndarray:
        """Draw values (n, K) given arrays (n, ...); without random numbers return a point in their middle."""

    def holds(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Whether floating point holds the integral (n,)."""


class Proven(Solution, Protocol):
    """A solution that one point can confirm."""

    def log_density(self, arrays: Sequence[np.ndarray], x: np.ndarray) -> np.ndarray:
        """Return the log density (n,) of values (n, K)."""


@dataclass(frozen=True, eq=False)
class Integrated:
    """A model without variables that are integrated out, and what draws them again.

    Its integral may be over a model from which others were integrated out ``before``.
    """

    model: pm.Model
    layout: Layout  # of that model
    with_own: Layout  # of the model with the variables of this integral
    solution: Solution
    compute: Callable[[np.ndarray], list[np.ndarray]]  # of flat vectors (n, D), the solution's arrays
    width: int  # elements of the largest array that this makes for one vector
    before: Integrated | None = None

    @property
    def owners(self) -> tuple[str, ...]:
        """Which variables are integrated out."""
        return *(self.before.owners if self.before else ()), *self.solution.owners

    @np.errstate(all="ignore")
    def holds(self, flat: np.ndarray) -> bool:
        """Whether floating point holds all integrals at flat vectors (n, D), at least one."""
        if not len(flat) or not np.all(self.solution.holds(self.compute(flat))):
            return False
        return self.before is None or self.before.holds(self.add_own(flat))

    def complete(self, flat: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """Return flat vectors (..., D) of the whole model: with draws given the other variables, or their middle."""
        added = self.add_own(flat, rng)
        return self.before.complete(added, rng) if self.before else added

    def add_own(self, flat: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """Return flat vectors (..., D) with the variables of this integral alone."""
        given = flat.reshape(-1, flat.shape[-1])
        x = np.empty((len(given), self.with_own.n_dims))
        for owner, shape, start in zip(self.layout.owners, self.layout.sizes, self.layout.offsets, strict=False):
            first = self.with_own.offsets[self.with_own.owners.index(owner)]
            x[:, first : first + shape] = given[:, start : start + shape]
        n = max(1, _DRAWN // self.width)
        for i in range(0, len(x), n):
            x[i : i + n, self.solution.places] = self.solution.draw(self.compute(given[i : i + n]), rng)
        return x.reshape(*flat.shape[:-1], self.with_own.n_dims)

    @property
    def whole(self) -> Layout:
        """The layout of the model with all variables."""
        return self.before.whole if self.before else self.with_own


@dataclass(frozen=True, eq=False)
class Unchanged:
    """A model from which nothing is integrated out, for callers that need not know."""

    model: pm.Model
    whole: Layout
    owners: tuple[str, ...] = ()

    def complete(self, flat: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """Return flat vectors (..., D) as they are."""
        return flat


def may_integrate(model: pm.Model) -> bool:
    """Whether a look at a model's variables leaves it open that some can be integrated out."""
    return any(map(_is_candidate, model.free_RVs))


def _is_candidate(rv: Any) -> bool:
    return any(kind.is_candidate(rv) for kind in (find, kronecker, bounded, conjugate))


@untraced
def integrate(model: pm.Model, before: Integrated | None = None) -> Integrated | None:
    """Integrate out the variables for which a proof allows it, one kind after the other; None if there are none.

    A model with discrete variables stays as it is.  At least one variable is left.  ``before`` is an integral that
    leaves the model in which others are looked for.
    """
    found, rest = before, model if before is None else before.model
    used: set[Any] = set()  # by an integral: a proof does not read it
    while any(_is_candidate(rv) for rv in rest.free_RVs if rv not in used) and (more := _integrate_once(rest)):
        found, rest = replace(more, before=found), more.model
        used = set(ancestors(rest.potentials))
    return found


def _integrate_once(model: pm.Model) -> Integrated | None:
    whole = build_layout(model)
    if whole.n_sites or whole.dtype != np.float64:  # in single precision digits would be lost
        return None
    n_tried = 0
    while True:
        frozen = freeze_dims_and_data(model)  # another one for each solution, which takes variables out of it
        solutions = [one for one in _find(frozen, whole) if len(one.owners) < len(whole.owners)]
        if n_tried == len(solutions):
            return None
        solution, of_whole = solutions[n_tried], _compile(frozen, whole, frozen.logp())
        found = take_out(model, frozen, whole, solution)
        if _is_confirmed(found, solution, of_whole):
            return found
        n_tried += 1


def _find(frozen: pm.Model, whole: Layout) -> list[Proven]:
    """Find what can be integrated out, most elements first; conjugate variables only where no normals are."""
    normal: list[Any] = [find.find_normal(frozen, whole), kronecker.find_kronecker(frozen, whole)]
    others = [bounded.find_bounded(frozen, whole), None if any(normal) else conjugate.find_conjugate(frozen, whole)]
    return sorted((one for one in (*normal, *others) if one), key=lambda one: one.places.size, reverse=True)


def take_out(model: pm.Model, frozen: pm.Model, whole: Layout, solution: Solution) -> Integrated:
    """Take a solution's variables out of a frozen copy of a model."""
    _remove(frozen, solution.replaced)
    frozen.check_bounds = model.check_bounds  # which freezing forgets
    if solution.integral is not None:
        with frozen:
            pm.Potential(_unused_name(frozen, solution.owners), solution.integral)
    layout = build_layout(frozen)
    position, outputs = on_position(frozen, layout, frozen.replace_rvs_by_values(list(solution.arrays)))
    compute = batch_over_rows(position, outputs, compile_interpreted([position], outputs))
    width = max(solution.places.size, *sizes(reached_from([position], outputs)))
    return Integrated(frozen, layout, whole, solution, compute, width)


def log_density_at(frozen: pm.Model, values: Mapping[Any, np.ndarray]) -> Any:
    """Write the log density of random variables at these values: a graph of the random variables above them."""
    fixed = {rv: rv.type.filter_variable(pt.constant(value, dtype=rv.dtype)) for rv, value in values.items()}
    given, free = find.terms_given(frozen, fixed)
    terms = [pt.as_tensor(given(rv), allow_xtensor_conversion=True).sum() for rv in fixed]
    total: Any = pt.add(*terms, 0.0)
    return graph_replace([total], {symbol: rv for rv, symbol in free.items()}, strict=False)[0]


def _compile(model: pm.Model, layout: Layout, graph: Any) -> Callable[[np.ndarray], float]:
    position, outputs = on_position(model, layout, [graph])
    function = compile_interpreted([position], outputs)
    return lambda flat: float(function(flat)[0])


def _is_confirmed(found: Integrated, solution: Proven, of_whole: Callable[[np.ndarray], float]) -> bool:
    """Whether, near PyMC's initial point, log p(x, y) - log p(x | y) is the log density without the variables x."""
    theta = found.layout.flatten_point(found.model.initial_point(random_seed=0))
    theta = theta + 0.3 * np.random.default_rng(1).normal(size=theta.size)  # where no slope is zero
    value = _compile(found.model, found.layout, found.model.logp())(theta)
    x = found.add_own(theta, np.random.default_rng(0))
    joint = of_whole(x)
    (log_conditional,) = solution.log_density(found.compute(theta[None]), x[None, solution.places])
    return bool(abs(joint - log_conditional - value) < _AGREEING * (1.0 + abs(joint) + abs(value)))


def _unused_name(model: pm.Model, owners: Sequence[str]) -> str:
    """Return a name that no variable of a model has."""
    name = "_".join(["integrated_over", *owners])
    while name in model.named_vars:
        name += "_"
    return name


def _remove(model: pm.Model, variables: Sequence[Any]) -> None:
    """Take variables out of a model, and all Deterministics."""
    for one in (*variables, *model.deterministics):
        model.named_vars.pop(one.name, None)  # PyMC's copies can name two Deterministics alike
    model.deterministics.clear()
    for one in variables:
        next(kind for kind in (model.free_RVs, model.observed_RVs, model.potentials) if one in kind).remove(one)
        if one in model.rvs_to_values:
            model.rvs_to_transforms.pop(one)
            model.rvs_to_initial_values.pop(one, None)
            del model.values_to_rvs[model.rvs_to_values.pop(one)]
