"""More populations of a finished run's plan, and one estimate from all of them."""

import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pymc_hais.core.process import check_memory
from pymc_hais.core.records import AnnealingRun, ParticleState
from pymc_hais.core.weights import log_mean_exp, normalise
from pymc_hais.estimators import LogZEstimate, Round, estimate_log_z
from pymc_hais.run.choice import Choice
from pymc_hais.run.populations import anneal_rows
from pymc_hais.run.posterior import PosteriorDraws, draw_posterior
from pymc_hais.run.rounds import Outcome, conclude
from pymc_hais.run.row_results import RowResult, count_unconfirmed, measure_lag
from pymc_hais.runner.runner import Runner

_log = logging.getLogger("pymc.hais")

#: Times that a target is aimed at, how many times as many chains an attempt may make them, and the share of the error
#: that is aimed for.
_ATTEMPTS, _GROWTH, _ROOM = 6, 8.0, 0.95
#: Of particles of which the weights alone are kept.
NO_STATE = ParticleState(*(None,) * len(ParticleState._fields))


@dataclass(frozen=True, eq=False)
class Past:
    """What a result keeps of its run."""

    # The last round, without the particles' states; what was counted over all its particles is spread over them.
    run: AnnealingRun
    rounds: tuple[Round, ...]
    n_particles: tuple[int, ...]  # of each round, over all chains
    opinions: tuple[LogZEstimate, ...] = ()  # of other methods


@dataclass(frozen=True, eq=False)
class Extended:
    """A run with its extension."""

    outcome: Outcome  # of both together
    added: AnnealingRun  # the new populations
    draws: PosteriorDraws  # of the new populations
    n_particles: tuple[int, ...]  # of each round, over all chains


def add_chains(past: Past, choice: Choice, runner: Runner) -> Extended:
    """Anneal ``runner.request.chains`` more populations, each as large as the others."""
    added = _anneal(choice, _as_large(past, runner))
    run = AnnealingRun.join([past.run, added])
    return _conclude(past, added, run, choice, "extended", runner)


def add_draws(past: Past, choice: Choice, runner: Runner) -> Extended:
    """Anneal ``runner.request.draws`` more particles for each chain, as populations of their own."""
    added = _anneal(choice, runner)
    return _conclude(past, added, _widen(past.run, added), choice, "extended", runner)


def reach_target(past: Past, choice: Choice, runner: Runner) -> Extended | None:
    """Add chains until the error of log Z is below ``runner.request.target_se``; None if there is nothing to add.

    The Monte Carlo error falls as one over the root of the chains; where the rest of the error alone is above the
    target, more chains of the same plan are of no use.
    """
    parts, target = [past.run], runner.request.target_se
    assert target is not None
    failed = ""
    for _ in range(_ATTEMPTS):
        run = AnnealingRun.join(parts)
        estimate = _row(past, run, choice)[0].estimate
        if estimate.se <= target or not (missing := _missing(estimate, choice, len(run.log_z), target)):
            break
        needed = _needed(estimate, choice, len(run.log_z), target)
        _refuse_too_many(needed, past, choice, target)
        _log.info(
            f"log Z = {estimate:.3f}, above target_se = {target:g}. Next are {missing:,} more chains; about "
            f"{needed:,.0f} are needed in all"
        )
        own = _as_large(past, runner.asking(chains=missing))
        more = functools.partial(_anneal, choice, own)
        # The first attempt is all that there is; what it has added is kept whatever happens to the next one.
        what = f"{missing} more chains"
        added = more() if len(parts) == 1 else runner.attempt(what, more, None, is_kept=True)
        if added is None:
            failed = "interrupt" if runner.ledger.is_interrupted else "failure"
            break
        parts.append(added)
    if len(parts) == 1:
        return None
    run, new = AnnealingRun.join(parts), AnnealingRun.join(parts[1:])
    reached = _row(past, run, choice)[0].estimate.se <= target
    runner = runner.asking(chains=len(new.log_z))
    stopped_by = failed or ("target_se" if reached else "shortfall")
    return _conclude(past, new, run, choice, stopped_by, runner)


def _as_large(past: Past, runner: Runner) -> Runner:
    """Anneal as many particles as the earlier populations have, which may be fewer than draws were asked for."""
    return runner.asking(draws=past.run.log_weights.shape[1])


def _refuse_too_many(needed: float, past: Past, choice: Choice, target: float) -> None:
    """Refuse a target that needs more chains than this machine has memory for."""
    try:
        check_memory(past.run.log_weights.shape[1], int(needed), choice.problem.layout.n_dims)
    except ValueError as error:
        raise ValueError(
            f"target_se = {target:g} needs about {needed:,.0f} chains of this plan. {error} Pass a larger `target_se`, "
            "or run sample_hais with it, which takes more temperatures."
        ) from None


def _needed(estimate: LogZEstimate, choice: Choice, n_chains: int, target: float) -> float:
    """Say how many chains in all should bring the error below a target; infinitely many where none would."""
    mass = choice.problem.prior_mass
    of_mass = mass.estimate.mc_se**2 if mass else 0.0
    allowed = max(_ROOM * (target - estimate.shortfall), 0.0) ** 2 - of_mass
    own = estimate.mc_se**2 - of_mass
    return n_chains * own / allowed if np.isfinite(own) and allowed > 0.0 else np.inf


def _missing(estimate: LogZEstimate, choice: Choice, n_chains: int, target: float) -> int:
    """Say how many more chains an attempt takes; 0 where no number of them would do."""
    needed = _needed(estimate, choice, n_chains, target)
    return max(1, int(np.ceil(min(needed, n_chains * _GROWTH) - n_chains))) if np.isfinite(needed) else 0


def _anneal(choice: Choice, runner: Runner) -> AnnealingRun:
    """Anneal populations along the plan, at new places."""
    ladder = choice.plan.ladder
    assert ladder is not None
    report = runner.progress.phase("Extension")
    with runner.timed("rounds"):
        ((_, run),) = anneal_rows(choice.problem, ladder, runner.next_round(), report, runner)
    return run


def _conclude(
    past: Past,
    added: AnnealingRun,
    run: AnnealingRun,
    choice: Choice,
    stopped_by: str,
    runner: Runner,
) -> Extended:
    ladder = choice.plan.ladder
    assert ladder is not None
    row, n_particles = _row(past, run, choice)
    row = replace(row, lag=measure_lag(choice.problem, added, runner))
    size = added.log_weights.shape[1]
    n_moves = len(ladder.schedule) * size * runner.request.chains
    own = Outcome((row,), ladder, added, stopped_by, size, runner.ledger.seconds["rounds"] / n_moves)
    draws = runner.surely(lambda: draw_posterior(choice.problem, own, runner))
    outcome = replace(own, run=run, draws=run.log_weights.shape[1], opinions=past.opinions)
    return Extended(outcome, added, draws, n_particles)


def _row(past: Past, run: AnnealingRun, choice: Choice) -> tuple[RowResult, tuple[int, ...]]:
    """Estimate log Z from the earlier rounds and the last one, which now has more particles."""
    earlier, last = past.rounds[:-1], estimate_log_z(run)
    rounds = (*earlier, Round(past.rounds[-1].n_steps, last.value, last.mc_se))
    n_particles = (*past.n_particles[:-1], run.log_weights.size)
    estimates = [*(LogZEstimate(one.log_z, one.se, one.log_z, one.log_z) for one in earlier), last]
    costs = [one.n_steps * n for one, n in zip(rounds, n_particles, strict=True)]
    return count_unconfirmed(conclude(choice, run, estimates, rounds, costs), choice.n_confirming), n_particles


def _widen(past: AnnealingRun, added: AnnealingRun) -> AnnealingRun:
    """Make one population of each chain's two: both weigh by their particles and their estimates of Z."""
    sizes = np.array([past.log_weights.shape[1], added.log_weights.shape[1]])
    shares = sizes / sizes.sum()

    def average(arrays: Sequence[Any]) -> Any:
        return sum(share * one for share, one in zip(shares, arrays, strict=True))

    def total(arrays: Sequence[Any]) -> Any:
        return sum(arrays)

    def join(arrays: Sequence[Any]) -> Any:
        return np.concatenate(list(map(np.asarray, arrays)), axis=1)

    def log_mean(arrays: Sequence[Any]) -> Any:
        terms = [one + np.log(2.0 * share) for one, share in zip(arrays, shares, strict=True)]
        return log_mean_exp(np.stack(terms, axis=-1))

    totals = [run.log_z + np.log(size) for run, size in zip((past, added), sizes, strict=True)]
    weights = [run.log_weights + one[:, None] for run, one in zip((past, added), totals, strict=True)]
    statistics = {"ess": total, "log_z": log_mean}
    rules = {
        **{name: total for name in ("n_resampled", "n_nan", "n_infinite")},
        **{name: log_mean for name in ("log_z", "log_z_dropped")},
        **{name: join for name in ("acceptance_rate", "n_divergent")},
        "log_weights": lambda _: normalise(join(weights)),
        "ancestors": lambda pair: join([pair[0], pair[1] + sizes[0]]),
        "parts": join,
    }
    return _combine((past, added), rules, average, statistics)


def _combine(
    runs: Sequence[AnnealingRun], rules: Mapping[str, Any], otherwise: Any, statistics: Mapping[str, Any]
) -> AnnealingRun:
    """Combine each field by its rule, and the statistics per temperature by theirs; states are left out."""
    names = [name for name in AnnealingRun.__dataclass_fields__ if name not in ("state", "temperature")]
    fields = {name: rules[name]([getattr(run, name) for run in runs]) for name in names}
    common = [name for name in runs[0].temperature if all(name in run.temperature for run in runs)]
    temperature = {name: statistics.get(name, otherwise)([run.temperature[name] for run in runs]) for name in common}
    return AnnealingRun(state=NO_STATE, temperature=temperature, **fields)
