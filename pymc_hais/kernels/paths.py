"""Paths from the reference to the target: geometric, or along a parameter of the model.

On the geometric path the log density is log q + beta (log p - log q), linear in beta: value and gradient of both ends
are kept apart in the state, so a change of beta costs nothing and is exact.

The path that interpolates a parameter instead of the energy: theta(beta) = (1 - beta) theta_0 + beta theta_N.

``ParameterInterpolate`` in the code of Sohl-Dickstein & Culpepper (2012).  The log density f_beta is not linear in
beta, so a change of beta costs one evaluation; the log weight grows by the exact difference of two values.

A geometric path from a mixture: the density's own reference, in case a fit misses something, and the fit.  The own
reference, such as the prior, keeps a share a of the draws, so that weights stay bounded where the likelihood is
(Hesterberg 1995, Technometrics 37, 185-194).  The fit is a multivariate Student-t, or a Gaussian; beside it there may
be Gaussians around modes that it has missed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import gammaln

from pymc_hais.core.records import Compiled, Jit, Metric, ParticleState, PathFunctions, Xp
from pymc_hais.kernels.leapfrog import build_metric


def _build_linear(jit: Jit) -> tuple[Any, Any]:
    """Build ``at(reference, ratio, beta)`` and ``arrive`` of a path on which the log density is linear in beta."""

    @jit
    def at(reference, ratio, beta):
        return reference + beta * ratio

    @jit
    def arrive(state, before, beta, data):
        return state, (beta - before) * state.log_ratio

    return at, arrive


@dataclass(frozen=True)
class Geometric:
    """See :class:`pymc_hais.core.protocols.Path`; the density is ``(position, data) -> values``."""

    name: ClassVar[str] = "geometric"
    n_evaluations: ClassVar[int] = 0
    n_inputs: ClassVar[int] = 0
    arrays: ClassVar[tuple] = ()

    def build(self, xp: Xp, density: Compiled, jit: Jit = lambda f: f, jit_density: Jit | None = None) -> PathFunctions:
        """Build the path's functions of one particle."""

        @(jit_density or jit)
        def evaluate(position, beta, data):
            return density(position, data[1])

        at, arrive = _build_linear(jit)
        return PathFunctions(evaluate, at, at, arrive)


@dataclass(frozen=True)
class Parameters:
    """See :class:`pymc_hais.core.protocols.Path`.

    The density is ``(position, beta, data) -> f, df / dbeta, grad f, zeros``.

    The state holds f - beta df/dbeta and df/dbeta, the tangent at the beta of its last evaluation, from which the pilot
    chooses the next temperature; the gradient is all in ``grad_reference``.
    """

    name: ClassVar[str] = "parameters"
    n_evaluations: ClassVar[int] = 1
    n_inputs: ClassVar[int] = 0
    arrays: ClassVar[tuple] = ()

    def build(self, xp: Xp, density: Compiled, jit: Jit = lambda f: f, jit_density: Jit | None = None) -> PathFunctions:
        """Build the path's functions of one particle."""

        @(jit_density or jit)
        def evaluate(position, beta, data):
            value, slope, gradient, zeros = density(position, beta, data[1])
            return value - beta * slope, slope, gradient, zeros

        log_density, _ = _build_linear(jit)

        @jit
        def gradient(grad_reference, grad_ratio, beta):
            return grad_reference

        @(jit_density or jit)
        def arrive(state, before, beta, data):
            value = log_density(state.log_reference, state.log_ratio, before)
            log_reference, log_ratio, grad_reference, grad_ratio = evaluate(state.position, beta, data)
            increment = log_density(log_reference, log_ratio, beta) - value
            # A particle of probability zero keeps it: the difference of two infinities is no number.
            increment = xp.where(value == -xp.inf, -xp.inf, increment)
            values = (log_reference, log_ratio, grad_reference, grad_ratio)
            return ParticleState(state.position, state.momentum, *values), increment

        return PathFunctions(evaluate, log_density, gradient, arrive)


def log_norm_of_student_t(df: float, n_dims: int) -> float:
    """Return the log normaliser of the multivariate Student-t with unit scale, a term of its log density."""
    return gammaln(0.5 * (df + n_dims)) - gammaln(0.5 * df) - 0.5 * n_dims * np.log(df * np.pi)


def _build_join(xp: Xp, jit: Jit) -> Any:
    """Build the log of a sum of two densities, with its gradient."""

    @jit
    def join(one, grad_one, other, grad_other):
        top = xp.maximum(one, other)
        top = xp.where(xp.isfinite(top), top, 0.0)
        total = top + xp.log(xp.exp(one - top) + xp.exp(other - top))
        share = xp.exp(one - total)
        # Where one has no density it has no gradient either.
        return total, xp.where(share > 0.0, share * grad_one, 0.0 * grad_other) + (1.0 - share) * grad_other

    return join


def _build_fit(xp: Xp, jit: Jit, join: Any, n_beside: int) -> Any:
    """Build the log density of a fit and of the Gaussians beside it, with its gradient."""
    push, pull = build_metric(jit)

    @jit
    def fit_at(position, centre, inverse, numbers):
        z = push(inverse, position - centre)
        distance = xp.sum(z * z)
        is_gaussian, spread = numbers[5] > 0.0, 1.0 + distance * numbers[3]
        value = numbers[2] - xp.where(is_gaussian, 0.5 * distance, numbers[4] * xp.log(spread))
        slope = -xp.where(is_gaussian, 1.0, 2.0 * numbers[4] * numbers[3] / spread)
        return value, slope * pull(inverse, z)

    @jit
    def fit_alone(position, of_path):
        centre, inverse, numbers = of_path
        value, grad = fit_at(position, centre, inverse, numbers)
        return numbers[1] + value, grad

    @jit
    def fit_and_beside(position, of_path):
        centre, inverse, numbers, inverses, centres, constants = of_path
        value, grad = fit_alone(position, (centre, inverse, numbers))
        for k in range(n_beside):
            z = push(inverses[k], position - centre - centres[k])
            own = constants[k] - 0.5 * xp.sum(z * z)
            value, grad = join(value, grad, own, -pull(inverses[k], z))
        return value, grad

    return fit_and_beside if n_beside else fit_alone


@dataclass(frozen=True, eq=False)
class Defended:
    """See :class:`pymc_hais.core.protocols.Path`; the density is ``(position, data) -> values`` of its own reference.

    The centre of the fit (D,) is the path's own input: it may differ between populations.
    """

    inverse: np.ndarray  # (D,) or (D, D), of the scales, or of the lower Cholesky factor of the scale matrix
    #: (6,): log shares of own reference (per unit of its mass) and fit, log normaliser, 1 / df, (df + D) / 2, whether
    #: the fit is Gaussian.
    numbers: np.ndarray
    #: Of K Gaussians beside the fit, if any: inverses (K, D) or (K, D, D), centres (K, D), and log shares plus log
    #: normalisers (K,).
    beside: tuple[np.ndarray, ...] = ()

    n_evaluations: ClassVar[int] = 0
    n_inputs: ClassVar[int] = 1

    @property
    def name(self) -> str:
        """Name the compiled program: there is one for each number of Gaussians."""
        return f"defended, {len(self.beside[1])} beside" if self.beside else "defended"

    @classmethod
    def from_fit(
        cls,
        df: float,
        scale: Metric,
        share: float,
        log_mass: float = 0.0,
        beside: Sequence[tuple[np.ndarray, np.ndarray, float]] = (),
    ) -> Self:
        """Mix a fit, Gaussian for infinite ``df``, with the density's own reference.

        That has the share given, and ``log_mass`` is the log of what its density integrates to.  Each Gaussian
        ``beside`` the fit has a centre (D,), as if the fit's were at the origin, a scale, and a share.
        """
        n_dims = len(scale)
        inverse = 1.0 / scale if scale.ndim == 1 else np.tril(np.linalg.inv(scale))
        log_norm = float(np.log(np.abs(inverse if scale.ndim == 1 else np.diag(inverse))).sum())
        if np.isinf(df):
            rest = (log_norm - 0.5 * n_dims * np.log(2.0 * np.pi), 0.0, 0.0, 1.0)
        else:
            rest = (log_norm + log_norm_of_student_t(df, n_dims), 1.0 / df, 0.5 * (df + n_dims), 0.0)
        share_of_fit = -share - sum(one[2] for one in beside)  # less one
        with np.errstate(divide="ignore"):
            numbers = np.array([np.log(share) - log_mass, np.log1p(share_of_fit), *rest])
        if not beside:
            return cls(inverse, numbers)
        centres, scales, shares = (np.stack(of_each) for of_each in zip(*beside, strict=True))
        deviations = scales if scales.ndim == 2 else np.diagonal(scales, axis1=1, axis2=2)
        constants = np.log(shares) - np.log(deviations).sum(axis=1) - 0.5 * n_dims * np.log(2.0 * np.pi)
        inverses = 1.0 / scales if scales.ndim == 2 else np.tril(np.linalg.inv(scales))
        return cls(inverse, numbers, (inverses, centres, constants))

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Arrays that the path's functions take besides the inputs."""
        return (self.inverse, self.numbers, *self.beside)

    def build(self, xp: Xp, density: Compiled, jit: Jit = lambda f: f, jit_density: Jit | None = None) -> PathFunctions:
        """Build the path's functions of one particle."""
        n_beside = len(self.beside[1]) if self.beside else 0
        join = _build_join(xp, jit)
        all_at = _build_fit(xp, jit, join, n_beside)

        @(jit_density or jit)
        def evaluate(position, beta, data):
            of_path, of_density = data
            log_own, log_ratio, grad_own, grad_ratio = density(position, of_density)
            log_fit, grad_fit = all_at(position, of_path)
            log_reference, grad_reference = join(of_path[2][0] + log_own, grad_own, log_fit, grad_fit)
            only_own = (of_path[2][1] == -xp.inf) & (n_beside == 0)
            return (
                xp.where(only_own, log_own, log_reference),
                xp.where(only_own, log_ratio, log_own + log_ratio - log_reference),
                xp.where(only_own, grad_own, grad_reference),
                xp.where(only_own, grad_ratio, grad_own + grad_ratio - grad_reference),
            )

        at, arrive = _build_linear(jit)
        return PathFunctions(evaluate, at, at, arrive)
