"""A PyMC distribution of the whole flat vector as a reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm

from pymc_hais.model.layout import Layout


def is_distribution(spec: Any) -> bool:
    """Whether ``spec`` is an unregistered PyMC distribution such as ``pm.Normal.dist(0, 2, shape=36)``."""
    node = getattr(spec, "owner", None)
    return node is not None and hasattr(spec, "eval") and hasattr(node.op, "ndim_supp")


@dataclass(frozen=True, eq=False)
class Distribution:
    """A PyMC distribution of the unconstrained vector.

    Parameters
    ----------
    dist : TensorVariable
        Of D elements.
    shape : tuple of int
        Its shape.
    """

    dist: Any
    shape: tuple[int, ...]

    @classmethod
    def build(cls, dist: Any, layout: Layout) -> Distribution:
        """Match a distribution of all D dimensions with a model.

        Raises
        ------
        ValueError
            If it has another number of elements.
        """
        shape = tuple(int(length) for length in dist.shape.eval())
        if int(np.prod(shape)) != layout.n_dims:
            raise ValueError(
                f"The reference distribution has shape {shape}, but the model has {layout.n_dims} unconstrained "
                f"dimensions: pass `shape={layout.n_dims}`, or a dict with a distribution for each variable."
            )
        return cls(dist, shape)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw (n, D) positions."""
        draws = pm.draw(self.dist, n, random_seed=int(rng.integers(2**31)))
        return np.asarray(draws, dtype=np.float64).reshape(n, -1)

    def logp(self, position: Any) -> Any:
        """Return the log density as a graph."""
        return pm.logp(self.dist, position.reshape(self.shape)).sum()

    def __str__(self) -> str:
        """Name it in messages."""
        return type(self.dist.owner.op).__name__.removesuffix("RV")
