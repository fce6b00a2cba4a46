"""Log-likelihoods of rows, annealed from a normal distribution around each row's own Gibbs draws.

The draws only choose where annealing begins, so that the estimate of p(x) stays unbiased.  Begun near the posterior, it
needs far fewer temperatures than from a distribution around zero.
"""

import json
from typing import Any

import numpy as np

import pymc_hais
from examples.overcomplete.gibbs import GibbsSweeps
from examples.overcomplete.model import build_centred_model, log_p_complete, null_basis
from examples.overcomplete.sources import Source

#: Sweeps for each dimension of z, the share of them that is left out, and how much wider than the draws the start is.
_PER_DIMENSION, _BURN, _WIDER = 20, 0.1, 1.1


def posterior_normals(
    rows: np.ndarray, a: np.ndarray, source: Source, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean (n, K) of each row's Gibbs draws of z, and a factor (n, K, K) of their widened covariance."""
    basis, sweep = null_basis(a), GibbsSweeps(source, 1)
    parameters = {"A": a} | {name: getattr(source, name) for name in source.learnt}
    shape = len(rows), len(basis)
    n_sweeps = _PER_DIMENSION * len(basis)
    s, total, squares = rows @ np.linalg.pinv(a).T, np.zeros(shape), np.zeros((*shape, len(basis)))
    for i in range(-round(_BURN * n_sweeps), n_sweeps):
        s = sweep(rows, s, parameters, rng)
        if i >= 0:
            z = s @ basis.T
            total += z
            squares += z[:, :, None] * z[:, None, :]
    mean = total / n_sweeps
    covariance = squares / n_sweeps - mean[:, :, None] * mean[:, None, :]
    return mean, _WIDER * np.linalg.cholesky(covariance)


def score(
    rows: np.ndarray, a: np.ndarray, source: Source, seed: int = 1, **settings: Any
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return log p(x) of each row, its Monte Carlo error, and the names of the findings."""
    if a.shape[0] == a.shape[1]:
        return log_p_complete(rows, a, source), np.zeros(len(rows)), []
    centre, factor = posterior_normals(rows, a, source, np.random.default_rng(seed))
    settings = {"reference": "prior", "random_seed": seed, "progressbar": False} | settings
    data = {"x": rows, "centre": centre, "factor": factor}
    found = pymc_hais.log_likelihood(build_centred_model(a, source), data, **settings)["held_out"]
    return found["value"].values, found["se"].values, names_of(found)


def names_of(group: Any) -> list[str]:
    """Return the names of the findings of a result."""
    return [one["name"] for one in json.loads(group.attrs["findings"])]
