"""Discrete variables with few joint states: log Z is a sum over all of them, and posterior draws are exact.

Groups of sites that share no term of the log density are independent, so that each is summed on its own, with all
others at one state.  The table becomes the reference of an ordinary run: that all its log weights are equal is what
shows that the sum is right, and were the groups not independent the weights would make up for it.
"""

from dataclasses import replace

import numpy as np

from pymc_hais.core.seeds import Use
from pymc_hais.core.weights import log_sum_exp
from pymc_hais.problem.building import with_reference
from pymc_hais.problem.kept import find_problem, keep_problem
from pymc_hais.problem.problem import CHUNK, Problem
from pymc_hais.references import Enumerated, Independent, StateGroup, state_group
from pymc_hais.run.plan import EVERY_STATE
from pymc_hais.runner.ledger import PILOT
from pymc_hais.runner.runner import Runner
from pymc_hais.tuning import Stopwatch

#: States of all groups, at most: fewer evaluations than a pilot of a model with as many sites takes.
MOST_STATES = 2**18


def find_state_groups(problem: Problem) -> list[StateGroup] | None:
    """Return the independent groups of sites; None where they have too many states, or not all variables are sites."""
    layout = problem.layout
    if layout.n_continuous or problem.n_rows > 1 or not all(variable.n_values for variable in layout.sites):
        return None
    groups = [state_group(layout, sites) for sites in problem.meetings.groups]
    return groups if sum(group.n_states for group in groups) <= MOST_STATES else None


def enumerate_states(problem: Problem, runner: Runner) -> Problem | None:
    """Compile the problem for a table of its posterior; None where there are too many states, or no time.

    Costs one evaluation of the density for each state, and nothing where it is kept from an earlier call.
    """
    groups = find_state_groups(problem)
    if groups is None:
        return None
    model, identity, compiler = problem.model, problem.identity, runner.compiler
    if identity and (kept := find_problem(model, identity, EVERY_STATE, compiler, takes_fit=False)):
        return kept
    base, log_p, seconds = _likeliest_draw(problem, runner)
    if len(groups) > 1 and not np.isfinite(log_p):  # no group has a possible state beside the others'
        return None
    n_states = sum(group.n_states for group in groups)
    # The share of the time left that a sum over all states may take.
    if seconds * n_states / CHUNK > 0.35 * runner.clock.left:
        return None
    tables = [_tabulate(problem, group, base) for group in groups]
    runner.pay(PILOT, n_states)
    reference = Independent(Enumerated(groups, tables), problem.layout.n_dims)
    found = replace(with_reference(model, problem.layout, reference, compiler, runner.seeds), identity=identity)
    if identity:
        keep_problem(found, EVERY_STATE, compiler, takes_fit=False)
    return found


def _likeliest_draw(problem: Problem, runner: Runner) -> tuple[np.ndarray, float, float]:
    """Return the likeliest of ``CHUNK`` reference draws (D,), its log density, and the seconds of all evaluations."""
    draws = problem.reference.draw(CHUNK, runner.seeds.of(Use.LIKELIEST)).positions
    watch = Stopwatch(problem.engine.clock)
    log_p = problem.log_density(draws)
    runner.pay(PILOT, CHUNK)
    best = np.argmax(log_p)
    return draws[best], float(log_p[best]), watch.elapsed


def _tabulate(problem: Problem, group: StateGroup, base: np.ndarray) -> np.ndarray:
    """Return the log probabilities (K,) of a group's states, with all other sites at a state (D,)."""
    states = np.tile(base, (group.n_states, 1))
    states[:, group.sites] = group.values(np.arange(group.n_states))
    log_p = problem.log_density(states)
    return log_p - log_sum_exp(log_p)
