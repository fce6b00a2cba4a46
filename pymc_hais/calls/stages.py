"""A run of one model with all its rounds, and a second run from missed modes."""

import logging
from dataclasses import replace
from functools import partial

import numpy as np

from pymc_hais.core.seeds import Branch
from pymc_hais.core.weights import pool, systematic
from pymc_hais.estimators.symptoms import FEWEST_FAMILIES
from pymc_hais.planning.building import compile_start
from pymc_hais.planning.choose import choose
from pymc_hais.planning.learning import with_fewer_particles
from pymc_hais.planning.modes.reference import start_beside
from pymc_hais.planning.starts import StartOptions, is_auto
from pymc_hais.problem.problem import CHUNK, Problem
from pymc_hais.run.arrivals import count_arrivals, moves_on
from pymc_hais.run.evidence import Evidence, Modes
from pymc_hais.run.modes.beside_sites import find_modes_beside_sites
from pymc_hais.run.modes.measured import are_outside, is_lost, measure_outside, reweigh, with_outside
from pymc_hais.run.modes.search import find_modes
from pymc_hais.run.plan import Fallback, Plan
from pymc_hais.run.rounds import log_start, run_rounds
from pymc_hais.run.row_evidence import count_unconfirmed
from pymc_hais.runner.ledger import DIAGNOSIS, PILOT
from pymc_hais.runner.runner import Runner

_log = logging.getLogger("pymc.hais")

#: Where a fit is in doubt, a round or chains from the prior may take this multiple of all evaluations so far.  If the
#: temperatures for the fit's tail were spared, and would have taken more than that, their evaluations count instead.
_AFFORDABLE = 2.0
#: Chains from the prior that are to confirm a fit, at first.
_CHAINS = 100


def run_until_confirmed(problem: Problem, plan: Plan, points: np.ndarray | None, runner: Runner) -> Evidence:
    """Make rounds and search for modes; repeat from the next best start if the evidence for this start is too weak.

    The search climbs from ``points`` (n, D), flat vectors of known modes, and from particles of runs that are given up.
    """
    remembered: np.ndarray | None = None
    prior: Fallback | None = None  # given up as a start, but chains from there can still confirm a fit
    while True:
        whole, plan = plan, with_fewer_particles(problem, plan, runner)
        log_start(problem, plan, runner)
        evidence = run_rounds(problem, plan, runner)
        if evidence.stopped_by == "refuted":
            what_rounds_did = "spoke against that start"
            if problem.is_prior:
                prior = Fallback(partial(_compiled, problem, whole), int(whole.lengths[0]))
        else:
            if problem.layout.n_sites:
                modes = find_modes_beside_sites(evidence, runner)
            else:
                modes = find_modes(evidence, runner, points, remembered)
            if modes is not None:
                plan = replace(plan, n_confirming=plan.n_confirming + modes.n_confirming)
                evidence = replace(evidence, plan=plan, modes=modes)
            source = evidence.plan.fallback or prior
            if source is not None and _is_doubted(evidence, source):
                evidence = runner.attempt("a confirmation", partial(_ask_prior, evidence, source, runner), evidence)
            if not (_is_doubted(evidence, evidence.plan.fallback) and _is_round_affordable(evidence, runner)):
                return evidence.with_row(count_unconfirmed(evidence.row, evidence.plan.n_confirming))
            what_rounds_did = "were confirmed by too few draws of the prior"
        remembered = _with_particles(remembered, evidence)
        assert evidence.plan.fallback is not None
        problem, plan = evidence.plan.fallback.build()
        given_up = f"{evidence.problem.label}, log Z = {evidence.estimate:.3f}"
        plan = replace(plan, reason=f"The rounds from {given_up}, {what_rounds_did}.")


def _compiled(problem: Problem, plan: Plan) -> tuple[Problem, Plan]:
    """Return a start that needs no building."""
    return problem, plan


def _is_doubted(evidence: Evidence, source: Fallback | None) -> bool:
    """Whether the evidence for a fitted start is weak, and the price of annealing from the prior is known."""
    if evidence.plan.n_confirming >= FEWEST_FAMILIES or source is None or source.length is None:
        return False
    return evidence.stopped_by in ("target_se", "single_round")


def _is_round_affordable(evidence: Evidence, runner: Runner) -> bool:
    """Whether a round from the prior costs little more than what has been spent."""
    assert evidence.plan.fallback is not None
    assert evidence.plan.fallback.length is not None
    n_steps = evidence.plan.fallback.length * evidence.plan.stretch
    return n_steps * evidence.run.log_weights.size <= _affordable(evidence, runner)


def _affordable(evidence: Evidence, runner: Runner) -> float:
    """Return how many transitions cost little more than what has been spent, in the time that is left."""
    plan, n_gradients, left = evidence.plan, evidence.problem.engine.kernel.n_gradients, runner.clock.left
    if left == 0.0:
        return 0.0
    spared = 0
    if plan.tail is not None and plan.tail.mass:
        spared = plan.tail.length * evidence.run.log_weights.size * n_gradients
    paid = runner.ledger.gradients
    most = _AFFORDABLE * max(paid.total() - paid[DIAGNOSIS], spared)
    if plan.seconds_per_gradient:
        most = min(most, left / plan.seconds_per_gradient)
    return most / n_gradients


def _ask_prior(evidence: Evidence, prior: Fallback, runner: Runner) -> Evidence:
    """Anneal chains from the prior, each on its own, and count how many end where the particles of the rounds are.

    Where too few of the chains do, their share tells how many more are needed.  Where some may have been too slow,
    others take more temperatures.
    """
    assert prior.length is not None
    problem, plan = prior.build()
    if not problem.is_prior:
        return evidence
    length, n_chains, most = prior.length, _CHAINS, _affordable(evidence, runner)
    # As many as a program moves that is compiled already, where these cost less than all evaluations so far.
    n_compiled = evidence.problem.engine.tile(CHUNK)
    if n_chains < n_compiled and 2 * n_compiled * (length + moves_on(length)) <= most:
        n_chains = n_compiled
    while _is_doubted(evidence, prior):
        if n_chains * (length + moves_on(length)) > most:
            break
        missing = FEWEST_FAMILIES - evidence.plan.n_confirming
        found, n_made = count_arrivals(evidence, problem, plan, length, n_chains, missing, runner, most)
        most -= n_chains * n_made
        _log.debug("%d chains from the prior: %s", n_chains, found)
        if found.are_elsewhere:
            break
        if found.are_late:
            # If chains stay elsewhere for good, five of the next ones should end there.
            again = int(np.ceil(5.0 * n_chains / found.n_elsewhere)) if found.n_elsewhere else 0
            length, n_chains = 4 * length, max(_CHAINS, again)
            continue
        n_confirming = evidence.plan.n_confirming + found.n_confirming
        evidence = replace(evidence, plan=replace(evidence.plan, n_confirming=n_confirming))
        # Twice as many as should be enough, as a share is only an estimate.
        needed = max(missing - found.n_confirming, found.fewest)
        n_chains = max(_CHAINS, int(np.ceil(2.0 * needed * n_chains / found.n_arrived)))
    return evidence


def _with_particles(remembered: np.ndarray | None, evidence: Evidence) -> np.ndarray | None:
    """Add particles of a run that is given up: a mode that only they have reached is searched for in the next run."""
    run = evidence.run
    log_weights = pool(run.log_weights, run.log_z)
    if not np.isfinite(log_weights).any():
        return remembered
    few = systematic(log_weights, 0.5, 64)  # the next search climbs from each
    x = evidence.problem.to_model(run.positions[few])
    return x if remembered is None else np.concatenate([remembered, x])


def run_from_missed_modes(evidence: Evidence, start: StartOptions, runner: Runner) -> tuple[Evidence, Runner]:
    """Run once more, also from missed modes, if the reference is "auto" and there is time.

    Returns the runner of the run that is kept, too: it has random numbers of its own.
    """
    found, first = evidence.modes, evidence.estimate
    recipe, target_se = runner.sampling.recipe, runner.sampling.target_se
    is_ours = is_auto(start.reference) and start.plan is None and recipe.needs_pilot(runner.compiler.kernel)
    if found is None or not found.refute(first) or not is_ours or target_se is None:
        return evidence, runner
    if not all(variable.n_values for variable in evidence.problem.layout.sites):
        return evidence, runner  # a Gaussian around a mode leaves no distribution for these sites
    if runner.clock.left < runner.ledger.seconds["rounds"] + runner.ledger.seconds[PILOT]:
        return evidence, runner
    _log.info(f"log Z = {first:.3f} misses modes that a search has found: sampling again, from these as well")
    points = found.positions if start.points is None else np.concatenate([start.points, found.positions])
    own, wider = runner.branch(Branch.FROM_MODES), replace(start, points=points)

    def by_points() -> tuple[Problem, Plan]:
        return choose(compile_start(evidence.problem.model, wider, own))

    def once_more() -> Evidence:
        reason = f"A run before it, log Z = {first:.3f}, had missed modes."
        if (beside := start_beside(evidence, found, own)) is None:
            problem, plan = by_points()
        else:
            problem, plan = beside
            fallback = None if found.is_conditional else Fallback(by_points)
            plan = replace(plan, n_confirming=evidence.plan.n_confirming, fallback=fallback)
        return run_until_confirmed(problem, replace(plan, reason=reason), wider.points, own)

    what = "a run from the modes that were missed"
    again = runner.attempt(what, once_more, None, is_slow=True, is_kept=True)
    return (evidence, runner) if again is None else (_keep_measured(evidence, found, again), own)


def _keep_measured(first: Evidence, found: Modes, second: Evidence) -> Evidence:
    """Keep the first run's mass outside of its missed modes, if the second run has lost it.

    The number of modes that one climb alone had reached is kept, too: the second search begins at these modes.
    """
    if second.modes is not None:
        second = replace(second, modes=replace(second.modes, n_rare=found.n_rare))
    missed = [found.peaks[i] for i in found.missed.which]
    is_outside = are_outside(second.problem, second.run, first.problem, missed)
    was_outside = are_outside(first.problem, first.run, first.problem, missed)
    one = measure_outside(first.run, first.estimate.value, was_outside)
    two = measure_outside(second.run, second.estimate.value, is_outside)
    if not is_lost(one, two):
        return second
    estimate = with_outside(second.estimate, two, one)
    _log.info(f"The second run lost a part that the first one had measured: log Z = {estimate:.3f} with that part")
    if np.isfinite(two.log_mass):
        second = replace(second, last=reweigh(second.run, is_outside, one.log_mass - two.log_mass))
    return second.with_row(replace(second.row, estimate=estimate))
