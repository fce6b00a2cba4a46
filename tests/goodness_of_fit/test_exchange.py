"""The exact test keeps its level for densities that jump and for tails without a mean, and has power."""

from __future__ import annotations

import numpy as np
import pytest

from pymc_hais.goodness_of_fit import exchange
from pymc_hais.goodness_of_fit.exchange import Ruler, p_value
from pymc_hais.goodness_of_fit.stein import Suspect

N_DRAWS = 1000
BOTH = np.arange(2)


def p_of(density, draw, seed, n=N_DRAWS, beyond=True):
    rng = np.random.default_rng(seed)
    suspect = Suspect(0, (0, 1), (1, 0), 1.0)
    return p_value(draw(rng, n), density, suspect, BOTH, Ruler.of(draw(rng, 2000), beyond), rng)


def half(x, inside):
    return np.where(inside, 0.0, -np.inf)


def step(x):
    """Twice as dense right of zero, on a square."""
    return np.where((np.abs(x) < 1).all(axis=1), np.log(1.0 + (x[:, 0] > 0)), -np.inf)


def draw_step(rng, n):
    x = rng.uniform(-1, 1, size=(n, 2))
    x[:, 0] = np.abs(x[:, 0]) * np.where(rng.uniform(size=n) < 2 / 3, 1, -1)
    return x


def draw_disc(rng, n):
    z = rng.normal(size=(n, 2))
    return np.sqrt(rng.uniform(size=(n, 1))) * z / np.linalg.norm(z, axis=1, keepdims=True)


RIGHT = {
    "normal": (lambda x: -0.5 * (x**2).sum(axis=1), lambda rng, n: rng.normal(size=(n, 2))),
    "Cauchy": (lambda x: -np.log1p(x**2).sum(axis=1), lambda rng, n: rng.standard_cauchy(size=(n, 2))),
    "exponential": (
        lambda x: np.where((x > 0).all(axis=1), -x.sum(axis=1), -np.inf),
        lambda rng, n: rng.exponential(size=(n, 2)),
    ),
    "disc": (lambda x: half(x, (x**2).sum(axis=1) < 1), draw_disc),
    "step": (step, draw_step),
    "bounds that depend on a parent": (
        lambda x: np.where((x[:, 1] > x[:, 0]) & (x[:, 1] < x[:, 0] + 1), -0.5 * x[:, 0] ** 2, -np.inf),
        lambda rng, n: rng.normal(size=(n, 1)) + np.column_stack([np.zeros(n), rng.uniform(size=n)]),
    ),
}


@pytest.mark.every(8)
@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("n_seeds", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_right_draws_keep_the_level(name, n_seeds):
    """The bound is wide: p < 0.1 in fewer than 10% of the cases, with 4 standard errors to spare in the long run."""
    p = np.array([p_of(*RIGHT[name], seed) for seed in range(n_seeds)])
    assert np.mean(p < 0.1) <= 0.1 + 4 * np.sqrt(0.09 / n_seeds)
    assert p.min() > 1e-3 / n_seeds


WRONG = {
    "too wide": (RIGHT["normal"][0], lambda rng, n: 1.2 * rng.normal(size=(n, 2))),
    "too narrow": (RIGHT["normal"][0], lambda rng, n: rng.normal(size=(n, 2)) / 1.2),
    "shifted": (RIGHT["normal"][0], lambda rng, n: rng.normal(size=(n, 2)) + 0.2),
    "correlated": (
        RIGHT["normal"][0],
        lambda rng, n: rng.normal(size=(n, 2)) @ np.array([[1.0, 0.3], [0.0, np.sqrt(0.91)]]),
    ),
    "one half is missing": (RIGHT["normal"][0], lambda rng, n: np.abs(rng.normal(size=(n, 2)))),
    "smaller disc": (RIGHT["disc"][0], lambda rng, n: 0.9 * draw_disc(rng, n)),
    "no step": (step, lambda rng, n: rng.uniform(-1, 1, size=(n, 2))),
    "Student-t for Cauchy": (RIGHT["Cauchy"][0], lambda rng, n: rng.standard_t(1.5, size=(n, 2))),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_draws_are_found(name):
    assert all(p_of(*WRONG[name], seed, n=4000) < 1e-7 for seed in range(5))


def test_nothing_is_said_beyond_the_range_of_the_draws_if_that_is_asked_for():
    """As for draws that end where floating point does."""
    density, draw = WRONG["one half is missing"]
    assert all(p_of(density, draw, seed, beyond=False) > 1e-3 for seed in range(5))


def test_a_walk_that_does_not_keep_the_density_would_be_noticed(monkeypatch):
    """Stretching without the Jacobian."""
    original = exchange._Move.propose

    def without(self, *args):
        y, log_jacobian = original(self, *args)
        return y, 0.0 * log_jacobian

    monkeypatch.setattr(exchange._Move, "propose", without)
    assert p_of(*RIGHT["normal"], 1, n=4000) < 1e-7


def test_a_walk_must_return_the_way_it_came(monkeypatch):
    """One way only, the two ends still have the same law, but not each pair of them: the differences are no longer fair
    coins; a list and its reverse are."""
    moves = exchange._moves(Suspect(0, (0,), (0,), 1.0), BOTH)
    made = []
    monkeypatch.setattr(
        exchange._Move,
        "propose",
        lambda self, x, ruler, rng: (made.append(self), x, np.zeros(len(x)))[1:],
    )
    draws = np.random.default_rng(0).normal(size=(10, 2))
    density = RIGHT["normal"][0]
    exchange._walk(draws, density(draws), density, moves, Ruler.of(draws), np.random.default_rng(1))
    assert made == [*moves, *moves[::-1]]


def test_draws_that_cannot_be_used():
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(20, 2))
    suspect = Suspect(0, (0,), (0,), 1.0)
    for density in (lambda x: np.full(len(x), np.nan), lambda x: np.where(np.isin(x, draws).all(axis=1), 0.0, -np.inf)):
        assert p_value(draws, density, suspect, BOTH, Ruler.of(draws), rng) == 1.0
