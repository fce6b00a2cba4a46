"""Where training starts: sparse filters of whitened patches, and random ones beside them."""

import warnings

import numpy as np
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning

#: Standard deviation of the noise of every generative model.
NOISE = 0.1


def ica_filters(patches: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return an orthogonal matrix (M, M): each row is a direction along which the patches are sparse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # training goes on from here
        found = FastICA(whiten=False, max_iter=50, tol=1e-3, random_state=seed).fit(patches).components_
    left, _, right = np.linalg.svd(found)
    return left @ right


def unit_filters(n: int, n_dims: int, seed: int = 0) -> np.ndarray:
    """Draw n directions (n, M)."""
    drawn = np.random.default_rng(seed).normal(size=(n, n_dims))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def starting_filters(patches: np.ndarray, n: int, scale: float, rest: float = 0.1, seed: int = 0) -> np.ndarray:
    """Return n >= M filters (n, M): the complete ones at their scale, faint random ones beyond."""
    n_dims = patches.shape[1]
    if n < n_dims:
        raise ValueError(f"A model of {n_dims} dimensions needs at least as many filters; got {n}.")
    complete, more = ica_filters(patches, seed), unit_filters(n - n_dims, n_dims, seed)
    return np.concatenate([scale * complete, rest * scale * more])
