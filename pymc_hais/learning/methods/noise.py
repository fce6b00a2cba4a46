"""Noise for noise-contrastive estimation: densities that can be drawn from."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import vectorize_graph

from pymc_hais.density.compiling import compile_interpreted
from pymc_hais.learning.family import Family


class Noise(NamedTuple):
    """A density that can be drawn from: ``sample(n, rng)`` rows (n, D), and the log density (n,) of rows."""

    sample: Callable[[int, np.random.Generator], np.ndarray]
    log_density: Callable[[np.ndarray], np.ndarray]


def factor_covariance(rows: np.ndarray) -> np.ndarray:
    """Return the Cholesky factor (D, D) of the covariance of rows, or of their variances where there are few."""
    n, n_dims = rows.shape
    deviations = np.where(rows.std(axis=0) > 0, rows.std(axis=0), 1.0)
    if n <= 2 * n_dims:
        return np.diag(deviations)
    return np.linalg.cholesky(np.atleast_2d(np.cov(rows.T)) + 1e-9 * np.diag(deviations**2))


def bind_noise(reference: Any, n_dims: int) -> Noise:
    """Return a reference for rows (n, D), its log density compiled for many of them."""
    bound = reference.for_dimensions(n_dims) if hasattr(reference, "for_dimensions") else reference
    one, rows = pt.dvector("row", shape=(n_dims,)), pt.dmatrix("rows")
    function = compile_interpreted([rows], [vectorize_graph(bound.logp(one), {one: rows})])
    return Noise(bound.sample, lambda values: np.asarray(function(np.asarray(values, dtype=np.float64))[0]))


def fit_frequencies(family: Family, rows: np.ndarray) -> Noise:
    """Return independent elements with the frequencies of the data, as if each value had been seen once more."""
    low = np.concatenate([np.full(one.stop - one.start, one.low) for one in family.visible])
    counts = np.concatenate([np.full(one.stop - one.start, one.n_values) for one in family.visible])
    values = np.arange(counts.max())
    seen = (rows[:, :, None] - low[:, None] == values).sum(axis=0) + (values < counts[:, None])  # (D, V)
    tables = seen / seen.sum(axis=1, keepdims=True)

    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        ranks = (rng.random((n, len(low), 1)) > np.cumsum(tables, axis=1)).sum(axis=2)
        return low + np.minimum(ranks, counts - 1)

    def log_density(at: np.ndarray) -> np.ndarray:
        return np.log(tables)[np.arange(len(low)), (at - low).astype(int)].sum(axis=1)

    return Noise(sample, log_density)
