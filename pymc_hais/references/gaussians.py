"""Several Gaussians in one reference, evaluated together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt

from pymc_hais.references.arrays import push
from pymc_hais.references.gaussian import Gaussian


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Draw from one of K Gaussians, each with the same share.

    As parts of a :class:`Mixture` each would have graphs of its own, and dozens of them would take minutes to compile.

    Attributes
    ----------
    parts : sequence of Gaussian
        With full parameters, and lower Cholesky factors.
    """

    parts: Sequence[Gaussian]

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw (n, D) positions."""
        chosen = rng.integers(len(self.parts), size=n)
        normal = rng.normal(size=(n, len(self.parts[0].loc)))
        x = np.empty_like(normal)
        for number, part in enumerate(self.parts):
            of_part = chosen == number
            x[of_part] = part.loc + push(part.scale, normal[of_part])
        return x

    def logp(self, position: pt.TensorVariable) -> pt.TensorVariable:
        """Return the log density as a graph."""
        n_dims, dtype = len(self.parts[0].loc), position.dtype
        inverses = np.stack([np.linalg.inv(part.scale) for part in self.parts]).astype(dtype)
        log_dets = np.array([np.log(np.diag(part.scale)).sum() for part in self.parts])
        constants = -log_dets - 0.5 * n_dims * np.log(2.0 * np.pi) - np.log(len(self.parts))
        away = position[None, :] - np.stack([part.loc for part in self.parts]).astype(dtype)
        z = (pt.as_tensor(inverses) * away[:, None, :]).sum(axis=2)
        return pt.logsumexp(constants.astype(dtype) - 0.5 * (z**2).sum(axis=1))

    def __str__(self) -> str:
        """Name it in messages."""
        return f"{len(self.parts)} Gaussians" if len(self.parts) > 1 else str(self.parts[0])
