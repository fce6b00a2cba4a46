"""What a user may ask for, checked before any work."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from pymc_hais.core.process import check_memory
from pymc_hais.core.protocols import Kernel
from pymc_hais.core.records import Schedule
from pymc_hais.core.schedules import FIXED
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
from pymc_hais.kernels import Hamiltonian, SiteKernel
from pymc_hais.model import build_layout, discrete_names
from pymc_hais.problem.constraints import build_constraints, with_walls
from pymc_hais.tuning import CONSTANT_SPEED, Recipe

#: Methods beside annealing that take another run, or other evaluations.
ESTIMATORS = ("bridge", "linked", "bidirectional")
#: Those of them that take models with discrete variables.
_ESTIMATORS_OF_SITES = ("bidirectional",)
#: Moves at beta = 1 that decorrelate resampled posterior draws.
FINAL_MOVES = 8
#: Particles whose memory is looked at before the model is compiled, and not only before the pilot.
_MANY = 10**6
#: Particles of a chain that resample at all do so below this share of their number.
_RESAMPLE_BELOW = 0.5


@dataclass(frozen=True)
class Output:
    """Checked ``idata_kwargs``."""

    coords: dict[str, Any] = field(default_factory=dict)
    dims: dict[str, Any] = field(default_factory=dict)
    log_likelihood: bool | list[str] = False
    log_prior: bool | list[str] = False
    include_transformed: bool = False


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a public function was asked for: what the user gave, and so what a call is.

    The names and meanings are those of the arguments of :func:`sample_hais`; ``others`` are those of another function.
    """

    function: str
    model: Any
    draws: Any = 1000
    chains: Any = 4
    reference: Any = "auto"
    modes: Any = None
    kernel: Any = None
    constraints: Any = None
    path: Any = "geometric"
    schedule: Any = CONSTANT_SPEED
    n_temperatures: Any = None
    resample: Any = True
    target_se: Any = 0.1
    estimators: Any = ()
    max_temperatures: Any = 10_000
    max_seconds: Any = None
    plan: Any = None
    random_seed: Any = None
    var_names: Any = None
    cores: Any = None
    executor: Any = None
    checkpoint: Any = None
    backend: Any = None
    compile_kwargs: Any = None
    progressbar: Any = False
    progressbar_theme: Any = None
    idata_kwargs: Any = None
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def numbers(self) -> dict[str, Any]:
        """What changes numbers of the result, seeds and model apart."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in _NO_NUMBERS}
        return _of_content(given | dict(self.others))


#: Who computes, what is shown, and what is kept of it.
_NO_NUMBERS = {
    "model", "cores", "executor", "checkpoint", "progressbar", "progressbar_theme", "var_names", "idata_kwargs",
    "function", "random_seed", "others",
}  # fmt: skip


def _of_content(given: dict[str, Any]) -> dict[str, Any]:
    """Leave out what changes no number of a call within the call; of a file of a plan the content counts."""
    if given.get("sample_kwargs"):
        kept = {name: value for name, value in given["sample_kwargs"].items() if name not in _NO_NUMBERS}
        given = given | {"sample_kwargs": _of_content(kept)}
    return given | {"plan": Path(given["plan"])} if isinstance(given.get("plan"), str) else given


def check_request(request: Request) -> tuple[Request, Kernel, SiteKernel | None, Recipe, Output]:
    """Check what was asked for; return it with plain numbers, and what it means.

    Its ``n_temperatures`` is then the length of the first round, None where a pilot tells it.  The first kernel is of
    the continuous dimensions, with the constraints.

    Raises ValueError, naming the argument, what was given and what to pass.
    """
    model, chains, target_se = request.model, request.chains, request.target_se
    _check_numbers(request)
    check_flag("resample", request.resample)
    check_seed(request.random_seed)
    check_names("var_names", request.var_names)
    check_theme(request.progressbar_theme)
    estimators = check_choice("estimators", request.estimators, ESTIMATORS)
    kernel, sites = _read_kernels(request.kernel)
    if request.constraints is not None:
        if kernel.constraints is not None:
            raise ValueError("`kernel` has constraints of its own beside `constraints`: pass all of them in one place.")
        kernel = with_walls(kernel, build_constraints(request.constraints, build_layout(model)))
    if estimators and kernel.constraints is not None:
        raise ValueError(
            f"`estimators` takes no constraints; got {list(estimators)}. Restrict the model by bounded priors instead."
        )
    if "bridge" in estimators and chains < 2:
        raise ValueError(
            'estimators="bridge" fits a density to some chains for the draws of the others: pass at least 2 chains.'
        )
    _check_sites(model, kernel, sites, estimators)
    _refuse_idle_kernel(model, request.kernel, sites)
    if request.draws * chains > _MANY:
        check_memory(int(request.draws), int(chains), build_layout(model).n_dims)
    recipe, length = _build_recipe(kernel, request)
    longest, is_named = request.max_temperatures, isinstance(request.schedule, str)
    if length is not None and target_se is not None and is_named and length > longest:
        raise ValueError(f"`n_temperatures` = {length} is above `max_temperatures` = {longest}.")
    numbers: dict[str, Any] = {
        "draws": int(request.draws),
        "chains": int(chains),
        "target_se": None if target_se is None else float(target_se),
        "max_temperatures": max(int(longest), length or 0),
        "n_temperatures": length,
        "estimators": estimators,
    }
    output = _build_output(model, {} if request.idata_kwargs is None else request.idata_kwargs, request.var_names)
    return replace(request, **numbers), kernel, sites, recipe, output


def _check_numbers(request: Request) -> None:
    check_positive("max_seconds", _limit(request.max_seconds), "seconds", "no limit")
    for name, least, is_optional in (
        ("draws", 100, False),
        ("chains", 1, False),
        ("max_temperatures", 2, False),
        ("cores", 1, True),
        ("n_temperatures", 0, True),
    ):
        value = getattr(request, name)
        if value is not None or not is_optional:
            check_integer(name, value, least)
    check_positive("target_se", request.target_se, "nats", "one round")


def _limit(max_seconds: Any) -> Any:
    """Read infinity as no limit."""
    return None if isinstance(max_seconds, float) and max_seconds == np.inf else max_seconds


def _check_sites(model: Any, kernel: Kernel, sites: SiteKernel | None, estimators: tuple[str, ...]) -> None:
    """Refuse what goes with discrete variables only, or without them only."""
    if sites is None and kernel.constraints is None and not estimators:
        return
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
    if refused := [name for name in estimators if name not in _ESTIMATORS_OF_SITES]:
        raise NotImplementedError(
            f"estimators={refused} is not for models with discrete variables such as `{discrete[0]}`, whose moves are "
            f"not reversible: pass some of {list(_ESTIMATORS_OF_SITES)}, or leave it out."
        )


def _refuse_idle_kernel(model: Any, given: Any, sites: SiteKernel | None) -> None:
    """Refuse a kernel of continuous variables for a model that has none."""
    kernels = list(given) if isinstance(given, tuple | list) else [] if given is None else [given]
    idle = [one for one in kernels if one is not sites]
    if idle and model.free_RVs and len(discrete_names(model)) == len(model.free_RVs):
        raise ValueError(
            f"`kernel` has {idle[0]!r}, which moves continuous variables, and the model has none: leave it out, or "
            "pass pymc_hais.Gibbs()."
        )


def _read_kernels(given: Any) -> tuple[Kernel, SiteKernel | None]:
    """Return the kernels of the continuous dimensions, and of discrete sites where the user has one."""
    kernels = list(given) if isinstance(given, tuple | list) else [] if given is None else [given]
    of_sites = [one for one in kernels if getattr(one, "is_site_kernel", False)]
    others = [one for one in kernels if one not in of_sites]
    is_known = all(hasattr(one, "build") and not isinstance(one, type) for one in kernels)
    is_empty = not kernels and given is not None
    if is_empty or not is_known or len(of_sites) > 1 or len(others) > 1:
        raise ValueError(
            "`kernel` must be a pymc_hais.Hamiltonian(...) or pymc_hais.RandomWalk(...), for discrete variables a "
            f"pymc_hais.Gibbs(), a pair of one of each, or None; got {given!r}."
        )
    return (others or [Hamiltonian()])[0], (of_sites or [None])[0]


def _build_recipe(kernel: Kernel, request: Request) -> tuple[Recipe, int | None]:
    """Return what the plan keeps from the user, and the length of the first round where it is given."""
    schedule, n_temperatures = request.schedule, request.n_temperatures
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
        resample_below=_RESAMPLE_BELOW if request.resample else 0.0,
        # A single step from 0 to 1 needs no tuned schedule.
        schedule=FIXED["linear"](1) if n_temperatures == 0 else schedule,
    )
    if not recipe.needs_pilot(kernel) and length is None:
        raise ValueError("A fixed step size on a fixed schedule leaves nothing to tune: pass `n_temperatures` too.")
    return recipe, length


def _build_output(model: Any, idata_kwargs: dict[str, Any], var_names: Iterable[str] | None) -> Output:
    if idata_kwargs != {}:
        check_labelled(model, idata_kwargs)
    known = [f.name for f in fields(Output)]
    unknown = sorted(set(idata_kwargs) - set(known))
    if unknown:
        raise ValueError(f"Unknown `idata_kwargs` {unknown}: pass some of {known}.")
    output = Output(**idata_kwargs)
    if var_names is not None and (output.log_likelihood or output.log_prior):
        raise ValueError(
            "`log_likelihood` and `log_prior` are computed from all variables: leave out `var_names`, or call "
            "pm.compute_log_likelihood on a result with all of them."
        )
    return output
