"""More populations of a finished run's plan, and one estimate from all of them."""

import functools
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pymc_hais.core.process import check_memory
from pymc_hais.core.records import AnnealingRun, ParticleState
from pymc_hais.core.weights import log_mean_exp, normalise
from pymc_hais.estimators import LogZEstimate, Round, estimate_log_z
from pymc_hais.run.evidence import Evidence
from pymc_hais.run.final_particles import measure_lag
from pymc_hais.run.populations import anneal_rows
from pymc_hais.run.posterior import draw_posterior
from pymc_hais.run.rounds import conclude
from pymc_hais.run.row_evidence import PriorMass, RowEvidence, count_unconfirmed
from pymc_hais.runner.runner import Runner
from pymc_hais.runner.timing import FEWEST

_log = logging.getLogger("pymc.hais")


class _Target(NamedTuple):
    """How a target of the error is reached."""

    attempts: int = 6  # times that it is aimed at
    growth: float = 8.0  # how many times as many chains an attempt may make them
    room: float = 0.95  # share of the error that is aimed for


_TARGET = _Target()

#: The state of particles whose weights alone are kept.
NO_STATE = ParticleState(*(None,) * len(ParticleState._fields))


def add_chains(before: Evidence, runner: Runner) -> Evidence:
    """Anneal ``runner.sampling.chains`` more populations, each as large as the others."""
    added = _anneal(before, _as_large(before, runner))
    return _conclude(before, added, AnnealingRun.join([before.run, added]), "extended", runner)


def add_draws(before: Evidence, runner: Runner) -> Evidence:
    """Anneal particles for ``runner.sampling.draws`` more draws of each chain, as populations of their own."""
    draws = runner.sampling.draws
    particles = max(before.plan.particles_for(draws), min(FEWEST, draws))
    added = _anneal(before, runner.with_sampling(draws=particles))
    return _conclude(before, added, _widen(before.run, added), "extended", runner)


def reach_target(before: Evidence, target: float, runner: Runner) -> Evidence:
    """Add chains until the error of log Z is below a target; return the same evidence if there is nothing to add.

    The Monte Carlo error falls as one over the root of the chains; where the rest of the error alone is above the
    target, more chains of the same plan are of no use.
    """
    parts, failed = [before.run], ""
    for _ in range(_TARGET.attempts):
        run = AnnealingRun.join(parts)
        estimate = _row(before, run)[0].estimate
        n_chains = len(run.log_z)
        needed = _needed(estimate, before.mass, n_chains, target)
        if estimate.se <= target or not np.isfinite(needed):
            break
        missing = max(1, int(np.ceil(min(needed, n_chains * _TARGET.growth) - n_chains)))
        _refuse_too_many(needed, before, target, runner.sampling.draws)
        _log.info(
            f"log Z = {estimate:.3f}, above target_se = {target:g}. Next are {missing:,} more chains; about "
            f"{needed:,.0f} are needed in all"
        )
        own = _as_large(before, runner.with_sampling(chains=missing))
        more = functools.partial(_anneal, before, own)
        # The first attempt is all that there is; what it has added is kept whatever happens to the next one.
        what = f"{missing} more chains"
        added = more() if len(parts) == 1 else runner.attempt(what, more, None, is_kept=True)
        if added is None:
            failed = "interrupt" if runner.ledger.is_interrupted else "failure"
            break
        parts.append(added)
    if len(parts) == 1:
        return before
    run, new = AnnealingRun.join(parts), AnnealingRun.join(parts[1:])
    reached = _row(before, run)[0].estimate.se <= target
    runner = runner.with_sampling(chains=len(new.log_z))
    stopped_by = failed or ("target_se" if reached else "shortfall")
    return _conclude(before, new, run, stopped_by, runner)


def _as_large(before: Evidence, runner: Runner) -> Runner:
    """Anneal as many particles as the earlier populations have, which may be fewer than the draws."""
    return runner.with_sampling(draws=before.run.log_weights.shape[1])


def _refuse_too_many(needed: float, before: Evidence, target: float, draws: int) -> None:
    """Refuse a target that needs more chains, each of so many draws, than this machine has memory for."""
    try:
        check_memory(max(draws, before.run.log_weights.shape[1]), int(needed), before.problem.layout.n_dims)
    except ValueError as error:
        raise ValueError(
            f"target_se = {target:g} needs about {needed:,.0f} chains of this plan. {error} Pass a larger `target_se`, "
            "or run sample_hais with it, which takes more temperatures."
        ) from None


def _needed(estimate: LogZEstimate, mass: PriorMass | None, n_chains: int, target: float) -> float:
    """Return the total number of chains that should bring the error below a target; infinite if no number would."""
    of_mass = mass.estimate.mc_se**2 if mass else 0.0
    allowed = max(_TARGET.room * (target - estimate.shortfall), 0.0) ** 2 - of_mass
    own = estimate.mc_se**2 - of_mass
    return n_chains * own / allowed if np.isfinite(own) and allowed > 0.0 else np.inf


def _anneal(before: Evidence, runner: Runner) -> AnnealingRun:
    """Anneal populations along the ladder of the last round, at new places."""
    report = runner.progress.phase("Extension")
    with runner.timed("rounds"):
        ((_, run),) = anneal_rows(before.problem, before.ladder, runner.next_round(), report, runner)
    return run


def _conclude(before: Evidence, added: AnnealingRun, joined: AnnealingRun, stopped_by: str, runner: Runner) -> Evidence:
    row, n_particles = _row(before, joined)
    row = replace(row, lag=measure_lag(before.problem, added, runner))
    n_moves = len(before.ladder.schedule) * added.log_weights.size
    seconds_per_move = runner.ledger.seconds["rounds"] / n_moves
    draws = added.log_weights.shape[1]
    own = replace(
        before.with_row(row), last=added, draws=draws, stopped_by=stopped_by, seconds_per_move=seconds_per_move
    )
    posterior = runner.finish(lambda: draw_posterior(own, runner))
    draws = joined.log_weights.shape[1]
    return replace(own, joined=joined, draws=draws, n_particles=n_particles, posterior=posterior)


def _row(before: Evidence, run: AnnealingRun) -> tuple[RowEvidence, tuple[int, ...]]:
    """Estimate log Z from the earlier rounds and the last one, which now has more particles.

    Returns the number of particles of each round, too.
    """
    (*earlier, old), last, plan = before.row.rounds, estimate_log_z(run), before.plan
    rounds = (*earlier, Round(old.n_steps, last.value, last.mc_se))
    n_particles = (*before.n_particles[:-1], run.log_weights.size)
    estimates = [*(LogZEstimate(one.log_z, one.se, one.log_z, one.log_z) for one in earlier), last]
    costs = [one.n_steps * n for one, n in zip(rounds, n_particles, strict=True)]
    row = conclude(before.problem, plan, run, estimates, rounds, costs)
    return count_unconfirmed(row, plan.n_confirming), n_particles


def _widen(before: AnnealingRun, added: AnnealingRun) -> AnnealingRun:
    """Make one population of each chain's two: both weigh by their particles and their estimates of Z."""
    sizes = np.array([before.log_weights.shape[1], added.log_weights.shape[1]])
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

    totals = [run.log_z + np.log(size) for run, size in zip((before, added), sizes, strict=True)]
    weights = [run.log_weights + one[:, None] for run, one in zip((before, added), totals, strict=True)]
    statistics: dict[str, Any] = {"ess": total, "log_z": log_mean}
    rules: dict[str, Any] = {
        **{name: total for name in ("n_resampled", "n_nan", "n_infinite")},
        **{name: log_mean for name in ("log_z", "log_z_dropped")},
        **{name: join for name in ("acceptance_rate", "n_divergent")},
        "log_weights": lambda _: normalise(join(weights)),
        "ancestors": lambda pair: join([pair[0], pair[1] + sizes[0]]),
        "parts": join,
    }
    fields = {name: rule([getattr(run, name) for run in (before, added)]) for name, rule in rules.items()}
    common = [name for name in before.temperature if name in added.temperature]
    temperature = {
        name: statistics.get(name, average)([run.temperature[name] for run in (before, added)]) for name in common
    }
    return AnnealingRun(state=NO_STATE, temperature=temperature, **fields)
