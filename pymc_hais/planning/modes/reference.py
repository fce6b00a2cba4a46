"""A reference with a Gaussian around every mode that the user's points lead to, so that the annealing starts there."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pymc_hais.core.seeds import PilotNumber, Use
from pymc_hais.core.weights import log_sum_exp, pool, systematic
from pymc_hais.planning.building import compile_first
from pymc_hais.planning.fits import fit_to_draws
from pymc_hais.planning.learning import learn
from pymc_hais.planning.modes.near import judge
from pymc_hais.planning.rays import student_t_of
from pymc_hais.planning.starts import Search, first_reference, heavy_reference
from pymc_hais.problem.problem import CHUNK, Problem
from pymc_hais.references import Gaussian, Gaussians, Mixture, StudentT, uniform_margins
from pymc_hais.run.copies import Labels
from pymc_hais.run.evidence import Evidence, Modes
from pymc_hais.run.modes.beside_sites import climb_beside_sites
from pymc_hais.run.modes.climbing import MOST_DIMS, Joint, Peak, can_climb, can_climb_beside_sites, climb, scales_of
from pymc_hais.run.plan import Plan
from pymc_hais.runner.ledger import PILOT
from pymc_hais.runner.runner import Runner
from pymc_hais.tuning import DEFENCE


class _Mixing(NamedTuple):
    """Shares of modes in a reference, and the climbs that lead to them."""

    share: float = 0.5  # of the draws that all Gaussians together have: the others start as they would without them
    least_share: float = 0.1  # of the fit, or of the missed modes, in what they have together
    counting: float = 0.3  # share of draws from there that must count
    light: float = 0.5  # the heaviest tail of their weights
    #: the share for modes of some variables given the others: there is no other way to start from them
    some_count: float = 0.02
    most_steps: int = 200  # evaluations of each start
    negligible: float = 20.0  # nats below the largest mass, by Laplace's approximation, beyond which a mode is left out
    carried: int = 2000  # draws of a peak, at least, that carry its Gaussian to the model's own coordinates
    carried_per_dim: int = 20  # the same for each dimension
    most_copies: int = 64  # points, with copies in which labels have traded places, that are climbed from


_MIXING = _Mixing()


def add_modes(search: Search) -> Search:
    """Return the search from a mixture of the first reference with a Gaussian around each mode near the user's points.

    The joint density is climbed from the points and from their copies with labels in another order.

    Raises
    ------
    ValueError
        If the density cannot be climbed, or no point leads to a mode.
    """
    problem, runner, points = search.problem, search.runner, search.points
    assert points is not None
    is_beside = can_climb_beside_sites(problem)
    if not (is_beside or can_climb(problem)):
        raise ValueError(
            "`modes` needs the gradients of a density without constraints, in at most "
            f"{MOST_DIMS} dimensions: leave it out, or leave out `constraints` and pass a kernel with gradients."
        )
    rng = np.random.default_rng(runner.seeds.of(Use.GIVEN))
    thinned = points[:: -(-len(points) // CHUNK)]
    starts = problem.to_coordinates(Labels(problem, runner, PILOT).copies(thinned, _MIXING.most_copies))
    pay = runner.paying(PILOT)
    if is_beside:
        peaks = climb_beside_sites(problem, starts, _scales(problem, runner), _MIXING.most_steps, pay).peaks
    else:
        peaks = climb(Joint(problem, pay), starts, _scales(problem, runner), _MIXING.most_steps).peaks
    if not peaks:
        raise ValueError(
            f"None of the {len(points)} points of `modes` leads to a mode: climbing from there, the density rises "
            "without end, or it has no curvature at its top. Leave out `modes`, or pass points near a smooth mode."
        )
    least = max(peak.log_mass for peak in peaks) - _MIXING.negligible
    gaussians = [_carry(peak, problem, rng) for peak in peaks if peak.log_mass > least]
    walls = runner.compiler.kernel.constraints
    start = heavy_reference(walls) if search.replaced else first_reference(search.reference, problem.model, walls)
    if isinstance(start, StudentT) and not search.replaced:
        start = student_t_of(problem) or start  # with tails as heavy as the density's
    around: Any = Gaussians(gaussians)
    if is_beside:
        around = uniform_margins(around, problem.layout.n_continuous, problem.layout.sites)
    return compile_first(problem.model, Mixture([start, around], [1.0 - _MIXING.share, _MIXING.share]), runner)


def start_beside(first: Evidence, found: Modes, runner: Runner) -> tuple[Problem, Plan] | None:
    """Start from a fit to a run's particles, mixed with Gaussians around the modes that it has missed.

    In the particles' coordinates, where a hierarchy or a chain is nearly normal.  None where no fit is taken, or where
    importance draws do not show that little annealing is needed from there.
    """
    problem, fitted, missed = first.problem, first.problem.fitted, found.missed.which
    if fitted is None or fitted.beside is not None or runner.sampling.estimators:
        return None
    log_masses = np.array([found.masses[i].log_mass for i in missed])
    log_missed = log_sum_exp(log_masses)
    of_missed = float(np.exp(log_missed - np.logaddexp(first.estimate.value, log_missed)))
    share = (1.0 - DEFENCE) * float(np.clip(of_missed, _MIXING.least_share, 1.0 - _MIXING.least_share))
    joint = Joint(problem, runner.paying(PILOT))
    rng = np.random.default_rng(runner.seeds.of(Use.JUDGED_FIT))
    uniform = rng.random()

    def fit_to_run() -> Problem:
        x = problem.to_model(first.run.positions[systematic(pool(first.run.log_weights, first.run.log_z), uniform)])
        return fit_to_draws(problem, x, first.plan.log_prior_mass, "the run before")

    for build in (lambda: problem, fit_to_run):
        near = build()
        if near.fitted is None or not near.fitted.share:
            continue
        parts = [_carry(found.peaks[i], problem, rng, near) for i in missed]
        beside = Gaussians(parts, np.exp(log_masses - log_missed))
        near = near.with_fit(replace(near.fitted, beside=beside, share_beside=share), near.sites)
        judged = judge(near, joint, rng)
        if (
            judged.share >= (_MIXING.some_count if found.is_conditional else _MIXING.counting)
            and judged.tail <= _MIXING.light
        ):
            return learn(judged.accepted(), [0], PilotNumber.FROM_MODES, runner, mass=first.mass).start
    return None


def _scales(problem: Problem, runner: Runner) -> np.ndarray:
    """Measure the scale (D,) of the reference in the particles' coordinates."""
    drawn = problem.reference.draw(CHUNK, runner.seeds.of(Use.SCALES))
    with np.errstate(all="ignore"):
        return scales_of(problem.to_coordinates(drawn.positions[~drawn.clipped]))


def _carry(peak: Peak, problem: Problem, rng: np.random.Generator, to: Problem | None = None) -> Gaussian:
    """Return a peak's Gaussian in the coordinates of another problem of the model; or on the model's flat vector."""
    if problem.chart is None or (to is not None and to.sites is problem.sites):
        return Gaussian(peak.position, peak.factor)
    n_dims = len(peak.position)
    x = problem.to_model(peak.sample(max(_MIXING.carried, _MIXING.carried_per_dim * n_dims), rng)[0])
    x = x if to is None else to.to_coordinates(x)
    return Gaussian(x.mean(axis=0), np.linalg.cholesky(np.atleast_2d(np.cov(x.T))))
