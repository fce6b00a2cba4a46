"""Parameters of a reference, checked and given the model's dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt


def full_vector(name: str, value: Any, n_dims: int) -> np.ndarray:
    """Broadcast a number or vector to (D,).

    Raises
    ------
    ValueError
        If it has another length.
    """
    array = np.asarray(value, dtype=np.float64)
    if array.ndim > 1 or (array.ndim == 1 and array.size not in (1, n_dims)):
        raise ValueError(f"`{name}` must be a number or have the model's {n_dims} dimensions; got shape {array.shape}.")
    return np.broadcast_to(array, (n_dims,)).copy()


def full_scale(value: Any, n_dims: int) -> np.ndarray:
    """Broadcast scales to (D,), or check a lower Cholesky factor (D, D).

    Raises
    ------
    ValueError
        If the shape does not fit, or a scale or a diagonal element is not positive.
    """
    array = np.asarray(value, dtype=np.float64)
    if array.ndim == 2:
        if array.shape != (n_dims, n_dims) or np.any(np.triu(array, 1) != 0):
            raise ValueError(
                f"`scale` must be a number, {n_dims} scales, or a lower Cholesky factor ({n_dims}, {n_dims}) with "
                f"zeros above the diagonal; got shape {array.shape}."
            )
    else:
        array = full_vector("scale", array, n_dims)
    diagonal = array if array.ndim == 1 else np.diag(array)
    if not np.all((diagonal > 0) & np.isfinite(diagonal)):
        raise ValueError("`scale` must be positive and finite.")
    return array


def push(scale: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return L z for rows z (n, D)."""
    return z * scale if scale.ndim == 1 else z @ scale.T


def whiten(position: Any, loc: np.ndarray, scale: np.ndarray) -> tuple[Any, float]:
    """Return the graph of z = L^-1 (x - loc), and log |det L|."""
    if scale.ndim == 1:
        return (position - constant(loc)) * constant(1.0 / scale), float(np.log(scale).sum())
    # A product with the inverse is several times faster than a triangular solve on every backend.
    inverse = np.tril(np.linalg.inv(scale))
    return pt.dot(constant(inverse), position - constant(loc)), float(np.log(np.diag(scale)).sum())


def constant(array: np.ndarray) -> Any:
    """Make a constant of PyTensor's floating type."""
    return pt.constant(np.asarray(array, dtype=pytensor.config.floatX))
