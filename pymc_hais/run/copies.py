"""Copies of a point that differ in labels alone: components of a mixture, or terms of a sum, in another order.

Where the density does not change when two labels trade places, each mode has copies, and a run that starts around one
of them reaches the others by luck.  Which labels may trade is guessed from shapes and names, and then tested: the
density at draws of the reference must be the same before and after.  A wrong guess fails that test.
"""

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pymc_hais.core.seeds import Use
from pymc_hais.density import Layout
from pymc_hais.problem.problem import Problem
from pymc_hais.runner.runner import Runner


class _Sizes(NamedTuple):
    """How many trades are tested, and how."""

    draws: int = 3  # at which the density is compared
    trades: int = 160  # that are tested, at most: two chunks of evaluations
    few: int = 4  # variables with as many labels whose subsets are all tested; else all together and each alone


_SIZES = _Sizes()


class Labels:
    """Labels that may trade places without a change of the density."""

    def __init__(self, problem: Problem, runner: Runner, stage: str = "labels") -> None:
        self._layout = problem.layout
        guesses = np.array(list(itertools.islice(_guess(self._layout), _SIZES.trades)))
        self._trades = guesses[self._keep_density(guesses, problem, runner, stage)] if len(guesses) else guesses

    @property
    def n_trades(self) -> int:
        """How many pairs of labels may trade places."""
        return len(self._trades)

    def trade(self, x: np.ndarray) -> np.ndarray:
        """Return flat vectors (n_trades, n, D): those given (n, D) after each trade."""
        return self._traded(x, self._trades)

    def copies(self, x: np.ndarray, most: int) -> np.ndarray:
        """Return flat vectors (n, D) and all their copies that trades lead to, ``most`` of them in all at most."""
        found, size = x, 0
        while self.n_trades and size < len(found) < most:
            size = len(found)
            found = np.concatenate([found, *self.trade(found)])
            found = found[np.sort(np.unique(np.round(found, 8), axis=0, return_index=True)[1])]
        return found[: max(most, len(x))]

    def _traded(self, x: np.ndarray, trades: np.ndarray) -> np.ndarray:
        wide = np.concatenate([x, *(_last_of(self._layout, i, x) for i in _simplices(self._layout))], axis=-1)
        return np.moveaxis(wide[:, trades[:, : x.shape[-1]]], 1, 0)

    def _keep_density(self, trades: np.ndarray, problem: Problem, runner: Runner, stage: str) -> np.ndarray:
        """Whether each of the trades (n,) leaves the density at draws of the reference unchanged."""
        drawn = problem.reference.draw(8 * _SIZES.draws, runner.seeds.of(Use.TRADES))
        x = drawn.positions[~drawn.clipped]
        values = problem.log_density(x) if len(x) else np.empty(0)
        runner.pay(stage, len(x))
        chosen = np.flatnonzero(np.isfinite(values))[: _SIZES.draws]
        if not len(chosen):
            return np.zeros(len(trades), bool)
        traded = self._traded(x[chosen], trades)
        runner.pay(stage, len(trades) * len(chosen))
        after = problem.log_density(traded.reshape(-1, x.shape[-1])).reshape(traded.shape[:2])
        allowed = np.sqrt(np.finfo(self._layout.dtype).eps) * (1.0 + np.abs(values[chosen]))
        return np.all(np.abs(after - values[chosen]) <= allowed, axis=1)


def _guess(layout: Layout) -> Iterator[np.ndarray]:
    """Yield permutations (W,) of a widened flat vector: neighbouring labels trade places in one or several variables.

    Behind the D dimensions stands what the transform of each simplex has left out: its last element.
    """
    identity = np.arange(layout.n_dims + sum(layout.sizes[i] // layout.shapes[i][-1] for i in _simplices(layout)))
    for _, labelled in sorted(_labelled(layout, identity).items()):
        for some in _subsets(labelled):
            for label in range(len(some[0]) - 1):
                trade = identity
                for places in some:  # (K, m); a matrix may stand there twice, with its rows and its columns
                    step = identity.copy()
                    step[places[label]], step[places[label + 1]] = places[label + 1], places[label]
                    trade = trade[step]
                yield trade


def _labelled(layout: Layout, identity: np.ndarray) -> dict[tuple[bool, int], list[np.ndarray]]:
    """Gather the dimensions (K, m) that belong to each of K labels: an axis of a variable, or numbers in names."""
    by_number, by_name = defaultdict(list), defaultdict(list)
    end = layout.n_dims
    for i, (owner, shape, transform) in enumerate(zip(layout.owners, layout.shapes, layout.transforms, strict=True)):
        where = identity[layout.offsets[i] : layout.offsets[i + 1]].reshape(shape)
        if i in _simplices(layout):
            last = identity[end : end + where.size // shape[-1]].reshape(*shape[:-1], 1)
            where, end = np.concatenate([where, last], axis=-1), end + last.size
        by_name[re.sub(r"\d+", "#", owner), transform, shape].append(where.ravel())
        for axis, n in enumerate(where.shape):
            if n > 1:
                by_number[False, n].append(np.moveaxis(where, axis, 0).reshape(n, -1))
    for variables in by_name.values():
        if len(variables) > 1:
            by_number[True, len(variables)].append(np.stack(variables))
    return by_number


def _subsets(labelled: list[np.ndarray]) -> Iterator[tuple[np.ndarray, ...]]:
    n = len(labelled)
    sizes = range(n, 0, -1) if n <= _SIZES.few else (n, 1)
    return itertools.chain.from_iterable(itertools.combinations(labelled, size) for size in sizes)


def _simplices(layout: Layout) -> list[int]:
    return [i for i, name in enumerate(layout.transforms) if name == "simplex" and layout.shapes[i]]


def _last_of(layout: Layout, i: int, x: np.ndarray) -> np.ndarray:
    """Return the last centred logarithm (n, m), which a simplex transform leaves out."""
    own = x[:, layout.offsets[i] : layout.offsets[i + 1]]
    return -own.reshape(len(x), -1, layout.shapes[i][-1]).sum(axis=-1)
