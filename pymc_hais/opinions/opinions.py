"""Second opinions on log Z of a finished run: from its own arrays, or from one more run along the same plan."""

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pymc_hais.core.annealing import Report
from pymc_hais.core.records import AnnealingRun
from pymc_hais.core.seeds import Purpose
from pymc_hais.core.weights import log_sum_exp
from pymc_hais.estimators import (
    LogZEstimate,
    average_bridges,
    build_bridge,
    divide,
    stepping_stone,
    thermodynamic,
    to_estimate,
    unseen_share,
    with_shortfall,
)
from pymc_hais.jobs.guard import Guard
from pymc_hais.jobs.progress import turned
from pymc_hais.opinions.bridging import Target, bridge_particles
from pymc_hais.opinions.linking import anneal_linked
from pymc_hais.problem.problem import Problem
from pymc_hais.request.call import Call
from pymc_hais.run.populations import anneal_back, anneal_rows, end_at_fit, support_of
from pymc_hais.run.rounds import Outcome

#: Number of the round of a forward run without resampling, which no other round has.
_FORWARD = 1_000_000


def ask_others(problem: Problem, outcome: Outcome, call: Call, guard: Guard) -> Outcome:
    """Estimate log Z in other ways, too: those that cost nothing, and those that the user asks for.

    A path that is not geometric has no log ratio to integrate, and a single chain has no spread: what the run does not
    allow is left out.
    """
    if outcome.run is None or problem.engine.path.n_evaluations:
        return outcome
    methods = {"thermodynamic integration": thermodynamic, "stepping stones": stepping_stone}
    free = {name: functools.partial(_free, method, problem, outcome) for name, method in methods.items()}
    asked = {name: functools.partial(_ask, name, problem, outcome, call) for name in call.request.estimators}
    found: list[LogZEstimate] = []
    for name, stage in {**free, **asked}.items():
        found += guard.attempt(f"the estimate of log Z by {name}", stage, [], is_dear=name in asked)
    mass = problem.prior_mass
    return replace(outcome, opinions=tuple(divide(one, mass.estimate) if mass else one for one in found))


def _free(method: Callable[..., LogZEstimate | None], problem: Problem, outcome: Outcome) -> list[LogZEstimate]:
    """Ask one that takes nothing but the run."""
    row = outcome.rows[0]
    one = method(outcome.run, outcome.ladder.schedule.betas, problem.log_z_reference, row.rounds[-1].se)
    # It rests on the particles of the run, and falls short where these do.
    return [] if one is None else [with_shortfall(one, row.estimate.shortfall)]


def _ask(name: str, problem: Problem, outcome: Outcome, call: Call) -> list[LogZEstimate]:
    """Ask one that takes another run, or other evaluations.

    Raises TimeoutError or ValueError if there is no time for it, or it does not suit the run.
    """
    n_moves = len(outcome.ladder.schedule) * outcome.draws * call.request.chains
    if call.budget.left < n_moves * outcome.seconds_per_move:
        raise TimeoutError("there is no time left")
    if name == "bridge" and not problem.is_integral:
        raise ValueError("the run does not integrate the density that a bridge would")
    return _METHODS[name](problem, outcome, call.progress.phase(name.capitalize()), call)


def _bridge(problem: Problem, outcome: Outcome, report: Report, call: Call) -> list[LogZEstimate]:
    assert outcome.run is not None
    stream = call.seeds.stream(Purpose.OPINION)
    return [to_estimate(*bridge_particles(problem, outcome.run, stream.rng), "bridge")]


def _linked(problem: Problem, outcome: Outcome, report: Report, call: Call) -> list[LogZEstimate]:
    return [anneal_linked(problem, outcome, report, call)]


def _bidirectional(problem: Problem, outcome: Outcome, report: Report, call: Call) -> list[LogZEstimate]:
    """Join whole forward paths with the paths back from the final particles by Bennett's acceptance ratio.

    With discrete sites there is no joining: visited in one order, they make no way back that reverses the way forward.
    Each way is an estimate of its own all the same.
    """
    run, plan = outcome.run, replace(outcome.ladder, resample_below=0.0)
    assert run is not None
    call = call.asking(draws=outcome.draws)
    ((_, back),) = anneal_back(problem, plan, {0: np.asarray(run.state.position)}, turned(report), call)
    upper = _bound(problem, run, back, call)
    if problem.layout.n_sites:
        return [upper]
    forward = run
    if run.n_resampled.any():  # its paths are broken
        ((_, forward),) = anneal_rows(problem, plan, call.round(_FORWARD), report, call)
    return [upper, _join(run, forward, back)]


def _join(run: AnnealingRun, forward: AnnealingRun, back: AnnealingRun) -> LogZEstimate:
    n = forward.log_weights.size
    ahead, behind = _whole(forward).ravel(), -_whole(back).ravel()
    target = Target.of(run)
    log_weights = target.log_weights.ravel()
    joined = build_bridge(ahead, behind, log_weights, target.n_effective)
    if forward is run:  # each particle is at the beginning of both its paths
        both = np.bincount(target.families.ravel(), np.exp(log_weights) * joined.of_target, n) - joined.of_reference / n
        variance = float(np.sum(both**2))
    else:
        variance = float(np.mean(joined.of_reference**2)) / n + target.variance(joined.of_target)
    value, se = average_bridges(np.array([joined.log_z]), np.array([variance]))
    return to_estimate(value, se, "forward and reverse")


def _bound(problem: Problem, run: AnnealingRun, back: AnnealingRun, call: Call) -> LogZEstimate:
    """Estimate log Z by the paths back alone: an upper bound on average, as far as their start is exact."""
    target = Target.of(run)
    log_weights = target.log_weights.ravel()
    ended = _whole(end_at_fit(problem, 0, back)).ravel()
    inside = support_of(problem, 0, run, call)
    log_z = -float(log_sum_exp(log_weights + ended))
    relative = np.expm1(np.minimum(log_z + ended, 50.0))
    spread = np.sqrt(np.log1p(target.variance(relative)) + inside.relative_se**2)
    # What the paths that count most have not shown would bring the bound down.
    masses = np.bincount(target.families.ravel(), np.exp(log_weights + ended))
    spread += np.log1p(unseen_share(masses))
    return to_estimate(log_z + inside.log_share, float(spread), "reverse")


def _whole(run: AnnealingRun) -> np.ndarray:
    """Return the log weights (C, P) of paths that were never resampled."""
    return run.log_weights + run.log_z[:, None] + np.log(run.log_weights.shape[1])


#: What takes another run, or another evaluation: name -> estimates.
_METHODS: dict[str, Callable[[Problem, Outcome, Report, Call], list[LogZEstimate]]] = {
    "bridge": _bridge,
    "linked": _linked,
    "bidirectional": _bidirectional,
}
