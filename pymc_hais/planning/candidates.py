"""Other starts that may cost less than the first: what each changes, and when it is worth a pilot."""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from pymc_hais.core.messages import quoted
from pymc_hais.core.schedules import SHORTEST
from pymc_hais.model import unnormalised_priors
from pymc_hais.planning.confirm import confirm, tolerance
from pymc_hais.planning.fits import fit_margins, fit_to
from pymc_hais.planning.learning import Trial
from pymc_hais.planning.mass import mass_of
from pymc_hais.planning.modes.near import shorten
from pymc_hais.planning.starts import is_auto, takes_fit
from pymc_hais.problem.problem import Problem
from pymc_hais.run.plan import Fallback
from pymc_hais.runner.runner import Runner
from pymc_hais.tuning import PILOT_PARTICLES

#: Moves of a pilot that starts from a fit: few stages, of a few moves each.
_NEAR_MOVES = 30
#: Temperatures from the prior up to which measuring a prior's mass, so that a fit may be mixed with it, does not pay.
_WORTH_A_MASS = 300
#: Standard errors by which a short round of all rows may come out lower from a fit.
_MISSING = 4.0
_NO_TIME = "The pilot ran out of time, so no fit was tried."


class Candidate(Protocol):
    """What may be tried after the first start."""

    #: Tells the random numbers of its pilots from others'.
    number: ClassVar[int]
    #: Whether particles of the trial before tell about the tails of its log ratio.
    sees_earlier: ClassVar[bool]

    @classmethod
    def offer(cls, problem: Problem, reference: Any) -> Self | None:
        """Say whether it may be tried for a problem, and what a user passed as ``reference=``."""
        ...

    def reason_to_skip(self, best: Trial) -> str | None:
        """Say why it is not worth a pilot; None where it is."""
        ...

    def build(self, best: Trial) -> tuple[Problem, Runner]:
        """Compile it."""
        ...

    def reason_against(self, tried: Trial, best: Trial) -> str | None:
        """Say why it is not taken; None where it is."""
        ...

    def taken(self, tried: Trial, best: Trial) -> Trial:
        """Say why it is taken."""
        ...


@dataclass(frozen=True)
class MarginsOfSites:
    """Independent margins of the pilot's particles as the reference of a model with discrete sites, where asked for.

    Left to us, the start is the prior: margins are near particles that have arrived, and nothing of a short run from
    there tells of other values that sites could only have taken together.
    """

    number: ClassVar[int] = 1
    sees_earlier: ClassVar[bool] = True

    @classmethod
    def offer(cls, problem: Problem, reference: Any) -> Self | None:
        """Ask for sites, and for a reference that is to be fitted.

        Raises ValueError for a fit where every row of data would need one of its own.
        """
        if not problem.layout.n_sites or not takes_fit(reference) or is_auto(reference):
            return None
        if problem.n_rows > 1:
            raise ValueError(
                'reference="fitted" is not for this model: each row of data has margins of its own. Pass '
                'reference="prior".'
            )
        return cls()

    def reason_to_skip(self, best: Trial) -> str | None:
        """Ask for particles that have arrived."""
        return None if best.plan.is_tuned else _NO_TIME

    def build(self, best: Trial) -> tuple[Problem, Runner]:
        """Compile the margins."""
        return fit_margins(best.problem, best.pilots[0].positions, best.runner), best.runner

    def reason_against(self, tried: Trial, best: Trial) -> str | None:
        """Take them."""
        return None

    def taken(self, tried: Trial, best: Trial) -> Trial:
        """Take them."""
        return tried


@dataclass(frozen=True)
class Fit:
    """A mixture of the first start with a fit to its particles, so that a region which it misses is still reached."""

    is_auto: bool
    number: ClassVar[int] = 1
    sees_earlier: ClassVar[bool] = True

    @classmethod
    def offer(cls, problem: Problem, reference: Any) -> Self | None:
        """Ask for continuous variables, and for a reference that takes a fit."""
        return cls(is_auto(reference)) if takes_fit(reference) and not problem.layout.n_sites else None

    def reason_to_skip(self, best: Trial) -> str | None:
        """Ask for a path that takes a fit, and, where it is left to us, for enough work."""
        if best.problem.fitted is None:
            return best.plan.reason
        if not best.plan.is_tuned:
            return _NO_TIME
        return _reason_to_stay(best) if self.is_auto else None

    def build(self, best: Trial) -> tuple[Problem, Runner]:
        """Fit one shape around each row's centre."""
        mass = mass_of(best.problem, best.runner)
        near = fit_to(best.problem, best.centres, best.residuals, mass)
        return shorten(near, best) if self.is_auto else near, best.runner

    def reason_against(self, tried: Trial, best: Trial) -> str | None:
        """Compare the lengths, where it is left to us."""
        return _reason_against(tried, best) if self.is_auto else None

    def taken(self, tried: Trial, best: Trial) -> Trial:
        """Ask all rows, which may speak against it, and say what the first start would need."""
        tried = tried.scout()
        if self.is_auto and (reason := _reason_of_rows(tried, best)) is not None:
            return best.because(reason)
        if not self.is_auto:
            return tried
        needed = f"From {best.problem.label} alone, {best.length:,} temperatures would be needed."
        if best.problem.n_rows > 1:
            return tried.because(needed)
        confirmed = confirm(tried, best)
        if confirmed.against:
            return best.because(confirmed.against)
        fallback = Fallback(lambda: best.start, best.length)
        return tried.knowing(n_confirming=confirmed.n_draws, fallback=fallback, reason=needed)


#: What may be tried after the first start, in this order.
CANDIDATES: list[type[Candidate]] = [MarginsOfSites, Fit]


def _reason_to_stay(first: Trial) -> str | None:
    """Say why the first reference should be kept without a second pilot, if it should."""
    problem, runner, n_pilots = first.problem, first.runner, len(first.rows)
    if problem.engine.kernel.constraints is not None:
        return "A fit would not keep to the constraints."
    if any(problem.layout.is_periodic):
        return "A fit would not keep to a circle."
    needed = first.length
    n_particles = problem.n_rows * runner.request.chains * runner.request.draws
    fit_costs = n_pilots * PILOT_PARTICLES * _NEAR_MOVES + SHORTEST * n_particles
    if needed * n_particles <= fit_costs:
        return "A fit to the pilot's particles would not save time."
    if n_pilots * PILOT_PARTICLES * _NEAR_MOVES * first.plan.seconds_per_gradient > runner.budget.left / 2:
        return "There is no time for a second pilot, from a fit."
    suspects = unnormalised_priors(problem.model)
    if suspects and needed <= _WORTH_A_MASS:
        return (
            f"A fit would not save time: the mass of the prior of {quoted(suspects)} would have to be measured first."
        )
    return None


def _reason_of_rows(tried: Trial, first: Trial) -> str | None:
    """Say why a fit is not kept after a short round of all rows: pilots of three say little of rows unlike them."""
    before, after = (
        np.array([(row.estimate.value, row.estimate.se, row.rounds[-1].n_steps) for row in one.plan.scouted])
        for one in (first, tried)
    )
    if not (len(before) and len(after)):
        return None
    # Both rounds err low, by half the variance of a row: what is lower than that allows has been missed.
    missing = float(np.mean(before[:, 0] - after[:, 0] - 0.5 * after[:, 1] ** 2))
    error = float(np.sqrt(np.sum(before[:, 1] ** 2 + after[:, 1] ** 2))) / len(before)
    if missing > _MISSING * error:
        return f"A fit around each row misses something, {missing:.2f} nats in the mean: it is not used."
    target = tried.runner.request.target_se or np.inf
    needed, enough = (
        float(np.sum(n_steps * np.maximum(se / target, 1.0) ** 2)) for _, se, n_steps in (after.T, before.T)
    )
    if needed < enough:
        return None
    return f"A fit around each row takes {needed:,.0f} temperatures in all, no fewer than without one ({enough:,.0f})."


def _reason_against(tried: Trial, first: Trial) -> str | None:
    """Say why the first reference is kept although another was fitted, if it should be."""
    if not tried.plan.is_tuned:
        return "The pilot from a fit ran out of time."
    for one, other in zip(tried.pilots, first.pilots, strict=True):
        log_z = one.log_z - tried.problem.log_prior_mass
        expected = other.log_z - first.problem.log_prior_mass
        if expected - log_z > tolerance(one, other):
            return (
                f"A fit to the pilot's particles misses something (log Z = {log_z:.1f} instead of {expected:.1f}): "
                "it is not used."
            )
    if tried.length >= first.length:
        return f"From a fit to the pilot's particles, {tried.length:,} temperatures would be needed."
    return None
