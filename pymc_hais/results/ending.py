"""The end of a run of ``sample_hais``: what is found, said and labelled of it, and written."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from xarray import DataTree

from pymc_hais.jobs.guard import Guard
from pymc_hais.planning.follow import record_plan
from pymc_hais.request.call import Call
from pymc_hais.results.datatree import to_datatree
from pymc_hais.results.diagnose import Seen, with_findings
from pymc_hais.results.plans import keep_result
from pymc_hais.results.report import attributes, log_outcome
from pymc_hais.run.choice import Choice
from pymc_hais.run.modes import Modes
from pymc_hais.run.posterior import PosteriorDraws
from pymc_hais.run.rounds import Outcome


def end_run(
    model: Any,
    named: Callable[[np.ndarray], dict[str, np.ndarray]],
    choice: Choice,
    outcome: Outcome,
    posterior: PosteriorDraws,
    found: Modes | None,
    call: Call,
    guard: Guard,
    begin: float,
) -> DataTree:
    """Make the result of a run of one model whose rounds have ended, in a call that began at a time.

    ``named`` makes what the result keeps of flat vectors (..., D).
    """
    if found is not None:
        some = replace(found, values=choice.problem.layout.unflatten(found.positions))
        every = found.positions
        found = guard.attempt(
            "the modes in the variables' own spaces", lambda: replace(some, values=named(every)), some
        )
    values = guard.attempt(
        "the draws in the variables' own spaces (they are in the unconstrained one)",
        lambda: named(posterior.positions),
        choice.problem.layout.unflatten(posterior.positions),
    )
    learnt = guard.attempt("the plan", lambda: record_plan(choice, outcome, call), None)
    estimate = guard.surely(lambda: with_findings(Seen(choice, outcome, call, found), guard))
    seconds = time.perf_counter() - begin
    guard.surely(lambda: log_outcome(estimate, outcome, choice, call, seconds))
    attrs = guard.surely(lambda: attributes(choice, outcome, posterior, call, seconds))
    tree = to_datatree(model, values, posterior, outcome, estimate, attrs, call.output, guard, found, learnt)
    keep_result(tree, call.workers.checkpoint, guard)
    return tree
