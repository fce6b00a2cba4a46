"""Models that several benchmarks share."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def logistic(n_rows: int = 500, n_columns: int = 20) -> pm.Model:
    """Logistic regression on simulated data."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns))
    y = rng.random(n_rows) < 1 / (1 + np.exp(-X @ rng.normal(size=n_columns) / 3))
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0, shape=n_columns)
        pm.Bernoulli("y", logit_p=X @ b, observed=y.astype(int))
    return model


def experts(n_dims: int = 36) -> pm.Model:
    """A product of Student-t experts on a normal base: the report's toy size."""
    filters = np.random.default_rng(0).normal(size=(n_dims, n_dims)) / np.sqrt(n_dims)
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 2.0, shape=n_dims)
        base = pm.logp(pm.Normal.dist(0.0, 2.0), x).sum()
        pm.Potential("energy", -1.5 * pt.log1p((filters @ x) ** 2).sum() - base)
    return model


def gaussian(n_dims: int) -> tuple[pm.Model, float]:
    """Standard-normal prior, one noisy observation of each coordinate: y_i ~ N(0, 2)."""
    y = np.random.default_rng(0).normal(size=n_dims) * np.sqrt(2.0)
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0, shape=n_dims)
        pm.Normal("y", x, 1.0, observed=y)
    return model, float(-0.5 * np.sum(y**2 / 2.0 + np.log(4.0 * np.pi)))
