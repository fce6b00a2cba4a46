"""The pieces of binary sparse coding against sums over all states; and whether its fits find what made the rows."""

import numpy as np
import pytest

import pymc_hais
from examples.binary_sparse_coding import bars, cost, patches
from examples.binary_sparse_coding.model import PARAMETERS, build_model, m_step
from pymc_hais import learning


@pytest.mark.exhaustive
def test_a_fit_that_begins_near_the_bars_finds_them():
    rng = np.random.default_rng(3)
    rows = bars.draw(400, rng)
    weights = bars.bars() + 2.0 * rng.normal(size=bars.bars().shape)
    truth = bars.log_likelihood(rows, bars.bars(), **bars.TRUTH).mean()
    for name, method in bars.strategies(10, seed=0).items():
        model = build_model(weights, 3.0, 0.3)
        pymc_hais.fit(model, {"y": rows}, PARAMETERS, method, n_steps=10, random_seed=1, progressbar=False)
        values = [np.asarray(model[one].get_value()) for one in PARAMETERS]
        assert bars.n_found(values[0]) == bars.N_UNITS, name
        assert bars.log_likelihood(rows, *values).mean() > truth - 0.01 * abs(truth), name


def test_a_unit_for_two_bars_is_no_bar_found():
    whole = bars.bars()
    assert bars.n_found(whole) == bars.N_UNITS
    whole[:, 0] = whole[:, 1]
    assert bars.n_found(whole) == bars.N_UNITS - 1
    assert bars.n_found(np.ones_like(whole)) == 0


@pytest.mark.slow
def test_held_out_rows_are_annealed_to_the_exact_likelihood():
    rng = np.random.default_rng(4)
    weights = rng.normal(size=(6, 5))
    rows = rng.normal(size=(6, 6)) * 1.5
    model = build_model(weights, 0.8, 0.3)
    held_out = pymc_hais.log_likelihood(model, {"y": rows}, random_seed=1, progressbar=False)
    states = ((np.arange(32)[:, None] >> np.arange(5)) & 1).astype(float)
    prior = states @ np.full(5, np.log(0.3)) + (1.0 - states) @ np.full(5, np.log(0.7))
    squares = ((rows[:, None] - states @ weights.T) ** 2).sum(axis=-1)
    log_p = prior - squares / (2.0 * 0.64) - 6.0 * np.log(0.8 * np.sqrt(2.0 * np.pi))
    exact = np.logaddexp.reduce(log_p, axis=1).mean()
    found = held_out["held_out"]
    assert abs(found["mean"].item() - exact) < 5.0 * found["mcse"].item() + 1e-3


@pytest.mark.slow
def test_selected_states_bound_the_likelihood_from_below():
    rng = np.random.default_rng(5)
    values = {"W": bars.bars(), **bars.TRUTH}
    rows = bars.draw(40, rng)
    bounds = [patches.bound(rows, values, k) for k in (4, 8, 12)]
    exact = bars.log_likelihood(rows, bars.bars(), **bars.TRUTH).mean()
    assert bounds[0] < bounds[1] <= bounds[2] == pytest.approx(exact)


def test_a_unit_for_two_bars_gives_one_up():
    whole, noise = bars.bars(), np.full(36, 0.1)
    np.testing.assert_array_equal(bars.part(whole, noise), whole)
    # Bars 0 and 1 by one unit, and 0 by another: what is left is bar 1.
    one = whole.copy()
    one[:, 1] += whole[:, 0]
    np.testing.assert_allclose(bars.part(one, noise), whole)
    # Bars 2 and 3 by one unit and by one each, and a unit for half of bars 0 and 1: noise.
    both = whole.copy()
    both[:, 0] = 0.5 * (whole[:, 0] + whole[:, 1])
    both[:, 1] = whole[:, 2] + whole[:, 3]
    parted = bars.part(both, noise)
    np.testing.assert_array_equal(parted[:, 1], noise)
    np.testing.assert_array_equal(np.delete(parted, 1, axis=1), np.delete(both, 1, axis=1))
    # A bar, and half of it together with half of another one: no more than that is known.
    half = whole.copy()
    half[:, 1] = 0.5 * (whole[:, 0] + whole[:, 1])
    np.testing.assert_array_equal(bars.part(half, noise), half)


def test_units_that_are_never_active_or_always_together_keep_an_m_step_finite():
    unit = np.array([3.0, 3.0, 0.0])
    together = np.array([[3.0, 3.0, 0.0], [3.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
    row_unit = np.outer(np.ones(2), unit)
    sums = learning.Statistics(10, np.ones(2), np.full(2, 10.0), unit, row_unit, together, 0.0)
    found = m_step(sums, {"W": np.full((2, 3), 7.0), "sigma": np.array(1.0), "pi": np.array(0.5)})
    assert all(np.isfinite(one).all() for one in found.values())
    np.testing.assert_array_equal(found["W"][:, 2], 7.0)
    np.testing.assert_allclose(found["W"][:, 0] + found["W"][:, 1], 1.0, rtol=1e-4)


def test_exponents_are_those_of_the_cost():
    k = np.array([4.0, 6.0, 8.0, 12.0])
    found = {
        "select and sample": np.column_stack([k, 200.0 * k, 0.05 + 0.01 * k]),
        "selection": np.column_stack([k, 2.0**k, 0.05 + 1e-4 * 2.0**k]),
    }
    np.testing.assert_allclose(cost.exponents(found), (1.0, 1.0, 1.0, 1.0), rtol=1e-3)
