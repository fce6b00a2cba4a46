"""Compiled problems, kept as long as their model lives: a second call on the same model compiles nothing."""

import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

from pymc_hais.density import Model, ModelIdentity, identify
from pymc_hais.density.facts import find_leaves
from pymc_hais.engines import renew
from pymc_hais.latent.integrated import Integrated, integrate, may_integrate
from pymc_hais.problem.leaves import Leaves, take_leaves
from pymc_hais.problem.problem import Compiler, Problem
from pymc_hais.references import Gaussian, StudentT

_log = logging.getLogger("pymc.hais")


@dataclass(frozen=True, eq=False)
class _Own:
    """An object of a user's own, which equals nothing but itself."""

    thing: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Own) and other.thing is self.thing

    __hash__ = None  # type: ignore[assignment]


#: Cache: model -> the arguments, the backend that was asked for, and the problem built, which has no model.
_of_models: weakref.WeakKeyDictionary[Any, tuple[tuple[tuple, str | None, Problem], ...]] = weakref.WeakKeyDictionary()
_changing = threading.Lock()
#: Cache: model -> its identity, and the model with variables integrated out; None where none can be.
_integrated: weakref.WeakKeyDictionary[Any, tuple[ModelIdentity, Integrated | None]] = weakref.WeakKeyDictionary()


def find_integrated(model: Model) -> Iterator[Integrated]:
    """Integrate variables out of a model, or find that an earlier call has done so: most of them first, then fewer."""
    if not (may_integrate(model) or find_leaves(model)):
        return
    identity = identify(model)
    before = _integrated.get(model)
    if before is not None and identity is not None and not (identity.unreadable or before[0].difference(identity)):
        found = before[1]
    else:
        leaves = _attempt(take_leaves, model)
        found = _attempt(integrate, model, leaves) or leaves
        if identity is not None:
            with _changing:
                _integrated[model] = identity, found
    first = found
    while found is not None:
        yield found
        first, found = found, found.before
    if first is not None and isinstance(first.solution, Leaves) and (found := _attempt(integrate, model)):
        yield found


def _attempt(integrate: Callable[..., Integrated | None], *of: Any) -> Integrated | None:
    try:
        return integrate(*of)
    except Exception as error:  # whatever an operation raises that is unknown, or has no gradient
        _log.debug("Nothing is integrated out", exc_info=error)
        return None


def find_problem(
    model: Model, identity: ModelIdentity, reference: Any, compiler: Compiler, takes_fit: bool
) -> Problem | None:
    """Find the problem that an earlier call compiled for the model as it is now, and checked.

    A call that names a backend also finds what a default call compiled for that backend.  An extension names the
    backend of its result.
    """
    recipe = _recipe(reference, compiler, takes_fit)
    for built_from, backend, problem in _of_models.get(model, ()):
        assert problem.identity is not None
        is_same = built_from == recipe and compiler.backend in (backend, problem.engine.backend)
        if is_same and not problem.identity.difference(identity):
            return replace(problem, model=model, engine=renew(problem.engine, compiler.cores, compiler.clock))
    return None


def keep_problem(problem: Problem, reference: Any, compiler: Compiler, takes_fit: bool, is_held: bool = False) -> None:
    """Keep a problem for the next call; the oldest of the model's is dropped where there are too many.

    A problem is not kept if it has a user's own objects or model content that cannot be described, because later
    changes to these could not be detected.  A compiled model is kept as it was compiled (``is_held``).
    """
    is_plain = isinstance(reference, str | Gaussian | StudentT) and not compiler.compile_kwargs
    if not is_held and (not is_plain or compiler.kernel.constraints):
        return
    assert problem.identity is not None
    if problem.identity.unreadable and not is_held:
        return
    kept = _recipe(reference, compiler, takes_fit), compiler.backend, replace(problem, model=None)
    with _changing:
        # Problems that are kept of one model: other references and kernels, or other data.
        _of_models[problem.model] = (kept, *_of_models.get(problem.model, ()))[:3]


def _recipe(reference: Any, compiler: Compiler, takes_fit: bool) -> tuple:
    """Return the key of a problem, apart from its model and backend; objects of users count by identity."""
    named: Any = reference if isinstance(reference, str) else _Own(reference)
    if isinstance(reference, Gaussian | StudentT):
        named = tuple(map(_bytes, vars(reference).values()))
    walls = compiler.kernel.constraints
    kernel: Any = compiler.kernel
    if walls is not None and is_dataclass(kernel) and not isinstance(kernel, type):
        kernel = replace(kernel, constraints=None)
    of_walls = None if walls is None else tuple(map(_bytes, vars(walls).values()))
    of_compiler = compiler.sites, compiler.normals, tuple(compiler.compile_kwargs.items())
    return type(reference), named, kernel, of_walls, *of_compiler, takes_fit


def _bytes(value: Any) -> Any:
    return (value.shape, value.tobytes()) if hasattr(value, "tobytes") else value
