"""A PyMC distribution as a reference, or one for each variable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm

from pymc_hais.model.layout import Layout

__all__ = ["Distributions", "is_distribution"]


def is_distribution(spec: Any) -> bool:
    """Whether ``spec`` is an unregistered PyMC distribution such as ``pm.Normal.dist(0, 2, shape=36)``."""
    node = getattr(spec, "owner", None)
    return node is not None and hasattr(spec, "eval") and hasattr(node.op, "ndim_supp")


@dataclass(frozen=True, eq=False)
class Distributions:
    """Independent PyMC distributions of consecutive parts of the flat vector.

    Parameters
    ----------
    parts : list of TensorVariable
        Distributions, in the order of the flat vector.
    shapes : list of tuple of int
        Their shapes.
    """

    parts: list[Any]
    shapes: list[tuple[int, ...]]

    @classmethod
    def build(cls, spec: Any, layout: Layout) -> Distributions:
        """Match one distribution of all D dimensions, or ``{variable name: distribution}``, with a model.

        Raises
        ------
        ValueError
            If names are missing or unknown, or a shape differs.
        """
        if not isinstance(spec, Mapping):
            shape = tuple(int(length) for length in spec.shape.eval())
            if int(np.prod(shape)) != layout.n_dims:
                raise ValueError(
                    f"The reference distribution has shape {shape}, but the model has {layout.n_dims} unconstrained "
                    f"dimensions: pass `shape={layout.n_dims}`, or a dict with a distribution for each variable."
                )
            return cls([spec], [shape])
        if set(spec) != set(layout.owners):
            raise ValueError(
                f"The reference names the variables {sorted(spec)}, but the model's free variables are "
                f"{sorted(layout.owners)}: give each of them one distribution of its unconstrained values."
            )
        parts = [spec[owner] for owner in layout.owners]
        for owner, part, shape in zip(layout.owners, parts, layout.shapes, strict=True):
            given = tuple(int(length) for length in part.shape.eval())
            if given != shape:
                raise ValueError(
                    f"The reference of `{owner}` has shape {given}, but its unconstrained values have shape {shape}."
                )
        return cls(parts, list(layout.shapes))

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw (n, D) positions."""
        draws = pm.draw(self.parts, n, random_seed=int(rng.integers(2**31)))
        return np.concatenate([np.asarray(draw, dtype=np.float64).reshape(n, -1) for draw in draws], axis=1)

    def logp(self, position: Any) -> Any:
        """Return the log density as a graph."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        total: Any = 0.0
        for part, shape, end in zip(self.parts, self.shapes, ends, strict=True):
            values = position[end - int(np.prod(shape)) : end].reshape(shape)
            total = total + pm.logp(part, values).sum()
        return total

    def __str__(self) -> str:
        """Name it in messages."""
        return " x ".join(type(part.owner.op).__name__.removesuffix("RV") for part in self.parts)
