"""Binary sparse coding: p(s) = prod pi^s (1 - pi)^(1 - s), p(y | s) = N(y; W s, sigma^2 I), s in {0, 1}^H.

Learnt by expectation maximisation whose E-step looks at all states, at those of a few selected units, at those that
Gibbs sampling of all units visits, or at those that Gibbs sampling of the selected units visits: Shelton, Bornschein,
Sheikh, Berkes & Luecke (2011), "Select and sample".
"""

from collections.abc import Mapping

import numpy as np
import pymc as pm
from scipy.linalg import LinAlgError, solve

from pymc_hais import learning

PARAMETERS = ("W", "sigma", "pi")
#: A unit that is active in fewer rows than this keeps its basis function.
_FEW = 1e-6
_LEAST_SIGMA, _LEAST_PI = 1e-3, 1e-6


def build_model(weights: np.ndarray, sigma: float, pi: float) -> pm.Model:
    """Build the model of one row (D,) with basis functions (D, H)."""
    with pm.Model() as model:
        w = pm.Data("W", weights)
        s = pm.Bernoulli("s", p=pm.Data("pi", pi), shape=weights.shape[1])
        pm.Normal("y", w @ s, pm.Data("sigma", sigma), observed=np.zeros(len(weights)))
    return model


def score(rows: np.ndarray, parameters: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return S_h(y) = W_h' y / |W_h| of each row and unit (m, H): which units to select."""
    lengths = np.linalg.norm(parameters["W"], axis=0)
    return (rows @ parameters["W"]) / np.maximum(lengths, np.finfo(float).tiny)


def m_step(sums: learning.Statistics, parameters: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return W = (sum y <s>') (sum <s s'>)^-1, sigma^2 = mean |y - W s|^2 / D and pi = mean <s>."""
    weights = np.array(parameters["W"])
    n_dims, n_units = weights.shape
    used = sums.unit > _FEW
    products = sums.unit_unit[np.ix_(used, used)]
    try:
        weights[:, used] = solve(products, sums.row_unit[:, used].T, assume_a="pos").T
    except LinAlgError:  # two units that are always active together
        jitter = 1e-9 * np.trace(products) / max(len(products), 1) * np.eye(len(products))
        weights[:, used] = solve(products + jitter, sums.row_unit[:, used].T, assume_a="pos").T
    error = sums.square.sum() - 2.0 * np.sum(weights * sums.row_unit)
    error += np.sum((weights.T @ weights) * sums.unit_unit)
    sigma = np.sqrt(max(error / (sums.n_rows * n_dims), _LEAST_SIGMA**2))
    pi = np.clip(sums.unit.sum() / (sums.n_rows * n_units), _LEAST_PI, 1.0 - _LEAST_PI)
    return {"W": weights, "sigma": np.asarray(sigma), "pi": np.asarray(pi)}


def first_parameters(rows: np.ndarray, n_units: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return W around the mean row, with the spread of the rows; their standard deviation; and two active units."""
    spread = rows.std()
    weights = rows.mean(axis=0)[:, None] + spread * rng.normal(size=(rows.shape[1], n_units)) / 2.0
    return {"W": weights, "sigma": np.asarray(spread), "pi": np.asarray(min(2.0 / n_units, 0.5))}
