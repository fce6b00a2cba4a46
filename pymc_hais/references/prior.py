"""The prior as the reference: exact joint draws by PyMC's forward sampling, in the unconstrained space; data from them.

Never an ``initval``: a start that is not a prior draw gives a wrong Z without any warning.
"""

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pymc as pm
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, graph_inputs

from pymc_hais.core.messages import quoted
from pymc_hais.density.compat import Function, find_rng_nodes, reseed_rngs
from pymc_hais.density.compiling import compile_interpreted, untraced
from pymc_hais.density.containers import arguments_for
from pymc_hais.density.facts import keeps_all
from pymc_hais.density.layout import Layout, free_variables
from pymc_hais.density.outputs import build_outputs
from pymc_hais.density.rewrites.graphs import sizes
from pymc_hais.density.sites.terms import reached_from
from pymc_hais.density.sites.variables import is_discrete
from pymc_hais.references.base import UnusablePriorError
from pymc_hais.references.forward import batch, forward_graph

#: Draws made by one call of the batched forward graph.
_BATCH = 500
#: Numbers, at most, of the largest array that such a call makes.
_MOST_NUMBERS = 2_000_000
#: Give up on rejection when fewer than one joint draw in this many obeys the orderings.
_MAX_REJECTION = 2000
#: Draws from which the shapes are taken, at most.
_ATTEMPTS = 100
#: What PyMC raises for parameters with which it cannot draw, a truncation that few draws survive, a missing package.
_UNDRAWN = (ValueError, ArithmeticError, RuntimeError)
_BEYOND = (
    "PyMC could not draw from the prior, where a table is looked up past its end: {}. Make the table longer, or clip "
    "the index with pt.clip."
)


#: Transforms whose inverse is an exponential in every element.  An "interval" is one too, but may have one end only.
_OF_EXPONENTIALS = ("log", "logodds")
#: Of variables that are no numbers if a parent is beyond floating point.
_OF_CHILDREN = ("", "interval", *_OF_EXPONENTIALS)
#: Largest logarithm: NumPy draws smaller numbers than exp(-700), but compilers take some of them for zero.
_LARGEST = 700.0


def _is_beyond(value: np.ndarray, transform: str) -> np.ndarray:
    """Whether each transformed element is infinite, or of a number that is beyond what floating point can hold."""
    is_outside = (value < -_LARGEST) | (value > _highest(transform))
    return np.isinf(value) | (is_outside & (transform in _OF_EXPONENTIALS))


def _clip(value: np.ndarray, transform: str) -> np.ndarray:
    """Move elements that are beyond what floating point can hold to the edge of it."""
    beyond = _is_beyond(value, transform) | np.isnan(value)
    edge = np.clip(np.nan_to_num(value, nan=0.0, posinf=np.inf, neginf=-np.inf), -_LARGEST, _highest(transform))
    return np.where(beyond, edge, value)


def _highest(transform: str) -> float:
    """Return the highest value that floating point holds: exp(-36) is the smallest distance from one."""
    return _LARGEST if transform in ("", "log") else 36.0


def _any(is_true: np.ndarray) -> np.ndarray:
    """Whether a condition (n, ...) holds for any element of each row."""
    return is_true.reshape(len(is_true), -1).any(axis=1)


@dataclass
class PriorSampler:
    """Joint draws of the free variables, unconstrained."""

    names: list[str]  # in the order of the flat vector
    transforms: list[str]  # names; "" for none, or for one that may cut something off
    batch_size: int  # draws made by one call of the forward graph; 1 for a model that cannot be drawn in batches
    _function: Any
    _rngs: list[Any]
    _data: Mapping[str, np.ndarray] = field(default_factory=dict)
    _drawing: threading.Lock = field(default_factory=threading.Lock)

    def with_data(self, values: Mapping[str, np.ndarray]) -> Self:
        """Draw given other values of the data containers that may vary."""
        return replace(self, _data={name: values[name] for name in self._data})

    def sample(self, n: int, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Draw ``n`` joint prior draws (n, *shape); the same ``n`` and ``seed`` give the same draws.

        Returns also which of them (n,) lay beyond what floating point can hold (a positive variable that underflowed to
        zero, a probability that rounded to one).  They are moved to the edge of what it holds, where the density has
        reached its limit.  A prior is refused if almost no joint draw is inside the range of the transforms, such as an
        ``ordered`` variable whose elements differ, or a mistaken ``random`` function.
        """
        with self._drawing:  # calls in other threads would draw from the same random states
            values = self._draw(n, seed)
        drawn = list(zip(values, self.transforms, strict=True))
        clipped = np.any([_any(_is_beyond(*one) | np.isnan(one[0])) for one in drawn], axis=0)
        return [_clip(*one) for one in drawn], clipped

    def _draw(self, n: int, seed: int) -> list[np.ndarray]:
        reseed_rngs(self._rngs, seed)
        kept: list[list[np.ndarray]] = []
        n_kept = n_tried = 0
        while n_kept < n:
            values = self._call()
            accepted = self._inside(values)
            n_tried += accepted.size
            n_kept += int(accepted.sum())
            kept.append([value[accepted] for value in values])
            if n_tried > _MAX_REJECTION * max(n_kept, 1) + 10 * _BATCH:
                shares = self._outside(values).mean(axis=1)
                outside = [name for name, share in zip(self.names, shares, strict=True) if share > 0]
                raise UnusablePriorError(
                    f"Of {n_tried} joint prior draws only {n_kept} are inside the support that the transforms allow; "
                    f"most draws of {quoted(outside)} are NaN or outside. For an ordered variable, give all its "
                    "elements the same prior (then draws are sorted) or parameters that already increase; otherwise "
                    "check the variable's parameters, its `random` function and its `transform`.",
                    outside,
                )
        return [np.concatenate([k[i] for k in kept])[:n] for i in range(len(self.names))]

    def count_kept(self, n_calls: int, seed: int) -> int:
        """Count the draws inside the range of the transforms, of ``n_calls`` times ``batch_size``."""
        with self._drawing:
            reseed_rngs(self._rngs, seed)
            return sum(int(self._inside(self._call()).sum()) for _ in range(n_calls))

    def _call(self) -> list[np.ndarray]:
        try:
            with np.errstate(divide="ignore", over="ignore"):  # what lies beyond floating point is marked
                values = self._function(*self._data.values())
        except _UNDRAWN as error:
            raise ValueError(
                f"PyMC could not draw from the prior: {error}. A parameter of a distribution has left its domain; "
                "give the variable it depends on a prior that stays inside."
            ) from error
        except IndexError as error:
            raise ValueError(_BEYOND.format(str(error).splitlines()[0])) from error
        return values if self.batch_size > 1 else [np.asarray(value)[None] for value in values]

    def _inside(self, values: list[np.ndarray]) -> np.ndarray:
        """Whether each joint draw (n,) is inside the range of all transforms."""
        return ~self._outside(values).any(axis=0)

    def _outside(self, values: list[np.ndarray]) -> np.ndarray:
        """Whether each row is outside the range of each variable's transform: (V, n)."""
        drawn = list(zip(values, self.transforms, strict=True))
        is_beyond = np.any([_any(_is_beyond(*one)) for one in drawn], axis=0)
        # A simplex with an element that underflowed is inf - inf, and a normal whose precision did is 0 * inf: beyond
        # floating point, not outside.
        return np.array(
            [
                _any(np.isnan(value)) & (transform != "simplex") & ~(is_beyond & (transform in _OF_CHILDREN))
                for value, transform in drawn
            ]
        )

    @property
    def edges(self) -> np.ndarray:
        """The lowest and the highest value (2, V) that floating point holds of each variable; infinite if not known."""
        return np.array(
            [
                (-_LARGEST, _highest(transform)) if transform in _OF_EXPONENTIALS else (-np.inf, np.inf)
                for transform in self.transforms
            ]
        ).T


@dataclass
class GivenSampler:
    """Draws of some free variables, unconstrained, one for each row of values that others have."""

    given: list[Any]  # the others
    transforms: list[str]
    shapes: list[tuple[int, ...]]
    are_whole: list[bool]
    batch_size: int
    _function: Any
    _single: Any  # of one row
    _drawing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_whole(self) -> np.ndarray:
        """Whether each element is a whole number, of bool (K,)."""
        return np.repeat(self.are_whole, [int(np.prod(shape)) for shape in self.shapes])

    def draw(self, given: Sequence[np.ndarray], seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw (n, K) given values (n, ...), and return where PyMC could not (n,).

        There it returns NaN, and 2**53 for whole numbers.  Where PyMC could draw, NaN is a draw that a transform cannot
        take.
        """
        size, seeds = self.batch_size, np.random.SeedSequence(seed).generate_state(2)
        with self._drawing, np.errstate(all="ignore"):
            for function, own in zip((self._function, self._single), seeds, strict=True):
                reseed_rngs(find_rng_nodes(function.maker.fgraph.outputs), int(own))
            parts = [self._draw_batch([one[i : i + size] for one in given]) for i in range(0, len(given[0]), size)]
        drawn, failed = zip(*parts, strict=True)
        return np.concatenate(drawn), np.concatenate(failed)

    def _draw_batch(self, rows: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        n = len(rows[0])
        if n == 1:
            return self._draw_row([np.asarray(one[0]) for one in rows])
        try:
            filled = [np.concatenate([one, np.repeat(one[:1], self.batch_size - n, axis=0)]) for one in rows]
            return self._join(self._function(*filled))[:n], np.zeros(n, dtype=bool)
        except Exception:  # whatever an operation raises: the other rows have draws
            drawn, failed = zip(*(self._draw_batch([one[i : i + 1] for one in rows]) for i in range(n)), strict=True)
            return np.concatenate(drawn), np.concatenate(failed)

    def _draw_row(self, row: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        try:
            return self._join([value[None] for value in self._single(*row)]), np.zeros(1, dtype=bool)
        except Exception:
            kinds = zip(self.shapes, self.are_whole, strict=True)
            instead = [np.full((1, *shape), 2.0**53 if is_whole else np.nan) for shape, is_whole in kinds]
            return self._join(instead), np.ones(1, dtype=bool)

    def _join(self, values: list[np.ndarray]) -> np.ndarray:
        drawn = []
        for value, transform in zip(values, self.transforms, strict=True):
            is_none = np.isnan(value) if transform in _OF_EXPONENTIALS else ~np.isfinite(value)
            drawn.append(np.where(is_none, np.nan, _clip(value, transform)).reshape(len(value), -1))
        return np.concatenate(drawn, axis=1)


@untraced
def build_prior(model: pm.Model, containers: Sequence[str] = (), inside: bool = False) -> PriorSampler:
    """Compile the forward sampler of a model's free variables, with values of its own for containers that may vary.

    ``inside`` is as :func:`pymc_hais.references.forward.forward_graph` takes it.

    A variable for which PyMC has no forward sampler is a NotImplementedError, and one with a parameter that is never in
    its domain a ValueError; both name it.
    """
    variables, outputs = free_variables(model), forward_graph(model, inside)
    inputs: list[Any] = [one for one in graph_inputs(outputs) if one.name in containers]
    data: dict[str, np.ndarray] = {one.name: np.asarray(one.get_value()) for one in inputs}
    arguments = arguments_for(data)
    outputs = clone_replace(outputs, dict(zip(inputs, arguments, strict=True)), rebuild_strict=False)
    single = compile_interpreted(arguments, outputs)
    shapes = [np.shape(value) for value in _draw_once(single, list(data.values()), model)]
    known = dict(zip(arguments, data.values(), strict=True))
    function, batch_size = _compile_batch(outputs, _BATCH, known, shapes) or (single, 1)
    return PriorSampler(
        names=[rv.name for rv in variables],
        transforms=[_name_lossless(model, rv) for rv in variables],
        batch_size=batch_size,
        _function=function,
        _rngs=find_rng_nodes(function.maker.fgraph.outputs),
        _data=data,
    )


@untraced
def build_given(model: pm.Model, layout: Layout, variables: Sequence[Any], start: Mapping[Any, Any]) -> GivenSampler:
    """Compile draws of free variables, given the other free variables that they depend on.

    ``start`` has a possible value of each free variable.
    """
    others = [rv for rv in model.free_RVs if rv not in variables]
    used = set(ancestors(variables))
    given = [rv for rv in others if rv in used] or others[:1]  # one at least: it says how many draws are wanted
    symbols = {rv: rv.type(name=rv.name) for rv in others}
    known = {symbols[rv]: start[rv] for rv in given}
    outputs = forward_graph(model, given=symbols)
    shapes = [layout.shapes[layout.owners.index(rv.name)] for rv in variables]
    single = compile_interpreted(list(known), outputs)
    n = min(_BATCH, _MOST_NUMBERS // max(sizes(reached_from(list(known), outputs)), default=1))
    function, batch_size = _compile_batch(outputs, max(n, 2), known, shapes, by_row=True) or (single, 1)
    transforms = [_name_lossless(model, rv) for rv in variables]
    return GivenSampler(given, transforms, shapes, list(map(is_discrete, variables)), batch_size, function, single)


def _compile_batch(
    outputs: list[Any], n: int, inputs: Mapping[Any, np.ndarray], shapes: list[tuple[int, ...]], by_row: bool = False
) -> tuple[Function, int] | None:
    """Compile at least n draws of a forward graph at once, as :func:`pymc_hais.references.forward.batch` writes them.

    Returns the function and the number of draws; None for a graph that cannot be batched: one joint draw at a time is
    always right.
    """
    try:
        batched, n, arguments = batch(outputs, n, inputs, by_row)
        function = compile_interpreted(arguments, batched)
        values = [np.stack([one] * n) if by_row else one for one in inputs.values()]
        with np.errstate(divide="ignore", over="ignore"):
            calls = [function(*values) for _ in range(2)]
        return (function, n) if _is_batch(calls, shapes, n) else None
    except Exception:
        return None


def _name_lossless(model: pm.Model, rv: Any) -> str:
    """Name a variable's transform; "" for none, or for one that may cut something off."""
    transform = model.rvs_to_transforms[rv]
    return getattr(transform, "name", "") if keeps_all(rv, model.rvs_to_values[rv], transform) else ""


@np.errstate(all="ignore")  # draws beyond the range of floating point
def _draw_once(function: Function, data: list[np.ndarray], model: pm.Model) -> list[np.ndarray]:
    try:
        # For the shapes alone, until no pm.InverseGamma divides by zero; with many draws it gives infinity.
        for seed in range(_ATTEMPTS):
            with contextlib.suppress(ZeroDivisionError):
                return function(*data)
            reseed_rngs(find_rng_nodes(function.maker.fgraph.outputs), seed)
        return function(*data)
    except NotImplementedError as error:
        raise NotImplementedError(
            f"PyMC cannot draw from the prior of `{_first_undrawable(model)}`, and prior draws are where "
            "annealing starts. If it is a pm.CustomDist, pass it a `random=` function or `dist=`; if it is built "
            "on an improper distribution (pm.Flat), use a proper one. Or start elsewhere: sample_hais(reference="
            '"gaussian") needs no prior draws, and log Z is then log of the integral of exp(model.logp()).'
        ) from error
    except _UNDRAWN as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"PyMC cannot draw from the prior of `{_first_undrawable(model)}`: {reason}.") from error
    except IndexError as error:
        raise ValueError(_BEYOND.format(str(error).splitlines()[0])) from error


@untraced
def _first_undrawable(model: pm.Model) -> str:
    for rv in model.free_RVs:  # parents come before children
        try:
            pm.draw(rv, draws=_ATTEMPTS, mode="FAST_COMPILE")
        except (NotImplementedError, *_UNDRAWN):
            return rv.name
    return model.free_RVs[-1].name


def _is_batch(calls: list[list[np.ndarray]], shapes: list[tuple[int, ...]], n: int) -> bool:
    """Whether every variable has n rows of the right shape, and was drawn anew for each and in every call.

    Whole numbers often repeat, so for these only the shapes are checked; numbers beyond floating point are left out.
    """
    if any(value.shape != (n, *shape) for call in calls for value, shape in zip(call, shapes, strict=True)):
        return False
    draws = (np.concatenate(values).reshape(len(calls) * n, -1) for values in zip(*calls, strict=True))
    draws = (rows[np.isfinite(rows).all(axis=1)] for rows in draws if rows.size and rows.dtype.kind == "f")
    return all(len(np.unique(rows, axis=0)) > len(rows) // 2 for rows in draws)


def simulate(
    model: pm.Model, layout: Layout, sampler: PriorSampler, n: int, seed: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Draw n sets of parameters from the prior, and data from each: flat vectors (n, D), and observed variables.

    Raises ValueError if fewer than n of the prior draws lie within the range of floating point.
    """
    # The parameters and the data must not share their random numbers.
    of_parameters, of_data = np.random.SeedSequence(seed).generate_state(2)
    values, clipped = sampler.sample(4 * n, int(of_parameters))
    usable = np.flatnonzero(~clipped)[:n]
    if usable.size < n:
        raise ValueError(
            f"Only {usable.size} of {4 * n} prior draws lie within the range of floating point: use a narrower prior."
        )
    positions = layout.flatten([value[usable] for value in values])
    named = build_outputs(model, layout, [rv.name for rv in model.free_RVs])(positions)
    given = [rv.type(name=rv.name) for rv in model.free_RVs]
    replaced = dict(zip(model.free_RVs, given, strict=True))
    draw = compile_interpreted(given, clone_replace(list(model.observed_RVs), replaced, rebuild_strict=False))
    reseed_rngs(find_rng_nodes(draw.maker.fgraph.outputs), int(of_data))
    drawn = [draw(*(np.asarray(named[rv.name][i], rv.dtype) for rv in model.free_RVs)) for i in range(n)]
    columns = zip(*drawn, strict=True)
    return positions, {rv.name: np.stack(column) for rv, column in zip(model.observed_RVs, columns, strict=True)}
