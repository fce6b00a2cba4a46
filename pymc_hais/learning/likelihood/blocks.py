"""Gibbs draws of bits whose log density is proven quadratic: units without couplings between them are drawn at once.

So are the layers of a restricted or a deep Boltzmann machine, each by one product of matrices.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import graph_replace
from scipy.optimize import brentq
from scipy.special import expit

from pymc_hais.core.weights import systematic
from pymc_hais.density.compiling import untraced
from pymc_hais.density.layout import Layout
from pymc_hais.learning.binary.density import Bits, build_bits
from pymc_hais.learning.family import Arrays, Family, batch
from pymc_hais.learning.likelihood.chains import Chains, Moved

#: Couplings below this share of the largest are rounding errors.
_ROUNDING = 1e-9


class Part(NamedTuple):
    """One block, given all other blocks: its log odds are ``x[:, others] slopes + biases``."""

    block: Any
    others: Any
    slopes: np.ndarray  # float32 (len(others), len(block))
    biases: np.ndarray  # float32 (len(block),)


@dataclass(frozen=True, eq=False)
class Energy:
    """The log density ``constant + biases' x + x' couplings x / 2`` of bits x at some parameters."""

    constant: float
    biases: np.ndarray  # (D,)
    couplings: np.ndarray  # (D, D), zero on the diagonal
    parts: list[Part]

    def coupled(self, x: np.ndarray) -> np.ndarray:
        """Return ``x' couplings x / 2`` of bits (..., D)."""
        return 0.5 * ((x @ self.couplings) * x).sum(axis=-1)

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """Return the log densities of bits (..., D)."""
        return self.constant + x @ self.biases + self.coupled(x)


class Blocks:
    """Log densities of all bits of a model, in blocks of bits that are not coupled to each other.

    The quadratic form is read off the gradient at zero and the change of the gradient by each unit.  Units of the
    largest block are not evaluated one by one, because they are not coupled to each other; random states of this block
    check it.
    """

    def __init__(self, bits: Bits, family: Family, visible: Sequence[Any] = (), hidden: Sequence[Any] = ()) -> None:
        self.bits, self.layout, self.names = bits, bits.layout, list(family.parameters)
        # Hidden units come last, so that a sweep ends with hidden units drawn given the visible ones.
        self.blocks, self.n_visible = [*visible, *hidden], len(visible)
        # Places of the elements of a row, and of the hidden units, in a point.
        self.visible, self.hidden = family.places(bits.layout)
        units = np.arange(self.layout.n_dims)
        self._largest = max(self.blocks, key=len, default=units[:0])
        self._asked = np.setdiff1d(units, self._largest)
        self._others = [np.setdiff1d(units, block) for block in self.blocks]
        self._states = np.zeros((len(self._asked) + 2, len(units)))
        self._states[np.arange(len(self._asked)), self._asked] = 1.0
        self._states[-2, self._largest] = np.random.default_rng(0).normal(size=len(self._largest))
        # At the last two parameters: fast chains move at other parameters than the model has.
        self._last = list[tuple[list[np.ndarray], Energy]]()

    def at(self, parameters: Arrays) -> Energy:
        """Return the log density at some parameters; a ValueError says that units of a block are coupled."""
        given = [parameters[name] for name in self.names]
        for kept, energy in self._last:
            if all(one is other for one, other in zip(given, kept, strict=True)):
                return energy
        n = self.layout.n_dims
        constant, gradients = self.bits.program(self._states, *given)
        moved = gradients[:-1] - gradients[-1]
        couplings = np.zeros((n, n))
        couplings[self._asked] = moved[:-1]
        couplings[:, self._asked] = moved[:-1].T
        least = _ROUNDING * np.abs(moved).max(initial=0.0)
        inside = [couplings[np.ix_(one, one)] for one in self.blocks if one is not self._largest]
        if any(np.abs(one).max(initial=0.0) > least for one in (moved[-1, self._largest], *inside)):
            raise ValueError(
                "The density couples units at these parameters that are not coupled at others. Pass a `kernel`, such "
                "as pymc_hais.Gibbs(), which draws one unit after the other."
            )
        parts = []
        for block, others in zip(self.blocks, self._others, strict=True):
            slopes = couplings[np.ix_(others, block)].astype(np.float32)
            parts.append(Part(_cut(block), _cut(others), slopes, gradients[-1, block].astype(np.float32)))
        energy = Energy(float(constant), gradients[-1], couplings, parts)
        self._last = [(given, energy), *self._last[:1]]
        return energy

    def build_chains(self, rows: np.ndarray) -> tuple[BlockChains | None, BlockChains]:
        """Return the chains of the hidden variables given each row (n, D), if there are any, and those of the model."""
        points = np.zeros((len(rows), self.layout.n_dims))
        points[:, self.visible] = rows
        blocks = range(len(self.blocks))
        of_rows = BlockChains(self, self.hidden, blocks[self.n_visible :], points)
        of_model = BlockChains(self, np.arange(points.shape[1]), blocks)
        return (of_rows if len(self.hidden) else None), of_model

    @untraced
    def log_density(self, rows: pt.TensorVariable, hidden: pt.TensorVariable | None = None) -> Any:
        """Return the graph of the log densities (m,): linear in each bit, so that it takes means of hidden ones."""
        parts = [rows] if hidden is None else [rows, hidden]
        given: Any = pt.tensor(dtype="float64", shape=(rows.type.shape[0], self.layout.n_dims))
        order = np.argsort(np.concatenate([self.visible, self.hidden]))
        points: Any = pt.concatenate(parts, axis=1)
        points = points if np.array_equal(order, np.arange(len(order))) else points[:, order]
        graph = batch(self.bits.smooth, {self.bits.position: given}, given)
        return graph_replace([graph], {given: points}, strict=False)[0]


@dataclass(frozen=True, eq=False)
class BlockChains:
    """Bits that move block by block: all of the model, or the hidden ones given rows."""

    density: Blocks
    moved: np.ndarray  # places of these bits in a point
    blocks: range  # numbers of their blocks
    rows: np.ndarray | None = None  # (n, D): points with hidden units of zero, where the hidden ones move alone

    @property
    def layout(self) -> Layout:
        """Layout of the points."""
        return self.density.layout

    def start(self, n: int, parameters: Arrays, rng: np.random.Generator) -> np.ndarray:
        """Return n points of random bits."""
        return rng.integers(2, size=(n, len(self.moved))).astype(np.float64)

    def move(
        self,
        x: np.ndarray,
        n_moves: int,
        parameters: Arrays,
        rng: np.random.Generator,
        rows: Sequence[int] | np.ndarray | None = None,
        weigh: Callable[[np.ndarray], np.ndarray | None] | None = None,
    ) -> Moved:
        """Draw every block so many times; arguments and result are those of :meth:`Chains.move`."""
        energy = self.density.at(parameters)
        if self.rows is not None:
            points = self.rows[rows]
            points[:, self.moved] = x
            # What depends on the rows alone is drawn once.
            points = self._sweep(points, 1 if len(self.blocks) == 1 else n_moves, energy, rng)
            return Moved(points[:, self.moved], None, self)
        if weigh is not None and (chosen := weigh(energy.log_density(x))) is not None:
            x = np.take_along_axis(x, chosen[..., None], axis=1)
        points = self._sweep(x.reshape(-1, x.shape[-1]), n_moves, energy, rng).reshape(x.shape)
        return Moved(points, energy.log_density(points) if weigh else None, self)

    def expect(self, points: np.ndarray, parameters: Arrays) -> np.ndarray:
        """Return points (m, D) with the units of the last block at their means given the others."""
        block, others, slopes, biases = self.density.at(parameters).parts[-1]
        expected = points.copy()
        expected[:, block] = expit(points[:, others].astype(np.float32) @ slopes + biases)
        return expected

    def draw(
        self, n_populations: int, n: int, parameters: Arrays, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Anneal B populations of n points from independent bits, whose biases are the model's, and resample them.

        Returns points (B, n, D), their log densities (B, n) and log Z by each population (B,).
        """
        energy = self.density.at(parameters)
        betas, *_ = self._anneal(200, energy, rng)  # a few points choose the temperatures
        _, x, log_weights = self._anneal(n_populations * n, energy, rng, betas)
        x, log_weights = x.reshape(n_populations, n, -1), log_weights.reshape(n_populations, n)
        log_z = np.logaddexp.reduce(log_weights, axis=1) - np.log(n)
        log_z += energy.constant + np.logaddexp(0.0, energy.biases).sum()
        chosen = np.stack([systematic(one, rng.random()) for one in log_weights])
        x = np.take_along_axis(x, chosen[..., None], axis=1)
        return x, energy.log_density(x), log_z

    def _anneal(
        self, n: int, energy: Energy, rng: np.random.Generator, betas: Sequence[float] = ()
    ) -> tuple[list[float], np.ndarray, np.ndarray]:
        """Return temperatures, as given or chosen here, n points at the last one, and log weights."""
        x = (rng.random((n, len(energy.biases))) < expit(energy.biases)).astype(np.float64)
        log_weights, used = np.zeros(n), [0.0]
        while used[-1] < 1.0:
            heights = energy.coupled(x)
            used.append(betas[len(used)] if betas else _next_beta(used[-1], heights))
            log_weights += (used[-1] - used[-2]) * heights
            x = self._sweep(x, 1, energy, rng, used[-1])
        return used, x, log_weights

    def _sweep(
        self, points: np.ndarray, n: int, energy: Energy, rng: np.random.Generator, beta: float = 1.0
    ) -> np.ndarray:
        """Draw every block of points (m, D) from its law given the others, n times, with couplings times beta."""
        x = points.astype(np.float32)
        for _ in range(n):
            for block, others, slopes, biases in energy.parts[self.blocks.start : self.blocks.stop]:
                odds = x[:, others] @ slopes
                odds = np.float32(beta) * odds + biases
                x[:, block] = rng.random(odds.shape, dtype=np.float32) < expit(odds)
        return x.astype(np.float64)


#: Moves that leave a density with parameters invariant.
type Moves = Chains | BlockChains


#: Cache: the blocks of each family are asked for repeatedly.
_found = weakref.WeakKeyDictionary[Family, Blocks | None]()


def find_blocks(family: Family) -> Blocks | None:
    """Return the blocks of a density; None where not all variables are bits, or most of them are coupled."""
    if family not in _found:
        _found[family] = _find(family)
    return _found[family]


def _find(family: Family) -> Blocks | None:
    if (bits := build_bits(family)) is None:
        return None
    n, density = bits.layout.n_dims, Blocks(bits, family)
    rng, are_coupled = np.random.default_rng(0), np.zeros((n, n), dtype=bool)
    for _ in range(3):  # random parameters: at some values, such as zero, coupled units are not coupled
        values = {name: rng.normal(size=symbol.type.shape) for name, symbol in family.parameters.items()}
        couplings = density.at(values).couplings
        are_coupled |= np.abs(couplings) > _ROUNDING * np.abs(couplings).max()
    visible, hidden = _color(density.visible, are_coupled), _color(density.hidden, are_coupled)
    # With more than eight blocks, such as when all units are coupled, compiled moves take less time.
    if are_coupled.diagonal().any() or len(visible) + len(hidden) > 8:
        return None
    return Blocks(bits, family, visible, hidden)


def _color(units: np.ndarray, are_coupled: np.ndarray) -> list[np.ndarray]:
    """Return units in blocks without couplings: each goes into the first block that has none with it."""
    blocks = list[list[int]]()
    for unit in units:
        free = next((block for block in blocks if not are_coupled[unit, block].any()), None)
        if free is None:
            blocks.append(free := [])
        free.append(int(unit))
    return [np.array(block) for block in blocks]


def _next_beta(beta: float, heights: np.ndarray) -> float:
    """Return the temperature at which importance weights keep 98% of their effective sample size; at most one."""

    def excess(after: float) -> float:
        weights = np.exp((after - beta) * (heights - heights.max()))
        return float(weights.sum() ** 2 / (weights @ weights) / len(weights)) - 0.98

    return 1.0 if excess(1.0) >= 0.0 else float(brentq(excess, beta, 1.0, rtol=1e-3))


def _cut(places: np.ndarray) -> Any:
    """Return consecutive places as a slice, which copies nothing."""
    is_slice = len(places) and len(places) == places[-1] - places[0] + 1
    return slice(int(places[0]), int(places[-1]) + 1) if is_slice else places
