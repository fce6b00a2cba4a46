"""What can be said of the model itself: its data, its prior, and its discrete variables."""

from collections.abc import Iterator

from pymc_hais.core.messages import quoted
from pymc_hais.estimators import Finding
from pymc_hais.model import unnormalised_priors
from pymc_hais.model.rows import declared_value
from pymc_hais.problem.problem import Problem
from pymc_hais.results.findings import say

#: Standard errors, and nats of rounding, within which a prior's measured mass counts as one.
_NORMALISED = 3.0
_ROUNDING = 1e-9


def check_data(problem: Problem) -> Iterator[Finding]:
    """Say that a model has nothing but a prior, if so."""
    model = problem.model
    if not (problem.is_prior or problem.is_exact) or model.potentials:
        return
    if not model.observed_RVs:
        yield say("no_data")
    elif not any(declared_value(model, rv.name).size for rv in model.observed_RVs):
        yield say("no_data: empty", names=quoted(rv.name for rv in model.observed_RVs))


def check_prior_draws(problem: Problem) -> Iterator[Finding]:
    """Say that draws of the prior could not be used, where the start was left to us, if so."""
    if problem.undrawn:
        yield say("prior_draws", names=quoted(problem.undrawn), reference=problem.reference.label)


def check_prior_mass(problem: Problem) -> Iterator[Finding]:
    """Say by what log Z was divided, if the prior does not integrate to one; or what it counts, if nothing was."""
    mass = problem.prior_mass
    suspects = () if problem.is_prior else unnormalised_priors(problem.model) or problem.undrawn
    if mass is not None:
        value, se = mass.estimate.value, mass.estimate.se
        if not abs(value) <= max(_NORMALISED * se, _ROUNDING):
            yield say("prior_mass: measured", names=quoted(suspects), value=value, se=se)
    elif suspects:
        yield say("prior_mass: not known", names=quoted(suspects))


def check_summable(problem: Problem) -> Iterator[Finding]:
    """Say that discrete variables could be summed out, if they could."""
    if problem.summable and not problem.is_exact:
        each = "each of them" if len(problem.summable) > 1 else "it"
        yield say("summable", names=quoted(problem.summable), each=each, variables=list(problem.summable))
