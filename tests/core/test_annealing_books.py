"""The books of one annealed population, on log ratios that are given: weights, lines of descent and statistics."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pymc_hais.core.annealing import SEGMENT_LENGTH, UNBROKEN_LENGTH, anneal, join, segments
from pymc_hais.results.diagnostics import diagnose
from pymc_hais.estimators.annealed import estimate_log_z
from pymc_hais.types import ParticleState, SegmentTrace
from pymc_hais.core.weights import effective_sample_size, log_mean_exp
from tests.toys import build_plan

KEY = np.array([1, 2], dtype=np.uint32)


class Scripted:
    """An engine whose log ratios (T, P) are given, whatever the particles do; positions are their columns."""

    def __init__(self, log_ratio, acceptance_rate=None):
        self.log_ratio = np.asarray(log_ratio, dtype=float)
        n = self.log_ratio.shape[1]
        self.acceptance_rate = np.ones(n) if acceptance_rate is None else acceptance_rate
        self.calls = []

    def start(self):
        columns = np.arange(self.log_ratio.shape[1])
        zeros = np.zeros_like(columns, dtype=float)
        return ParticleState(columns[:, None], zeros[:, None], zeros, zeros, zeros[:, None], zeros[:, None])

    def run_segment(self, state, betas, step_sizes, persistence, metric, key, first_step):
        self.calls.append((first_step, np.array(betas), np.array(step_sizes), np.array(persistence), metric))
        columns = state.position[:, 0]
        rows = np.minimum(first_step + np.arange(len(betas)), len(self.log_ratio) - 1)
        log_ratio = self.log_ratio[rows][:, columns]
        rate = np.broadcast_to(self.acceptance_rate[columns], log_ratio.shape)
        return state, SegmentTrace(log_ratio, rate, rate < 0.5)

    def take(self, state, chosen):
        return ParticleState(*(leaf[chosen] for leaf in state))


def run_script(log_ratio, metric_index=None, rate=None, n_final_moves=0, seed=0, **kwargs):
    engine = Scripted(log_ratio, rate)
    betas = np.linspace(0, 1, len(engine.log_ratio) + 1)
    n_metrics = 1 if metric_index is None else max(metric_index) + 1
    metrics = [np.full(1, 1.0 + i) for i in range(n_metrics)]
    plan = build_plan(betas, 0.5, metrics, metric_index, n_final_moves=n_final_moves)
    population = anneal(engine, plan, engine.start(), KEY, np.random.default_rng(seed), **kwargs)
    return population, engine


tables = arrays(float, st.tuples(st.integers(1, 6), st.integers(2, 12)), elements=st.floats(-20, 20))


@given(tables)
def test_without_resampling_the_weights_are_the_mean_log_ratios(table):
    population, _ = run_script(table)
    log_weights = table.mean(axis=0)  # equal steps of beta
    np.testing.assert_allclose(population.log_z, log_mean_exp(log_weights), atol=1e-10)
    expected = log_weights - log_weights.max()
    np.testing.assert_allclose(population.log_weights - population.log_weights.max(), expected, atol=1e-10)
    np.testing.assert_array_equal(population.ancestors, np.arange(table.shape[1]))


@given(tables, st.floats(-1e3, 1e3), st.booleans())
def test_log_z_moves_with_a_constant_in_the_log_ratio(table, constant, resampling):
    index = np.arange(len(table)) % 2 if resampling else None
    one, other = (run_script(t, index)[0] for t in (table, table + constant))
    np.testing.assert_allclose(other.log_z, one.log_z + constant, rtol=1e-10, atol=1e-8)


@given(tables, st.randoms(use_true_random=False))
def test_permuting_the_particles_changes_nothing(table, random):
    order = random.sample(range(table.shape[1]), table.shape[1])
    one, other = run_script(table)[0], run_script(table[:, order])[0]
    np.testing.assert_allclose(other.log_z, one.log_z, atol=1e-10)
    np.testing.assert_allclose(other.log_weights, one.log_weights[order], atol=1e-10)
    for name, statistic in one.temperature.items():
        np.testing.assert_allclose(other.temperature[name], statistic, rtol=1e-7, atol=1e-6, err_msg=name)


def test_resampling_keeps_lines_of_descent_together():
    rng = np.random.default_rng(1)
    table, rate = rng.normal(0, 8, (6, 40)), rng.random(40)
    population, _ = run_script(table, [0, 1, 0, 1, 0, 1], rate)
    assert population.n_resampled >= 2
    assert len(np.unique(population.ancestors)) < 40
    # A scripted particle's rate is its first ancestor's at every step.
    np.testing.assert_allclose(population.acceptance_rate, rate[population.ancestors])
    np.testing.assert_array_equal(population.n_divergent, 6 * (rate[population.ancestors] < 0.5))
    assert set(population.positions[:, 0]) <= set(population.ancestors)


def test_resampling_happens_below_half_the_particles_only():
    gentle = np.tile(np.log([1.0, 1.0, 1.0, 3.0]), (4, 1))  # ESS 3 of 4 at the end
    assert run_script(gentle, [0, 1, 0, 1])[0].n_resampled == 0
    harsh = np.tile(4 * np.log([1.0, 1.0, 1.0, 50.0]), (4, 1))
    assert run_script(harsh, [0, 1, 0, 1])[0].n_resampled > 0
    assert run_script(harsh, [0, 0, 0, 0])[0].n_resampled == 0  # one segment: nowhere to meet


def test_a_resampled_estimate_by_hand():
    # After the first half step one particle of three has all the weight; then all are copies of it.
    zero = -np.inf
    population, _ = run_script([[zero, 0.0, zero], [5.0, 2.0, 5.0]], [0, 1])
    np.testing.assert_allclose(population.log_z, np.log(1 / 3) + 0.5 * 2.0)
    np.testing.assert_array_equal(population.ancestors, [1, 1, 1])
    assert population.n_resampled == 1


def test_statistics_per_temperature():
    table = np.random.default_rng(2).normal(0, 1, (3, 30))
    population, _ = run_script(table)
    paths = np.cumsum(table, axis=0) / 3
    np.testing.assert_allclose(population.temperature["ess"], effective_sample_size(paths))
    np.testing.assert_allclose(population.temperature["log_z"], log_mean_exp(paths))
    np.testing.assert_allclose(population.temperature["log_z"][-1], population.log_z)
    weights = np.exp(np.vstack([np.zeros(30), paths[:-1]]))
    weights /= weights.sum(axis=1, keepdims=True)
    steps = np.exp(table / 3)
    conditional_ess = np.sum(weights * steps, axis=1) ** 2 / np.sum(weights * steps**2, axis=1)
    np.testing.assert_allclose(population.temperature["discrepancy"], -np.log(conditional_ess))
    np.testing.assert_allclose(population.temperature["acceptance_rate"], 1.0)


def test_running_log_z_continues_across_resampling():
    table = np.random.default_rng(2).normal(0, 8, (6, 40))
    population, _ = run_script(table, [0, 1, 0, 1, 0, 1])
    assert population.n_resampled > 0
    np.testing.assert_allclose(population.temperature["log_z"][-1], population.log_z)


def test_the_final_moves_are_at_beta_one_and_leave_the_estimate_alone():
    table = np.random.default_rng(4).normal(0, 1, (5, 8))
    without, _ = run_script(table)
    n_moves = SEGMENT_LENGTH + 3
    population, engine = run_script(table, n_final_moves=n_moves)
    assert population.log_z == without.log_z
    final = [call for call in engine.calls if call[0] >= 5]
    assert [call[0] for call in final] == [5, 5 + SEGMENT_LENGTH]  # noise of steps not yet used
    assert sum(len(call[1]) for call in final) == n_moves
    assert all(np.all(call[1] == 1.0) for call in final)
    assert len(population.temperature["ess"]) == 5


def test_each_step_moves_at_the_later_beta_with_its_own_settings():
    _, engine = run_script(np.zeros((70, 3)), [0] * 40 + [1] * 30)
    np.testing.assert_array_equal(np.concatenate([call[1] for call in engine.calls]), np.linspace(0, 1, 71)[1:])
    persistence = np.concatenate([call[3] for call in engine.calls])
    np.testing.assert_allclose(persistence**2, np.exp(-2.0 * 0.5))  # power decays as exp(-damping * step size)
    assert [(call[0], call[4][0]) for call in engine.calls] == [(0, 1.0), (32, 1.0), (40, 2.0)]


def test_report_hears_every_segment_and_may_stop_the_run():
    table, heard = np.random.default_rng(4).normal(0, 1, (70, 8)), []
    population, _ = run_script(table, report=lambda *progress: heard.append(progress))
    shares, betas, log_z = zip(*heard, strict=True)
    np.testing.assert_allclose(shares, [32 / 70, 64 / 70, 1.0])
    np.testing.assert_allclose(betas, shares)
    np.testing.assert_allclose(log_z, population.temperature["log_z"][[31, 63, 69]])

    def stop(*progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_script(table, report=stop)


def test_a_dead_population_estimates_zero_quietly():
    population, _ = run_script(np.full((3, 5), -np.inf), [0, 1, 0])
    assert population.log_z == -np.inf
    run = join([population, population], 1.0, 1)
    estimate = estimate_log_z(run)
    assert (estimate.value, estimate.upper) == (-np.inf, np.inf)
    assert [finding.name for finding in diagnose(run, estimate, 0.1)] == ["no_weight"]


@pytest.mark.parametrize(("resample_below", "longest"), [(0.5, SEGMENT_LENGTH), (0.0, UNBROKEN_LENGTH)])
@given(runs=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 300)), min_size=1, max_size=6))
def test_segments_cover_the_plan_with_one_metric_each(runs, resample_below, longest):
    index = np.concatenate([np.full(length, metric) for metric, length in runs])
    metrics = [np.full(2, float(i)) for i in range(4)]
    plan = build_plan(np.linspace(0, 1, len(index) + 1), 0.5, metrics, index)
    pieces = list(segments(replace(plan, resample_below=resample_below)))
    assert pieces[0].start == 0
    assert pieces[-1].stop == len(index)
    assert all(one.stop == other.start for one, other in pairwise(pieces))
    for start, stop, metric in pieces:
        assert 0 < stop - start <= longest
        # It ends for a reason: full, the end, or another metric.
        assert stop - start == longest or stop == len(index) or index[stop] != metric[0]
        assert np.all(index[start:stop] == metric[0])


def test_joining_stacks_populations():
    table = np.random.default_rng(4).normal(0, 1, (5, 8))
    populations = [run_script(table, seed=seed)[0] for seed in (0, 1, 2)]
    run = join(populations, seconds=1.5, n_gradients=120)
    assert run.log_z.shape == (3,)
    assert run.log_weights.shape == run.ancestors.shape == run.acceptance_rate.shape == (3, 8)
    assert run.positions.shape == (3, 8, 1)
    assert run.temperature["ess"].shape == (3, 5)
    assert (run.seconds, run.n_gradients, run.n_nan) == (1.5, 120, 0)
