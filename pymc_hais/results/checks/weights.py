"""What the numbers of a run's weights, moves and rounds show, and its final particles."""

from collections.abc import Iterator

import numpy as np

from pymc_hais.core.records import AnnealingRun
from pymc_hais.estimators import Finding, LogZEstimate, Symptoms, Tail, jump
from pymc_hais.estimators.memory import NO_VARIANCE, Lag
from pymc_hais.estimators.symptoms import FEWEST_FAMILIES, PARETO_K_LIMIT
from pymc_hais.jobs.timing import duration
from pymc_hais.planning.rays import measure_rays, student_t_of
from pymc_hais.problem.problem import Problem
from pymc_hais.results.findings import PIECES, say
from pymc_hais.run.rounds import Outcome
from pymc_hais.run.row_results import RowResult, measure_edge, measure_rounding
from pymc_hais.runner.runner import Runner

#: The lowest mean acceptance rate of a temperature, and the largest share of divergent moves, without a finding.
_LEAST_ACCEPTANCE = 0.2
_MOST_DIVERGENT = 0.01
#: The share beyond which particles hardly move.
_HOPELESSLY_DIVERGENT = 0.5
#: The share of Z that dropped draws may be missing, as a share of the standard error.
_MOST_DROPPED = 0.1
#: Nats beyond a normal tail of the log ratio that are worth a warning.
_HEAVY_TAIL = 2.0
#: Shape of the weights' tail from which on their mean takes too many draws (Vehtari et al. 2024).
_UNBOUNDED = 0.7
#: Share of the target's variance below which error bars are too small: of runs of 1000 particles that lag in one
#: direction of a normal target about a tenth, and in five directions a fifth, err by more than three standard errors.
_MISLEADING = 0.4
#: Nats that one evaluation may be rounded by: small beside the error that is asked for.
_MOST_ROUNDING = 0.05


def check_weights(result: RowResult, outcome: Outcome, runner: Runner) -> Iterator[Finding]:
    """Say what the numbers of one row's run mean; the outcome is of all rows."""
    symptoms = result.symptoms
    if not symptoms.is_alive:
        yield say("no_weight")
        return
    yield from _large_error(result, outcome, runner)
    if not symptoms.pareto_k <= PARETO_K_LIMIT:
        yield say("pareto_k", k=symptoms.pareto_k, limit=PARETO_K_LIMIT)
    if not symptoms.n_families >= FEWEST_FAMILIES:
        yield say("few_ancestors", n=symptoms.n_families, fewest=FEWEST_FAMILIES)
    if symptoms.disagreement != 0.0:
        yield say("chains_disagree", times=symptoms.disagreement)
    if (moved := jump(result.rounds)) != 0.0:
        before, last = result.rounds[-2:]
        yield say("rounds_disagree", before=before, last=last, moved=moved)
    yield from _moves(symptoms)
    if not symptoms.dropped_share < _MOST_DROPPED * max(result.estimate.se, 1e-3):
        yield say("prior_range", share=symptoms.dropped_share)


def _large_error(result: RowResult, outcome: Outcome, runner: Runner) -> Iterator[Finding]:
    """Say that the error of log Z is larger than was asked for, and why, if so."""
    estimate, stopped_by, target = result.estimate, outcome.stopped_by, runner.request.target_se
    if target is None or estimate.se <= target:
        if stopped_by == "interrupt":
            yield say("interrupted", above="")
        return
    above = PIECES["above"].format(se=estimate.se, target=target)
    if np.isinf(estimate.se) and np.isfinite(estimate.value):
        above = PIECES["unknown error"]
    if stopped_by == "interrupt":
        yield say("interrupted", above=f" {above}.")
    elif runner.recipe.is_fixed and stopped_by != "failure":
        yield say("standard_error: fixed", above=above)
    elif stopped_by == "max_seconds":
        yield _too_slow(above, estimate.se / target, result, outcome, runner)
    else:
        reason = stopped_by if stopped_by in ("failure", "shortfall", "extended") else "max_temperatures"
        yield say(f"standard_error: {reason}", above=above, shortfall=estimate.shortfall, target=target)


def _too_slow(above: str, times: float, result: RowResult, outcome: Outcome, runner: Runner) -> Finding:
    """Say what it would take to make the error so many times smaller."""
    # All rounds count, with as many particles as there was time for.
    made = sum(one.n_steps for one in result.rounds) * outcome.draws / runner.request.draws
    n_steps = made * times**2
    if not np.isfinite(n_steps):
        return say("standard_error: out of time", above=above)
    needed = duration(n_steps * runner.request.draws * runner.request.chains * outcome.seconds_per_move)
    return say("standard_error: max_seconds", above=above, n_steps=n_steps, needed=needed)


def _moves(symptoms: Symptoms) -> Iterator[Finding]:
    rate, share = symptoms.acceptance_rate, symptoms.divergent_share
    if not rate >= _LEAST_ACCEPTANCE:
        yield say("low_acceptance", rate=rate)
    if not share < _MOST_DIVERGENT:
        yield say("divergences", "error" if share > _HOPELESSLY_DIVERGENT else "warning", share=share)
    counts = (("NaN", symptoms.n_nan), ("plus infinity", symptoms.n_infinite))
    if seen := " and ".join(f"{what} {n} times" for what, n in counts if n):
        yield say("nan", seen=seen)


def check_tail(tail: Tail) -> Iterator[Finding]:
    """Say that few particles reach the places that the target prefers to the reference most, if so."""
    if not tail.excess <= _HEAVY_TAIL and tail.mass != 0.0:
        yield say("heavy_tail", excess=tail.excess)


def check_rays(problem: Problem, runner: Runner) -> Iterator[Finding]:
    """Say that the target's tails are seen to be heavier than those of a Student-t that was started from, if so."""
    if (own := student_t_of(problem)) is None:
        return
    rays = measure_rays(problem, runner.seeds)
    across, along = rays.shape(own.df), rays.shape_along(own.df)
    if max(across, along) > _UNBOUNDED:
        name = problem.layout.labels[rays.axis]
        place = f"Along `{name}`" if along >= across else "In all directions but a few"
        yield say("heavy_tail: ray", place=place, label=own, k=max(across, along))


def check_lag(lag: Lag) -> Iterator[Finding]:
    """Judge a lag: a warning where the weights it asks for have no variance, an error where that is seen to matter."""
    if not lag.share >= NO_VARIANCE:
        severity = "error" if lag.share < _MISLEADING else "warning"
        yield say("memory", severity, share=lag.share, up=lag.up, down=lag.down)


def check_edge(problem: Problem, run: AnnealingRun, estimate: LogZEstimate) -> Iterator[Finding]:
    """Say that the target goes on where the particles end, if log Z would rise by more than its error bar."""
    edge = measure_edge(problem, run)
    if edge is not None and edge.gain > estimate.se:
        side, name = "small" if edge.sign < 0 else "large", problem.layout.labels[edge.dimension]
        yield say("unreached", side=side, name=name, out=edge.out, back=edge.back, gain=edge.gain)


def check_rounding(problem: Problem, run: AnnealingRun) -> Iterator[Finding]:
    """Say that rounding takes more off the final log densities than log Z may be wrong by, if so.

    By the spacing of floating-point numbers at the densities, by what is measured around them, and by the difference
    of two forms of the density.
    """
    dtype = problem.layout.dtype
    ends = [np.asarray(end, np.float64).ravel() for end in (run.state.log_reference, run.state.log_ratio)]
    sizes = np.abs(ends).max(axis=0)
    sizes = sizes[np.isfinite(sizes)]
    spacing = float(np.finfo(dtype).eps) * float(np.median(sizes)) if sizes.size else 0.0
    rounding = max(spacing, measure_rounding(problem, run), problem.undecided)
    if rounding > _MOST_ROUNDING or problem.undecided:
        yield say("rounding", dtype=np.dtype(dtype).name, spacing=rounding)
