"""Compiled problems, kept as long as their model lives: a second call on the same model compiles nothing."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, replace
from typing import Any

from pymc_hais.engines import renew
from pymc_hais.model import Fingerprint, take_fingerprint
from pymc_hais.references import Gaussian, StudentT
from pymc_hais.run.problem import Compiler, Problem

__all__ = ["find_problem", "keep_problem"]

#: Problems that are kept of one model: other references and kernels, or other data.
_MOST = 3


@dataclass(frozen=True)
class _Kept:
    """A problem without its model, which must be free to go, and what it was built from."""

    fingerprint: Fingerprint
    recipe: tuple
    problem: Problem


_of_models: weakref.WeakKeyDictionary[Any, tuple[_Kept, ...]] = weakref.WeakKeyDictionary()
_changing = threading.Lock()


def find_problem(model: Any, reference: Any, compiler: Compiler, takes_fit: bool) -> Problem | None:
    """Find the problem that an earlier call compiled for the model as it is now, and checked.

    Parameters
    ----------
    model : pymc.Model
    reference : str or object
        As :func:`pymc_hais.references.bind` takes it.
    compiler : Compiler
    takes_fit : bool
    """
    recipe = _recipe(reference, compiler, takes_fit)
    kept = _of_models.get(model, ())
    if recipe is None or not kept:
        return None
    fingerprint = take_fingerprint(model)
    for one in kept:
        if one.recipe == recipe and one.fingerprint == fingerprint:
            problem = one.problem
            return replace(problem, model=model, engine=renew(problem.engine, compiler.cores))
    return None


def keep_problem(problem: Problem, reference: Any, compiler: Compiler, takes_fit: bool) -> None:
    """Keep a problem for the next call; the oldest of the model's is dropped where there are too many."""
    recipe = _recipe(reference, compiler, takes_fit)
    if recipe is None:
        return
    kept = _Kept(take_fingerprint(problem.model), recipe, replace(problem, model=None))
    with _changing:
        _of_models[problem.model] = (kept, *_of_models.get(problem.model, ()))[:_MOST]


def _recipe(reference: Any, compiler: Compiler, takes_fit: bool) -> tuple | None:
    """Say what a problem is built from beside its model; None where two of them cannot be told apart."""
    if not isinstance(reference, str | Gaussian | StudentT) or compiler.compile_kwargs or compiler.kernel.constraints:
        return None
    named = reference if isinstance(reference, str) else tuple(map(_bytes, vars(reference).values()))
    return type(reference), named, compiler.kernel, compiler.sites, compiler.backend, takes_fit


def _bytes(value: Any) -> Any:
    return (value.shape, value.tobytes()) if hasattr(value, "tobytes") else value
