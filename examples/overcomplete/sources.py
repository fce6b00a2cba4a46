"""Sources of the overcomplete model: symmetric densities that are mixtures of normals around zero.

Each has its log density and a finite mixture near its power ``f^beta``,

    f(s)^beta ~ sum_k w_k exp(-l_k s^2 / 2),

which Gibbs sampling draws precisions from.  What the mixture is off by is left to a Metropolis step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Variable
from scipy.optimize import nnls
from scipy.special import gammaln

#: Distance of the logarithms of precisions.  The sum over them is a trapezoidal rule.
_STEP = 1.0
#: The least precision, in logarithms: beyond it a source is flat over a thousand standard deviations.
_LEAST = -14.0


def _double(value: Any) -> Any:
    """Return a number in double precision, as PyTensor does not take Python's; its own variables as they are."""
    return value if isinstance(value, Variable) else np.asarray(value, dtype=np.float64)


@dataclass(frozen=True)
class StudentT:
    """Student-t with ``nu`` degrees of freedom; Cauchy with one."""

    nu: Any = 3.0
    scale: Any = 1.0

    #: What a fit may learn, and where it may be; the scale belongs to the columns of A.
    learnt = {"nu": "positive"}  # noqa: RUF012

    def log_constant(self) -> Any:
        """Return log f(0) as a PyTensor variable."""
        nu = _double(self.nu)
        halves = pt.gammaln(0.5 * (nu + 1.0)) - pt.gammaln(0.5 * nu)
        return halves - 0.5 * pt.log(nu * np.pi) - pt.log(_double(self.scale))

    def log_shape(self, s: Any, xp: Any) -> Any:
        """Return log f(s) - log f(0), element by element, by the functions of NumPy or PyTensor."""
        return -0.5 * (self.nu + 1.0) * xp.log1p((s / self.scale) ** 2 / self.nu)

    def mixture(self, beta: Any, xp: Any) -> tuple[Any, Any]:
        """Return log weights and precisions (K, 1 or N): (1 + q)^-a = int l^(a-1) e^(-l (1 + q)) dl / Gamma(a)."""
        nu, scale = np.atleast_1d(self.nu), np.atleast_1d(self.scale)
        top = np.log(0.5 * (nu.max() + 1.0)) + 4.0
        u = np.arange(_LEAST, top, _STEP)[:, None]
        a = 0.5 * beta * (nu + 1.0)
        # The first precision stands for all that are less, of weight int e^(a u) du; the factor a keeps it finite at 0.
        below = np.eye(len(u))[:, :1]
        size = a * _STEP * (1.0 - 0.5 * below) + below
        log_weights = a * u - np.exp(u) + xp.log(size + 1e-300)
        return log_weights, np.exp(u) * 2.0 / (nu * scale**2)

    def draw_precisions(self, s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw precisions given sources (..., N), exactly: Gamma variables."""
        shape = np.broadcast_to(0.5 * (self.nu + 1.0), s.shape)
        return 2.0 * rng.gamma(shape) / (self.nu * self.scale**2 + s**2)

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Draw sources (..., N)."""
        return self.scale * rng.standard_t(np.broadcast_to(self.nu, shape[-1]), size=shape)


@dataclass(frozen=True)
class ExponentialPower:
    """``f(s) ~ exp(-|s / scale|^alpha)``: Laplace with alpha 1, normal with alpha 2."""

    alpha: float = 1.0
    scale: Any = 1.0

    learnt = {}  # noqa: RUF012

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha <= 2.0:
            raise ValueError(f"Only with alpha in (0, 2] is it a mixture of normals; got {self.alpha!r}.")

    def log_constant(self) -> Any:
        """Return log f(0) as a PyTensor variable."""
        return np.log(0.5 * self.alpha) - gammaln(1.0 / self.alpha) - pt.log(_double(self.scale))

    def log_shape(self, s: Any, xp: Any) -> Any:
        """Return log f(s) - log f(0), element by element, by the functions of NumPy or PyTensor."""
        return -(xp.abs(s / self.scale) ** self.alpha)

    def mixture(self, beta: Any, xp: Any) -> tuple[Any, Any]:
        """Return log weights and precisions (K, 1 or N): f(s)^beta is f(beta^(1/alpha) s), up to a constant."""
        weights, precisions = _fit_power(self.alpha)
        # Not quite flat at beta = 0, so that there is a normal distribution to draw from.
        stretch = xp.maximum(beta, np.exp(_LEAST)) ** (2.0 / self.alpha)
        return np.log(weights)[:, None], precisions[:, None] * stretch / np.atleast_1d(self.scale) ** 2

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Draw sources (..., N): |s / scale|^alpha is a Gamma variable."""
        size = rng.gamma(1.0 / self.alpha, size=shape) ** (1.0 / self.alpha)
        return self.scale * size * rng.choice([-1.0, 1.0], size=shape)


@cache
def _fit_power(alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and precisions (K,) of exp(-|s|^alpha), by non-negative least squares of relative errors."""
    if alpha == 2.0:
        return np.ones(1), np.full(1, 2.0)
    far = 40.0 ** (1.0 / alpha)
    s = np.concatenate([[0.0], np.geomspace(1e-4, far, 600)])
    precisions = np.exp(np.arange(-2.0 * np.log(far) - 2.0, 18.0, 0.5))
    relative = np.exp(np.abs(s[:, None]) ** alpha - 0.5 * precisions * s[:, None] ** 2)
    weights, _ = nnls(relative, np.ones(len(s)), maxiter=10_000)
    return weights[weights > 0.0], precisions[weights > 0.0]


@dataclass(frozen=True)
class Mixture:
    """A finite mixture of normals around zero, with ``weights`` (K,) and standard deviations ``scales`` (K,)."""

    weights: tuple[float, ...]
    scales: tuple[float, ...]

    learnt = {}  # noqa: RUF012

    def __post_init__(self) -> None:
        weights, scales = np.asarray(self.weights), np.asarray(self.scales)
        if weights.shape != scales.shape or weights.ndim != 1 or weights.min() <= 0.0 or scales.min() <= 0.0:
            raise ValueError(f"Pass as many positive weights as scales; got {self.weights!r} and {self.scales!r}.")
        if not np.isclose(weights.sum(), 1.0):
            raise ValueError(f"The weights of a mixture add up to one; those given to {weights.sum()}.")

    def log_constant(self) -> Any:
        """Return log f(0) as a PyTensor variable."""
        return np.log(np.sum(np.divide(self.weights, self.scales)) / np.sqrt(2.0 * np.pi))

    def log_shape(self, s: Any, xp: Any) -> Any:
        """Return log f(s) - log f(0), element by element, by the functions of NumPy or PyTensor."""
        weights, precisions = np.divide(self.weights, self.scales), np.asarray(self.scales) ** -2.0
        least = precisions.min()
        # The widest part is taken out, so that one term of the sum is not small however far s is.
        terms = [w * xp.exp(-0.5 * (p - least) * s**2) for w, p in zip(weights, precisions, strict=True)]
        return xp.log(sum(terms) / weights.sum()) - 0.5 * least * s**2

    def mixture(self, beta: Any, xp: Any) -> tuple[Any, Any]:
        """Return log weights and precisions (K, 1): the sum of powers is within a factor K of the power of the sum."""
        weights, scales = np.asarray(self.weights)[:, None], np.asarray(self.scales)[:, None]
        return beta * np.log(weights / scales), xp.maximum(beta, np.exp(_LEAST)) / scales**2

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Draw sources (..., N)."""
        return rng.choice(self.scales, p=self.weights, size=shape) * rng.normal(size=shape)


def laplace(scale: float = 1.0) -> ExponentialPower:
    """Return exp(-|s| / scale) / (2 scale)."""
    return ExponentialPower(1.0, scale)


def cauchy(scale: float = 1.0) -> StudentT:
    """Return Student-t with one degree of freedom."""
    return StudentT(1.0, scale)


type Source = StudentT | ExponentialPower | Mixture
