"""Which reference to start from, and how long a round must be: by pilots, and a scouting round of many rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from pymc_hais.core.weights import normalise
from pymc_hais.estimators import NO_TAIL, Round, Tail, estimate_log_z, measure_tail
from pymc_hais.kernels import LinearConstraints
from pymc_hais.model import improper_priors, unnormalised_priors
from pymc_hais.references import Box, Fitted, StudentT
from pymc_hais.run.constraints import axis_bounds
from pymc_hais.run.populations import anneal_rows, count_gradients
from pymc_hais.run.problem import Problem
from pymc_hais.run.seeds import Purpose
from pymc_hais.run.settings import Settings
from pymc_hais.tuning import (
    DEFENCE,
    Pilot,
    build_plan,
    fit_reference,
    fit_sites,
    merge,
    particles_for_dense,
    run_pilot,
    suggest_length,
)
from pymc_hais.types import AnnealingRun

__all__ = ["Choice", "choose_reference", "first_reference"]

#: The pilot has so many particles, or a multiple where a dense metric takes more.
_PILOT_PARTICLES = 500
#: Rows of data that get a pilot of their own.
_PILOT_ROWS = 3
#: Degrees of freedom of the start where no prior says how far the target may reach, and of the fit to particles that
#: have tails of up to so many: a reference with lighter tails than the target leaves its particles to wander there,
#: too few and unnoticed.
_HEAVY = 2.0
_TAILED = 10.0
#: Temperatures from the first reference up to which a second pilot is not worth its time.
_NEAR_ENOUGH = 100
#: Temperatures of a reported round, at least: from the first reference, from a fit, and without a prior, where the way
#: into heavy tails is long and the barrier does not show it.
_SHORTEST = 128
_SHORTEST_FITTED = 32
_SHORTEST_UNNORMALISED = 512
#: Nats by which the fit's rough log Z may be the lower one: estimates that miss something are too low.
_AGREEMENT = 2.0
#: Stages that count for the bias of a pilot with more dimensions than particles, whose metrics are of earlier stages.
_BIASED_STAGES = 2.0
#: Particles, over all rows, that are kept for a fit; and of each row, at least.
_KEPT_PARTICLES = 5000
_KEPT_PER_ROW = 8
#: The share of the target that a scouting round's standard error is to be brought to, so that most rows meet it.
_ROOM = 0.8
#: Reference draws at which each row is looked at before any pilot.
_LOOKED_AT = 100


@dataclass
class Spent:
    """What planning has cost so far.

    Attributes
    ----------
    n_gradients_pilot : int
        Evaluations of value and gradient of the pilots.
    n_gradients : int
        Of scouting rounds.
    pilot_seconds : float
    n_rounds : int
        Scouting rounds.
    """

    n_gradients_pilot: int = 0
    n_gradients: int = 0
    pilot_seconds: float = 0.0
    n_rounds: int = 0


@dataclass(frozen=True)
class Choice:
    """A reference, what its pilots learnt, and why it was taken.

    Attributes
    ----------
    problem : Problem
    pilot : Pilot or None
        None where nothing is tuned.
    lengths : ndarray of int (R,)
        Temperatures of each row's first reported round.
    tail : Tail
        Of the log ratio; what may be missing from log Z because of it is counted into the error.
    scouted : tuple of Round
        Each row's scouting round, if it had one.
    reason : str
    spent : Spent
    compile_seconds : float
        Of all engines.
    """

    problem: Problem
    pilot: Pilot | None
    lengths: np.ndarray
    tail: Tail = NO_TAIL
    scouted: tuple[Round, ...] = ()
    reason: str = "as asked for"
    spent: Spent = field(default_factory=Spent)
    compile_seconds: float = 0.0


class _Rows(NamedTuple):
    """What pilots, or a scouting round, tell about R rows of data.

    Attributes
    ----------
    lengths : ndarray of int (R,)
        Temperatures that each row's reported round needs.
    centres : ndarray (R, D)
        Of the particles at beta = 1.
    residuals : ndarray (n, D)
        Some of these particles, from their row's centre.
    rounds : tuple of Round
        The scouting round of each row, if there was one.
    """

    lengths: np.ndarray
    centres: np.ndarray
    residuals: np.ndarray
    rounds: tuple[Round, ...] = ()


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


def choose_reference(problem: Problem, settings: Settings, reference: Any) -> Choice:
    """Run the pilot; where the reference is left to us, fit another to its particles and keep the nearer one.

    The fit is a part of a mixture with the first reference, so that a region which it misses is still reached.  Of many
    rows of data three have pilots, and a short scouting round, which is not reported, tells about the others.

    Parameters
    ----------
    problem : Problem
        Compiled for the first reference.
    settings : Settings
    reference : str or object
        As the user gave it.
    """
    if not settings.recipe.needs_pilot and reference != "fitted":
        lengths = np.full(problem.n_rows, settings.n_temperatures or 1)
        return Choice(problem, None, lengths, compile_seconds=problem.engine.clock.seconds)
    spent = Spent()
    rows = _choose_rows(problem, settings)
    pilots = _learn(problem, rows, 0, spent, settings)
    known = _scout(problem, pilots, spent, settings)
    first = _decide(problem, pilots, pilots, known, spent, settings)
    if not isinstance(reference, str) or reference not in ("auto", "fitted") or problem.engine.path.n_evaluations:
        return first
    if reference == "auto" and (reason := _reason_to_stay(first)):
        return replace(first, reason=reason)
    near = _fit(problem, known)
    near_pilots = _learn(near, rows, 1, spent, settings)
    fitted = _decide(
        near, near_pilots, [*pilots, *near_pilots], _of_pilots(near, near_pilots, settings), spent, settings
    )
    if reference == "auto" and (reason := _reason_against(fitted, near_pilots, first, pilots)):
        return replace(first, reason=reason)
    if near.n_rows > 1:
        fitted = _decide(near, near_pilots, pilots, _scout(near, near_pilots, spent, settings), spent, settings)
    needed, before = int(fitted.lengths.max()), int(first.lengths.max())
    reason = f"about {needed} temperatures do, from {problem.label} {before}"
    return replace(fitted, reason=reason if reference == "auto" else "as asked for")


def _choose_rows(problem: Problem, settings: Settings) -> list[int]:
    """Choose the rows that get a pilot of their own, evenly from the least to the most likely under the reference.

    Raises
    ------
    ValueError
        If there are rows that no reference draw makes possible.
    """
    if problem.n_rows == 1:
        return [0]
    stream = settings.seeds.stream(Purpose.CHECK, 2)
    states = (problem.draw([row], [stream], _LOOKED_AT).state for row in range(problem.n_rows))
    log_ratio = np.concatenate([np.asarray(state.log_ratio) for state in states])
    possible = np.isfinite(log_ratio)
    impossible = np.flatnonzero(~possible.any(axis=1))
    if impossible.size:
        shown = ", ".join(map(str, impossible[:5])) + (", ..." if impossible.size > 5 else "")
        raise ValueError(
            f"The log-likelihood is not finite at any of {_LOOKED_AT} draws of {problem.label} for "
            f"{impossible.size} of {problem.n_rows} rows (row {shown}). Check that these rows lie in the support of "
            "the likelihood."
        )
    ranked = np.argsort(np.median(np.where(possible, log_ratio, -np.inf), axis=1), kind="stable")
    chosen = np.linspace(0, problem.n_rows - 1, min(_PILOT_ROWS, problem.n_rows)).round().astype(int)
    return ranked[chosen].tolist()


def _learn(problem: Problem, rows: Sequence[int], number: int, spent: Spent, settings: Settings) -> list[Pilot]:
    """Run a pilot on each of some rows, with reference draws of its own."""
    begin = time.perf_counter()
    n_particles = _PILOT_PARTICLES * max(1, -(-particles_for_dense(problem.layout.n_dims) // _PILOT_PARTICLES))
    pilots = []
    with settings.progress("Pilot", None) as bar:
        for done, row in enumerate(rows):

            def report(fraction: float, beta: float, log_z: float, done: int = done) -> None:
                bar.update((done + fraction) / len(rows), beta, log_z)

            particles = problem.draw([row], [settings.seeds.stream(Purpose.PILOT, number, row)], n_particles)
            pilots.append(run_pilot(problem.engine, particles, report))
    spent.n_gradients_pilot += sum(pilot.n_gradients for pilot in pilots)
    spent.n_gradients_pilot += len(rows) * problem.reference.cost(n_particles)
    spent.pilot_seconds += time.perf_counter() - begin
    return pilots


def _of_pilots(problem: Problem, pilots: Sequence[Pilot], settings: Settings) -> _Rows:
    """Say of all rows what their pilots say: exactly, where there is one row."""
    length = suggest_length(merge(pilots), 1, settings.max_temperatures)
    positions = pilots[0].positions
    centre = positions.mean(axis=0)
    return _Rows(np.full(problem.n_rows, length), centre[None], positions - centre)


def _scout(problem: Problem, pilots: Sequence[Pilot], spent: Spent, settings: Settings) -> _Rows:
    """Find out about every row of data: from its own pilot where there is one row, else by a short round."""
    known = _of_pilots(problem, pilots, settings)
    if problem.n_rows == 1 or settings.target_se is None:
        return known
    n_steps = min(max(int(known.lengths[0]) // 2, _shortest(problem) // 2), settings.max_temperatures)
    plan = build_plan(merge(pilots), n_steps, settings.recipe)
    n_kept = max(_KEPT_PER_ROW, _KEPT_PARTICLES // problem.n_rows)
    spent.n_rounds += 1
    runs = anneal_rows(problem, plan, range(problem.n_rows), spent.n_rounds, "Scouting", settings)
    rounds, centres, residuals = zip(*(_look(run, n_steps, n_kept) for _, run in runs), strict=True)
    spent.n_gradients += count_gradients(problem, plan, problem.n_rows, settings)
    lengths = _lengths(np.array([one.se for one in rounds]), n_steps, settings.target_se, settings.max_temperatures)
    return _Rows(lengths, np.stack(centres), np.concatenate(residuals), rounds)


def _look(run: AnnealingRun, n_steps: int, n_kept: int) -> tuple[Round, np.ndarray, np.ndarray]:
    """Summarise one row's scouting round: its estimate, the particles' centre (D,), and some of them around it."""
    estimate = estimate_log_z(run)
    weights = np.exp(normalise((run.log_weights + normalise(run.log_z)[:, None]).ravel()))
    positions = np.asarray(run.state.position, np.float64).reshape(weights.size, -1)
    centre = weights @ positions
    kept = np.searchsorted(np.cumsum(weights), (np.arange(n_kept) + 0.5) / n_kept)
    residuals = positions[np.minimum(kept, weights.size - 1)] - centre
    return Round(n_steps, estimate.value, estimate.se), centre, residuals


def _lengths(se: np.ndarray, n_steps: int, target_se: float, longest: int) -> np.ndarray:
    """Say how many temperatures bring each row's standard error (R,) below the target, in powers of two of T."""
    factor = np.clip((se / (_ROOM * target_se)) ** 2, 1.0, longest / n_steps)
    return np.minimum(n_steps * 2 ** np.ceil(np.log2(factor)), longest).astype(int)


def _shortest(problem: Problem) -> int:
    """Say how many temperatures a reported round has at least."""
    if improper_priors(problem.model):
        return _SHORTEST_UNNORMALISED
    return _SHORTEST_FITTED if not problem.is_prior else _SHORTEST


def _decide(
    problem: Problem, pilots: Sequence[Pilot], seen: Sequence[Pilot], known: _Rows, spent: Spent, settings: Settings
) -> Choice:
    """Say how long rounds from a reference must be, also for the upper tail of its log ratio at pilots' particles."""
    pilot = merge(pilots)
    tail = measure_tail(_log_ratios(problem, seen), pilot.stages[-1].autocorrelation_time)
    shortest, longest = max(_shortest(problem), tail.length), settings.max_temperatures
    given = settings.n_temperatures
    lengths = np.minimum(np.maximum(known.lengths, shortest), longest) if given is None else 0 * known.lengths + given
    seconds = problem.engine.clock.seconds
    return Choice(problem, pilot, lengths, tail, known.rounds, spent=spent, compile_seconds=seconds)


def _log_ratios(problem: Problem, pilots: Sequence[Pilot]) -> list[np.ndarray]:
    """Evaluate the log ratio at pilots' particles (P, D) at beta = 1; none where it is not one number."""
    if problem.engine.path.n_evaluations:  # its log ratio is a slope, and another one at every beta
        return []
    key, inputs = np.zeros((1, 2), dtype=np.uint32), problem.inputs([0])
    samples = (pilot.positions[None].astype(problem.layout.dtype) for pilot in pilots)
    return [np.asarray(problem.engine.start(one, inputs, key).log_ratio, np.float64)[0] for one in samples]


def _reason_to_stay(first: Choice) -> str:
    """Say why the first reference should be kept without a second pilot, if it should."""
    problem = first.problem
    if problem.engine.kernel.constraints is not None:
        return "a fit would not keep to the constraints"
    length = suggest_length(first.pilot, 1, 10**9) if first.pilot else 1
    if length <= _NEAR_ENOUGH:
        return f"about {length} temperature{'s' if length > 1 else ''} would do from there"
    if suspects := unnormalised_priors(problem.model):
        return f"the density of {', '.join(f'`{name}`' for name in suspects)} may not integrate to one in PyMC"
    return ""


def _fit(problem: Problem, known: _Rows) -> Problem:
    """Mix the reference with a fit to particles at beta = 1, one shape around each row's centre."""
    assert problem.fitted is not None  # compiled for it
    sites, particles = problem.sites, known.residuals
    centres = known.centres
    if problem.chart is not None:
        x = problem.to_model(particles + centres[0])
        sites = fit_sites(problem.chart, x)
        particles = problem.chart.to_coordinates(x, sites)
        centres = particles.mean(axis=0, keepdims=True)
        particles = particles - centres
    fit = fit_reference(particles)
    # A prior says how far the target may reach; without one the fit must be the heavier of the two.
    if not problem.reference.is_prior and isinstance(fit, StudentT) and fit.df <= _TAILED:
        fit = replace(fit, df=_HEAVY)
    scale = fit.scale if not problem.fitted.is_dense or fit.scale.ndim == 2 else np.diag(fit.scale)
    shape = replace(fit, loc=0.0 * fit.loc, scale=scale)
    return problem.with_fit(Fitted(shape, centres + fit.loc, DEFENCE), sites)


def _reason_against(fitted: Choice, near: Sequence[Pilot], first: Choice, far: Sequence[Pilot]) -> str:
    """Say why the first reference is kept although another was fitted, if it should be."""
    for one, other in zip(near, far, strict=True):
        if other.log_z - one.log_z > _AGREEMENT + _adaptation_bias(other):
            return f"a fit to the pilot's particles gave log Z = {one.log_z:.1f}, the pilot {other.log_z:.1f}"
    needed, before = int(fitted.lengths.max()), int(first.lengths.max())
    if needed >= before:
        return f"from a fit to the pilot's particles {needed} temperatures would do, from here {before}"
    return ""


def _adaptation_bias(pilot: Pilot) -> float:
    """Say by how many nats adaptation may have carried a pilot's log Z up.

    A metric measured on the very particles that it moves pushes them apart, by up to n_dims / n_particles nats a stage.
    Seen for regressions in 100 to 200 dimensions: a third to five sixths of that.
    """
    n_particles, n_dims = pilot.positions.shape
    return n_dims / n_particles * (len(pilot.stages) if n_dims <= n_particles else _BIASED_STAGES)
