"""Chains first: the few other variables at their mode, with every chain integrated out around its own.

In the coordinates of :mod:`pymc_hais.latent.fields` a chain is nearly a standard normal whatever the values
of the other variables, so that the density along zero is nearly theirs alone, with the chain integrated out (Rue,
Martino & Chopin 2009).  Climbs there, from draws of the prior, lead to its mode, or to several; the point around which
the chain is expanded follows, and so on in turns.  It is for densities that are proven to be concave in the chains, as
no climb would tell of other hills.  Importance draws and a pilot say how long rounds must be, the prior keeps its share
of the draws, and a search for other modes follows the rounds.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pymc_hais.core.seeds import PilotNumber, Use
from pymc_hais.core.weights import log_sum_exp, systematic
from pymc_hais.density import Chart, is_concave_in, known_log_mass, unnormalised_priors
from pymc_hais.planning.learning import Trial, learn
from pymc_hais.planning.mass import measure_prior_mass
from pymc_hais.planning.modes.near import (
    Judged,
    climb_in_time,
    initial_point,
    is_hierarchy,
    judge,
    start_around,
    those_that_count,
)
from pymc_hais.problem.problem import Problem
from pymc_hais.references import Gaussian, Gaussians
from pymc_hais.run.modes.climbing import Joint, Peak, is_smooth
from pymc_hais.runner.ledger import PILOT
from pymc_hais.runner.runner import Runner
from pymc_hais.tuning import unit_triangle
from pymc_hais.tuning.pilot import next_beta


class _Search(NamedTuple):
    """How the climbs are made, and when a start with fields integrated out is good enough."""

    solved: int = 20_000  # elements of fields that the starts of a climb have in all
    factored: float = 6e7  # cubes of dense fields' sizes in all, likewise
    most_starts: int = 250  # of a climb
    starts: int = 20  # of the climbs
    others: int = 3  # other peaks that must lead to the same one
    same: float = 1.0  # standard deviations within which two peaks are the same
    turns: int = 8  # of climbs and of points
    stays: float = 0.1  # standard deviations within which a point stays
    bold: int = 3  # turns before steps are halved, as climbs and points may run in circles
    enough: float = 0.3  # standard deviations that are near enough in the end
    newton_steps: int = 50  # to a point, at most
    counting: float = 0.2  # share of draws that counts where rounds hardly need temperatures
    light: float = 0.5  # Pareto k of their weights
    half: float = 0.5  # share of draws that counts, from which on the weights may have a Pareto k up to `heavy`
    heavy: float = 0.7
    most_steps: int = 8  # temperatures, at most, if a large matrix is factored at each
    follows: int = 5  # turns after weighted draws
    followed: float = 0.3  # the share of these draws that counts once they are tempered
    gains: float = 1.2  # of a turn, at least, for another one where weights are even enough: the rest is of the chains
    cheap: int = 32  # size of the largest matrix that is cheap enough to be factored at several temperatures
    widths: int = 60  # draws that tell the width of a field
    smoothed: int = 4  # turns of widths and points
    even: float = 0.9  # share of draws that is enough without these turns


_SEARCH = _Search()

#: Shares of a Newton step that are tried.  Far from the data, where the likelihood is linear and the prior wide, a
#: whole step goes beyond floating point.
_SHARES = np.append(0.5 ** np.array([0, 1, 2, 3, 5, 8, 12, 18, 26, 34]), 0.0)


class Slice(Joint):
    """A joint density of some coordinates, with zero in all others."""

    def __init__(self, problem: Problem, kept: np.ndarray, pay: Callable[[int], None]) -> None:
        super().__init__(problem, pay)
        self._kept = kept

    def __call__(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log densities (n,) and gradients (n, K) at values (n, K) of the coordinates kept."""
        values, gradients = super().__call__(self.whole(z))
        return values, gradients[:, self._kept]

    def whole(self, z: np.ndarray) -> np.ndarray:
        """Return positions (n, D)."""
        positions = np.zeros((len(z), len(self._kept)))
        positions[:, self._kept] = z
        return positions


def try_fields_first(problem: Problem, runner: Runner) -> Trial | str:
    """Return a start with a model's chains integrated out around their modes; or a reason why not, if it was tried.

    Parameters
    ----------
    problem : Problem
        Compiled for the first start, in coordinates of chains.
    """
    if runner.sampling.estimators or not _is_offered(problem):
        return ""
    assert problem.chart is not None
    pay = runner.paying(PILOT)
    along = Slice(problem, ~problem.chart.is_field, pay)
    near = _find(problem, problem.chart, along, runner)
    joint = Joint(problem, pay)
    if not isinstance(near, str):
        rng = np.random.default_rng(runner.seeds.of(Use.FIELDS))
        judged = _follow(near, problem.chart, along, joint, rng)
        judged = _smooth(judged, along, joint, rng)
        near = judged.accepted() if _is_near(judged) else judged.problem
    if isinstance(near, str):
        return near
    if not np.isfinite(judged.log_z):
        return "no draw around the mode has a density."
    if judged.problem.fitted and judged.problem.fitted.beside and not _is_near(judged):
        return f"there are several modes, and draws around them have an effective sample size of {judged.share:.0%}."
    if any(one.is_dense for one in problem.chart.fields) and not _is_near(judged):
        return f"the effective sample size of draws around it is {judged.share:.0%} (Pareto k {judged.tail:.1f})."
    mass = measure_prior_mass(problem.model, runner) if unnormalised_priors(problem.model) else None
    trial = learn(near, [0], PilotNumber.FROM_MODES, runner, mass=mass)
    if not trial.plan.is_tuned:
        return "the pilot from there ran out of time."
    n_steps = int(trial.plan.lengths[0])
    if n_steps > _SEARCH.most_steps and any(
        one.is_dense and one.length > _SEARCH.cheap for one in problem.chart.fields
    ):
        return f"{n_steps} temperatures, each with a matrix of many coefficients to factor, are too many."
    chains = ", ".join(f"`{owner}`" for owner in problem.chart.field_owners)
    where = "the modes" if near.fitted and near.fitted.beside else "the mode"
    reason = f"With {chains} integrated out around {where}, draws have an effective sample size of {judged.share:.0%}."
    return trial.knowing(n_confirming=float(along.round_up(_n_starts(problem.chart))), reason=reason)


def _is_offered(problem: Problem) -> bool:
    """Whether the model has one smooth density and a normalised prior, without the funnels of other hierarchies."""
    return (
        problem.fitted is not None
        and problem.is_prior
        and is_smooth(problem)
        and not any(problem.layout.is_periodic)
        and not is_hierarchy(problem)
        and known_log_mass(problem.model) is not None
    )


def _find(problem: Problem, chart: Chart, along: Slice, runner: Runner) -> Problem | str:
    """Climb to the mode in turns with the points of the chains."""
    drawn = problem.reference.draw(along.round_up(_n_starts(chart)), runner.seeds.of(Use.FIELD_STARTS))
    x = drawn.positions[~drawn.clipped]
    if len(x) < 2:
        return "no draw of the prior is within the range of floating point."
    if not is_concave_in(problem.model, problem.layout, chart.field_owners):
        return "chains may have several modes: their density is not proven to be concave."
    starts = problem.to_coordinates(x, with_fields=False)[:, ~chart.is_field]
    top = np.median(starts, axis=0)
    found = _rise(_at_point(problem, np.median(x, axis=0)), along, starts, top, runner)
    if isinstance(found, str):
        # The middle of a wide prior's draws may have no density: PyMC's initial point is tried, too.
        for point in initial_point(problem):
            again = _rise(_at_point(problem, point), along, starts, top, runner)
            found = found if isinstance(again, str) else again
    if isinstance(found, str):
        return found
    problem, peak, others = found
    if peak is None:
        return _around(problem, chart, along, np.zeros(0), np.zeros((0, 0)))
    beside: list[Peak] = []
    for other in others[: _SEARCH.others]:  # that the point is far from theirs may have made them
        found = _rise(problem, along, other.position + 0.0 * starts[:2], other.position, runner, peak)
        if isinstance(found, str) or found[1] is None:
            return f"there are {len(others) + 1} modes."
        if all(one.squared_distance(found[1].position[None])[0] >= _SEARCH.same for one in (peak, *beside)):
            beside.append(found[1])
    near = _around(problem, chart, along, peak.position, peak.scale @ peak.scale.T)
    return _with_others(near, chart, peak, beside) if beside else near


def _with_others(near: Problem, chart: Chart, peak: Peak, others: Sequence[Peak]) -> Problem:
    """Start from the Gaussians of other peaks as well, with masses by Laplace's approximation, uncorrelated."""
    fitted, sites = near.fitted, near.sites
    assert fitted is not None
    assert sites is not None
    turn, parts = np.linalg.inv(sites.mix), []
    for other in others:
        centre, scale = np.zeros(near.layout.n_dims), np.ones(near.layout.n_dims)
        centre[chart.mixed] = turn @ other.position
        scale[chart.mixed] = np.linalg.norm(turn @ other.scale, axis=1)
        parts.append(Gaussian(centre, scale))
    log_masses = np.array([one.log_mass for one in (peak, *others)])
    of_fit, *of_others = fitted.share * np.exp(log_masses - log_sum_exp(log_masses))
    beside = Gaussians(parts, np.divide(of_others, sum(of_others)))
    return near.with_fit(replace(fitted, beside=beside, share_beside=fitted.share - float(of_fit)), sites)


def _n_starts(chart: Chart) -> int:
    """Return how many draws of the prior are climbed from: fewer with long fields, which each evaluation solves."""
    n = _SEARCH.solved // max(1, int(chart.is_field.sum()))
    n_cubed = sum(one.length**3 for one in chart.fields if one.is_dense)
    return int(np.clip(min(n, _SEARCH.factored // max(1, n_cubed)), _SEARCH.starts, _SEARCH.most_starts))


def _rise(
    problem: Problem, along: Slice, starts: np.ndarray, top: np.ndarray, runner: Runner, known: Peak | None = None
) -> tuple[Problem, Peak | None, list[Peak]] | str:
    """Climb in turns with the points; return the peak, none where all variables are chains, and others that remain.

    It is the known one as soon as the way leads near it.
    """
    for turn in range(_SEARCH.turns):
        problem, moved = _settle(problem, along, top)
        if not top.size:
            return (problem, None, []) if np.isfinite(moved) else "the way to the mode of the chains takes too long."
        along.move_to(problem)
        climbed = climb_in_time(along, starts, runner)
        if isinstance(climbed, str):
            return climbed
        peaks = those_that_count(climbed)
        peak = peaks[0] if turn < _SEARCH.bold else min(peaks, key=lambda one: one.squared_distance(top[None])[0])
        others = [one for one in peaks if one is not peak]
        moved += float(np.sqrt(peak.squared_distance(top[None])[0]))
        top = top + (peak.position - top) * (1.0 if turn < _SEARCH.bold else 0.5)
        if known is not None and known.squared_distance(top[None])[0] < _SEARCH.same:
            return problem, known, []
        if moved < _SEARCH.enough:
            return problem, peak, others
    return f"the point around which chains are expanded still moves after {_SEARCH.turns} turns."


def _at_point(problem: Problem, x: np.ndarray) -> Problem:
    """Expand the chains around those of a flat vector."""
    assert problem.chart is not None
    assert problem.sites is not None
    is_field, shift = problem.chart.is_field, np.where(problem.chart.is_moved, 0.0, x)
    return problem.with_sites(replace(problem.sites, precision=np.where(is_field, np.inf, 0.0), shift=shift))


def _settle(problem: Problem, along: Slice, top: np.ndarray) -> tuple[Problem, float]:
    """Move the points of all chains to their mode, given everything else; return how far, in standard deviations.

    The distance is infinite where the steps did not suffice.
    """
    chart, sites = problem.chart, problem.sites
    assert chart is not None
    assert sites is not None
    z, first = along.whole(top[None]), problem
    for _ in range(_SEARCH.newton_steps):
        x = np.repeat(problem.to_model(z), len(_SHARES), axis=0)
        x = np.where(chart.is_field, sites.shift + _SHARES[:, None] * (x - sites.shift), x)
        tried = problem.to_coordinates(x)
        along.move_to(problem)
        best = int(np.argmax(Joint.__call__(along, tried)[0]))
        sites = replace(sites, shift=np.where(chart.is_moved, 0.0, x[best]))
        problem = problem.with_sites(sites)
        if best == len(_SHARES) - 1 or (best == 0 and np.linalg.norm(tried[0] - tried[-1]) < _SEARCH.stays):
            return problem, _distance(problem, first, z)
    return problem, np.inf


def _distance(problem: Problem, other: Problem, z: np.ndarray) -> float:
    """Return the distance between the points of two problems, in standard deviations of the first, at z (1, D)."""
    assert problem.chart is not None
    assert problem.sites is not None
    assert other.sites is not None
    x = np.where(problem.chart.is_field, np.stack([problem.sites.shift, other.sites.shift]), problem.to_model(z))
    both = problem.to_coordinates(x)
    return float(np.linalg.norm(both[0] - both[1]))


def _follow(near: Problem, chart: Chart, along: Slice, joint: Joint, rng: np.random.Generator) -> Judged:
    """Judge a start, and fits to its weighted draws in all variables but chains; return the best."""
    best = judged = judge(near, joint, rng)
    for _ in range(_SEARCH.follows if chart.mixed.size else 0):
        if best.is_good or not np.isfinite(judged.log_z):
            break
        share = next_beta(judged.log_weights, 0.0, _SEARCH.followed)
        chosen = systematic(share * judged.log_weights, rng.random())
        kept = judged.problem.to_model(judged.positions[chosen])[:, chart.mixed]
        covariance = np.atleast_2d(np.cov(kept.T))
        last = judged.share
        judged = judge(_around(judged.problem, chart, along, kept.mean(axis=0), covariance), joint, rng)
        best = max(best, judged, key=lambda one: (_is_near(one), one.share))
        if _is_near(best) and judged.share < _SEARCH.gains * last:
            break
    return best


def _smooth(judged: Judged, along: Slice, joint: Joint, rng: np.random.Generator) -> Judged:
    """Average the likelihood over the width of the fields, if this gives more draws a notable weight.

    Their points then become the means of the normal that is nearest to them, by its own divergence, as both are where
    slopes and curvatures are averages over it (Opper & Archambeau 2009, Neural Computation 21, 786-792).
    """
    problem, chart, fitted = judged.problem, judged.problem.chart, judged.problem.fitted
    assert chart is not None
    assert problem.sites is not None
    assert fitted is not None
    if judged.share > _SEARCH.even or all(one.is_dense for one in chart.fields):  # nothing is averaged
        return judged
    is_field, sites = chart.is_field, problem.sites
    z = np.repeat(fitted.centres[:1], _SEARCH.widths, axis=0)
    for _ in range(_SEARCH.smoothed):
        z[:, is_field] = rng.normal(size=(_SEARCH.widths, int(is_field.sum())))
        z[0, is_field] = 0.0
        x = problem.to_model(z)
        sites = chart.with_widths(replace(sites, shift=np.where(is_field, x[0], sites.shift)), x[1:])
        problem = problem.with_sites(sites)
    smoothed = judge(problem, joint, rng)
    return smoothed if smoothed.share > judged.share else judged


def _is_near(judged: Judged) -> bool:
    """Whether the weights of draws are even enough; the rest of a chain costs more to anneal than to weigh."""
    return judged.share >= _SEARCH.counting and judged.tail <= (
        _SEARCH.light if judged.share < _SEARCH.half else _SEARCH.heavy
    )


def _around(problem: Problem, chart: Chart, along: Slice, mean: np.ndarray, covariance: np.ndarray) -> Problem:
    """Start from a mixture with a Gaussian: around zero in chains, and uncorrelated in the rest."""
    assert problem.sites is not None
    n_dims = problem.layout.n_dims
    centre, scale, mix = np.zeros(n_dims), np.ones(n_dims), np.eye(mean.size)
    if mean.size:
        problem, _ = _settle(problem.with_sites(replace(problem.sites, mix=mix)), along, mean)
        mix = unit_triangle(covariance)
        turn = np.linalg.inv(mix)
        centre[chart.mixed], scale[chart.mixed] = turn @ mean, np.sqrt(np.diag(turn @ covariance @ turn.T))
    assert problem.sites is not None
    return start_around(problem, centre, scale, replace(problem.sites, mix=mix), known_log_mass(problem.model) or 0.0)
