"""A geometric path from a mixture: the density's own reference, in case a fit misses something, and the fit.

The own reference, such as the prior, keeps a share a of the draws, so that weights stay bounded where the likelihood
is (Hesterberg 1995, Technometrics 37, 185-194).  The fit is a multivariate Student-t, or a Gaussian.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import gammaln

from pymc_hais.core.records import Metric, PathFunctions
from pymc_hais.kernels.leapfrog import build_metric
from pymc_hais.kernels.paths import build_linear


@dataclass(frozen=True, eq=False)
class Defended:
    """See :class:`pymc_hais.core.protocols.Path`; the density is ``(position, data) -> values`` of its own reference.

    The centre of the fit (D,) is the path's own input: it may differ between populations.
    """

    inverse: np.ndarray  # (D,) or (D, D), of the scales, or of the lower Cholesky factor of the scale matrix
    #: (6,): log shares of own reference (per unit of its mass) and fit, log normaliser, 1 / df, (df + D) / 2, whether
    #: the fit is Gaussian.
    numbers: np.ndarray

    name: ClassVar[str] = "defended"
    n_evaluations: ClassVar[int] = 0
    n_inputs: ClassVar[int] = 1

    @classmethod
    def from_fit(cls, df: float, scale: Metric, share: float, log_mass: float = 0.0) -> Self:
        """Mix a fit, Gaussian for infinite ``df``, with the own reference.

        That has the share given, and ``log_mass`` is the log of what its density integrates to.
        """
        n_dims = len(scale)
        inverse = 1.0 / scale if scale.ndim == 1 else np.tril(np.linalg.inv(scale))
        log_norm = float(np.log(np.abs(inverse if scale.ndim == 1 else np.diag(inverse))).sum())
        if np.isinf(df):
            rest = (log_norm - 0.5 * n_dims * np.log(2.0 * np.pi), 0.0, 0.0, 1.0)
        else:
            of_df = gammaln(0.5 * (df + n_dims)) - gammaln(0.5 * df) - 0.5 * n_dims * np.log(df * np.pi)
            rest = (log_norm + of_df, 1.0 / df, 0.5 * (df + n_dims), 0.0)
        with np.errstate(divide="ignore"):
            return cls(inverse, np.array([np.log(share) - log_mass, np.log1p(-share), *rest]))

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What the path's functions take besides the inputs."""
        return self.inverse, self.numbers

    def build(self, xp: Any, density: Any, jit: Any = lambda f: f, jit_density: Any = None) -> PathFunctions:
        """Build the path's functions of one particle."""
        push, pull = build_metric(jit)

        @jit
        def fit_at(position, centre, inverse, numbers):
            z = push(inverse, position - centre)
            distance = xp.sum(z * z)
            is_gaussian, spread = numbers[5] > 0.0, 1.0 + distance * numbers[3]
            value = numbers[2] - xp.where(is_gaussian, 0.5 * distance, numbers[4] * xp.log(spread))
            slope = -xp.where(is_gaussian, 1.0, 2.0 * numbers[4] * numbers[3] / spread)
            return value, slope * pull(inverse, z)

        @(jit_density or jit)
        def evaluate(position, beta, data):
            (centre, inverse, numbers), of_density = data
            log_own, log_ratio, grad_own, grad_ratio = density(position, of_density)
            log_fit, grad_fit = fit_at(position, centre, inverse, numbers)
            from_own, from_fit = numbers[0] + log_own, numbers[1] + log_fit
            top = xp.maximum(from_own, from_fit)
            top = xp.where(xp.isfinite(top), top, 0.0)
            log_reference = top + xp.log(xp.exp(from_own - top) + xp.exp(from_fit - top))
            share = xp.exp(from_own - log_reference)
            # Where the own reference has no density it has no gradient either.
            grad_reference = xp.where(share > 0.0, share * grad_own, 0.0 * grad_fit) + (1.0 - share) * grad_fit
            only_own = numbers[1] == -xp.inf
            return (
                xp.where(only_own, log_own, log_reference),
                xp.where(only_own, log_ratio, log_own + log_ratio - log_reference),
                xp.where(only_own, grad_own, grad_reference),
                xp.where(only_own, grad_ratio, grad_own + grad_ratio - grad_reference),
            )

        at, arrive = build_linear(jit)
        return PathFunctions(evaluate, at, at, arrive)
