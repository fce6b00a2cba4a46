"""A second model as the reference: log Z is then the log ratio of two partition functions; and the prior as a model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_hais.core.messages import quoted
from pymc_hais.density import check_model, find_cuts, improper_priors, unnormalised_priors
from pymc_hais.density.compat import without_initvals
from pymc_hais.density.compiling import freeze_dims_and_data
from pymc_hais.density.facts import build_log_mass
from pymc_hais.density.layout import Layout, build_layout, on_position
from pymc_hais.references.base import Draws


@dataclass(frozen=True, eq=False)
class AnnealedModel:
    """Draws of another model's own annealed populations, with that model's unnormalised log density."""

    model: pm.Model
    layout: Layout  # of both models
    anneal: Callable[[int, np.random.SeedSequence], Draws]  # one population to that model
    n_evaluations: int  # of that model's density, a draw
    label: str = "the reference model"
    is_prior: bool = False

    def draw(self, n: int, seeds: np.random.SeedSequence) -> Draws:
        """Anneal a population of n particles to the reference model."""
        return self.anneal(n, seeds)

    def logp(self, position: pt.TensorVariable, log_prior: pt.TensorVariable) -> Any:
        """Return the reference model's own log density, not normalised."""
        return logp_at(self.model, self.layout, position)

    def cost(self, n: int) -> int:
        """Count the evaluations of the reference model's density that n draws cost."""
        return n * self.n_evaluations


def logp_at(model: pm.Model, layout: Layout, position: pt.TensorVariable) -> Any:
    """Return a model's log density as a graph of another model's flat vector, with the same layout."""
    frozen = freeze_dims_and_data(model)
    own_position, (logp,) = on_position(frozen, layout, [frozen.logp()])
    return clone_replace(logp, {own_position: position}, rebuild_strict=False)


def check_same_variables(model: pm.Model, reference: Any) -> Layout:
    """Build the layout that two models share; their data may differ.

    Refuses two that share none, a model that cannot be annealed at all, and a reference that may have no finite mass.
    """
    check_model(model, from_prior=not improper_priors(model))
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
    names = quoted(improper_priors(reference))
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
    return layout


def prior_alone(model: pm.Model, with_potentials: bool = False) -> Any:
    """Return a copy of the model without observed variables and potentials: its logp is the log prior.

    Potentials may stay, which then restrict or tilt the prior.
    Observed variables that free ones depend on, as missing values do on those that are not missing, become data.
    """
    upstream = set(ancestors(model.free_RVs))
    data = {rv.name: model.rvs_to_values[rv] for rv in model.observed_RVs if rv in upstream}
    plain = without_initvals(model)
    copied = pm.do(plain, data, make_interventions_shared=False) if data else plain.copy()
    dropped = [copied.observed_RVs, copied.deterministics, *([] if with_potentials else [copied.potentials])]
    for terms in dropped:
        for variable in terms:
            copied.named_vars.pop(variable.name, None)  # PyMC's copies can name two Deterministics alike
        terms.clear()
    return copied


def integrate_cuts(prior: pm.Model) -> pm.Model | None:
    """Return a prior, alone in its model, with a potential of the log mass in place of its cut variables.

    None if other variables depend on them, or if they are not all that keeps the prior's mass from being one.
    """
    cuts = find_cuts(prior)
    kept = [rv for rv in prior.free_RVs if rv not in cuts]
    if not kept or not has_only_cuts(prior) or set(ancestors(kept)) & set(cuts):
        return None
    integrated = prior.copy()
    masses = []
    for rv in [integrated[one.name] for one in cuts]:
        masses.append(build_log_mass(rv, integrated.rvs_to_transforms.pop(rv)))
        integrated.free_RVs.remove(rv)
        integrated.rvs_to_initial_values.pop(rv)
        del integrated.values_to_rvs[integrated.rvs_to_values.pop(rv)], integrated.named_vars[rv.name]
    with integrated:
        pm.Potential("log_mass_of_cuts", pt.add(*masses, 0.0))
    return integrated


def has_only_cuts(model: pm.Model) -> bool:
    """Whether cut variables are all that keeps the mass of the prior from being one."""
    doubtful = unnormalised_priors(model)
    return bool(doubtful) and not improper_priors(model) and doubtful == [rv.name for rv in find_cuts(model)]
