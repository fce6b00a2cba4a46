"""The end of a run of ``sample_hais``: what is found, said and labelled of it, and written."""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from xarray import DataTree

from pymc_hais.jobs.guard import Guard
from pymc_hais.planning.follow import record_plan
from pymc_hais.results.datatree import to_datatree
from pymc_hais.results.diagnose import Seen, with_findings
from pymc_hais.results.plans import keep_result
from pymc_hais.results.report import attributes, log_outcome
from pymc_hais.run.posterior import PosteriorDraws


def end_run(
    seen: Seen,
    named: Callable[[np.ndarray], dict[str, np.ndarray]],
    posterior: PosteriorDraws,
    guard: Guard,
    begin: float,
) -> DataTree:
    """Make the result of a run of one model whose rounds have ended, in a call that began at a time.

    ``named`` makes what the result keeps of flat vectors (..., D).
    """
    unflatten, call = seen.problem.layout.unflatten, seen.call
    if (found := seen.modes) is not None:
        some = replace(found, values=unflatten(found.positions))
        own = guard.attempt(
            "the modes in the variables' own spaces", lambda: replace(some, values=named(some.positions)), some
        )
        seen = replace(seen, modes=own)
    values = guard.attempt(
        "the draws in the variables' own spaces (they are in the unconstrained one)",
        lambda: named(posterior.positions),
        unflatten(posterior.positions),
    )
    learnt = guard.attempt("the plan", lambda: record_plan(seen.choice, seen.outcome, call), None)
    estimate = guard.surely(lambda: with_findings(seen, guard))
    seconds = time.perf_counter() - begin
    guard.surely(lambda: log_outcome(estimate, seen, seconds))
    attrs = guard.surely(lambda: attributes(seen, posterior, seconds))
    tree = to_datatree(seen, values, posterior, estimate, attrs, guard, learnt)
    keep_result(tree, call.workers.checkpoint, guard)
    return tree
