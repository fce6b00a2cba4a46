"""Findings of the model itself: its data, its prior, and its discrete variables."""

from collections.abc import Iterator

from pymc_hais.core.messages import quoted
from pymc_hais.density import summable, unnormalised_priors
from pymc_hais.density.rows import declared_value
from pymc_hais.estimators import Finding
from pymc_hais.problem.problem import Problem
from pymc_hais.results.findings.finding import check
from pymc_hais.run.row_evidence import PriorMass


@check("the diagnosis of the data")
def check_data(problem: Problem) -> Iterator[Finding]:
    """Yield an error if a model has nothing but a prior."""
    model = problem.model
    if not (problem.is_prior or problem.is_exact) or model.potentials:
        return
    if not model.observed_RVs:
        yield Finding(
            "no_data",
            "error",
            "The model has no observed variable and no potential: these are prior draws, and log Z of a prior is 0.",
            "Pass `observed=` to the variable that the data belong to.",
        )
    elif not any(declared_value(model, rv.name).size for rv in model.observed_RVs):
        yield Finding(
            "no_data",
            "error",
            f"No value of {quoted(rv.name for rv in model.observed_RVs)} is observed: these are prior draws, and log Z "
            "of a prior is 0.",
            "Look at what was passed as `observed=`.",
        )


@check("the diagnosis of the prior's draws")
def check_prior_draws(problem: Problem, mass: PriorMass | None) -> Iterator[Finding]:
    """Yield an info if draws of the prior could not be used for the default start."""
    if mass is not None and mass.undrawn:
        yield Finding(
            "prior_density",
            "info",
            f"Draws of the prior of {quoted(mass.undrawn)} do not follow its log density in PyMC, or are hardly "
            f"ever in the range of the transforms: the run starts from {problem.reference.label} instead.",
            "log Z belongs to the density, as PyMC computes it; you need do nothing.",
        )


@check("the diagnosis of the prior's mass")
def check_prior_mass(problem: Problem, mass: PriorMass | None) -> Iterator[Finding]:
    """Yield the mass that log Z was divided by, if the prior does not integrate to one; or that it is not known."""
    suspects = () if problem.is_prior else unnormalised_priors(problem.model) or (mass.undrawn if mass else ())
    if mass is not None:
        value, se = mass.estimate.value, mass.estimate.se
        if not abs(value) <= max(3.0 * se, 1e-9):  # nats of rounding
            yield Finding(
                "prior_density",
                "info",
                f"The prior of {quoted(suspects)} integrates to exp({value:.2f} ± {se:.2f}) in PyMC, and not to one.",
                "Z was divided by that mass; you need do nothing.",
            )
    elif suspects:
        yield Finding(
            "prior_density",
            "warning",
            f"The density of {quoted(suspects)} may not integrate to one in PyMC, and log Z is log of the integral of "
            "exp(model.logp()).",
            'Pass reference="prior" for the log marginal likelihood.',
        )


@check("the diagnosis of what can be summed out")
def check_summable(problem: Problem) -> Iterator[Finding]:
    """Yield an info if discrete variables could be summed out."""
    source = problem.engine.source
    names = summable(problem.model, source.graph.rules) if source else ()
    if names and not problem.is_exact:
        each = "each of them" if len(names) > 1 else "it"
        yield Finding(
            "summable",
            "info",
            f"The elements of {quoted(names)} are independent of one another given everything else: {each} could be "
            "summed out of the likelihood, for the same log Z, as a rule in less time.",
            f"Where you need no draws of them, try pymc_extras.marginalize(model, {list(names)}), or a pm.Mixture.",
        )
