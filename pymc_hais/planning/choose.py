"""The choice of a start and its annealing: strategies are tried in order, and pilots compare the last ones."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pymc_hais.core.noise import check_counters
from pymc_hais.core.seeds import PilotNumber, Use
from pymc_hais.planning.building import build_ratio_problem, compile_first
from pymc_hais.planning.enumeration import enumerate_states
from pymc_hais.planning.fits import fit_margins, fit_to_draws
from pymc_hais.planning.fitted_starts import fit_to_pilot, fit_to_sites
from pymc_hais.planning.follow import follow_known
from pymc_hais.planning.learning import Trial, learn
from pymc_hais.planning.mass import measure_for_fit, measure_mass
from pymc_hais.planning.modes.fields import try_fields_first
from pymc_hais.planning.modes.near import start_on_hill, try_mode_first
from pymc_hais.planning.modes.reference import add_modes
from pymc_hais.planning.starts import GivenDraws, Search, Strategy, is_auto, takes_fit
from pymc_hais.problem.problem import Problem
from pymc_hais.problem.refusals import TooFarError
from pymc_hais.run.plan import Fallback, Plan
from pymc_hais.runner.ledger import PILOT
from pymc_hais.runner.runner import Runner

_log = logging.getLogger("pymc.hais")

#: Reference draws at which a row is evaluated that fewer have not made possible: rows may be possible, but rare.
_LOOKED_AT_MOST = 2000


def choose(search: Search) -> tuple[Problem, Plan]:
    """Choose where to start and how to anneal: by the first strategy that ends the search, or by pilots.

    Before, the problem is replaced where runs have to tell its reference: a reference model, or modes that the user's
    points lead to.
    """
    if search.target is not None:
        model, runner = search.target
        problem = build_ratio_problem(model, *choose(replace(search, target=None)), runner)
        search = Search(problem, search.reference, runner)
    else:
        search = measure_mass(search if search.points is None else add_modes(search))
    problem = search.problem
    check_counters(search.runner.sampling.draws, problem.layout.n_continuous, problem.engine.kernel.n_uniforms)
    try:
        return _try([*AT_ONCE, *BY_PILOTS], search)
    except TooFarError as error:
        if not is_auto(search.reference):
            raise
        on_hill = start_on_hill(problem, search.runner)
        if isinstance(on_hill, str):
            error.add_note(f"No start at the mode: {on_hill}")
            raise
        return on_hill.start


def _try(strategies: Sequence[Strategy], search: Search) -> tuple[Problem, Plan]:
    for strategy in strategies:
        found = strategy(search)
        if isinstance(found, Search):
            search = found
        elif isinstance(found, Trial):
            search = replace(search, found=found)
            if strategy in AT_ONCE:
                break
        elif found and search.found is not None:
            search = replace(search, found=search.found.because(found))
    return search.best.start


def leave_untuned(search: Search) -> Trial | str:
    """Use kernel, schedule and reference as given, if a pilot has nothing to choose."""
    problem, runner = search.problem, search.runner
    is_free = takes_fit(search.reference) and not is_auto(search.reference)
    if is_free or runner.sampling.recipe.needs_pilot(problem.engine.kernel):
        return ""
    lengths = np.full(problem.n_rows, runner.sampling.n_temperatures or 1)
    return Trial(problem, Plan.of(problem, runner.compiler, runner.sampling.recipe, lengths, search.mass), runner)


def fit_to_given(search: Search) -> Trial | str:
    """Start from a fit to draws of another sampler, if these are given."""
    problem, runner = search.problem, search.runner
    if not isinstance(search.reference, GivenDraws):
        return ""
    x = search.reference.positions
    if problem.layout.n_sites:
        return learn(fit_margins(problem, x, runner), [0], PilotNumber.FIRST, runner)
    search = measure_for_fit(search)
    near = fit_to_draws(problem, x, search.log_prior_mass, "the draws given")
    return learn(near, [0], PilotNumber.FIRST, runner, mass=search.mass)


def sum_states(search: Search) -> Trial | str:
    """Start from the posterior itself, where the discrete variables have few enough states."""
    if not is_auto(search.reference) or search.runner.sampling.n_temperatures is not None:
        return ""
    if (exact := enumerate_states(search.problem, search.runner)) is None:
        return ""
    return learn(exact, [0], PilotNumber.FIRST, search.runner).because("Few enough states to sum over all of them.")


def start_near_mode(search: Search) -> Trial | str:
    """Start from the mode, with fields integrated out, if the model allows it; pilots are next if rounds refute it."""
    problem, runner = search.problem, search.runner
    if not is_auto(search.reference):
        return ""
    has_fields = problem.chart is not None and problem.chart.fields
    first = (try_fields_first if has_fields else try_mode_first)(problem, runner)
    if isinstance(first, str):
        if first:
            _log.debug("Not from the mode: %s", first)
        return first
    return first.knowing(fallback=Fallback(lambda: _try(BY_PILOTS, search)))


def start_near_mode_again(search: Search) -> Trial | Search | str:
    """Try the mode in other coordinates than those of linear predictors; pilots, which may follow, move in these."""
    if not is_auto(search.reference) or not search.problem.fixes_predictors:
        return ""
    search = replace(search, problem=compile_first(search.problem.model, search.reference, search.runner).problem)
    found = start_near_mode(search)
    return search if isinstance(found, str) else found


def start_from_reference(search: Search) -> Trial | str:
    """Run the first pilot.

    Of many rows of data three have pilots, and a short scouting round, which is not reported, tells about the others.

    Raises ValueError for a fit where every row of data would need one of its own.
    """
    problem, reference, runner = search.problem, search.reference, search.runner
    is_ours = is_auto(reference)
    if takes_fit(reference) and not is_ours and problem.layout.n_sites and problem.n_rows > 1:
        raise ValueError(
            'reference="fitted" is not for this model: each row of data has margins of its own. Pass reference="prior".'
        )
    rows, scouts = choose_rows(problem, runner), takes_fit(reference)
    first = learn(problem, rows, PilotNumber.FIRST, runner, scouts_for_fit=scouts, mass=search.mass)
    return first.because("") if is_ours else first


def choose_rows(problem: Problem, runner: Runner) -> list[int]:
    """Choose the rows that get a pilot of their own, evenly from the least to the most likely under the reference.

    A row that few reference draws make possible has no pilot where other rows have enough: it is annealed by their
    plan, and the draws that make it impossible count as weights of zero.  Raises ValueError if there are rows that no
    reference draw makes possible.
    """
    if problem.n_rows == 1:
        return [0]
    stream = runner.seeds.stream(*Use.ROWS.value)

    def look(row: int, n: int) -> tuple[float, float]:
        """Return the share of n reference draws that make a row possible, and the median of their log ratios."""
        runner.pay(PILOT, n)
        log_ratio = np.asarray(problem.draw([row], [stream], n).state.log_ratio)[0]
        possible = np.isfinite(log_ratio)
        return float(possible.mean()), float(np.median(np.where(possible, log_ratio, -np.inf)))

    # Reference draws at which each row is evaluated before any pilot.
    looks = [look(row, 100) for row in range(problem.n_rows)]
    looks = [(share, median) if share else look(row, _LOOKED_AT_MOST) for row, (share, median) in enumerate(looks)]
    share, median = np.array(looks).T
    impossible = np.flatnonzero(share == 0.0)
    if impossible.size:
        shown = ", ".join(map(str, impossible[:5])) + (", ..." if impossible.size > 5 else "")
        raise ValueError(
            f"The log-likelihood is not finite at any of {_LOOKED_AT_MOST:,} draws of {problem.label} for "
            f"{impossible.size} of {problem.n_rows} rows (row {shown}). Check that these rows lie in the support of "
            "the likelihood. Rows that lie in it, but are this rare, need a `reference` that makes them possible."
        )
    # A tenth of a pilot's particles alive is enough to learn by.
    enough = np.flatnonzero(share >= min(0.1, share.max()))
    ranked = enough[np.lexsort((share[enough], median[enough]))]
    # Rows of data that get a pilot of their own.
    chosen = np.linspace(0, len(ranked) - 1, min(3, len(ranked))).round().astype(int)
    return ranked[chosen].tolist()


#: Strategies whose trial ends the search.
AT_ONCE: list[Strategy] = [
    follow_known, leave_untuned, fit_to_given, sum_states, start_near_mode, start_near_mode_again,
]  # fmt: skip
#: Strategies that are compared by pilots, in this order.
BY_PILOTS: list[Strategy] = [start_from_reference, fit_to_sites, fit_to_pilot]
