"""Denoising score matching: the gradient of the log density points back from noisy rows."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc_hais.learning.family import Family
from pymc_hais.learning.protocol import Batch, Method
from pymc_hais.request.arguments import check_positive

#: Standard deviation of the noise, in that of each column, by default.
_SHARE = 0.3


@dataclass(frozen=True)
class DenoisingScoreMatching(Method):
    r"""Fit the gradient of the log density to the way back from noisy rows (Vincent 2011, equation 9).

    .. math:: J = \operatorname{mean}_{x, \epsilon} \tfrac12 \sum_i s_i^2
                  \left[ \partial_i \log p(x + \sigma \epsilon) + \epsilon_i / \sigma_i \right]^2,
                  \quad \epsilon \sim N(0, I)

    with both signs of each epsilon, and the standard deviation s_i of each column.  No second derivatives in the row
    are needed, and kinks do no harm.  What is fitted is the density of rows **with the noise**: a bias of the order of
    sigma^2, against a variance that grows as its inverse.

    Parameters
    ----------
    sigma : float, optional
        Standard deviation of the noise in the units of the variables, the same for all; by default 0.3 standard
        deviations of each column.

    Notes
    -----
    As :class:`ScoreMatching`, it does not see the weights of components that lie far apart.

    References
    ----------
    Vincent, P. (2011). A connection between score matching and denoising autoencoders. Neural Computation 23.
    """

    sigma: float | None = None

    supports: ClassVar[frozenset[str]] = frozenset({"real"})

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma, "the variables' units", "0.3 standard deviations")

    def prepare(self, state: Any, batch: Batch, rng: np.random.Generator) -> tuple[list[np.ndarray], Any]:
        """Draw epsilon (m, D)."""
        return [rng.normal(size=batch.rows.shape)], state

    def objective(self, family: Family, rows: Any, extras: list[Any]) -> Any:
        """Return the terms (m,)."""
        noise = pt.concatenate([extras[0], -extras[0]])
        sigma = _SHARE * family.spread if self.sigma is None else self.sigma
        noisy = pt.concatenate([rows, rows]) + sigma * noise
        score: Any = pytensor.grad(family.log_density(noisy).sum(), noisy)
        terms = 0.5 * ((family.spread * (score + noise / sigma)) ** 2).sum(axis=1)
        return terms.reshape((2, rows.type.shape[0])).mean(axis=0)

    def width(self, family: Family) -> int:
        """Count both signs."""
        return 2 * family.n_dims
