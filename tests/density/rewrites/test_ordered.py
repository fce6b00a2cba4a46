"""Ordered categories: the same log density as PyMC's where that has digits, and the exact one where it has none."""

import mpmath
import numpy as np
import pymc as pm
import pytest

from pymc_hais.density import build_density, build_layout
from pymc_hais.density.rewrites.simplification import simplify_values
from pytensor.graph.traversal import ancestors

ORDERED = pm.distributions.transforms.ordered


def model_of(kind, n=40, n_categories=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    shape = (n, 3) if kind == "table" else n
    y = rng.integers(0, n_categories, shape)
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0, 1, shape=2)
        start = np.linspace(-1.0, 1.0, n_categories - 1)
        if kind == "own":  # cutpoints of each row
            shift = pm.Normal("shift", 0, 1, shape=n)
            steps = pm.HalfNormal("steps", 1, shape=(n, n_categories - 2))
            cuts = pm.math.concatenate([shift[:, None], shift[:, None] + pm.math.cumsum(steps, axis=1)], axis=1)
        elif kind == "free":
            cuts = pm.Normal("cuts", start, 1, shape=n_categories - 1)
        else:
            cuts = pm.Normal("cuts", 0, 2, shape=n_categories - 1, transform=ORDERED, initval=start)
        score = x @ slopes
        if kind == "table":
            score = score[:, None] + pm.Normal("item", 0, 1, shape=3)
        elif kind == "one":
            score = slopes[0]
        pm.OrderedLogistic("y", eta=score, cutpoints=cuts, observed=y)
    return model


def ours(model, points):
    graph = build_density(model, build_layout(model))
    import pytensor

    function = pytensor.function(graph.arguments, graph.density, mode="FAST_COMPILE", on_unused_input="ignore")
    found = [function(point, *graph.data_values) for point in points]
    return np.array([one[1] for one in found]), np.array([one[3] for one in found])
