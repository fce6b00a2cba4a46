"""What a user may ask for, checked before any work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from pymc_hais.core.seeds import Seeds
from pymc_hais.engines import resolve_backend
from pymc_hais.jobs.progress import CallProgress
from pymc_hais.jobs.timing import TimeBudget
from pymc_hais.jobs.workers import Workers
from pymc_hais.kernels import Hamiltonian, SiteKernel
from pymc_hais.model import build_layout, discrete_names
from pymc_hais.model.compat import seeds_per_chain
from pymc_hais.problem.problem import Compiler
from pymc_hais.run.arguments import (
    check_choice,
    check_flag,
    check_integer,
    check_labelled,
    check_names,
    check_positive,
    check_seed,
    check_theme,
)
from pymc_hais.run.constraints import build_constraints, with_walls
from pymc_hais.schedules import FIXED
from pymc_hais.tuning import CONSTANT_SPEED, Recipe
from pymc_hais.types import Kernel, Schedule

__all__ = ["ESTIMATORS", "Output", "Settings", "build_settings", "paper_settings"]

#: Methods beside annealing that take another run, or other evaluations.
ESTIMATORS = ("bridge", "linked", "bidirectional")
#: Those of them that take models with discrete variables.
_ESTIMATORS_OF_SITES = ("bidirectional",)
#: Moves at beta = 1 that decorrelate resampled posterior draws.
_FINAL_MOVES = 8
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


@dataclass(frozen=True)
class Settings:
    """Checked arguments of ``sample_hais`` and ``log_likelihood``.

    Attributes
    ----------
    draws, chains : int
        Particles of a population, and independent populations of a row.
    target_se : float or None
        Of each row's log Z, in nats.
    max_temperatures : int
    budget : TimeBudget
    n_temperatures : int or None
        Of the first round; None leaves it to the pilot.
    recipe : Recipe
    seeds : Seeds
    output : Output
    compiler : Compiler
        Of the kernel, with the constraints.
    progress : CallProgress
        Shown while it is entered.
    estimators : tuple of str
        Other methods that are asked for log Z.
    workers : Workers
        Where jobs are done, and where finished ones are kept.
    """

    draws: int
    chains: int
    target_se: float | None
    max_temperatures: int
    budget: TimeBudget
    n_temperatures: int | None
    recipe: Recipe
    seeds: Seeds
    output: Output
    compiler: Compiler
    progress: CallProgress
    estimators: tuple[str, ...] = ()
    workers: Workers = field(default_factory=Workers)


def build_settings(
    model: Any,
    *,
    draws: Any,
    chains: Any,
    target_se: Any = 0.1,
    max_temperatures: Any = 10_000,
    max_seconds: Any = None,
    random_seed: Any = None,
    cores: Any = None,
    kernel: Any = None,
    constraints: Any = None,
    schedule: Any = "constant_speed",
    n_temperatures: Any = None,
    resample: Any = True,
    var_names: Iterable[str] | None = None,
    idata_kwargs: dict[str, Any] | None = None,
    backend: str | None = None,
    compile_kwargs: dict[str, Any] | None = None,
    progressbar: Any = False,
    progressbar_theme: Any = None,
    estimators: Any = (),
) -> Settings:
    """Check the arguments of ``sample_hais`` and ``log_likelihood``.

    Raises
    ------
    ValueError
        Naming the argument, what was given and what to pass.
    ImportError
        ``backend="jax"`` without JAX.
    """
    budget = _build_budget(max_seconds)
    _check_numbers(draws, chains, cores, target_se, max_temperatures, n_temperatures)
    check_flag("resample", resample)
    check_seed(random_seed)
    check_names("var_names", var_names)
    check_theme(progressbar_theme)
    estimators = check_choice("estimators", estimators, ESTIMATORS)
    kernel, sites = _read_kernels(kernel)
    if constraints is not None:
        kernel = with_walls(kernel, build_constraints(constraints, build_layout(model)))
    if estimators and kernel.constraints is not None:
        raise ValueError(
            f"`estimators` takes no constraints; got {list(estimators)}. Restrict the model by bounded priors instead."
        )
    if "bridge" in estimators and chains < 2:
        raise ValueError(
            'estimators="bridge" fits to some chains what it bridges to the others: pass at least 2 chains.'
        )
    _check_sites(model, kernel, sites, estimators)
    recipe, length = _build_recipe(kernel, schedule, n_temperatures, resample)
    if length is not None and target_se is not None and isinstance(schedule, str) and length > max_temperatures:
        raise ValueError(f"`n_temperatures` = {length} is above `max_temperatures` = {max_temperatures}.")
    entropy = tuple(int(seed) for seed in seeds_per_chain(random_state=random_seed, chains=chains))

    return Settings(
        draws=int(draws),
        chains=int(chains),
        target_se=None if target_se is None else float(target_se),
        max_temperatures=max(int(max_temperatures), length or 0),
        budget=budget,
        n_temperatures=length,
        recipe=recipe,
        seeds=Seeds(entropy),
        output=_build_output(model, {} if idata_kwargs is None else idata_kwargs, var_names),
        compiler=Compiler(kernel, *resolve_backend(backend, compile_kwargs), cores, sites),
        progress=CallProgress(progressbar, progressbar_theme),
        estimators=estimators,
    )


def _check_numbers(
    draws: Any, chains: Any, cores: Any, target_se: Any, max_temperatures: Any, n_temperatures: Any
) -> None:
    for name, value, least in (
        ("draws", draws, 100),
        ("chains", chains, 1),
        ("max_temperatures", max_temperatures, 2),
        *([("cores", cores, 1)] if cores is not None else []),
        *([("n_temperatures", n_temperatures, 0)] if n_temperatures is not None else []),
    ):
        check_integer(name, value, least)
    check_positive("target_se", target_se, "nats", "one round")


def _build_budget(max_seconds: Any) -> TimeBudget:
    if max_seconds is None or (isinstance(max_seconds, float) and max_seconds == np.inf):
        return TimeBudget()
    check_positive("max_seconds", max_seconds, "seconds", "no limit")
    return TimeBudget(float(max_seconds))


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
            f"no reversals of themselves: pass some of {list(_ESTIMATORS_OF_SITES)}, or leave it out."
        )


def _read_kernels(given: Any) -> tuple[Kernel, SiteKernel | None]:
    """Return the kernels of the continuous dimensions, and of discrete sites where the user has one."""
    kernels = list(given) if isinstance(given, tuple | list) else [] if given is None else [given]
    of_sites = [one for one in kernels if getattr(one, "is_site_kernel", False)]
    others = [one for one in kernels if one not in of_sites]
    is_known = all(hasattr(one, "build") and not isinstance(one, type) for one in kernels)
    if not is_known or len(of_sites) > 1 or len(others) > 1:
        raise ValueError(
            "`kernel` must be a pymc_hais.Hamiltonian(...) or pymc_hais.RandomWalk(...), for discrete variables a "
            f"pymc_hais.Gibbs() or pymc_hais.LocallyBalanced(...), a pair of one of each, or None; got {given!r}."
        )
    return (others or [Hamiltonian()])[0], (of_sites or [None])[0]


def _build_recipe(kernel: Kernel, schedule: Any, n_temperatures: Any, resample: Any) -> tuple[Recipe, int | None]:
    """Return what the plan keeps from the user, and the length of the first round where it is given."""
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
        n_final_moves=0 if n_temperatures == 0 else _FINAL_MOVES,
        resample_below=_RESAMPLE_BELOW if resample else 0.0,
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


def paper_settings(n_distributions: int) -> dict[str, Any]:
    """Return the arguments of :func:`sample_hais` that run the recipe of the HAIS report.

    Linear betas, one drift-kick-drift leapfrog step of 0.2 a distribution, half of the momentum's power renewed per
    unit of simulation time, no resampling, no tuning, one round, as in
    ``pm.sample_hais(200, chains=1, **paper_settings(1000))``.
    The report anneals from a standard normal (analysis models: add ``reference="gaussian"``) or from the prior of the
    latent variables (generative models: add ``reference="prior"``).

    Parameters
    ----------
    n_distributions : int
        N, the intermediate distributions.

    References
    ----------
    Sohl-Dickstein & Culpepper (2012), arXiv:1205.1925, sections 3 and 5.
    """
    check_integer("n_distributions", n_distributions, 1)
    return {
        "kernel": Hamiltonian(integrator="drift-kick-drift", step_size=0.2, damping=float(np.log(2.0))),
        "schedule": "linear",
        "n_temperatures": int(n_distributions),
        "resample": False,
        "target_se": None,
    }
