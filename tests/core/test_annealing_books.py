"""The books of annealed populations, on log ratios that are given: weights, lines of descent and statistics."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pymc_hais.core.annealing import SEGMENT_LENGTH, UNBROKEN_LENGTH, anneal, move, segments
from pymc_hais.core.records import ParticleState, SegmentTrace
from pymc_hais.core.weights import effective_sample_size, log_mean_exp
from pymc_hais.engines.base import SharedEngine
from pymc_hais.estimators import NO_TAIL
from pymc_hais.results.findings.weights import check_weights
from pymc_hais.run.row_evidence import estimate_row
from tests.populations import gather, only
from tests.runs import call_of
from tests.toys import build_plan


class Scripted:
    """An engine whose log ratios (B, T, P) are given, whatever the particles do; positions are their columns."""

    def __init__(self, log_ratio, acceptance_rate=None):
        self.log_ratio = np.asarray(log_ratio, dtype=float)
        n = self.log_ratio.shape[2]
        self.acceptance_rate = np.ones(n) if acceptance_rate is None else acceptance_rate
        self.calls = []

    def start(self):
        n_populations, _, n_particles = self.log_ratio.shape
        columns = np.tile(np.arange(n_particles), (n_populations, 1))
        zeros = np.zeros(columns.shape)
        return ParticleState(columns[..., None], zeros[..., None], zeros, zeros, zeros[..., None], zeros[..., None])

    def run_segment(self, state, inputs, segment, keys):
        first_step, betas, step_sizes, persistence, metric = segment
        self.calls.append((first_step, np.array(betas), np.array(step_sizes), np.array(persistence), metric))
        columns = state.position[..., 0]
        rows = np.minimum(first_step + np.arange(len(step_sizes)), self.log_ratio.shape[1] - 1)
        log_ratio = np.take_along_axis(self.log_ratio[:, rows], columns[:, None], axis=2)
        rate = np.broadcast_to(self.acceptance_rate[columns][:, None], log_ratio.shape)
        return state, SegmentTrace(np.diff(betas)[:, None] * log_ratio, rate, rate < 0.5)

    take = SharedEngine.take


def run_scripts(log_ratios, metric_index=None, rate=None, seeds=(0,), **kwargs):
    """Anneal populations of given log ratios (B, T, P)."""
    engine = Scripted(log_ratios, rate)
    n_populations, n_steps, _ = engine.log_ratio.shape
    n_metrics = 1 if metric_index is None else max(metric_index) + 1
    metrics = [np.full(1, 1.0 + i) for i in range(n_metrics)]
    plan = build_plan(np.linspace(0, 1, n_steps + 1), 0.5, metrics, metric_index, n_final_moves=7)
    keys, rngs = np.zeros((n_populations, 2)), [np.random.default_rng(seed) for seed in seeds]
    return anneal(engine, plan, gather(engine.start(), keys, rngs), **kwargs), engine


def run_script(log_ratio, metric_index=None, rate=None, **kwargs):
    """Anneal one population of given log ratios (T, P)."""
    run, engine = run_scripts(np.asarray(log_ratio, dtype=float)[None], metric_index, rate, **kwargs)
    return only(run), engine


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
    np.testing.assert_array_equal(population.state.position[:, 0], population.ancestors)


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


def test_moves_after_the_end_are_at_beta_one_with_the_last_settings_and_leave_the_estimate_alone():
    run, engine = run_scripts(np.random.default_rng(4).normal(0, 1, (1, 5, 8)), [0, 0, 0, 1, 1])
    assert sum(len(call[2]) for call in engine.calls) == 5  # the plan's final moves are not the estimate's
    assert run.temperature["ess"].shape == (1, 5)
    n_moves = SEGMENT_LENGTH + 3
    plan = build_plan(np.linspace(0, 1, 6), [1, 2, 3, 4, 5], [np.full(1, 7.0), np.full(1, 8.0)], [1, 1, 1, 1, 0])
    engine.calls.clear()
    move(engine, plan, run.state, [], np.zeros((1, 2)), n_moves, 11)
    assert [call[0] for call in engine.calls] == [11, 11 + SEGMENT_LENGTH]
    assert sum(len(call[2]) for call in engine.calls) == n_moves
    for _, betas, step_sizes, persistence, metric in engine.calls:
        assert np.all(betas == 1.0)
        assert np.all(step_sizes == 5.0)
        assert np.all(persistence == plan.persistence[-1])
        assert metric[0] == 7.0


def test_each_step_moves_at_the_later_beta_with_its_own_settings():
    _, engine = run_script(np.zeros((70, 3)), [0] * 40 + [1] * 30)
    betas = [call[1] for call in engine.calls]
    np.testing.assert_array_equal(np.concatenate([one[1:] for one in betas]), np.linspace(0, 1, 71)[1:])
    # Each segment starts at the beta where the one before it ended.
    np.testing.assert_array_equal([one[0] for one in betas], [0.0, *(one[-1] for one in betas[:-1])])
    persistence = np.concatenate([call[3] for call in engine.calls])
    np.testing.assert_allclose(persistence**2, np.exp(-2.0 * 0.5))  # power decays as exp(-damping * step size)
    assert [(call[0], call[4][0]) for call in engine.calls] == [(0, 1.0), (32, 1.0), (40, 2.0)]


def test_report_hears_every_segment_and_may_stop_the_run():
    table, heard = np.random.default_rng(4).normal(0, 1, (70, 8)), []
    population, _ = run_script(table, report=lambda *progress: heard.append(progress))
    shares, betas, log_z = zip(*heard, strict=True)
    np.testing.assert_allclose(shares, [32 / 70, 64 / 70, 1.0])
    np.testing.assert_allclose(betas, shares)
    np.testing.assert_allclose(np.concatenate(log_z), population.temperature["log_z"][[31, 63, 69]])

    def stop(*progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_script(table, report=stop)


def test_a_dead_population_estimates_zero_quietly():
    run, _ = run_scripts(np.full((2, 3, 5), -np.inf), [0, 1, 0], seeds=(0, 1))
    np.testing.assert_array_equal(run.log_z, [-np.inf, -np.inf])
    result = estimate_row(run, 3, (), NO_TAIL)
    assert (result.estimate.value, result.estimate.upper) == (-np.inf, np.inf)
    assert [finding.name for finding in check_weights(result, None, call_of(target_se=0.1))] == ["weight_degeneracy"]


@pytest.mark.parametrize(("resample_below", "longest"), [(0.5, SEGMENT_LENGTH), (0.0, UNBROKEN_LENGTH)])
@given(runs=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 300)), min_size=1, max_size=6))
def test_segments_cover_the_plan_with_one_metric_each(runs, resample_below, longest):
    index = np.concatenate([np.full(length, metric) for metric, length in runs])
    metrics = [np.full(2, float(i)) for i in range(4)]
    plan = build_plan(np.linspace(0, 1, len(index) + 1), 0.5, metrics, index)
    pieces = list(segments(replace(plan, resample_below=resample_below), plan.forward))
    assert pieces[0].start == 0
    assert pieces[-1].stop == len(index)
    assert all(one.stop == other.start for one, other in pairwise(pieces))
    for piece in pieces:
        start, stop, metric = piece.start, piece.stop, piece.metric
        assert 0 < stop - start <= longest
        # It ends for a reason: full, the end, or another metric.
        assert stop - start == longest or stop == len(index) or index[stop] != metric[0]
        assert np.all(index[start:stop] == metric[0])


# Several populations -------------------------------------------------------------------------------------


def assert_same(one, other):
    """Assert that two runs are the same to the bit."""
    for name, value in vars(one).items():
        others = getattr(other, name)
        leaves = zip(value, others, strict=True) if name == "state" else [(value, others)]
        if name == "temperature":
            assert list(value) == list(others)
            leaves = [(value[key], others[key]) for key in value]
        for a, b in leaves:
            np.testing.assert_array_equal(a, b, err_msg=name, strict=True)


scripts = arrays(
    float, st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(2, 12)), elements=st.floats(-60, 20)
)


@given(scripts, st.data())
def test_populations_together_are_the_populations_one_by_one(tables, data):
    n_populations, n_steps, n_particles = tables.shape
    index, seeds = np.arange(n_steps) % 2, range(n_populations)
    hole = data.draw(arrays(bool, tables.shape))
    tables = np.where(hole, data.draw(st.sampled_from([0.0, -np.inf, np.nan, np.inf])), tables)
    rate = data.draw(arrays(float, n_particles, elements=st.floats(0, 1)))
    together, _ = run_scripts(tables, index, rate, seeds=seeds)
    for b in range(n_populations):
        alone, _ = run_scripts(tables[b : b + 1], index, rate, seeds=[b])
        assert_same(together.select(slice(b, b + 1)), alone)


def test_only_the_populations_that_need_it_resample():
    harsh, gentle = np.tile(4 * np.log([[1.0, 1.0, 1.0, 50.0]]), (4, 1)), np.zeros((4, 4))
    run, _ = run_scripts([gentle, harsh, gentle], [0, 1, 0, 1], seeds=(0, 1, 2))
    assert list(run.n_resampled > 0) == [False, True, False]
    np.testing.assert_array_equal(run.ancestors[[0, 2]], np.tile(np.arange(4), (2, 1)))
    assert len(np.unique(run.ancestors[1])) < 4


def test_what_is_no_density_is_counted_for_the_population_it_is_in():
    tables = np.zeros((3, 2, 5))
    tables[0, 0, :2], tables[1, 1, 3], tables[1, 0, 0], tables[2, 0, 1] = np.nan, np.inf, np.inf, -np.inf
    run, _ = run_scripts(tables, seeds=(0, 1, 2))
    np.testing.assert_array_equal(run.n_nan, [2, 0, 0])
    np.testing.assert_array_equal(run.n_infinite, [0, 2, 0])
    np.testing.assert_array_equal(np.isneginf(run.log_weights).sum(axis=1), [2, 2, 1])


def test_a_run_hands_out_some_of_its_populations():
    tables = np.random.default_rng(4).normal(0, 1, (3, 5, 8))
    run, _ = run_scripts(tables, seeds=(0, 1, 2))
    some = run.select(slice(1, 3))
    assert some.log_z.shape == some.n_nan.shape == some.log_z_dropped.shape == (2,)
    assert some.log_weights.shape == some.ancestors.shape == some.acceptance_rate.shape == (2, 8)
    assert some.state.position.shape == (2, 8, 1)
    assert some.temperature["ess"].shape == (2, 5)
    np.testing.assert_array_equal(some.log_z, run.log_z[1:])
