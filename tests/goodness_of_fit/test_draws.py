"""Exact draws, also with uneven weights, are left alone at the rate that the limits promise."""

import numpy as np
import pytest
from scipy import stats

from pymc_hais.goodness_of_fit.edges import find_edge
from pymc_hais.goodness_of_fit.limits import LIMITS
from pymc_hais.goodness_of_fit.spread import find_lag
from tests.goodness_of_fit.test_spread import draws_of, normal

#: Twelve moves are judged by the balance at most: three suspects, four lengths.
RATE = 12 * stats.norm.sf(LIMITS.unreached)


def test_moves_back_that_are_missing_by_chance_are_no_evidence():
    """Two boxes with 0.97 and 0.03 of the mass: one time in twenty, all of 100 draws are in the first."""

    def density(x):
        return np.select(
            [(x[:, 0] >= 0.0) & (x[:, 0] < 1.0), (x[:, 0] >= 1.0) & (x[:, 0] < 2.0)], np.log([0.97, 0.03]), -np.inf
        )

    draws, _ = draws_of(np.random.default_rng(0).random((100, 1)), density)
    here = draws.log_density(draws.positions)
    found = draws.balance(lambda time: (draws.positions + time, 0.0, True), 1.0, here)
    assert (found.out, found.back) == (pytest.approx(0.03 / 0.97), 0.0)
    assert found.difference < 4.0 * found.error
    # Of 2000 draws none would be there with a probability of 4e-27.
    draws, _ = draws_of(np.random.default_rng(0).random((2000, 1)), density)
    here = draws.log_density(draws.positions)
    found = draws.balance(lambda time: (draws.positions + time, 0.0, True), 1.0, here)
    assert found.difference > 4.0 * found.error


def box(x):
    return np.where(np.all((x > 0.0) & (x < 1.0), axis=-1), 0.0, -np.inf)


def draw_neal(rng, n):
    v = rng.normal(0.0, 3.0, size=(n, 1))
    return np.concatenate([v, rng.normal(size=(n, 4)) * np.exp(0.5 * v)], axis=1)


def neal(x):
    v = x[..., 0]
    return -0.5 * (v / 3.0) ** 2 - 0.5 * np.sum(x[..., 1:] ** 2, axis=-1) * np.exp(-v) - 2.0 * v


def slope_of_neal(x):
    v = x[..., :1]
    of_v = -v / 9.0 + 0.5 * np.sum(x[..., 1:] ** 2, axis=-1, keepdims=True) * np.exp(-v) - 2.0
    return np.concatenate([of_v, -x[..., 1:] * np.exp(-v)], axis=-1)


TARGETS = {
    "box": (lambda rng, n: rng.random((n, 5)), box, np.zeros_like),
    "normal": (lambda rng, n: rng.normal(size=(n, 5)), *normal(np.ones(5))),
    "Student-t": (
        lambda rng, n: rng.standard_t(3.0, size=(n, 5)),
        lambda x: -2.0 * np.log1p(x**2 / 3.0).sum(axis=-1),
        lambda x: -4.0 * x / (3.0 + x**2),
    ),
    "funnel": (draw_neal, neal, slope_of_neal),
}


@pytest.mark.few(4)
@pytest.mark.every(6)
@pytest.mark.parametrize("kind", ["few", "many", "uneven"])
@pytest.mark.parametrize("name", TARGETS)
def test_exact_draws_are_left_alone(name, kind):
    """Uneven: nine tenths of the draws on one side are gone, and the others there weigh ten times as much."""
    draw, density, gradient = TARGETS[name]
    n, n_seeds, n_edges, n_lags = 400 if kind == "few" else 4000, 100, 0, 0
    for seed in range(n_seeds):
        rng = np.random.default_rng(seed)
        x = draw(rng, n)
        share = np.where((x[:, 0] > 0.5) & (kind == "uneven"), 0.1, 1.0)
        kept = rng.random(n) < share
        draws, _ = draws_of(x[kept], density, gradient, log_weights=-np.log(share[kept]))
        n_edges += find_edge(draws) is not None
        n_lags += kind != "uneven" and find_lag(draws) is not None  # which takes no weights
    assert n_edges <= stats.binom.isf(1e-6, n_seeds, RATE)
    assert n_lags == 0
