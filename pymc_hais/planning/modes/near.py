"""Fits that hardly need annealing: importance draws judge them, and where evaluations are costly the mode comes first.

If the data are informative, the target has a single mode and is nearly normal.  Then importance weights under a fit are
nearly equal, and a round needs hardly any temperatures.  The fit is one to a pilot's particles or, in more dimensions
than a pilot can measure, the Gaussian of the curvature at the mode.  If evaluations are costly, the fit at the mode is
tried at once: climbs from a few draws of the prior find the mode, and a pilot of few particles confirms the fit.  If
any check fails, pilots are run as usual.  The prior keeps its share of the draws, and a search for other modes follows
the rounds.  A call with other estimators gets a path for them.

In few dimensions the fit follows its weighted draws for a few turns, each tempered as far as the weights allow (Cappe,
Guillin, Marin & Robert 2004, J. Comput. Graph. Stat. 13, 907-929).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pymc_hais.core.records import Metric
from pymc_hais.core.seeds import PilotNumber, Use
from pymc_hais.core.weights import effective_sample_size, log_mean_exp, systematic
from pymc_hais.density import Sites, unnormalised_priors
from pymc_hais.estimators.unseen import pareto_k
from pymc_hais.planning.confirm import AGREEMENT, ERRORS
from pymc_hais.planning.fits import fit_to_draws
from pymc_hais.planning.learning import Trial, adaptation_bias, learn, run_pilots
from pymc_hais.problem.problem import CHUNK, Problem
from pymc_hais.references import Fitted, Gaussian, StudentT
from pymc_hais.run.modes.climbing import Climbed, Joint, Peak, can_climb, climb, scales_of
from pymc_hais.runner.ledger import PILOT
from pymc_hais.runner.runner import Runner
from pymc_hais.tuning import DEFENCE, log_near
from pymc_hais.tuning.pilot import next_beta


class _Search(NamedTuple):
    """How climbs and importance draws look for the mode, and when a start from it is good enough."""

    fewest_starts: int = 20  # of the climbs
    most_steps: int = 60  # evaluations of each start, at most
    steps_per_dim: int = 2  # and as many more for each dimension
    patience: int = 30  # evaluations of each start after which half of the starts must have ended
    patience_per_dim: int = 1  # and as many more for each dimension
    #: beyond as many dimensions no more: climbs take as long as the density is narrow, however many directions it has
    most_dims: int = 100
    share_of_time: float = 0.2  # the climbs may take this share of the time that is left
    agreeing: float = 0.9  # share of the starts that must end at the mode
    #: nats of mass, by Laplace's approximation, below the highest peak from which on another does not count
    negligible: float = 12.0
    draws: int = CHUNK  # importance draws of a fit
    turns: int = 6  # in which a fit may follow the draws
    good_share: float = 0.6  # share of the draws that must count, where hardly any annealing is needed
    good_tail: float = 0.5  # the heaviest tail of the weights of these draws
    df: float = 8.0  # degrees of freedom of a fit that has heavier tails than the Gaussian at the mode
    followed: float = 0.3  # share that must count where the fit goes on to follow them
    draws_per_dim: int = 50  # that a fit to draws takes
    #: nats by which the pilot from the fit may come out above its importance draws: it moved where these were not
    moved: float = 0.5
    doubting: int = 100  # particles of a pilot that looks for what no climb has led to, at least
    fewest_families: float = 10.0  # effective draws of the prior that must have led to where the pilot ends


_SEARCH = _Search()

_SOURCE = "the mode"


class Judged(NamedTuple):
    """The judgement of a fit by importance draws.

    Attributes
    ----------
    problem : Problem
        That starts from it.
    share : float
        Of the draws that count.
    tail : float
        Pareto k of their weights.
    """

    problem: Problem
    positions: np.ndarray  # (n, D)
    log_weights: np.ndarray  # (n,)
    log_z: float
    share: float
    tail: float

    @property
    def is_good(self) -> bool:
        """Whether hardly any annealing is needed from there."""
        return self.share >= _SEARCH.good_share and self.tail <= _SEARCH.good_tail

    def accepted(self) -> Problem:
        """Return the problem, which knows of the judgement."""
        fitted = self.problem.fitted
        assert fitted is not None
        return self.problem.with_fit(replace(fitted, counting=self.share, tail=self.tail), self.problem.sites)


def shorten(near: Problem, best: Trial) -> Problem:
    """Let importance draws judge a fit to a pilot's particles; if it is not good, try the fit at the mode.

    Parameters
    ----------
    near : Problem
        That starts from the fit.
    best : Trial
        Whose pilot it is.
    """
    first, runner = best.problem, best.runner
    if runner.sampling.estimators or not (first.is_prior and can_climb(first) and first.is_integral):
        return near
    joint, rng = Joint(near, runner.paying(PILOT)), np.random.default_rng(runner.seeds.of(Use.JUDGED_FIT))
    judged = judge(near, joint, rng)
    if not judged.is_good and not is_hierarchy(near):
        (pilot,) = best.pilots
        joint.move_to(first)
        starts = pilot.positions[:: -(-len(pilot.positions) // joint.round_up(_SEARCH.fewest_starts))]
        peak = _find_peak(joint, starts, runner, first)
        if isinstance(peak, Peak):
            judged = judge(_at(peak, first), joint, rng)
    return judged.accepted() if judged.is_good else near


def try_mode_first(problem: Problem, runner: Runner) -> Trial | str:
    """Return a start from the only mode of a costly density; or a reason why not, if it was tried.

    Parameters
    ----------
    problem : Problem
        Compiled for the first start.
    """
    is_costly = problem.engine.grain(CHUNK) < CHUNK  # as wide as this, a program of its own for few particles pays
    if not is_costly or is_hierarchy(problem) or not _can_start_near(problem, runner):
        return ""
    return _start_near(problem, runner)


def start_on_hill(problem: Problem, runner: Runner) -> Trial | str:
    """Return a start from the top of a density that is proven to have one hill, however far it is; or a reason why not.

    Parameters
    ----------
    problem : Problem
        Compiled for the first start, from where a pilot did not reach the target.
    """
    if not _can_start_near(problem, runner):
        return "climbs need gradients, a prior and the usual path."
    if not problem.is_one_hill:
        return "the density is not proven to have one hill."
    return _start_near(problem, runner)


def _start_near(problem: Problem, runner: Runner) -> Trial | str:
    joint = Joint(problem, runner.paying(PILOT))
    judged = _find(problem, joint, runner)
    if isinstance(judged, str):
        return judged
    confirmed = _doubt(problem, judged, runner)
    if isinstance(confirmed, str):
        return confirmed
    trial = learn(judged.accepted(), [0], PilotNumber.NEAR_MODE, runner)
    (pilot,) = trial.pilots
    if not pilot.is_complete:
        return "the pilot from there ran out of time."
    if pilot.log_z - judged.log_z > _SEARCH.moved:
        return f"a pilot from there finds more (log Z = {pilot.log_z:.1f} instead of {judged.log_z:.1f})."
    reason = f"Climbs end at one mode, and draws around it have an effective sample size of {judged.share:.0%}."
    return trial.knowing(n_confirming=confirmed, reason=reason)


def _doubt(problem: Problem, judged: Judged, runner: Runner) -> float | str:
    """Let a pilot from the prior search for mass that no climb found; return how many draws found no other place.

    Infinite where the density is proven to have one hill; a reason against the start if the pilot finds more, or if too
    few of its particles' first ancestors are left to say so.
    """
    if problem.is_one_hill:
        return np.inf
    (pilot,) = run_pilots(problem, [0], PilotNumber.DOUBT, runner, _SEARCH.doubting)
    if not pilot.is_complete:
        return "there is no time for a pilot that would confirm it."
    error = 1.0 / np.sqrt(pilot.n_families)
    if pilot.log_z - judged.log_z > min(AGREEMENT, ERRORS * error) + adaptation_bias(pilot):
        return f"a pilot from the prior finds more (log Z = {pilot.log_z:.1f} instead of {judged.log_z:.1f})."
    if pilot.n_families < _SEARCH.fewest_families or judged.log_z - pilot.log_z > AGREEMENT:
        return f"{pilot.n_families:.0f} draws of the prior, at log Z = {pilot.log_z:.1f}, are too few to confirm it."
    return pilot.n_families


def is_hierarchy(problem: Problem) -> bool:
    """Whether a variable's scale or location is another variable: the joint density is high at small scales."""
    return problem.chart is not None and bool(problem.chart.is_moved.any())


def judge(near: Problem, joint: Joint, rng: np.random.Generator) -> Judged:
    """Draw from a fit alone, and weigh the draws."""
    fitted = near.fitted
    assert fitted is not None
    z = fitted.draw(0, _SEARCH.draws, rng)
    joint.move_to(near)
    log_weights = joint(z)[0] - log_near(fitted, z, 0)
    log_z = float(log_mean_exp(log_weights))
    if not np.isfinite(log_z):
        return Judged(near, z, log_weights, log_z, 0.0, np.inf)
    share = float(effective_sample_size(log_weights)) / _SEARCH.draws
    return Judged(near, z, log_weights, log_z, share, pareto_k(np.exp(log_weights - log_weights.max())))


def _can_start_near(problem: Problem, runner: Runner) -> bool:
    """Whether a start at a mode is possible: on the usual path, from a normalised prior, of a density to be climbed."""
    return (
        not runner.sampling.estimators
        and problem.fitted is not None
        and problem.is_prior
        and can_climb(problem)
        and problem.is_integral
        and not unnormalised_priors(problem.model)
    )


def _find(problem: Problem, joint: Joint, runner: Runner) -> Judged | str:
    """Climb to the mode from draws of the prior, and fit until the importance draws are good."""
    n_drawn = joint.round_up(_SEARCH.fewest_starts) - 1  # one place is for the initial point
    drawn = problem.reference.draw(n_drawn, runner.seeds.of(Use.NEAR_STARTS))
    with np.errstate(all="ignore"):
        starts = problem.to_coordinates(np.concatenate([initial_point(problem), drawn.positions[~drawn.clipped]]))
    peak = _find_peak(joint, starts[np.isfinite(starts).all(axis=1)], runner, problem, _SEARCH.agreeing)
    if isinstance(peak, str):
        return peak
    rng = np.random.default_rng(runner.seeds.of(Use.NEAR))
    near = _at(peak, problem)
    for _ in range(_SEARCH.turns):
        judged = _judge_both_tails(near, joint, rng)
        if judged.is_good:
            return judged
        if not np.isfinite(judged.log_z) or _SEARCH.draws_per_dim * problem.layout.n_dims > _SEARCH.draws:
            break
        near = _follow(problem, judged, rng)
    return f"draws around the mode have an effective sample size of {judged.share:.0%} (Pareto k {judged.tail:.1f})."


def _judge_both_tails(near: Problem, joint: Joint, rng: np.random.Generator) -> Judged:
    """Judge a fit and, if it is a Gaussian, a Student-t with its centre and scale; return the better one.

    The target's tails are mostly heavier than a Gaussian's: a round from there needs temperatures to fill them.
    """
    judged, fitted = judge(near, joint, rng), near.fitted
    assert fitted is not None
    if isinstance(fitted.shape, StudentT):
        return judged
    heavy = replace(fitted, shape=StudentT(_SEARCH.df, fitted.shape.loc, fitted.shape.scale))
    return max(judge(near.with_fit(heavy, near.sites), joint, rng), judged, key=lambda one: one.share)


def initial_point(problem: Problem) -> np.ndarray:
    """Return PyMC's initial point (1, D), which can be much nearer to the top than draws of a wide prior are."""
    try:
        point = problem.model.initial_point(random_seed=0)
    except Exception:  # of a user's distribution, which may have none
        return np.empty((0, problem.layout.n_dims))
    return problem.layout.flatten_point(point)[None]


def climb_in_time(joint: Joint, starts: np.ndarray, runner: Runner, again: float = 0.0) -> Climbed | str:
    """Climb from starts (n, D) in a share of the remaining time; return the mode, or a reason why none was found.

    ``again`` is as :func:`pymc_hais.run.modes.climbing.climb` takes it.
    """
    clock = runner.clock.part(_SEARCH.share_of_time)
    n_dims = min(starts.shape[1], _SEARCH.most_dims)
    patience, most = (
        _SEARCH.patience + _SEARCH.patience_per_dim * n_dims,
        _SEARCH.most_steps + _SEARCH.steps_per_dim * n_dims,
    )

    def goes_on(n: int, done: float) -> bool:
        return clock.left > 0.0 and (n < patience or done > 0.5)

    if not len(starts):
        return "no draw of the prior is within the range of floating point."
    climbed = climb(joint, starts, scales_of(starts), most, goes_on, again)
    return climbed if climbed.peaks else "no climb ends at a smooth mode."


def those_that_count(climbed: Climbed) -> list[Peak]:
    """Return the peaks that have a part in the mass, by Laplace's approximation, the one with most of it first."""
    peaks = sorted(climbed.peaks, key=lambda peak: -peak.log_mass)
    return [peak for peak in peaks if peak.log_mass > peaks[0].log_mass - _SEARCH.negligible]


def _find_peak(joint: Joint, starts: np.ndarray, runner: Runner, problem: Problem, again: float = 0.0) -> Peak | str:
    """Climb from starts (n, D) to the one mode; return it, or a sentence that there are others, or none.

    Where the density is proven to have one hill, a single climb that ends at its top is enough.
    """
    climbed = climb_in_time(joint, starts, runner, again)
    if isinstance(climbed, str):
        return climbed
    best, *others = those_that_count(climbed)
    if (len(starts) < 2 or climbed.share < _SEARCH.agreeing) and not problem.is_one_hill:
        return f"{climbed.share:.0%} of {len(starts)} climbs end at a mode."
    return f"there are {len(others) + 1} modes." if others else best


def _at(peak: Peak, problem: Problem) -> Problem:
    """Start from a mixture with the Gaussian of a peak's curvature, in the problem's own coordinates."""
    return start_around(problem, peak.position, peak.factor, problem.sites)


def start_around(
    problem: Problem, centre: np.ndarray, scale: Metric, sites: Sites | None, log_prior_mass: float = 0.0
) -> Problem:
    """Start from a mixture with a Gaussian, in the coordinates of sites; its scale is dense where the fit's is."""
    assert problem.fitted is not None
    if problem.fitted.is_dense and scale.ndim == 1:
        scale = np.diag(scale)
    elif not problem.fitted.is_dense and scale.ndim == 2:
        scale = np.sqrt(np.sum(scale**2, axis=1))
    shape = Gaussian(np.zeros(len(scale)), scale)
    return problem.with_fit(Fitted(shape, centre[None], DEFENCE, log_prior_mass, _SOURCE), sites)


def _follow(problem: Problem, judged: Judged, rng: np.random.Generator) -> Problem:
    """Fit anew to the draws, resampled by their weights as far as these allow."""
    share = next_beta(judged.log_weights, 0.0, _SEARCH.followed)
    chosen = systematic(share * judged.log_weights, rng.random())
    x = judged.problem.to_model(judged.positions[chosen])
    return fit_to_draws(problem, x, 0.0, _SOURCE)
