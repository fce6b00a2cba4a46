"""compile: a model with its machine code, for many data sets and from several threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm

from pymc_hais.core.protocols import Kernel
from pymc_hais.core.seeds import Seeds
from pymc_hais.density import (
    WrittenLogp,
    build_outputs,
    build_written_logp,
    find_model,
    identify,
    is_model,
    read_containers,
    varying_containers,
    with_table,
)
from pymc_hais.inputs.arguments import explain_unknown
from pymc_hais.inputs.draws import is_result
from pymc_hais.inputs.request import read
from pymc_hais.planning.building import compile_first
from pymc_hais.planning.starts import first_reference, takes_fit
from pymc_hais.problem.building import with_data
from pymc_hais.problem.kept import keep_problem
from pymc_hais.problem.problem import Problem

#: Arguments that belong to :func:`compile`, and their defaults.
_CHOICES = dict.fromkeys(("reference", "kernel", "constraints", "path", "backend", "compile_kwargs"))
_CHOICES |= {"reference": "auto", "path": "geometric"}
#: For the draws at which a compiled model is checked.
_SEED = 0


@dataclass(frozen=True, eq=False)
class Opened:
    """The model and the arguments of one call."""

    model: Any  # with the data as they were when the call began
    arguments: dict[str, Any]  # of the call, with those of :func:`compile` in place of its own
    build_outputs: Callable[..., Any]  # as :func:`pymc_hais.density.build_outputs`, without the model
    is_compiled: bool = False  # whether :func:`compile` has compiled the model as it is


def open_model(given: dict[str, Any]) -> Opened:
    """Return the model and arguments of a call: the model itself, or a copy with the code of a compiled one.

    A compiled model refuses arguments of :func:`compile` other than its own, changes of the model, and data of other
    shapes.
    """
    model, draws = given["model"], given.get("draws")
    if isinstance(model, CompiledModel):
        return model._open(given)
    if isinstance(draws, CompiledModel):
        raise ValueError("The first argument is `draws`; pass a compiled model by name, sample_hais(model=compiled).")
    found = find_model(model, draws)
    return Opened(found, given, lambda *args: build_outputs(found, *args))


@dataclass(frozen=True, eq=False)
class _DataSet:
    """The data of a compiled model at one time, in a copy of it."""

    model: Any
    values: dict[str, np.ndarray]

    def holds(self, values: Mapping[str, np.ndarray], model: pm.Model) -> bool:
        """Whether these are the same numbers, under the same labels."""
        pairs = ((self.values[name], value) for name, value in values.items())
        return self.model.coords == model.coords and all(np.array_equal(*pair, equal_nan=True) for pair in pairs)


class CompiledModel:
    """A model with its machine code, as :func:`compile` returns it: pass it as ``sample_hais(model=compiled)``.

    Each call takes the values of the model's ``pm.Data`` containers as they are when it begins.  Calls in several
    threads do not disturb one another, and each gives the same result as alone.

    Attributes
    ----------
    model : pymc.Model
        The model that was compiled; ``pm.set_data(..., model=compiled.model)`` gives it other data.
    """

    def __init__(self, model: pm.Model, choices: dict[str, Any], cores: int | None) -> None:
        begin = time.perf_counter()
        self.model, self._choices = model, choices
        self._opening = threading.Lock()
        own = with_table(model, {})
        self._first = self._latest = _DataSet(own, read_containers(own))
        asked = {**choices, "random_seed": _SEED, "cores": cores}
        runner = read("compile", own, asked).runner()
        self._compiler = runner.compiler
        self._varying = varying_containers(own)
        varying = {name: self._first.values[name] for name in self._varying}
        search = compile_first(own, choices["reference"], runner, None, varying)
        problem, self._is_kept = search.problem, not (search.mass or search.replaced)
        self._problem = replace(problem, model=None)
        self._written: WrittenLogp = build_written_logp(own, problem.layout, varying)
        self._identity = identify(model, self._varying)
        self._outputs: dict[tuple, Callable[..., Any]] = {}
        self._keep(self._first)
        self._seconds = time.perf_counter() - begin

    @property
    def is_flexible(self) -> bool:
        """Whether other data of the same shapes need no compilation."""
        return self._is_kept and (not self._varying or self._problem.preparation is not None)

    @property
    def n_bytes(self) -> int:
        """Bytes of data in memory: containers and the density's arrays, for the first data and the last call."""
        n_sets = 1 if self._latest is self._first else 2
        arrays = [*self._problem.engine.data, *self._first.values.values()]
        return n_sets * sum(int(array.nbytes) for array in arrays)

    def __repr__(self) -> str:
        """Name the variables, the containers that may vary, the engine, and the cost of compiling."""
        variables = ", ".join(rv.name for rv in self.model.free_RVs)
        data = ", ".join(f"{name} {self._first.values[name].shape}" for name in self._varying) or "none"
        again = "" if self.is_flexible else ", compiled again for other data"
        return (
            f"<CompiledModel [{variables}]; data that may vary: {data}{again}; {self._problem.engine.name}, "
            f"{self._seconds:.1f} s to compile; {self.n_bytes:,} bytes of data, besides the machine code>"
        )

    def _open(self, given: Mapping[str, Any]) -> Opened:
        """Return the model and arguments of a call; a plan has its own reference."""
        for name, own in self._choices.items():
            value = given.get(name, _CHOICES[name])
            if not _is_same(value, _CHOICES[name]) and not _is_same(value, own):
                raise ValueError(
                    f"`{name}` belongs to the compiled model, which has {own!r}; got {value!r}: leave it out, or pass "
                    "it to pymc_hais.compile."
                )
        with self._opening:
            data = self._read()
        own = self._choices if given.get("plan") is None else {**self._choices, "reference": given["reference"]}
        return Opened(data.model, {**given, **own}, lambda *args: self._build_outputs(data, *args), is_compiled=True)

    def _read(self) -> _DataSet:
        """Take the present data, in a copy of the model that has the machine code."""
        values = read_containers(self.model)
        for name in self._varying:
            old, value = self._first.values[name], values[name]
            if (old.shape, old.dtype) != (value.shape, value.dtype):
                raise ValueError(
                    f"The data container `{name}` has shape {value.shape} ({value.dtype}), and was compiled for "
                    f"{old.shape} ({old.dtype}): call pymc_hais.compile again."
                )
        if difference := self._identity.difference(identify(self.model, self._varying)):
            raise ValueError(
                f"The model is no longer the one that was compiled ({difference}): call pymc_hais.compile again. "
                "Data that are to vary belong in pm.Data, and change by pm.set_data."
            )
        data = next((one for one in (self._latest, self._first) if one.holds(values, self.model)), None)
        if data is None:
            data = _DataSet(with_table(self.model, values), values)
            self._keep(data)
        self._latest = data
        return data

    def _keep(self, data: _DataSet) -> None:
        """Give a copy of the model the machine code, if the code is valid for these data."""
        problem: Problem = replace(self._problem, model=data.model)
        if data is not self._first and self._varying:
            if problem.preparation is None:
                return  # compiled by the call, and kept for the next one
            values = {name: data.values[name] for name in self._varying}
            problem = with_data(problem, data.model, values, self._written, Seeds((_SEED,)))
        reference, walls = self._choices["reference"], self._compiler.kernel.constraints
        start = first_reference(reference, data.model, walls)
        if self._is_kept:
            keep_problem(problem, start, self._compiler, takes_fit(reference), is_held=True)

    def _build_outputs(
        self, data: _DataSet, layout: Any, var_names: Sequence[str] | None = None, include_transformed: bool = False
    ) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
        """As :func:`pymc_hais.density.build_outputs`, compiled once."""
        key = (None if var_names is None else tuple(var_names), include_transformed, *data.model.named_vars)
        varying = {name: data.values[name] for name in self._varying}
        with self._opening:
            if key not in self._outputs:
                self._outputs[key] = build_outputs(data.model, layout, var_names, include_transformed, varying)
        function = self._outputs[key]
        return lambda positions: function(positions, varying)


@explain_unknown
def compile(
    model: pm.Model | None = None,
    *,
    reference: Any = "auto",
    kernel: Kernel | None = None,
    constraints: Any = None,
    backend: str | None = None,
    compile_kwargs: dict[str, Any] | None = None,
    cores: int | None = None,
) -> CompiledModel:
    """Compile a model once, to sample it many times: with other seeds, with other data, from several threads.

    Every number in a ``pm.Data`` container is an argument of the machine code.  After ``pm.set_data`` with values of
    the same shapes, ``sample_hais(model=compiled)`` compiles nothing; terms that depend on the data alone
    (``gammaln`` of counts, standardised columns) are computed once a call.  The result is that of ``sample_hais`` on a
    new model with the same data, up to rounding.

    Parameters
    ----------
    model : pymc.Model, optional
        Needed outside a ``with model:`` block.
    reference, kernel, constraints, backend, compile_kwargs
        As in :func:`sample_hais`, which is then called without them.  A reference that is another model, or draws,
        fits one data set only and is refused here.
    cores : int, optional
        Threads of the checks; each call has its own ``cores``.

    Returns
    -------
    CompiledModel

    Raises
    ------
    ValueError, NotImplementedError, ImportError
        As of :func:`sample_hais`.

    Notes
    -----
    This function compiles the density and its checks.  The first call with a pair of ``draws`` and ``chains`` compiles
    the loops over temperatures.  Two things are compiled again for other data: a prior whose mass is measured (a
    reference other than the prior, with an ``ordered`` prior), and the whole model if the reference mixes such a prior
    with other distributions; and, for a model with discrete variables, fitted margins and the other moves that a long
    run tries.  A container cannot vary if its numbers are shapes, lengths or masks, or decide which values a discrete
    variable has (``n`` of a ``pm.Binomial``).

    Discrete variables are drawn together only if they are independent for any data: every number in a container may be
    nonzero.  So the sites of a Boltzmann machine with a matrix in ``pm.Data`` are drawn one at a time, and the random
    numbers of a call may differ from those of a call on the model itself.

    While it exists, it holds in memory: the model; the values in its containers and the arrays of the density, which
    may be larger, both for the first data and for the last call (``n_bytes``); and the machine code, some megabytes for
    each pair of ``draws`` and ``chains``.  A running call holds the values and arrays of its own data, and its
    particles.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_hais
    >>> with pm.Model() as model:
    ...     y = pm.Data("y", np.zeros(5))
    ...     mu = pm.Normal("mu", 0, 1)
    ...     observed = pm.Normal("observed", mu, 1, observed=y)
    >>> compiled = pymc_hais.compile(model)  # doctest: +SKIP
    >>> for seed in range(20):  # doctest: +SKIP
    ...     pm.set_data({"y": np.random.default_rng(seed).normal(size=5)}, model=model)
    ...     idata = pm.sample_hais(model=compiled, random_seed=seed)
    """
    choices = {name: value for name, value in locals().items() if name in _CHOICES} | {"path": _CHOICES["path"]}
    model = find_model(model)
    if is_model(reference) or is_result(reference):
        raise ValueError(
            "`reference` of compile cannot be another model or draws, which belong to one data set: pass a "
            'distribution, or "auto"; or call sample_hais with the model itself.'
        )
    return CompiledModel(model, choices, cores)


def _is_same(given: Any, own: Any) -> bool:
    """Whether two arguments are the same object, or equal; False if arrays make the comparison ambiguous."""
    try:
        return given is own or bool(given == own)
    except ValueError:
        return False
