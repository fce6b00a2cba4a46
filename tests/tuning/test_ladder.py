import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pymc_hais.core.annealing import segments
from pymc_hais.kernels import Hamiltonian
from pymc_hais.tuning.ladder import Recipe, build_ladder, next_length, refine, suggest_length, untuned_ladder
from tests.runs import build_pilot, build_run

RECIPE, KERNEL = Recipe(), Hamiltonian()


@given(st.integers(1, 300), st.integers(0, 5))
def test_a_plan_has_a_setting_for_every_step(n_steps, n_final_moves):
    plan = build_ladder(build_pilot(), n_steps, Recipe(n_final_moves), KERNEL)
    assert len(plan.schedule) == len(plan.step_sizes) == len(plan.metric_index) == n_steps
    assert len(plan.metrics) == 4
    assert plan.n_final_moves == n_final_moves
    assert np.all((plan.step_sizes >= 2.0) & (plan.step_sizes <= 5.0))  # between the stages' own
    assert np.all(np.diff(plan.metric_index) >= 0)
    assert list(segments(plan, plan.forward))[-1].stop == n_steps


def test_every_step_uses_the_metric_of_the_stage_above_it():
    pilot, plan = build_pilot(), build_ladder(build_pilot(), 60, RECIPE, KERNEL)
    betas = pilot.betas
    above = betas[plan.metric_index]
    targets = plan.schedule.betas[1:]
    assert np.all(above >= targets * (1 - 1e-9))
    below = np.where(plan.metric_index > 0, betas[plan.metric_index - 1], 0.0)
    assert np.all(below <= targets * (1 + 1e-9))
    assert plan.metric_index[-1] == 3


def test_step_sizes_meet_the_stages():
    pilot = build_pilot()
    plan = build_ladder(pilot, 4000, RECIPE, KERNEL)
    for beta, size in zip(pilot.betas, pilot.step_sizes, strict=True):
        at = np.argmin(np.abs(plan.schedule.betas[1:] - beta))
        np.testing.assert_allclose(plan.step_sizes[at], size, rtol=0.01)


def test_slow_temperatures_get_more_steps():
    betas = np.linspace(0.02, 1, 50)
    even = np.ones(50)
    slow = np.where(betas > 0.5, 9.0, 1.0)  # an autocorrelation time of 9 counts three times
    count = [
        np.mean(build_ladder(build_pilot(betas, even, t), 1000, RECIPE, KERNEL).schedule.betas > 0.5)
        for t in (even, slow)
    ]
    np.testing.assert_allclose(count, [0.5, 0.75], atol=0.02)


def test_a_run_refines_the_schedule():
    pilot = build_pilot(times=np.ones(4))
    recipe = Recipe(3)
    plan = build_ladder(pilot, 50, recipe, KERNEL)
    speeds = np.where(plan.schedule.betas[:-1] < 0.3, 1.0, 10.0)
    # Two chains that differ, with D = (speed times the step)^2 on average.
    discrepancy = np.array([[0.5], [1.5]]) * (speeds * np.diff(plan.schedule.betas)) ** 2
    run = build_run(np.zeros((2, 30)), temperature={"discrepancy": discrepancy})
    refined = refine(pilot, plan, run, 400, recipe, KERNEL)
    assert len(refined.schedule) == 400
    assert refined.n_final_moves == 3
    # Lambda = 0.3 below 0.3 and 7 above.
    np.testing.assert_allclose(np.mean(refined.schedule.betas < 0.3), 0.3 / 7.3, atol=0.03)


def test_a_refined_schedule_keeps_more_steps_for_slow_temperatures():
    betas = np.linspace(0.02, 1, 50)
    pilot = build_pilot(betas, np.ones(50), np.where(betas > 0.5, 9.0, 1.0))
    plan = build_ladder(pilot, 200, RECIPE, KERNEL)
    discrepancy = np.diff(plan.schedule.betas)[None] ** 2  # the same speed everywhere
    run = build_run(np.zeros((1, 30)), temperature={"discrepancy": discrepancy})
    np.testing.assert_allclose(
        np.mean(refine(pilot, plan, run, 1000, RECIPE, KERNEL).schedule.betas > 0.5), 0.75, atol=0.02
    )


def test_the_first_length_follows_the_square_of_the_barrier():
    def length(barrier, time=1.0, variance=None, longest=10**6):
        # Fifty steps of a fiftieth of the barrier each; an autocorrelation time of 4 doubles it.
        pilot = build_pilot(np.linspace(0.02, 1, 50), np.full(50, (barrier / 50) ** 2), np.full(50, time))
        return suggest_length(pilot, variance, longest)

    for barrier, time in [(21.0, 1.0), (42.0, 1.0), (21.0, 4.0)]:
        # Var(log w) = Lambda^2 / T, 8 at most: no T shorter than this one does.
        variance = barrier**2 * time
        assert variance / length(barrier, time) <= 8.0 < variance / (length(barrier, time) - 1)
    assert length(84.0, longest=100) == 100
    # A target that allows a variance of 1 (0.1 with 100 particles, say) needs more, with room; a loose one no fewer.
    assert 1.0 / 3.0 < 21.0**2 / length(21.0, variance=1.0) < 1.0 / 2.0
    assert length(21.0, variance=1e3) == length(21.0)


def test_what_no_run_forgets_makes_none_longer():
    """Two phases: at the last beta the log ratio is remembered for ever, and its discrepancy is small.

    Var(log w) is the squared barrier over T while T is beyond the autocorrelation time, and never more than the
    discrepancy where it is not: 8 nats squared are met by 100 steps for the rest, and some more for the last stage.
    """
    betas, discrepancies = np.array([0.2, 0.4, 0.6, 1.0]), np.array([25.0, 25.0, 25.0, 0.08])
    times = np.array([4.0, 4.0, 4.0, 2e4])
    rest = build_pilot(betas[:3], discrepancies[:3], times[:3])
    alone, both = (suggest_length(one, None, 10**6) for one in (rest, build_pilot(betas, discrepancies, times)))
    assert alone == np.ceil(30.0**2 / 8.0)
    # Of 500 steps the last stage's share of the barrier is the root of 0.08 * 500.
    assert both == np.ceil((30.0 + np.sqrt(40.0)) ** 2 / 8.0)
    schedule = build_ladder(build_pilot(betas, discrepancies, times), both, RECIPE, KERNEL).schedule
    assert np.mean(schedule.betas > 0.6) < 0.25


@given(st.integers(1, 1000), st.floats(1e-3, 10.0), st.floats(1e-3, 10.0))
def test_the_next_length_is_the_shortest_that_should_meet_the_target_with_room(n_steps, se, target):
    length, least = next_length(n_steps, se, target, 10**9), int(np.ceil(1.25 * n_steps))
    assert least <= length <= 8 * n_steps

    def expected(n):  # the variance of both rounds together falls as one over their temperatures
        return se * np.sqrt(n_steps / (n_steps + n))

    assert length == 8 * n_steps or expected(length) <= 0.8 * target * (1 + 1e-9)
    assert length == least or expected(length - 1) > 0.8 * target * (1 - 1e-9)
    assert next_length(n_steps, se, target, n_steps) == n_steps
    assert next_length(n_steps, se, target, 10**9, is_sound=False) == max(length, 2 * n_steps)


def test_the_next_length_counts_the_temperatures_of_all_rounds():
    # 381 temperatures leave an error of 0.13, and (0.13 / 0.08)^2 as many are needed: 625 more.
    assert next_length(156, 0.13, 0.1, 10**9, n_made=381) == 626


def test_a_round_without_weight_is_lengthened_as_far_as_any():
    assert next_length(64, np.inf, 0.1, 10**9) == 8 * 64
    assert next_length(64, np.inf, np.inf, 10**9) == 2 * 64  # without a target


def test_a_fixed_step_size_comes_with_a_unit_metric():
    kernel = Hamiltonian(step_size=0.3, damping=np.log(2))
    tuned = build_ladder(build_pilot(), 40, RECIPE, kernel)
    fixed = untuned_ladder(Recipe(resample_below=0.0, schedule="linear"), kernel, 2, 40)
    for plan in (tuned, fixed):
        np.testing.assert_array_equal(plan.step_sizes, np.full(40, 0.3))
        np.testing.assert_allclose(plan.persistence**2, 2.0**-0.3)  # half the power in a unit of time
        assert [metric.tolist() for metric in plan.metrics] == [[1.0, 1.0]]
    np.testing.assert_allclose(fixed.schedule.betas, np.arange(41) / 40)
    assert (tuned.resample_below, fixed.resample_below) == (0.5, 0.0)
    assert RECIPE.needs_pilot(kernel)
    assert not Recipe(schedule="linear").needs_pilot(kernel)


def test_a_fixed_schedule_takes_the_pilots_step_sizes():
    plan = build_ladder(build_pilot(), 10, Recipe(schedule="linear"), KERNEL)
    np.testing.assert_allclose(plan.schedule.betas, np.arange(11) / 10)
    np.testing.assert_allclose(plan.step_sizes[[0, 3, 9]], [3.0, 4.0, 5.0])  # at beta = 0.1, 0.4 and 1
