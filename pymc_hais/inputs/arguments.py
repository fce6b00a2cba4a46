"""Checks of arguments: each error says what was given, and what to pass instead."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from pymc_hais.core.messages import instead_of, quoted, shown
from pymc_hais.density.compat import default_theme

#: Arguments of pm.sample that have no place here, and what there is instead.
_OF_PM_SAMPLE = {
    "tune": "a pilot learns what is to be learnt, so leave it out",
    "target_accept": "the pilot chooses step sizes; a smaller `target_se`, or more `draws`, makes the run more careful",
    "initvals": "particles start as draws of `reference`; points that lead to modes go into `modes`",
    "init": "particles start as draws of `reference`",
    "nuts_sampler": "there is one sampler; `backend` says what it is compiled with",
    "nuts_sampler_kwargs": "there is one sampler; `kernel` says how it moves",
    "nuts": "`kernel` says how it moves",
    "step": "pass a `kernel`, such as pymc_hais.Hamiltonian()",
    "n_init": "a pilot learns what is to be learnt, so leave it out",
    "trace": "the result is a DataTree, which its to_netcdf writes",
    "callback": "the progress bar and the log say how far a run is",
    "compute_convergence_checks": "the findings of the result always say what looks wrong",
    "discard_tuned_samples": "the pilot's particles are never kept",
    "return_inferencedata": "the result is a DataTree",
    "blas_cores": "`cores` says how many threads work",
    "mp_ctx": "pass an `executor`",
}


def check_integer(name: str, value: Any, least: int) -> None:
    """Refuse anything but a whole number that is large enough."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise ValueError(f"`{name}` must be a whole number of at least {least}; got {value!r}.")


def check_positive(name: str, value: Any, unit: str, without: str | None) -> None:
    """Refuse anything but a positive finite number, or None where it is allowed."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    is_left_out = value is None and without is not None
    if not is_left_out and not (is_number and 0 < value < np.inf):
        otherwise = "" if without is None else f", or None for {without}"
        raise ValueError(f"`{name}` must be a positive number of {unit}{otherwise}; got {value!r}.")


def check_flag(name: str, value: Any) -> None:
    """Refuse anything but True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"`{name}` must be True or False; got {value!r}.")


def check_seed(seed: Any) -> None:
    """Refuse seeds that give no reproducible random numbers."""
    several = isinstance(seed, Sequence | np.ndarray) and not isinstance(seed, str | bytes) and np.ndim(seed) > 0
    seed = seed.item() if isinstance(seed, np.ndarray) and not several else seed
    each = seed if several else [seed]
    whole = all(isinstance(one, int | np.integer) and not isinstance(one, bool) and one >= 0 for one in each)
    if seed is not None and not whole and not isinstance(seed, np.random.Generator | np.random.RandomState):
        raise ValueError(
            "`random_seed` must be a whole number, not below 0, one for each chain, a numpy Generator or RandomState, "
            f"or None; got {seed!r}."
        )


def check_names(name: str, value: Any) -> None:
    """Refuse anything but a list of names, such as a single string, which would be read letter by letter."""
    if isinstance(value, str):
        raise ValueError(f"`{name}` must be a list of names; got {value!r}: pass [{value!r}].")
    if value is not None and not (isinstance(value, Collection) and all(isinstance(one, str) for one in value)):
        raise ValueError(f"`{name}` must be a list of names; got {shown(value)}.")


def check_choice(name: str, value: Any, known: Sequence[str]) -> tuple[str, ...]:
    """Return the names chosen from those known; "all" is all of them."""
    if isinstance(value, str):
        value = known if value == "all" else [value]
    if not isinstance(value, Sequence) or any(one not in known for one in value):
        raise ValueError(f'`{name}` must be "all" or some of {list(known)}; got {value!r}.')
    return tuple(one for one in known if one in value)


def check_theme(theme: Any) -> None:
    """Refuse anything but a theme of a progress bar; PyMC would ignore it."""
    is_css = isinstance(theme, str) and "{" in theme
    if theme is not None and not is_css and not isinstance(theme, type(default_theme)):
        raise ValueError(
            f"`progressbar_theme` must be a rich.theme.Theme, or CSS text for marimo; got {theme!r}. Leave it out for "
            "PyMC's own."
        )


def check_share(name: str, value: Any) -> None:
    """Refuse anything but a number between 0 and 1."""
    if not isinstance(value, int | float | np.integer | np.floating) or not 0.0 < value < 1.0:
        raise ValueError(f"`{name}` must lie between 0 and 1, got {value!r}.")


def refuse_idle(function: Callable[..., Any], given: Mapping[str, Any], why: str) -> None:
    """Refuse arguments that a call would ignore, if they are not the function's defaults."""
    parameters, idle = inspect.signature(function).parameters, []
    for name, value in given.items():
        default = parameters[name].default
        if value is not default and not (np.isscalar(value) and value == default):
            idle.append(name)
    if idle:
        raise ValueError(f"{why}: leave out {quoted(idle, ' and ')}.")


def explain_unknown[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Answer arguments that a function does not have: misspelt ones and, where it samples, those of pm.sample."""
    known = list(inspect.signature(function).parameters)
    of_pm_sample = _OF_PM_SAMPLE if "target_se" in known else {}  # a function that samples has a target

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in (name for name in kwargs if name not in known):
            hint = instead_of(name, known)
            if name in of_pm_sample:
                hint = f'{of_pm_sample[name]}. See "From pm.sample" in the documentation'
            raise TypeError(f"{function.__name__}() has no argument `{name}`: {hint}")
        return function(*args, **kwargs)

    return call
