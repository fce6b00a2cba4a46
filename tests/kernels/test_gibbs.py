"""Gibbs sweeps of discrete sites leave pi_beta invariant, by exact matrices and by draws, and wrong ones do not."""

import dataclasses
import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_hais.core.records import ParticleState
from pymc_hais.kernels import Gibbs, SiteBlock
from tests.kernels import site_targets as targets
from tests.kernels.site_mutants import GIBBS_MUTANTS, GIBBS_MUTANTS_OUT_OF_TURN, blocks_that_share_numbers
from tests.kernels.sweeps import WIDTH, expected_matrix, in_turn, is_seen, moved, transition_matrix
from tests.kernels.targets import BETA, needs_jax
from tests.statistical import assert_mean
from tests.toys import NO_DATA, build_params, build_path

#: Few enough states for a matrix, and no rare ones.
SMALL = {
    "gradient": targets.boltzmann(n_sites=3),
    "gradient-one-by-one": targets.boltzmann(colours=targets.one_by_one(3), n_sites=3),
    "table": targets.chain(2, 3),
    "table-of-two-values": targets.boltzmann("table", n_sites=3),
    "flip": targets.boltzmann("table", targets.one_by_one(3), 3),
    "walk": targets.counts(most=2),
}
LARGE = {
    "gradient": targets.boltzmann(),
    "table": targets.chain(3, 4),
    "table-of-two-values": targets.boltzmann("table"),
    "flip": targets.boltzmann("table", targets.one_by_one(4)),
    "walk": targets.counts(),
}


def of_sites(target, gibbs=Gibbs):
    return in_turn(None, gibbs((target.block,)))


def widths(target):
    return np.full(target.block.n_sites, WIDTH)


# Invariance ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", LARGE.values(), ids=LARGE)
def test_what_a_site_holds_is_the_change_of_the_log_density(target):
    # Of the targets: all that follows rests on it.
    density, places = target.density(np), {tuple(state): i for i, state in enumerate(target.states)}
    for state in target.states[:: max(1, len(target.states) // 50)]:
        here = density(state)
        for site in range(len(state)):
            other = state.copy()
            other[site] = state[site] + 1.0 if (*state[:site], state[site] + 1.0, *state[site + 1 :]) in places else 0.0
            there = density(other)
            for end in (0, 1):
                step = other[site] - state[site]
                linear, local = step * here[2 + end][site], there[2 + end][site] - here[2 + end][site]
                change = linear if target.block.rule == "gradient" else local
                np.testing.assert_allclose(change, there[end] - here[end], rtol=1e-10, atol=1e-10)


@functools.cache
def matrix_of(name):
    return transition_matrix(SMALL[name], Gibbs((SMALL[name].block,)))


def is_balanced(target, matrix, tolerance=1e-7):
    """Whether a sweep leaves pi_beta as it is; what leaves the target's states is lost."""
    probabilities = target.probabilities()
    return bool(np.abs(probabilities @ matrix[:, :-1] - probabilities).max() < tolerance)


def is_wrong(target, gibbs):
    """Whether a sweep changes pi_beta by far more than a coarse matrix is off."""
    with np.errstate(invalid="ignore"):  # some leave the support
        return not is_balanced(target, transition_matrix(target, gibbs, 1e-5), 1e-3)


@pytest.mark.parametrize("name", SMALL)
def test_a_sweep_leaves_a_skewed_target_invariant(name):
    np.testing.assert_allclose(matrix_of(name)[:, :-1].sum(axis=1), 1.0, rtol=1e-12)
    assert is_balanced(SMALL[name], matrix_of(name))


def test_sites_are_found_in_the_model():
    with pytest.raises(ValueError, match=r"finds its `blocks` in the model, and got 3: call Gibbs\(\)"):
        Gibbs(3)


@pytest.mark.parametrize("name", SMALL)
def test_a_sweep_goes_through_the_colours_and_draws_their_conditionals(name):
    np.testing.assert_allclose(matrix_of(name)[:, :-1], expected_matrix(SMALL[name]), atol=1e-7)


@pytest.mark.parametrize("name", ["gradient", "table", "walk"])
def test_a_colour_is_in_detailed_balance(name):
    target = SMALL[name]
    for colour in range(target.block.n_colours):
        alone = dataclasses.replace(target.block, colours=np.where(target.block.colours == colour, 0, -1))
        flow = target.probabilities()[:, None] * transition_matrix(target, Gibbs((alone,)))[:, :-1]
        np.testing.assert_allclose(flow, flow.T, atol=1e-7)


def in_two_blocks(target):
    first, second = (dataclasses.replace(target.block, **part) for part in ({"stop": 2}, {"start": 2}))
    return (
        dataclasses.replace(first, colours=targets.one_by_one(2)),
        dataclasses.replace(second, colours=np.zeros(1, dtype=int)),
    )


@pytest.mark.parametrize("name", ["gradient", "flip"])
def test_blocks_follow_one_another_with_numbers_of_their_own(name):
    target = SMALL[name]
    blocks = in_two_blocks(target)
    assert is_balanced(target, transition_matrix(target, Gibbs(blocks)))
    assert is_wrong(target, blocks_that_share_numbers().Gibbs(blocks))


@pytest.mark.few(2)
@pytest.mark.parametrize("target", LARGE.values(), ids=LARGE)
def test_sweeps_leave_exact_draws_as_they_are(target):
    found, _ = moved(target, of_sites(target), (1, 5), widths(target))
    for n_steps, features in zip((1, 5), found, strict=True):
        assert_mean(*features, f"after {n_steps} steps")


@pytest.mark.parametrize(
    ("name", "build_mutant"),
    [pytest.param(name, f, id=f"{name}-{f.__name__.strip('_')}") for name, fs in GIBBS_MUTANTS.items() for f in fs],
)
def test_the_same_tests_catch_wrong_sweeps(name, build_mutant):
    assert is_wrong(SMALL[name], build_mutant().Gibbs((SMALL[name].block,)))


@pytest.mark.few(2)
@needs_jax
@pytest.mark.parametrize("name", GIBBS_MUTANTS_OUT_OF_TURN)
def test_the_same_draws_catch_sweeps_that_move_all_colours_at_once(name):
    target = LARGE[name]
    assert is_seen(target, of_sites(target, GIBBS_MUTANTS_OUT_OF_TURN[name]().Gibbs), widths(target))


@pytest.mark.parametrize("name", ["gradient", "table", "table-of-two-values", "walk"])
def test_sites_that_interact_must_not_have_one_colour(name):
    target = SMALL[name]
    block = dataclasses.replace(target.block, colours=np.zeros(target.block.n_sites, dtype=int))
    assert is_wrong(target, Gibbs((block,)))


# One particle at a time ----------------------------------------------------------------------------------


def one_state(density, sites):
    return ParticleState(np.asarray(sites, float), np.zeros(0), *density(np.asarray(sites, float)))


def sweep(target, state, numbers, density=None, block=None):
    gibbs = Gibbs((target.block if block is None else block,))
    run = gibbs.build(np, build_path(np, density or target.density(np)))
    with np.errstate(all="ignore"):
        return run(state, np.asarray(numbers), BETA, build_params(1.0, widths(target), 0.0), NO_DATA)


#: From the least number that the noise has to the largest.
UNIFORMS = st.floats(2.0**-33, 1.0 - 2.0**-33)


@pytest.mark.parametrize("name", LARGE)
@given(data=st.data())
def test_the_carried_densities_belong_to_whole_numbers_in_range(name, data):
    target = LARGE[name]
    density, block = target.density(np), target.block
    numbers = data.draw(st.lists(UNIFORMS, min_size=block.n_uniforms, max_size=block.n_uniforms))
    start = target.states[data.draw(st.integers(0, len(target.states) - 1))]
    end = sweep(target, one_state(density, start), numbers)
    for carried, fresh in zip(end[2:], density(end.position), strict=True):
        np.testing.assert_array_equal(carried, fresh)
    np.testing.assert_array_equal(end.position, np.rint(end.position))
    assert np.all((end.position >= target.states.min()) & (end.position <= target.states.max()))


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("weightless", [-np.inf, np.nan])
def test_a_particle_without_weight_stays(name, weightless):
    target = LARGE[name]

    def density(x):
        return weightless, weightless, np.full(x.shape, weightless), np.full(x.shape, weightless)

    for seed in range(20):
        start, numbers = target.states[7], np.random.default_rng(seed).random(target.block.n_uniforms)
        end = sweep(target, one_state(density, start), numbers, density)
        if name == "gradient" and weightless == -np.inf:  # odds of minus infinity are odds
            start = np.zeros_like(start)
        np.testing.assert_array_equal(end.position, start)


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("lost", ["grad_reference", "grad_ratio"])
def test_a_site_stays_where_nothing_is_known_and_the_others_move(name, lost):
    target = LARGE[name]
    inner = target.density(np)

    def density(x):
        values = list(inner(x))
        place = ParticleState._fields.index(lost) - 2
        values[place] = np.where(np.arange(len(x)) == 1, np.nan, values[place])
        return values

    start, moved_others = target.states[len(target.states) // 3], 0
    for seed in range(20):
        numbers = np.random.default_rng(seed).random(target.block.n_uniforms)
        end = sweep(target, one_state(density, start), numbers, density)
        assert end.position[1] == start[1]
        moved_others += not np.array_equal(end.position, start)
    assert moved_others > 5


def forbidding(target):
    """Forbid the second value, at either end of the path, and the last with the first beside it."""
    own, pair = target.own.copy(), target.pair.copy()
    own[0, 0, 1] = own[1, 1, 1] = pair[1, -1, 0] = -np.inf
    return dataclasses.replace(target, own=own, pair=pair)


@pytest.mark.parametrize("colours", [targets.alternate(3), targets.one_by_one(3)], ids=["alternate", "one-by-one"])
@pytest.mark.parametrize("n_values", [2, 4])
def test_a_value_of_density_zero_is_never_drawn(n_values, colours):
    target = forbidding(targets.chain(3, n_values, colours))
    density, start = target.density(np), np.full(3, target.low)
    assert np.isneginf(target.log_densities.sum(axis=0)).any()
    edges = [2.0**-33, 1e-3, 0.25, 0.5, 0.75, 1.0 - 1e-3, 1.0 - 2.0**-33]
    seen = set()
    for numbers in np.stack(np.meshgrid(*[edges] * 3), axis=-1).reshape(-1, 3):
        end = sweep(target, one_state(density, start), numbers)
        assert np.isfinite(end.log_reference + end.log_ratio)
        seen.add(tuple(end.position))
    assert len(seen) > 1


def test_a_site_of_density_zero_moves_where_there_is_some():
    target = forbidding(targets.chain(3, 4))
    state = one_state(target.density(np), [2, 1, 1])  # 2 is the second value
    assert np.isneginf(state.log_reference)
    assert np.isfinite(sweep(target, state, np.full(3, 0.4)).log_reference)


# As its users describe it --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target", [*LARGE.values(), *SMALL.values()], ids=[*LARGE, *(f"small-{name}" for name in SMALL)]
)
def test_a_sweep_takes_the_numbers_and_costs_the_evaluations_that_it_says(target):
    counts, density, gibbs = [], target.density(np), Gibbs((target.block,))

    def counting(x):
        counts.append(x)
        return density(x)

    assert gibbs.n_uniforms == target.block.n_sites * (2 if target.block.rule == "walk" else 1)
    sweep(target, one_state(density, target.states[0]), np.full(gibbs.n_uniforms, 0.3), counting)
    assert len(counts) == gibbs.n_evaluations


def test_programs_differ_where_the_blocks_do():
    block = SiteBlock(1, 5, targets.alternate(4), "table", 0, 3)
    changes = [
        {"start": 2, "stop": 6},
        {"colours": 1 - targets.alternate(4)},
        {"colours": targets.one_by_one(4)},
        {"rule": "walk"},
        {"low": 1},
        {"n_values": 4},
    ]
    blocks = [block, *(dataclasses.replace(block, **change) for change in changes)]
    programs = {Gibbs((one,)).program for one in blocks} | {Gibbs((block, block)).program, Gibbs().program}
    assert len(programs) == len(blocks) + 2
    assert Gibbs((dataclasses.replace(block, colours=targets.alternate(4)),)).program == Gibbs((block,)).program


def test_a_sweep_is_bound_to_the_sites_of_a_model():
    blocks = (SMALL["gradient"].block, SMALL["table"].block)
    gibbs = Gibbs()
    assert gibbs.with_blocks(blocks).blocks == blocks
    assert (gibbs.blocks, gibbs.n_uniforms, gibbs.n_evaluations) == ((), 0, 0)


def test_a_number_that_was_rounded_to_one_draws_no_impossible_value():
    block = SiteBlock(0, 2, np.zeros(2, dtype=int), "gradient")

    def density(x):
        return -np.inf * (1.0 - x[0]) if x[0] < 1.0 else 0.0, 0.0, np.array([np.inf, 0.0]), np.zeros(2)

    sweep = Gibbs((block,)).build(np, build_path(np, density))
    state = ParticleState(np.array([1.0, 0.0]), np.zeros(0), *density(np.array([1.0, 0.0])))
    with np.errstate(all="ignore"):
        end = sweep(state, np.array([1.0, 1.0]), BETA, build_params(1.0, np.ones(2), 1.0), NO_DATA)
    assert end.position[0] == 1.0
