"""extend: more particles of the same plan, joined with the result that they extend."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
from xarray import DataTree

from pymc_hais.calls.compile import CompiledModel, Opened, open_model
from pymc_hais.core.protocols import Kernel
from pymc_hais.core.seeds import Branch
from pymc_hais.density.compat import RandomState, default_theme
from pymc_hais.inputs.arguments import explain_unknown
from pymc_hais.inputs.request import Request, read
from pymc_hais.inputs.results import check_goes_on, check_model_of, open_result, read_backend, read_evidence, read_whole
from pymc_hais.planning.building import compile_integrated
from pymc_hais.planning.choose import choose
from pymc_hais.results.datatree import to_extended_tree
from pymc_hais.results.report import log_nothing_added
from pymc_hais.run.extending import add_chains, add_draws, reach_target
from pymc_hais.run.plan import Plan


@explain_unknown
def extend(
    idata: DataTree | str | os.PathLike[str],
    *,
    draws: int | None = None,
    chains: int | None = None,
    target_se: float | None = None,
    model: pm.Model | CompiledModel | None = None,
    reference: Any = "auto",
    kernel: Kernel | None = None,
    random_seed: RandomState = None,
    cores: int | None = None,
    executor: Executor | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    backend: str | None = None,
    compile_kwargs: dict[str, Any] | None = None,
    progressbar: bool | str = True,
    progressbar_theme: Any = default_theme,
) -> DataTree:
    """Add particles to a result of :func:`sample_hais`: more draws, and a smaller error of log Z.

    Fresh populations are annealed along the plan of the result's last round, exactly as it was frozen, and there is no
    pilot.  So new and old populations are independent estimates of the same Z by the same method, and their average is
    as unbiased as each of them.  The rounds are weighted by their particles times their temperatures; the new
    populations belong to the last round.

    The Monte Carlo error falls as one over the root of the particles.  Errors that all particles of a plan share do not
    fall.  A region that the plan does not reach stays out of reach, and the part of ``shortfall`` for the finite
    number of temperatures and the tail of the log ratio does not change.  If this part is the larger one, a longer
    plan is needed: call :func:`sample_hais` with a smaller ``target_se``.

    Parameters
    ----------
    idata : DataTree or path
        Whole result of :func:`sample_hais` or of this function, which is not changed; the file of one; or the folder of
        a ``checkpoint`` whose run has ended.
    draws : int, optional
        Draws to add to every chain, from new populations; at least 100.  A particle gives as many draws as in the
        result, but a chain gets at least 50 new particles.
    chains : int, optional
        Chains to add, of as many particles as the others.
    target_se : float, optional
        Add chains until ``se``, the whole error of log Z in nats, is below this.
    model : pymc.Model or CompiledModel, optional
        Needed outside a ``with model:`` block; with the data of the result.
    reference, kernel : optional
        The same objects as for the result, where they were of your own making.
    random_seed : int, sequence of int, RandomState or Generator, optional
        Of the new particles.  No extension shares random numbers with the run or with another extension, whatever the
        seeds are.
    cores, executor, checkpoint, backend, compile_kwargs, progressbar, progressbar_theme : optional
        As in :func:`sample_hais`.  The default backend is the result's; if that was a PyTensor mode, pass it again, or
        a backend is chosen anew.  A ``checkpoint`` is a folder of the extension alone.

    Returns
    -------
    DataTree
        As of :func:`sample_hais`, from all particles.  Old and new draws are pooled by their estimates of Z.  ``modes``
        and the estimates of other methods are those of the first run.  Times and evaluations are added up, and
        ``extensions`` counts the extensions.  Variables and groups that ``sample_hais`` did not make exist for the old
        draws only: a warning names them, and they are left out.

    Raises
    ------
    ValueError
        If not exactly one of ``draws``, ``chains`` and ``target_se`` is given; if the result is not complete or has no
        plan; if it is of another model or other data (the message says what differs); or if the model has content that
        cannot be described, such as an Op with an open file and without ``__props__``, and its log density cannot be
        computed for comparison.

    Examples
    --------
    >>> idata = pm.sample_hais()  # doctest: +SKIP
    >>> idata = pymc_hais.extend(idata, chains=12)  # half the error  # doctest: +SKIP
    """
    given = dict(locals())
    added = {"draws": draws, "chains": chains, "target_se": target_se}
    _check_added(added)
    result: DataTree = open_result(idata)
    if backend is None and compile_kwargs is None and not isinstance(model, CompiledModel):
        given["backend"] = read_backend(result)
    opened = open_model(given)
    model = opened.model
    record, old = read_whole(result)
    attrs = result["posterior"].attrs
    _check_before(record, result, opened)
    request = _read_request(opened, record, result, added)
    number = int(attrs.get("extensions", 0)) + 1
    with request.runner() as runner:
        runner = runner.branch(Branch.EXTENSION, number)
        with runner.progress:
            search, integrated = compile_integrated(model, request.start, runner, opened.is_compiled)
            check_model_of(record.made, integrated.model)
            problem, plan = choose(search)
            runner.used.clear()  # the rounds of an extension have random numbers of their own
            plan = replace(plan, tail=record.tail, draws_each=record.draws_each)  # of the same data
            ladder = plan.ladder(problem, len(plan.made.ladder.schedule))
            before = read_evidence(result, old, problem, plan, ladder)
            named = opened.build_outputs(integrated.whole, None, True)
            check_goes_on(result, named(np.zeros((1, 1, integrated.whole.n_dims))))
            if target_se is not None:
                extended = reach_target(before, target_se, runner)
            else:
                extended = (add_chains if draws is None else add_draws)(before, runner)
            runner.progress.is_cut = runner.ledger.is_interrupted
            runner.progress.conclude(f"{extended.estimate:.2f}")
        if extended.posterior is None:
            log_nothing_added(old, runner)
            return result.copy()
        if target_se is None and attrs["target_se"] > 0.0:  # of the first run, which the findings judge by
            runner = runner.with_sampling(target_se=float(attrs["target_se"]))
        return runner.finish(lambda: to_extended_tree(result, before, extended, named, runner, model, integrated))


def _check_added(added: Mapping[str, Any]) -> None:
    """Refuse a call unless exactly one of ``draws``, ``chains`` and ``target_se`` is given."""
    if sum(value is not None for value in added.values()) != 1:
        named = ", ".join(f"{name}={value!r}" for name, value in added.items() if value is not None) or "none"
        raise ValueError(f"Pass exactly one of `draws`, `chains` and `target_se`; got {named}.")


def _check_before(record: Plan, result: DataTree, opened: Opened) -> None:
    """Refuse another model; where variables were integrated out, the model without them is compared later."""
    names = {rv.name for rv in opened.model.free_RVs}
    is_later = "integrated_out" in result["posterior"].attrs and names.issuperset(record.made.layout.owners)
    if not is_later:
        check_model_of(record.made, opened.model)


def _read_request(opened: Opened, record: Plan, result: DataTree, added: Mapping[str, Any]) -> Request:
    """Return the request of an extension.

    Draws and chains that are not added are those of the result; the temperatures are those of its last round.
    """
    attrs, longest = result["posterior"].attrs, max(2, len(record.made.ladder.schedule))
    kept = {name: int(attrs[name]) for name in ("draws", "chains") if added[name] is None}
    asked = opened.arguments | {"max_temperatures": longest} | kept
    return read("extend", opened.model, asked, record, idata=result, added=added)
