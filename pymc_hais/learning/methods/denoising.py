"""Denoising score matching: the gradient of the log density points back from noisy rows."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc_hais.learning.family import Family
from pymc_hais.learning.protocol import Batch, Method
from pymc_hais.request.arguments import check_positive


@dataclass(frozen=True)
class DenoisingScoreMatching(Method):
    r"""Fit the gradient of the log density to the way back from noisy rows (Vincent 2011, equation 9).

    .. math:: J = \operatorname{mean}_{x, \epsilon} \tfrac12 \left\| \nabla \log p(x + \sigma \epsilon)
                  + \epsilon / \sigma \right\|^2, \quad \epsilon \sim N(0, I)

    with both signs of each epsilon.  No second derivatives in the row are needed, and kinks do no harm.  What is fitted
    is the density of rows **with the noise**: a bias of the order of sigma^2, against a variance that grows as its
    inverse.

    Parameters
    ----------
    sigma : float, default 0.3
        Standard deviation of the noise in the units of the variables, the same for all.

    References
    ----------
    Vincent, P. (2011). A connection between score matching and denoising autoencoders. Neural Computation 23.
    """

    sigma: float = 0.3

    supports: ClassVar[frozenset[str]] = frozenset({"real"})

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma, "the variables' units", None)

    def prepare(self, state: Any, batch: Batch, rng: np.random.Generator) -> tuple[list[np.ndarray], Any]:
        """Draw epsilon (m, D)."""
        return [rng.normal(size=batch.rows.shape)], state

    def objective(self, family: Family, rows: Any, extras: list[Any]) -> Any:
        """Return the terms (m,)."""
        noise = pt.concatenate([extras[0], -extras[0]])
        noisy = pt.concatenate([rows, rows]) + self.sigma * noise
        score: Any = pytensor.grad(family.log_density(noisy).sum(), noisy)
        terms = 0.5 * ((score + noise / self.sigma) ** 2).sum(axis=1)
        return terms.reshape((2, rows.type.shape[0])).mean(axis=0)

    def width(self, family: Family) -> int:
        """Count both signs."""
        return 2 * family.n_dims
