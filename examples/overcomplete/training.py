"""Persistent expectation maximisation: A and the tails of the sources, from Gibbs sweeps of the sources."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import pymc_hais
from examples.overcomplete.gibbs import GibbsSweeps
from examples.overcomplete.model import build_learnt_model
from examples.overcomplete.sources import Source, StudentT
from pymc_hais import learning


class Fitted(NamedTuple):
    """A fitted model, and the result of its fit."""

    a: np.ndarray
    source: Source
    tree: Any


def first_basis(n_dims: int, n_sources: int, variance: float, rng: np.random.Generator) -> np.ndarray:
    """Return a random A (M, N) under which sources of some variance make white rows."""
    a = rng.normal(size=(n_dims, n_sources))
    left, _, right = np.linalg.svd(a, full_matrices=False)
    return left @ right / np.sqrt(variance)


def fit(
    rows: np.ndarray,
    n_sources: int,
    n_steps: int,
    source: Source | None = None,
    n_sweeps: int = 2,
    seed: int = 1,
    **settings: Any,
) -> Fitted:
    """Fit A (M, N) and what the sources may learn to white rows (n, M)."""
    source = StudentT(3.0) if source is None else source
    rng = np.random.default_rng(seed)
    # Sources of heavy tails have no variance, so a robust one: that of a normal with the same quartiles.
    quartile = np.quantile(np.abs(source.draw((4000, n_sources), rng)), 0.5) / 0.6745
    model, learnt = build_learnt_model(first_basis(rows.shape[1], n_sources, quartile**2, rng), source)
    method = learning.ExpectationMaximization(e_step=GibbsSweeps(source, n_sweeps))
    settings = {"progressbar": False, "random_seed": seed} | settings
    tree = pymc_hais.fit(model, {"x": rows}, learnt, method, n_steps=n_steps, **settings)
    values = tree["fitted"]
    own = {name: values[name].values for name in source.learnt}
    return Fitted(values["A"].values, replace(source, **own), tree)
