"""Starts from fits to the first pilot's particles: when one is worth a pilot, and when it is taken."""

import numpy as np

from pymc_hais.core.messages import quoted
from pymc_hais.core.schedules import SHORTEST
from pymc_hais.core.seeds import PilotNumber
from pymc_hais.density import known_log_mass, unnormalised_priors
from pymc_hais.planning.confirm import confirm, say_missing, tolerance
from pymc_hais.planning.fits import fit_margins, fit_to
from pymc_hais.planning.learning import Trial, centred
from pymc_hais.planning.mass import measure_for_fit
from pymc_hais.planning.modes.near import shorten
from pymc_hais.planning.starts import Search, is_auto, takes_fit
from pymc_hais.problem.problem import CHUNK, Problem
from pymc_hais.run.plan import Fallback, Plan
from pymc_hais.tuning import PILOT_PARTICLES

#: Moves of a pilot that starts from a fit: few stages, of a few moves each.
_NEAR_MOVES = 30
#: A round that costs this many times as much as a pilot from a fit justifies another pilot.
_LONG_ROUND = 40
#: Independent prior draws that a population must descend from to be fitted.
_ENOUGH_TO_FIT = 8.0
#: A fit is rejected if its pilot's particles descend from fewer draws than this, and the prior's pilot's from more.
_FEWEST_FAMILIES = 20.0
_NO_TIME = "The pilot ran out of time, so no fit was tried."


def fit_to_sites(search: Search) -> Trial | str:
    """Start from independent margins of the pilot's particles, if a model has discrete sites and the user wants a fit.

    The default start is the prior: margins are near the particles that arrived, and a short run from there does not
    show other values that sites can only take together.
    """
    if not search.problem.layout.n_sites or not takes_fit(search.reference) or is_auto(search.reference):
        return ""
    best = search.best
    if not best.plan.is_tuned:
        return _NO_TIME
    return search.learn(fit_margins(best.problem, best.pilots[0].positions, best.runner), PilotNumber.FITTED)


def fit_to_pilot(search: Search) -> Trial | str:
    """Start from a mixture of the first start with a fit to its particles: a region that the fit misses is reached."""
    best = search.best
    if not takes_fit(search.reference) or search.problem.layout.n_sites or best.problem.fitted is None:
        return ""
    if not best.plan.is_tuned:
        return _NO_TIME
    is_ours = is_auto(search.reference)
    if is_ours and (reason := _reason_to_stay(best)) is not None:
        return reason
    search = measure_for_fit(search)
    near = fit_to(best.problem, best.centres, best.residuals, search.log_prior_mass)
    tried = search.learn(shorten(near, best) if is_ours else near, PilotNumber.FITTED)
    if isinstance(tried, str):
        return tried
    if not is_ours:
        return tried.scout()
    tried = _or_better(tried, search)
    if (reason := _reason_against(tried, best)) is not None:
        return reason
    if tried.length * _variance_beside(tried, best) >= best.length:
        return _keep_in_reserve(tried, search)
    return _accept(tried.scout(), search)


def _or_better(tried: Trial, search: Search) -> Trial:
    """Return the trial of a fit, or of a second fit, to the particles of the fit's own pilot, if that is better.

    These particles usually descend from more draws than the first pilot's.  A second fit is tried if a round would be
    long: from the fit or, if the fit is a worse start than the first one, from there.
    """
    best, sampling = search.best, tried.runner.sampling
    is_worse = _reason_against(tried, best) is not None
    costs = (best if is_worse else tried).length * sampling.chains * sampling.draws
    if tried.problem.n_rows > 1 or costs < _LONG_ROUND * PILOT_PARTICLES * _NEAR_MOVES or not _has_time(tried):
        return tried
    try:
        again = fit_to(tried.problem, tried.centres, tried.residuals, search.log_prior_mass)
    except np.linalg.LinAlgError:  # the particles are copies of a few
        return tried
    other = search.learn(again, PilotNumber.FITTED_AGAIN)
    if isinstance(other, str) or _reason_against(other, best) is not None:
        return tried
    if is_worse:
        return other
    misses = tried.pilots[0].log_z - other.pilots[0].log_z > tolerance(other.pilots[0], tried.pilots[0])
    needed, before = (one.length * _variance_beside(one, best) for one in (other, tried))
    return other if needed < before and not misses else tried


def _accept(tried: Trial, search: Search) -> Trial | str:
    """Return the trial of a fit if all rows, or the check of a single model's fit, confirm it; else the reason.

    A population from the prior that finds more than the fit is fitted in its turn.
    """
    best = search.best
    if (reason := _reason_of_rows(tried, best)) is not None:
        return reason
    needed = f"From {best.problem.label} alone, {best.length:,} temperatures would be needed."
    if best.problem.n_rows > 1:
        return tried.because(needed)
    confirmed = confirm(tried, best)
    if confirmed.witness is not None and confirmed.witness.n_families >= _ENOUGH_TO_FIT:
        centre, residuals = centred(confirmed.witness.run)
        again = fit_to(best.problem, centre[None], residuals, search.log_prior_mass, "particles from the prior")
        other = search.learn(again, PilotNumber.REFITTED)
        if not isinstance(other, str) and other.plan.is_tuned and other.length < best.length:
            tried, confirmed = other, confirm(other, best, confirmed.witness)
    if confirmed.against:
        return confirmed.against
    fallback = Fallback(lambda: best.start, best.length)
    return tried.knowing(n_confirming=confirmed.n_draws, fallback=fallback, reason=needed)


def _variance_beside(tried: Trial, first: Trial) -> float:
    """Return how much larger the variance is from a fit than from the first start, at least 1, by their pilots."""
    if first.problem.n_rows > 1:
        return 1.0
    (fitted,), (pilot,) = tried.pilots, first.pilots
    return max(1.0, pilot.n_families / max(fitted.n_families, 1.0))


def _keep_in_reserve(tried: Trial, search: Search) -> Trial:
    """Keep the first start, which is no dearer; the fit of a single model is next if rounds refute that.

    If a check refutes the fit, the first start is annealed in as many temperatures as the fit would be.
    """
    best = search.best
    larger = ", of a larger variance each," if tried.length < best.length else ""
    reason = f"From a fit to the pilot's particles, {tried.length:,} temperatures{larger} would be needed."
    if best.problem.n_rows > 1:
        return best.because(reason)

    def build() -> tuple[Problem, Plan]:
        accepted = _accept(tried, search)
        if isinstance(accepted, str):
            return best.knowing(lengths=np.maximum(best.plan.lengths, tried.length)).start
        return accepted.knowing(fallback=None).start

    return best.knowing(fallback=Fallback(build, tried.length), reason=reason)


def _reason_to_stay(first: Trial) -> str | None:
    """Return a reason to keep the first reference without a second pilot; None if there is none."""
    problem, runner, n_pilots = first.problem, first.runner, len(first.rows)
    if problem.engine.kernel.constraints is not None:
        return "A fit would not keep to the constraints."
    if any(problem.layout.is_periodic):
        return "A fit would not keep to a circle."
    needed = first.length
    n_particles = problem.n_rows * runner.sampling.chains * runner.sampling.draws
    fit_costs = n_pilots * PILOT_PARTICLES * _NEAR_MOVES + SHORTEST * n_particles
    if needed * n_particles <= fit_costs:
        return "A fit to the pilot's particles would not save time."
    if not _has_time(first):
        return "There is no time for a second pilot, from a fit."
    suspects = unnormalised_priors(problem.model)
    # Mixed with the prior, a fit needs the prior's mass, and rounds refuted three of three fits to imputed censored
    # values.  With a limit of 300, varying slopes whose prior's pilot had predicted 284 took 2,272 from there, and came
    # out 3.9 errors low.
    if suspects and needed <= 100:
        if not problem.is_prior or known_log_mass(problem.model) is not None:
            if problem.engine.grain(CHUNK) < CHUNK:
                return None  # so many rows make temperatures dearer than another pilot
            return f"A fit would not save time: {needed:,} temperatures are enough from {problem.label}."
        return (
            f"A fit would not save time: the mass of the prior of {quoted(suspects)} would have to be measured first."
        )
    return None


def _has_time(trial: Trial) -> bool:
    """Whether pilots from a fit take at most half of the time that is left."""
    seconds = len(trial.rows) * PILOT_PARTICLES * _NEAR_MOVES * trial.plan.seconds_per_gradient
    return seconds <= trial.runner.clock.left / 2


def _reason_of_rows(tried: Trial, first: Trial) -> str | None:
    """Return a reason against a fit from a short round of all rows: pilots of three rows may not stand for all."""
    before, after = (
        np.array([(row.estimate.value, row.estimate.se, row.rounds[-1].n_steps) for row in one.plan.scouted])
        for one in (first, tried)
    )
    if not (len(before) and len(after)):
        return None
    # Both rounds err low, by half the variance of a row: what is lower than that allows has been missed.
    missing = float(np.mean(before[:, 0] - after[:, 0] - 0.5 * after[:, 1] ** 2))
    error = float(np.sqrt(np.sum(before[:, 1] ** 2 + after[:, 1] ** 2))) / len(before)
    if missing > 4.0 * error:
        return f"A fit around each row misses something, {missing:.2f} nats in the mean: it is not used."
    target = tried.runner.sampling.target_se or np.inf
    needed, enough = (
        float(np.sum(n_steps * np.maximum(se / target, 1.0) ** 2)) for _, se, n_steps in (after.T, before.T)
    )
    if needed < enough:
        return None
    return f"A fit around each row takes {needed:,.0f} temperatures in all, no fewer than without one ({enough:,.0f})."


def _reason_against(tried: Trial, first: Trial) -> str | None:
    """Return a reason to keep the first reference although another was fitted; None if there is none."""
    if not tried.plan.is_tuned:
        return "The pilot from a fit ran out of time."
    if first.problem.n_rows == 1:
        # A population that is annealed more slowly tells whether the fit or the first pilot errs.  But light tails of
        # the fit show in no length of a path: only a few of its draws are where the particles go.
        (fitted,), (pilot,) = tried.pilots, first.pilots
        if fitted.n_families >= min(pilot.n_families, _FEWEST_FAMILIES):
            return None
        return (
            f"A fit to the pilot's particles is a worse start: the particles of its own pilot descend from "
            f"{fitted.n_families:.0f} draws, those from {first.problem.label} from {pilot.n_families:.0f}."
        )
    for one, other in zip(tried.pilots, first.pilots, strict=True):
        log_z = one.log_z - tried.plan.log_prior_mass
        expected = other.log_z - first.plan.log_prior_mass
        if expected - log_z > tolerance(one, other):
            return say_missing(log_z, expected)
    return None
