"""Annealing in reverse, from draws of the target: unbiased for 1 / Z, and the exact reversal of the way forward."""

from dataclasses import replace

import numpy as np
import pytest

from pymc_hais.core import records as types
from pymc_hais.core.annealing import anneal
from pymc_hais.estimators import build_bridge
from tests.mutants import mutate
from tests.populations import start
from tests.statistical import assert_mean
from tests.toys import HAS_JAX, build_engine, build_plan
from tests.truth import LogGamma

TOY = LogGamma(np.array([0.8, 1.4]), np.array([0.5, 1.0]), np.array([3.0, 1.0]), np.array([2.0, 6.0]), -0.3)
BETAS = [0.0, 0.15, 0.4, 0.6, 1.0]
SCALES = np.array([1.0, 0.6])
#: Unequal steps: every refresh keeps another share of the momentum.
STEP_SIZES = [1.3, 0.2, 1.1, 0.3]
N_POPULATIONS = 1500 if HAS_JAX else 500


def plan_of(metric_index=(0, 0, 0, 0), step_sizes=STEP_SIZES):
    return build_plan(BETAS, step_sizes, [SCALES, SCALES], list(metric_index))


def annealed(plan, is_reverse, n_particles=16, seed=42):
    engine, rng = build_engine(TOY), np.random.default_rng(seed)
    positions = TOY.sample(rng, N_POPULATIONS * n_particles, float(is_reverse))
    positions = positions.reshape(N_POPULATIONS, n_particles, -1)
    keys = rng.integers(2**32, size=(N_POPULATIONS, 2), dtype=np.uint32)
    return anneal(engine, plan, start(engine, positions, keys, rng.spawn(N_POPULATIONS)), is_reverse=is_reverse)


def paths(run):
    """Return the whole log weights (B, P) of paths that were never resampled."""
    assert not run.n_resampled.any()
    return run.log_weights + run.log_z[:, None] + np.log(run.log_weights.shape[1])


@pytest.mark.parametrize("metric_index", [(0, 0, 0, 0), (0, 1, 0, 1)], ids=["no resampling", "resampling"])
def test_the_estimate_of_one_over_z_is_unbiased(metric_index):
    run = annealed(plan_of(metric_index, 1.3), is_reverse=True)
    ratios = np.exp(run.log_z + TOY.log_z())
    assert ratios.std() > 0.1
    assert_mean(ratios, 1.0)


def crooks(plan):
    """Return, population by population, what both directions give for the same expectation: their difference is 0."""
    log_z = TOY.log_z()
    forward, reverse = paths(annealed(plan, False)), -paths(annealed(plan, True, seed=7))
    # E_F[h(w) exp(w)] / Z = E_R[h(w)] for h(w) = w / (Z + exp(w)), which tells more than a fair bridge does.
    at_forward = (forward - log_z) / (1.0 + np.exp(log_z - forward))
    at_reverse = (reverse - log_z) / (1.0 + np.exp(reverse - log_z))
    return at_forward.mean(axis=1) - at_reverse.mean(axis=1)


def test_the_work_of_both_directions_obeys_crooks():
    assert_mean(crooks(plan_of()), 0.0)


def share_that_returns(plan_back=lambda plan: plan):
    """Anneal without any refresh, turn every momentum round and go back: the share that retraces its steps exactly."""
    plan = replace(plan_of(step_sizes=[0.2, 0.05, 0.15, 0.1]), persistence=np.ones(4))
    engine, rng = build_engine(TOY), np.random.default_rng(1)
    positions, key = TOY.sample(rng, 200, 0.0)[None], rng.integers(2**32, size=(1, 2), dtype=np.uint32)
    there = anneal(engine, plan, start(engine, positions, key, [rng]))
    turned = there.state._replace(momentum=-np.asarray(there.state.momentum))
    particles = start(engine, np.asarray(there.state.position), key, [rng])._replace(state=turned)
    back = anneal(engine, plan_back(plan), particles, is_reverse=True)
    return np.mean(np.abs(paths(there) + paths(back)) < 1e-9)


def test_without_noise_the_way_back_is_the_way_there():
    assert share_that_returns() > 0.8  # a rejection on the way, and a particle takes another one


def test_the_way_back_with_another_order_of_steps_is_caught():
    wrong = mutate(types, ("return np.concatenate([values[::-1], values[:1]])", "return np.append(values, values[:1])"))
    assert share_that_returns(lambda plan: wrong.Ladder(**vars(plan))) < 0.05


def test_the_two_directions_meet_in_the_bridge():
    plan = plan_of()
    forward, reverse = paths(annealed(plan, False)).ravel(), -paths(annealed(plan, True)).ravel()
    bridge = build_bridge(forward, reverse)
    error = np.sqrt(np.var(bridge.of_reference) / forward.size + np.var(bridge.of_target) / reverse.size)
    assert abs(bridge.log_z - TOY.log_z()) < 5.0 * error < 0.1
    # Better than either alone.
    alone = np.std(np.exp(forward - TOY.log_z())) / np.sqrt(forward.size)
    assert error < alone


def test_the_lengths_of_the_way_back():
    back = plan_of().back
    np.testing.assert_array_equal(back.betas, [1.0, *BETAS[::-1]])
    np.testing.assert_array_equal(back.step_sizes, [*STEP_SIZES[::-1], STEP_SIZES[0]])
    shares = plan_of().persistence
    np.testing.assert_array_equal(back.persistence[1:], shares[::-1])
