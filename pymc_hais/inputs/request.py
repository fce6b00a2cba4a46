"""The arguments of a public function, checked before any work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from pymc_hais.core.process import check_memory
from pymc_hais.core.protocols import Kernel
from pymc_hais.core.records import RESAMPLE_BELOW, Schedule
from pymc_hais.core.schedules import FIXED
from pymc_hais.core.seeds import Seeds
from pymc_hais.density import Model, build_layout
from pymc_hais.density.compat import seeds_per_chain
from pymc_hais.engines import resolve_backend
from pymc_hais.inputs.arguments import (
    check_choice,
    check_flag,
    check_integer,
    check_labelled,
    check_names,
    check_positive,
    check_seed,
    check_theme,
)
from pymc_hais.inputs.kernels import read_kernels
from pymc_hais.inputs.labels import Output
from pymc_hais.inputs.saved import read_plan
from pymc_hais.inputs.start import follow, read_start
from pymc_hais.planning.starts import StartOptions
from pymc_hais.problem.problem import Compiler
from pymc_hais.run.plan import Plan
from pymc_hais.runner.progress import CallProgress
from pymc_hais.runner.runner import Call, Compute, Runner, Sampling
from pymc_hais.runner.timing import start_clock
from pymc_hais.runner.workers import Workers
from pymc_hais.tuning import CONSTANT_SPEED, FINAL_MOVES, Recipe


@dataclass(frozen=True, kw_only=True)
class Request:
    """The checked arguments of a public function."""

    model: Any
    sampling: Sampling
    start: StartOptions
    compute: Compute
    output: Output

    def runner(self) -> Runner:
        """Return the runner of the call, and start its clock."""
        compute = self.compute
        seeds = seeds_per_chain(random_state=compute.random_seed, chains=self.sampling.chains)
        return Runner(
            sampling=self.sampling,
            compute=compute,
            seeds=Seeds(tuple(map(int, seeds))),
            compiler=compute.compiler,
            progress=CallProgress(compute.progressbar, compute.progressbar_theme),
            clock=start_clock(compute.max_seconds),
            workers=Workers(compute.executor, None, compute.compiler.cores),
        )


#: The arguments of :func:`pymc_hais.sample_hais` and their defaults, for functions that have some of them.
_DEFAULTS: dict[str, Any] = {
    "draws": 1000, "chains": 4, "reference": "auto", "modes": None, "kernel": None, "constraints": None,
    "path": "geometric", "schedule": CONSTANT_SPEED, "n_temperatures": None, "resample": True, "target_se": 0.1,
    "estimators": (), "max_temperatures": 10_000, "max_seconds": None, "plan": None, "random_seed": None,
    "var_names": None, "cores": None, "executor": None, "checkpoint": None, "backend": None, "compile_kwargs": None,
    "progressbar": False, "progressbar_theme": None, "idata_kwargs": None,
}  # fmt: skip
#: Arguments that change no number of the result: resources, display and what is kept; and the seed.
_NO_NUMBERS = {
    "cores", "executor", "checkpoint", "progressbar", "progressbar_theme", "var_names", "idata_kwargs", "random_seed",
}  # fmt: skip


def _of_content(given: dict[str, Any]) -> dict[str, Any]:
    """Leave out arguments that change no number of the call; for a file of a plan its content counts."""
    if given.get("sample_kwargs"):
        kept = {name: value for name, value in given["sample_kwargs"].items() if name not in _NO_NUMBERS}
        given = given | {"sample_kwargs": _of_content(kept)}
    return given | {"plan": Path(given["plan"])} if isinstance(given.get("plan"), str) else given


def read(function: str, model: Model, given: Mapping[str, Any], plan: Plan | None = None, **others: Any) -> Request:
    """Check the arguments of a public function, before any work.

    Parameters
    ----------
    given : dict
        The function's arguments by name; those of sample_hais that it does not have are left at their defaults.
    plan : Plan, optional
        Followed in place of an argument ``plan``.
    **others
        Further arguments on which numbers of the result depend.

    Raises
    ------
    ValueError, NotImplementedError
        Naming the argument, what was given and what to pass.
    ImportError
        For ``backend="jax"`` without JAX.
    """
    asked = SimpleNamespace(**{name: given.get(name, default) for name, default in _DEFAULTS.items()})
    _check_numbers(asked)
    check_flag("resample", asked.resample)
    check_seed(asked.random_seed)
    check_names("var_names", asked.var_names)
    check_theme(asked.progressbar_theme)
    estimators = check_choice("estimators", asked.estimators, ("bridge", "linked", "bidirectional"))
    kernel, sites = read_kernels(model, asked, estimators)
    sampling = _read_sampling(model, asked, estimators, kernel)
    output = _build_output(model, {} if asked.idata_kwargs is None else asked.idata_kwargs, asked.var_names)
    numbers = {name: value for name, value in vars(asked).items() if name not in _NO_NUMBERS} | others
    _check_limits(asked, others)
    backend, options = resolve_backend(asked.backend, asked.compile_kwargs)
    compiler = Compiler(kernel, backend, options, asked.cores, sites)
    start = StartOptions(asked.reference, asked.path)
    if model is None or model.free_RVs:
        plan = read_plan(asked.plan) if plan is None and asked.plan is not None else plan
        if plan is not None:
            sampling, compiler = follow(plan, asked, sampling, compiler, "`idata`" if "idata" in others else "`plan`")
        start = read_start(model, asked, estimators, plan)
    compute = Compute(
        call=Call(function, model, _of_content(numbers)),
        compiler=compiler,
        random_seed=asked.random_seed,
        executor=asked.executor,
        checkpoint=asked.checkpoint,
        max_seconds=asked.max_seconds,
        progressbar=asked.progressbar,
        progressbar_theme=asked.progressbar_theme,
    )
    return Request(model=model, sampling=sampling, start=start, compute=compute, output=output)


def _check_limits(asked: SimpleNamespace, others: Mapping[str, Any]) -> None:
    """Refuse a limit of time beside a checkpoint."""
    of_log_z = others.get("sample_kwargs") or {}
    if asked.checkpoint is not None and (asked.max_seconds is not None or of_log_z.get("max_seconds") is not None):
        raise ValueError(
            "`checkpoint` takes no `max_seconds`, since a run that is cut short is not reproducible: leave one of "
            "them out. A call with a checkpoint may be interrupted or killed at any time, and goes on when it is "
            "made again."
        )


def _check_numbers(asked: SimpleNamespace) -> None:
    if not (isinstance(asked.max_seconds, float) and asked.max_seconds == np.inf):  # which is no limit
        check_positive("max_seconds", asked.max_seconds, "seconds", "no limit")
    for name, least, is_optional in (
        ("draws", 100, False),
        ("chains", 1, False),
        ("max_temperatures", 2, False),
        ("cores", 1, True),
        ("n_temperatures", 0, True),
    ):
        value = getattr(asked, name)
        if value is not None or not is_optional:
            check_integer(name, value, least)
    check_positive("target_se", asked.target_se, "nats", "one round")


def _read_sampling(model: Model, asked: SimpleNamespace, estimators: tuple[str, ...], kernel: Kernel) -> Sampling:
    draws, chains, target_se, longest = asked.draws, asked.chains, asked.target_se, int(asked.max_temperatures)
    if draws * chains > 10**6:  # memory is checked before compiling too, and not only before the pilot
        check_memory(int(draws), int(chains), build_layout(model).n_dims)
    recipe, length = _build_recipe(kernel, asked)
    is_named = isinstance(asked.schedule, str)
    if length is not None and target_se is not None and is_named and length > longest:
        raise ValueError(f"`n_temperatures` = {length} is above `max_temperatures` = {longest}.")
    return Sampling(
        draws=int(draws),
        chains=int(chains),
        target_se=None if target_se is None else float(target_se),
        n_temperatures=length,
        max_temperatures=max(longest, length or 0),
        estimators=estimators,
        recipe=recipe,
    )


def _build_recipe(kernel: Kernel, asked: SimpleNamespace) -> tuple[Recipe, int | None]:
    """Return the user's choices that the plan keeps, and the length of the first round if it is given."""
    schedule, n_temperatures = asked.schedule, asked.n_temperatures
    length = None if n_temperatures is None else max(int(n_temperatures), 1)
    if isinstance(schedule, str):
        if schedule not in (CONSTANT_SPEED, *FIXED):
            raise ValueError(
                f"`schedule` must be one of {', '.join(map(repr, ('constant_speed', *FIXED)))}, or an increasing array "
                f"of betas from 0 to 1; got {schedule!r}."
            )
    else:
        schedule = Schedule(schedule)
        if length is not None and length != len(schedule):
            raise ValueError(
                f"`schedule` has {len(schedule)} steps; leave out `n_temperatures` (got {n_temperatures})."
            )
        length = len(schedule)
    recipe = Recipe(
        n_final_moves=0 if n_temperatures == 0 else FINAL_MOVES,
        resample_below=RESAMPLE_BELOW if asked.resample else 0.0,
        # A single step from 0 to 1 needs no tuned schedule.
        schedule=FIXED["linear"](1) if n_temperatures == 0 else schedule,
    )
    if not recipe.needs_pilot(kernel) and length is None:
        raise ValueError("A fixed step size on a fixed schedule leaves nothing to tune: pass `n_temperatures` too.")
    return recipe, length


def _build_output(model: Model, idata_kwargs: dict[str, Any], var_names: Sequence[str] | None) -> Output:
    if idata_kwargs != {}:
        check_labelled(model, idata_kwargs)
    known = [one.name for one in fields(Output) if one.name != "var_names"]
    unknown = sorted(set(idata_kwargs) - set(known))
    if unknown:
        raise ValueError(f"Unknown `idata_kwargs` {unknown}: pass some of {known}.")
    output = Output(**idata_kwargs, var_names=var_names)
    if var_names is not None and (output.log_likelihood or output.log_prior):
        raise ValueError(
            "`log_likelihood` and `log_prior` are computed from all variables: leave out `var_names`, or call "
            "pm.compute_log_likelihood on a result with all of them."
        )
    return output
