"""Functions of densities as XLA runs them fast on many numbers at once: no branches, few transcendental functions.

All are for double precision, and take numbers below 2e-308 for zero as XLA does.  Those with ``jax.jit`` are traced and
lowered once for each shape, however many terms of a density use them.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy import special

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
#: Coefficients of series, exact to rounding.  Stirling's of log Gamma: B_2k / (2k (2k - 1)).
_STIRLING = tuple(b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1))
#: Of its derivative: B_2k / 2k.
_DIGAMMA = tuple(b / (2 * k) for k, b in enumerate(_BERNOULLI, 1))
#: The number from which on these two asymptotic series are exact.
_FIRST = 10
#: Taylor series of sin(pi r) / r in r^2, for |r| <= 1/2.
_SINE = tuple((-1) ** k * math.pi ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(12))
#: The same of cos(pi r).
_COSINE = tuple((-1) ** k * math.pi ** (2 * k) / math.factorial(2 * k) for k in range(13))
#: Of 2 artanh(r) / r in r^2, for |r| <= 3 - sqrt(8).
_ARTANH = tuple(2.0 / (2 * k + 1) for k in range(11))


@jax.jit
def log(x: Array) -> Array:
    """Evaluate the logarithm from the exponent and a series for the rest."""
    exponent, rest = _split(x)
    return _at_the_ends(x, exponent * math.log(2.0) + _log_near_one(rest - 1.0))


@jax.jit
def log1p(x: Array) -> Array:
    """Evaluate log(1 + x), also where x would be lost in the sum."""
    total = 1.0 + x
    exponent, rest = _split(total)
    is_near = exponent == 0.0
    lost = jnp.where(is_near, 0.0, jnp.where(x > 1.0, 1.0 - (total - x), x - (total - 1.0)) / total)
    value = exponent * math.log(2.0) + (_log_near_one(jnp.where(is_near, x, rest - 1.0)) + lost)
    return _at_the_ends(total, value)


def _split(x: Array) -> tuple[Array, Array]:
    """Return e and f with x = 2^e f and f between the square roots of 1/2 and 2."""
    bits = lax.bitcast_convert_type(x, jnp.int64)
    exponent = (bits - 0x3FE6A09E667F3BCD) >> 52  # the bits of sqrt(1/2)
    return exponent.astype(x.dtype), lax.bitcast_convert_type(bits - (exponent << 52), x.dtype)


def _log_near_one(x: Array) -> Array:
    """Evaluate log(1 + x) = 2 artanh(x / (2 + x)) for x between -0.3 and 0.42."""
    ratio = x / (2.0 + x)
    return ratio * _polynomial(_ARTANH, ratio * ratio)


def _at_the_ends(x: Array, value: Array) -> Array:
    """Correct a logarithm where its argument is zero, infinite or none."""
    value = jnp.where(x < jnp.inf, value, x)
    return jnp.where(x > 0.0, value, jnp.where(x == 0.0, -jnp.inf, jnp.nan))


@jax.jit
def softplus(x: Array) -> Array:
    """Evaluate log(1 + exp(x))."""
    return jnp.maximum(x, 0.0) + _log1p_of_share(jnp.exp(-jnp.abs(x)))


def _log1p_of_share(x: Array) -> Array:
    """Evaluate log(1 + x) for x between 0 and 1."""
    root = math.sqrt(2.0)
    is_large = x > root - 1.0
    ratio = jnp.where(is_large, x - (root - 1.0), x) / jnp.where(is_large, x + (root + 1.0), x + 2.0)
    return ratio * _polynomial(_ARTANH, ratio * ratio) + jnp.where(is_large, 0.5 * math.log(2.0), 0.0)


@jax.jit
def sigmoid(x: Array) -> Array:
    """Evaluate 1 / (1 + exp(-x)) from the exponential that :func:`softplus` needs as well."""
    small = jnp.exp(-jnp.abs(x))
    return jnp.where(x >= 0.0, 1.0, small) / (1.0 + small)


@jax.jit
def softplus_of_negative(minus_x: Array) -> Array:
    """Evaluate softplus(-x) given -x, from the terms of softplus(x)."""
    x = -minus_x
    return jnp.maximum(minus_x, 0.0) + _log1p_of_share(jnp.exp(-jnp.abs(x)))


@jax.jit
def sigmoid_of_negative(minus_x: Array) -> Array:
    """Evaluate sigmoid(-x) given -x, from the terms of sigmoid(x)."""
    x = -minus_x
    small = jnp.exp(-jnp.abs(x))
    return jnp.where(x <= 0.0, 1.0, small) / (1.0 + small)


@jax.jit
def log1mexp(x: Array) -> Array:
    """Evaluate log(1 - exp(x)) for negative x."""
    return jnp.where(x < -math.log(2.0), log1p(-jnp.exp(x)), log(-jnp.expm1(x)))


def column_product(a: Array, b: Array) -> Array:
    """Multiply a matrix by a column; as a vector it keeps the particles the first axis of the result."""
    return (a @ b[:, 0])[:, None]


def row_product(a: Array, b: Array) -> Array:
    """Multiply a row by a matrix."""
    return (a[0] @ b)[None, :]


def sum_of_computed(x: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    """Sum what was computed element by element, in a loop of its own.

    Left to itself, XLA hands the elementwise functions over to a library that makes a pass of each.
    """
    return jnp.sum(lax.optimization_barrier(x), axis=axis)


def of_converted(function: Callable, dtype: str, first: int = 0) -> Callable:
    """Return a function that converts its arguments, from the given one on, to a type."""
    return lambda *x: function(*x[:first], *(jnp.asarray(one, dtype) for one in x[first:]))


@jax.jit
def gammaln(x: Array) -> Array:
    """Evaluate log |Gamma(x)|: Stirling's series after ten steps of the recurrence, and the reflection formula.

    The relative error is below 1e-13, and the absolute error where the function is small.
    """
    is_negative, far, product, _ = _shift(x)
    series = (far - 0.5) * (log(far) - 1.0) + (0.5 * math.log(2.0 * math.pi) - 0.5)
    series = series + _polynomial(_STIRLING, 1.0 / (far * far)) / far
    rest = x - jnp.round(x)
    sine = jnp.abs(rest) * _polynomial(_SINE, rest * rest)
    value = series - log(jnp.where(is_negative, product * math.pi / sine, product))
    return jnp.where(is_negative, -value, value)


@jax.jit
def digamma(x: Array) -> Array:
    """Evaluate the derivative of log Gamma(x), as :func:`gammaln` does."""
    is_negative, far, _, slope = _shift(x)
    inverse = 1.0 / far
    square = inverse * inverse
    value = log(far) - 0.5 * inverse - square * _polynomial(_DIGAMMA, square) - slope
    rest = x - jnp.round(x)
    cotangent = _polynomial(_COSINE, rest * rest) / (rest * _polynomial(_SINE, rest * rest))
    return jnp.where(is_negative, value - math.pi * cotangent, value)


def scaled_bessel(orders: np.ndarray) -> Callable:
    """Return exp(-|x|) I_v(x) for constant integers v, as a function of the orders, once more, and x.

    From I_0 and the ratios I_k / I_(k - 1), whose continued fraction is that of Gauss; of large numbers by Hankel's
    expansion.  Digits are kept where the function is small, as of high orders near zero.
    """
    highest = int(np.max(np.abs(orders)))
    far = float(max(50, highest**2))  # from here on fifteen terms of the expansion are exact to rounding
    n_ratios = highest + int(10.0 * math.sqrt(far))  # I_k / I_0 falls as exp(-k^2 / 2x), here below rounding

    def of(order: Array, x: Array) -> Array:
        order, size = jnp.abs(order).astype(x.dtype), jnp.abs(x)
        near = jnp.minimum(size, far)
        inverse = 2.0 / jnp.maximum(near, np.finfo(float).tiny)

        def next_ratio(i: Any, ratio: Array) -> Array:
            return 1.0 / ((n_ratios - i) * inverse + ratio)

        def multiply(i: Any, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
            ratio = next_ratio(i, so_far[0])
            return ratio, so_far[1] * jnp.where(n_ratios - i <= order, ratio, 1.0)

        # The ratios of one number serve all orders.
        ratio = lax.fori_loop(0, n_ratios - highest, next_ratio, jnp.zeros_like(near))
        product = jnp.ones_like(order * near)
        _, product = lax.fori_loop(n_ratios - highest, n_ratios, multiply, (ratio, product))
        distant = jnp.maximum(size, far)
        term = series = jnp.ones_like(product)
        for k in range(1, 16):
            term = term * ((2 * k - 1) ** 2 - 4.0 * order * order) / (8.0 * k * distant)
            series = series + term
        value = jnp.where(size < far, special.i0e(near) * product, series / jnp.sqrt(2.0 * math.pi * distant))
        return jnp.where((x < 0.0) & (order % 2 == 1), -value, value)

    return of


def _shift(x: Array) -> tuple[Array, Array, Array, Array]:
    """Move arguments to where the series holds; return the sign, the new one, and the product on the way.

    The last is the slope of the product's logarithm.
    """
    is_negative = x < 0.0
    near = jnp.where(is_negative, 1.0 - x, x)
    product, derivative = near, jnp.ones_like(near)
    for k in range(1, _FIRST):
        product, derivative = product * (near + k), derivative * (near + k) + product
    is_near = near < _FIRST
    far = jnp.where(is_near, near + _FIRST, near)
    return is_negative, far, jnp.where(is_near, product, 1.0), jnp.where(is_near, derivative / product, 0.0)


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    value: Any = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient
    return value


def inverse_of_triangle(factor: Array) -> Array:
    """Invert a lower triangular matrix (n, n) by products of ever larger blocks, after LAPACK has solved small ones.

    Solving with all of an identity takes several times as long, and BLAS's threads may wait for each other's.
    """
    n = factor.shape[0]
    n_levels = max(0, math.ceil(math.log2(n / 16)))  # LAPACK inverts triangles of up to 16 rows
    size = -(-n // 2**n_levels)
    padding = size * 2**n_levels - n
    whole = jnp.pad(factor, ((0, padding), (0, padding))) + np.diag(np.arange(n + padding) >= n).astype(factor.dtype)
    blocks = jnp.stack([whole[i : i + size, i : i + size] for i in range(0, n + padding, size)])
    identity = jnp.broadcast_to(jnp.eye(size, dtype=factor.dtype), blocks.shape)
    inverses = lax.linalg.triangular_solve(blocks, identity, left_side=True, lower=True)
    while len(inverses) > 1:
        first, second = inverses[0::2], inverses[1::2]
        below = jnp.stack([whole[i + size : i + 2 * size, i : i + size] for i in range(0, n + padding, 2 * size)])
        upper = jnp.concatenate([first, jnp.zeros_like(first)], axis=2)
        lower = jnp.concatenate([-second @ (below @ first), second], axis=2)
        inverses, size = jnp.concatenate([upper, lower], axis=1), 2 * size
    return inverses[0, :n, :n]


def solve_lower(factor: Array, b: Array) -> Array:
    """Solve for a matrix with a lower triangular one."""
    return inverse_of_triangle(factor) @ b


def solve_upper(factor: Array, b: Array) -> Array:
    """Solve for a matrix with an upper triangular one."""
    return inverse_of_triangle(factor.T).T @ b
