"""The arguments of a public function, checked before any work: one ``read`` for all functions."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from pymc_hais.core.process import check_memory
from pymc_hais.core.protocols import Kernel
from pymc_hais.core.records import RESAMPLE_BELOW, Schedule
from pymc_hais.core.schedules import FIXED
from pymc_hais.core.seeds import Seeds
from pymc_hais.density import Model, build_layout, discrete_names, is_model
from pymc_hais.density.compat import seeds_per_chain
from pymc_hais.engines import resolve_backend
from pymc_hais.inputs.arguments import (
    check_choice,
    check_flag,
    check_integer,
    check_names,
    check_positive,
    check_seed,
    check_theme,
)
from pymc_hais.inputs.draws import is_result, read_modes, read_positions
from pymc_hais.inputs.labels import Output
from pymc_hais.inputs.results import read_plan
from pymc_hais.kernels import Gibbs, Hamiltonian
from pymc_hais.opinions.bridging import thin_rows
from pymc_hais.planning.starts import GivenDraws, StartOptions, is_auto
from pymc_hais.problem.constraints import build_constraints
from pymc_hais.problem.parameter_path import is_geometric
from pymc_hais.problem.problem import Compiler
from pymc_hais.run.plan import Own, Plan, is_same_kernel
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


#: The arguments of :func:`pymc_hais.sample_hais` and their defaults, for functions that have some of them.  Written
#: out, because ``calls`` imports this module; a test compares them with the signature.
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
    kernel, sites = _read_kernels(model, asked, estimators)
    sampling = _read_sampling(model, asked, estimators, kernel)
    output = _read_output(model, asked)
    of_log_z = others.get("sample_kwargs") or {}
    if asked.checkpoint is not None and (asked.max_seconds is not None or of_log_z.get("max_seconds") is not None):
        raise ValueError(
            "`checkpoint` takes no `max_seconds`, since a run that is cut short is not reproducible: leave one of "
            "them out. A call with a checkpoint may be interrupted or killed at any time, and goes on when it is "
            "made again."
        )
    backend, options = resolve_backend(asked.backend, asked.compile_kwargs)
    compiler = Compiler(kernel, backend, options, asked.cores, sites)
    start = StartOptions(asked.reference, asked.path)
    if model is None or model.free_RVs:
        if plan is None and asked.plan is not None:
            plan = read_plan(asked.plan)
        if plan is not None:
            sampling, compiler = _follow(plan, asked, sampling, compiler, "`idata`" if "idata" in others else "`plan`")
        start = _read_start(model, asked, estimators, plan)
    numbers = {name: value for name, value in vars(asked).items() if name not in _NO_NUMBERS} | others
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


def _read_kernels(model: Model, asked: SimpleNamespace, estimators: tuple[str, ...]) -> tuple[Kernel, Gibbs | None]:
    """Return the kernel of the continuous dimensions, with the constraints, and that of discrete sites if given."""
    given = asked.kernel
    kernels = list(given) if isinstance(given, tuple | list) else [] if given is None else [given]
    of_sites = [one for one in kernels if isinstance(one, Gibbs)]
    others = [one for one in kernels if one not in of_sites]
    is_known = all(hasattr(one, "build") and not isinstance(one, type) for one in kernels)
    is_empty = not kernels and given is not None
    if is_empty or not is_known or len(of_sites) > 1 or len(others) > 1:
        raise ValueError(
            "`kernel` must be a pymc_hais.Hamiltonian(...) or pymc_hais.RandomWalk(...), for discrete variables a "
            f"pymc_hais.Gibbs(), a pair of one of each, or None; got {given!r}."
        )
    kernel, sites = (others or [Hamiltonian()])[0], next(iter(of_sites), None)
    if asked.constraints is not None:
        if kernel.constraints is not None:
            raise ValueError("`kernel` has constraints of its own beside `constraints`: pass all of them in one place.")
        kernel = replace(kernel, constraints=build_constraints(asked.constraints, build_layout(model)))
    if estimators and kernel.constraints is not None:
        raise ValueError(
            f"`estimators` takes no constraints; got {list(estimators)}. Restrict the model by bounded priors instead."
        )
    if "bridge" in estimators and asked.chains < 2:
        raise ValueError(
            'estimators="bridge" fits a density to some chains for the draws of the others: pass at least 2 chains.'
        )
    if given is not None or kernel.constraints is not None or estimators:
        _check_discrete(model, kernel, sites, others, estimators)
    return kernel, sites


def _check_discrete(
    model: Model, kernel: Kernel, sites: Gibbs | None, others: list[Kernel], estimators: tuple[str, ...]
) -> None:
    """Refuse kernels and options that need discrete variables, or that need a model without them."""
    discrete = discrete_names(model)
    if not discrete:
        if sites is not None:
            raise ValueError(f"`kernel` has {sites!r}, but the model has no discrete free variable: leave it out.")
        return
    if kernel.constraints is not None:
        raise NotImplementedError(
            f"Constraints are for models of continuous variables, and `{discrete[0]}` is discrete: give the bounded "
            "variables a bounded prior instead."
        )
    if refused := [name for name in estimators if name != "bidirectional"]:
        raise NotImplementedError(
            f"estimators={refused} is not for models with discrete variables such as `{discrete[0]}`, whose moves are "
            "not reversible: pass some of ['bidirectional'], or leave it out."
        )
    if others and len(discrete) == len(model.free_RVs):
        raise ValueError(
            f"`kernel` has {others[0]!r}, which moves continuous variables, and the model has none: leave it out, or "
            "pass pymc_hais.Gibbs()."
        )


def _read_sampling(model: Model, asked: SimpleNamespace, estimators: tuple[str, ...], kernel: Kernel) -> Sampling:
    draws, chains, target_se, longest = asked.draws, asked.chains, asked.target_se, int(asked.max_temperatures)
    if draws * chains > 10**6:  # memory is checked before compiling too, and not only before the pilot
        check_memory(int(draws), int(chains), build_layout(model).n_dims)
    schedule, n_temperatures = asked.schedule, asked.n_temperatures
    length = None if n_temperatures is None else max(int(n_temperatures), 1)
    if not isinstance(schedule, str):
        schedule = Schedule(schedule)
        if length is not None and length != len(schedule):
            raise ValueError(
                f"`schedule` has {len(schedule)} steps; leave out `n_temperatures` (got {n_temperatures})."
            )
        length = len(schedule)
    elif schedule not in (CONSTANT_SPEED, *FIXED):
        raise ValueError(
            f"`schedule` must be one of {', '.join(map(repr, ('constant_speed', *FIXED)))}, or an increasing array "
            f"of betas from 0 to 1; got {schedule!r}."
        )
    elif length is not None and target_se is not None and length > longest:
        raise ValueError(f"`n_temperatures` = {length} is above `max_temperatures` = {longest}.")
    recipe = Recipe(
        n_final_moves=0 if n_temperatures == 0 else FINAL_MOVES,
        resample_below=RESAMPLE_BELOW if asked.resample else 0.0,
        # A single step from 0 to 1 needs no tuned schedule.
        schedule=FIXED["linear"](1) if n_temperatures == 0 else schedule,
    )
    if not recipe.needs_pilot(kernel) and length is None:
        raise ValueError("A fixed step size on a fixed schedule leaves nothing to tune: pass `n_temperatures` too.")
    return Sampling(
        draws=int(draws),
        chains=int(chains),
        target_se=None if target_se is None else float(target_se),
        n_temperatures=length,
        max_temperatures=max(longest, length or 0),
        estimators=estimators,
        recipe=recipe,
    )


def _read_output(model: Model, asked: SimpleNamespace) -> Output:
    given = {} if asked.idata_kwargs is None else asked.idata_kwargs
    if not isinstance(given, Mapping):
        raise ValueError(f'`idata_kwargs` must be a dictionary, such as {{"log_likelihood": True}}; got {given!r}.')
    for name in ("coords", "dims"):
        if not isinstance(given.get(name, {}), Mapping):
            raise ValueError(f"`{name}` of `idata_kwargs` must be a dictionary; got {given[name]!r}.")
    for name in ("log_likelihood", "log_prior"):
        value = given.get(name, False)
        if isinstance(value, str) or not isinstance(value, bool | Collection):
            raise ValueError(f"`{name}` of `idata_kwargs` must be True, False or a list of names; got {value!r}.")
        if not isinstance(value, bool) and (unknown := sorted(set(value) - set(model.named_vars))):
            raise ValueError(f"`{name}` of `idata_kwargs` names {unknown}, which the model does not have.")
    if dims := given.get("dims", {}):
        known = {*model.named_vars, *(value.name for value in model.value_vars)}
        if unknown := sorted(set(dims) - known):
            raise ValueError(f"`idata_kwargs` gives dims to {unknown}; the variables are {sorted(known)}.")
    options = [one.name for one in fields(Output) if one.name != "var_names"]
    if unknown := sorted(set(given) - set(options)):
        raise ValueError(f"Unknown `idata_kwargs` {unknown}: pass some of {options}.")
    output = Output(**given, var_names=asked.var_names)
    if output.var_names is not None and (output.log_likelihood or output.log_prior):
        raise ValueError(
            "`log_likelihood` and `log_prior` are computed from all variables: leave out `var_names`, or call "
            "pm.compute_log_likelihood on a result with all of them."
        )
    return output


def _read_start(model: Model, asked: SimpleNamespace, estimators: tuple[str, ...], plan: Plan | None) -> StartOptions:
    """Read the draws and points that a user has given for a start, as flat vectors."""
    reference, path = asked.reference, asked.path
    if not is_geometric(path) and (is_result(reference) or estimators):
        what = "a reference fitted to draws" if is_result(reference) else "`estimators`"
        raise ValueError(f'A `path` that moves a parameter takes no {what}: leave it out, or pass path="geometric".')
    if is_model(reference) and estimators:
        raise ValueError("`estimators` takes no other model as reference: log Z is then the ratio of two integrals.")
    points = None
    if asked.modes is not None:
        if not is_geometric(path) or is_model(reference) or is_result(reference):
            raise ValueError(
                '`modes` adds Gaussians to the reference, so it takes neither another `path` than "geometric" nor a '
                "`reference` that is a model or a result: leave one of them out."
            )
        points = read_modes(model, asked.modes)
    if is_result(reference):
        reference = GivenDraws(thin_rows(read_positions(model, reference, "reference")))
    return StartOptions(reference, path, points, plan)


def _follow(
    plan: Plan, asked: SimpleNamespace, sampling: Sampling, compiler: Compiler, source: str
) -> tuple[Sampling, Compiler]:
    """Take kernel and schedule from a plan, whose origin messages call ``source``; refuse what contradicts it."""
    _refuse_others(plan, asked, source)
    kernel, sites = plan.kernel, plan.site_kernel
    if asked.kernel is not None or asked.constraints is not None:
        is_other = compiler.sites and not is_same_kernel(compiler.sites, sites)
        if is_other or not is_same_kernel(compiler.kernel, kernel):
            own = tuple(one for one in (compiler.kernel, compiler.sites) if one)
            raise ValueError(
                f"The plan was learnt with {_names(kernel, sites)}, and this call (or its compiled model) asks for "
                f"{_names(*own)}: leave out `plan`, or ask for the `kernel` and `constraints` of the plan."
            )
        kernel, sites = compiler.kernel, compiler.sites
    for one in (kernel, sites):
        if isinstance(one, Own):
            raise ValueError(f"The plan was learnt with a kernel of your own, {one.label}: pass it again as `kernel`.")
    recipe = replace(plan.recipe, resample_below=min(plan.recipe.resample_below, sampling.recipe.resample_below))
    compiler = replace(compiler, kernel=kernel, sites=sites, normals=plan.start.normals)
    return replace(sampling, recipe=recipe), compiler


def _refuse_others(plan: Plan, asked: SimpleNamespace, source: str) -> None:
    for name, default, own in (
        ("n_temperatures", None, "number of temperatures"),
        ("modes", None, "reference"),
        ("schedule", CONSTANT_SPEED, "schedule"),
    ):
        value = getattr(asked, name)
        if value is not default and not (isinstance(value, str) and value == default):
            shown = repr(value) if isinstance(value, str | int) else type(value).__name__
            raise ValueError(f"`plan` has a {own} of its own, so leave out `{name}` (got {shown}), or `plan`.")
    if not is_geometric(asked.path):
        raise ValueError('A plan is for the geometric path only: leave out `plan`, or pass path="geometric".')
    own = plan.start.reference
    if isinstance(own, Own) and is_auto(asked.reference):
        raise ValueError(f"The plan starts from a reference of your own, {own.label}: pass it again as `reference`.")
    if not isinstance(own, Own) and not is_auto(asked.reference):
        without = "" if source == "`idata`" else ", or `plan`"
        raise ValueError(f"{source} has a reference of its own, {plan.start.label}: leave out `reference`{without}.")


def _names(*kernels: Any) -> str:
    return " and ".join(one.label if isinstance(one, Own) else repr(one) for one in kernels if one is not None)
