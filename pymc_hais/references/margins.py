"""Tables of discrete sites: independent margins, next to a reference of the continuous dimensions, or joint ones."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_hais.core.protocols import Reference
from pymc_hais.density import Layout, SiteVariable


@dataclass(frozen=True, eq=False)
class Margins:
    """Every site drawn on its own."""

    continuous: Reference | None  # of the first dimensions; None where all are sites
    n_continuous: int
    variables: Sequence[SiteVariable]  # all with finitely many values
    probabilities: Sequence[np.ndarray]  # (S, K) of each site's values, for each variable; positive where it may be

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw (n, D) positions."""
        parts = [] if self.continuous is None else [self.continuous.sample(n, rng)]
        for variable, p in zip(self.variables, self.probabilities, strict=True):
            cumulative = np.cumsum(p, axis=1)[:, :-1]
            parts.append(variable.low + np.sum(rng.uniform(size=(n, len(p), 1)) >= cumulative, axis=2, dtype=float))
        return np.concatenate(parts, axis=1)

    def logp(self, position: pt.TensorVariable) -> Any:
        """Return the log density as a graph."""
        total = 0.0 if self.continuous is None else self.continuous.logp(position[: self.n_continuous])
        for variable, p in zip(self.variables, self.probabilities, strict=True):
            log_p = np.log(p).astype(position.dtype)
            value = position[variable.start : variable.stop].astype("int64") - variable.low
            if p.shape[1] == 2:
                total = total + pt.switch(value, log_p[:, 1], log_p[:, 0]).sum()
            else:
                total = total + pt.as_tensor(log_p)[np.arange(len(p)), value].sum()
        return total

    def __str__(self) -> str:
        """Name it in messages."""
        margins = "independent margins"
        return margins if self.continuous is None else f"{self.continuous} and {margins}"


def uniform_margins(continuous: Reference | None, n_continuous: int, variables: Sequence[SiteVariable]) -> Margins:
    """Return uniform margins of all sites; refuse a variable with infinitely many values."""
    for variable in variables:
        if not variable.n_values:
            raise ValueError(
                f"A reference of the continuous dimensions alone leaves `{variable.name}` out, which has no largest "
                'value, or too many: pass reference="prior", or a dict with a PyMC distribution for each variable.'
            )
    tables = [np.full((v.stop - v.start, v.n_values), 1.0 / v.n_values) for v in variables]
    return Margins(continuous, n_continuous, variables, tables)


@dataclass(frozen=True, eq=False)
class StateGroup:
    """All states of some sites: mixed-radix numbers, the last site fastest."""

    sites: np.ndarray  # int (W,): places in the flat vector
    low: np.ndarray  # int (W,): the least value of each
    sizes: tuple[int, ...]  # (W,): how many values each has

    @property
    def n_states(self) -> int:
        """K, of any size."""
        return math.prod(self.sizes)

    @property
    def log_n_states(self) -> float:
        """Log K."""
        return float(np.log(self.sizes).sum())

    @property
    def strides(self) -> np.ndarray:
        """By how much the number of a state grows with each site's value, (W,)."""
        return np.cumprod([1, *self.sizes[:0:-1]])[::-1]

    def values(self, numbers: np.ndarray) -> np.ndarray:
        """Return the sites' values (n, W) in states of these numbers (n,)."""
        return self.low + np.stack(np.unravel_index(numbers, self.sizes), axis=-1)


def state_group(layout: Layout, sites: np.ndarray) -> StateGroup:
    """Describe the states of some sites of a layout, by their numbers from 0 to S - 1."""
    low, sizes = (
        np.concatenate([np.full(v.stop - v.start, getattr(v, name)) for v in layout.sites])[sites]
        for name in ("low", "n_values")
    )
    return StateGroup(layout.n_continuous + sites, low, tuple(sizes.tolist()))


@dataclass(frozen=True, eq=False)
class Enumerated:
    """Exact draws of groups of sites that are independent of one another.

    All dimensions are sites.  Impossible states have a log probability of -inf.
    """

    groups: Sequence[StateGroup]
    log_probabilities: Sequence[np.ndarray]  # (K,) of each group

    @functools.cached_property
    def n_dims(self) -> int:
        """D."""
        return sum(len(group.sites) for group in self.groups)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw (n, D) positions."""
        positions = np.empty((n, self.n_dims))
        for group, log_p in zip(self.groups, self.log_probabilities, strict=True):
            p = np.exp(log_p)
            positions[:, group.sites] = group.values(rng.choice(group.n_states, size=n, p=p / p.sum()))
        return positions

    def logp(self, position: pt.TensorVariable) -> Any:
        """Return the log probability as a graph."""
        shape = len(self.groups), max(len(group.sites) for group in self.groups)
        places, strides, low = (np.zeros(shape, dtype=int) for _ in range(3))
        for row, group in enumerate(self.groups):
            own = row, slice(len(group.sites))
            places[own], strides[own], low[own] = group.sites, group.strides, group.low
        first = np.cumsum([0, *(group.n_states for group in self.groups[:-1])])
        digits = position.astype("int64")[places] - low
        log_p = pt.constant(np.concatenate(self.log_probabilities).astype(position.dtype))
        return log_p[(digits * strides).sum(axis=1) + first].sum()

    def __str__(self) -> str:
        """Name it in messages."""
        return f"the posterior of all {sum(group.n_states for group in self.groups):,} states"
