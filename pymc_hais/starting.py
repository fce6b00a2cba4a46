"""Which reference to start from: the one asked for, or the nearer one of the prior and a fit to the pilot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pymc_hais.constraints import axis_bounds
from pymc_hais.kernels import LinearConstraints
from pymc_hais.model import improper_priors, unnormalised_priors
from pymc_hais.paths.parameters import ParameterEngine
from pymc_hais.problem import Compiler, Problem, with_start
from pymc_hais.references import Box, ModelStart, StudentT
from pymc_hais.references.start import IndependentStart, MixtureStart
from pymc_hais.rounds import SHORTEST, Outcome, Progress, learn
from pymc_hais.settings import Settings
from pymc_hais.tuning import DEFENCE, NO_TAIL, Pilot, Tail, fit_reference, measure_tail, suggest_length
from pymc_hais.types import Finding

__all__ = ["Choice", "choose_start", "first_reference", "note_prior_mass", "note_tail"]

#: Degrees of freedom of the start where no prior says how far the target may reach, and of the fit to particles that
#: have tails of up to so many: a reference with lighter tails than the target leaves its particles to wander there,
#: too few and unnoticed.
_HEAVY = 2.0
_TAILED = 10.0
#: Temperatures from the first reference up to which a second pilot is not worth its time.
_NEAR_ENOUGH = 100
#: Temperatures of the first round, at least: from a reference near the target the barrier asks for fewer; without a
#: prior for more, because the way into heavy tails is long and the barrier does not show it.
_SHORTEST_FITTED = 32
_SHORTEST_UNNORMALISED = 512
#: Nats beyond a normal tail of the log ratio that are worth a warning.
_HEAVY_TAIL = 2.0
#: Nats by which the fit's rough log Z may be the lower one: estimates that miss something are too low, so a higher one
#: is no alarm.
_AGREEMENT = 2.0
#: Stages that count for the bias of a pilot with more dimensions than particles, whose metrics are of earlier stages.
_BIASED_STAGES = 2.0


@dataclass(frozen=True)
class Choice:
    """A reference and why it was taken."""

    problem: Problem
    pilot: Pilot | None
    reason: str
    shortest: int = SHORTEST  # temperatures of the first round, at least
    tail: Tail = NO_TAIL

    @property
    def quantity(self) -> str:
        """What log Z is."""
        if isinstance(self.problem.start, ModelStart):
            return "log ratio of partition functions"
        return "log partition function" if improper_priors(self.problem.model) else "log marginal likelihood"


def first_reference(reference: Any, model: Any, constraints: LinearConstraints | None = None) -> Any:
    """Say where the first pilot starts for ``reference="auto"`` and ``"fitted"``; another one stays as it is.

    Parameters
    ----------
    reference : str or object
    model : pymc.Model
    constraints : LinearConstraints, optional

    Raises
    ------
    ValueError
        For "auto", if a prior is improper although the model has data: the marginal likelihood is then defined only
        up to a constant, which must be the user's decision.
    """
    if not isinstance(reference, str) or reference not in ("auto", "fitted"):
        return reference
    improper = improper_priors(model)
    if not improper or (reference == "auto" and model.observed_RVs):
        return "prior"  # which names an improper prior in its error
    return StudentT(_HEAVY) if constraints is None else Box(*axis_bounds(constraints))


def choose_start(
    problem: Problem,
    settings: Settings,
    progress: Progress,
    reference: Any,
    compiler: Compiler,
) -> Choice:
    """Run the pilot; where the reference is left to us, fit another to its particles and keep the nearer one.

    The fit is a part of a mixture with the first reference, so that a region which it misses is still reached.

    Parameters
    ----------
    problem : Problem
        Compiled for the first reference.
    settings : Settings
    progress : callable
    reference : str or object
        As the user gave it.
    compiler : Compiler
    """
    shortest = _SHORTEST_UNNORMALISED if improper_priors(problem.model) else SHORTEST
    if not settings.recipe.needs_pilot and reference != "fitted":
        return Choice(problem, None, "as asked for")
    pilot = learn(problem, settings, progress)
    first = _measured(problem, pilot, [pilot], shortest, settings)
    if reference not in ("auto", "fitted"):
        return first
    length = suggest_length(pilot, 1, settings.max_temperatures)
    if reference == "auto" and (reason := _reason_to_stay(problem, length)):
        return replace(first, reason=reason)
    fitted, second = _choose_fit(problem, pilot, settings, progress, compiler)
    if reference == "fitted":
        return fitted
    log_z, length = second.log_z, max(length, first.tail.length)
    if pilot.log_z - log_z > _AGREEMENT + _adaptation_bias(pilot):
        reason = f"a fit to the pilot's particles gave log Z = {log_z:.1f}, the pilot {pilot.log_z:.1f}"
    elif fitted.shortest >= length:
        reason = f"from a fit to the pilot's particles {fitted.shortest} temperatures would do, from here {length}"
    else:
        reason = f"about {fitted.shortest} temperatures do, from {problem.start.label} {length}"
        return replace(fitted, reason=reason)
    return replace(first, pilot=_paid(pilot, second), reason=reason)


def _adaptation_bias(pilot: Pilot) -> float:
    """Say by how many nats adaptation may have carried a pilot's log Z up.

    A metric measured on the very particles that it moves pushes them apart, by up to n_dims / n_particles nats a stage.
    Seen for regressions in 100 to 200 dimensions: a third to five sixths of that.
    """
    n_particles, n_dims = pilot.positions.shape
    return n_dims / n_particles * (len(pilot.stages) if n_dims <= n_particles else _BIASED_STAGES)


def _choose_fit(
    problem: Problem, pilot: Pilot, settings: Settings, progress: Progress, compiler: Compiler
) -> tuple[Choice, Pilot]:
    """Fit a reference to a pilot's particles, run a pilot from there, and say how long a round must be."""
    fitted = _fit(problem, pilot, compiler, settings)
    second = learn(fitted, settings, progress)
    shortest = _SHORTEST_UNNORMALISED if improper_priors(problem.model) else _SHORTEST_FITTED
    enough = max(shortest, suggest_length(second, 1, settings.max_temperatures))
    choice = _measured(fitted, second, [pilot, second], enough, settings)
    return replace(choice, pilot=_paid(second, pilot)), second


def _measured(problem: Problem, pilot: Pilot, seen: list[Pilot], shortest: int, settings: Settings) -> Choice:
    """Choose a problem, with rounds long enough for the upper tail of its log ratio over what pilots have seen."""
    log_ratios = _log_ratios(problem, [one.positions for one in seen])
    tail = measure_tail(log_ratios, pilot.stages[-1].autocorrelation_time)
    length = min(max(shortest, tail.length), settings.max_temperatures)
    return Choice(problem, pilot, "as asked for", length, tail)


def _log_ratios(problem: Problem, samples: Iterable[np.ndarray]) -> list[np.ndarray]:
    """Evaluate the log ratio at samples of particles (P, D) at beta = 1; none where it is not one number."""
    if isinstance(problem.engine, ParameterEngine):  # its log ratio is a slope, and another one at every beta
        return []
    key = np.zeros(2, dtype=np.uint32)
    states = (problem.evaluate(one, np.zeros(len(one), bool), key)[0] for one in samples)
    return [np.asarray(state.log_ratio) for state in states]


def _paid(pilot: Pilot, other: Pilot) -> Pilot:
    """Add the cost of the other pilot to the one that is kept."""
    return replace(pilot, n_gradients=pilot.n_gradients + other.n_gradients, seconds=pilot.seconds + other.seconds)


def _reason_to_stay(problem: Problem, length: int) -> str:
    """Say why the first reference should be kept without a second pilot, if it should."""
    if problem.engine.kernel.constraints is not None:
        return "a fit would not keep to the constraints"
    if length <= _NEAR_ENOUGH:
        return f"about {length} temperature{'s' if length > 1 else ''} would do from there"
    if suspects := unnormalised_priors(problem.model):
        return f"the density of {', '.join(f'`{name}`' for name in suspects)} may not integrate to one in PyMC"
    return ""


def _fit(problem: Problem, pilot: Pilot, compiler: Compiler, settings: Settings) -> Problem:
    fit = fit_reference(pilot.positions)
    # A prior says how far the target may reach; without one the fit must be the heavier of the two.
    if not problem.start.is_prior and isinstance(fit, StudentT) and fit.df <= _TAILED:
        fit = replace(fit, df=_HEAVY)
    near = IndependentStart(fit, problem.layout.n_dims)
    start = MixtureStart((problem.start, near), np.array([DEFENCE, 1.0 - DEFENCE]))
    return with_start(problem.model, problem.layout, start, compiler, settings.seeds.probe())


def note_tail(outcome: Outcome, choice: Choice) -> Outcome:
    """Add a finding where few particles reach the places that the target prefers to the reference most."""
    log_ratios = _log_ratios(choice.problem, outcome.run.positions)
    tail = measure_tail([np.concatenate(log_ratios)] if log_ratios else [])
    if tail.excess <= _HEAVY_TAIL or tail.mass == 0.0:
        return outcome
    return _with_finding(
        outcome,
        Finding(
            "heavy_tail",
            "warning",
            f"The log ratio of target and reference has a heavy upper tail: {tail.excess:.1f} nats beyond a "
            "normal one for the highest 0.5% of the draws. Few particles get there, and log Z may come out "
            "too low.",
            "Pass a `reference` with heavier tails, reparametrise, or see whether log Z moves up with more "
            "temperatures (`n_temperatures`).",
        ),
    )


def note_prior_mass(outcome: Outcome, problem: Problem) -> Outcome:
    """Add a finding where log Z counts a prior that may not integrate to one; from prior draws it cannot."""
    suspects = () if problem.start.is_prior else unnormalised_priors(problem.model)
    if not suspects:
        return outcome
    names = ", ".join(f"`{name}`" for name in suspects)
    finding = Finding(
        "prior_mass",
        "warning",
        f"log Z is log of the integral of exp(model.logp()), and the density of {names} may not integrate to one "
        "in PyMC.",
        'Pass reference="prior" for the log marginal likelihood.',
    )
    return _with_finding(outcome, finding)


def _with_finding(outcome: Outcome, finding: Finding) -> Outcome:
    return replace(outcome, estimate=replace(outcome.estimate, findings=(*outcome.estimate.findings, finding)))
