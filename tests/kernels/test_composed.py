"""Continuous dimensions and discrete sites moved in turn leave their joint density invariant; wrong turns do not."""

import numpy as np
import pytest

from pymc_hais.core.records import KernelInfo, Noise, ParticleState
from pymc_hais.kernels import Block, Composed, Gibbs, Hamiltonian, RandomWalk
from pymc_hais.kernels.metropolis import build_evaluate_at, identity, keeps_gradients
from tests.kernels import site_targets as targets
from tests.kernels.site_mutants import COMPOSED_MUTANTS, MUTANTS_OF_BLOCKS
from tests.kernels.sweeps import in_turn, is_seen, moved
from tests.kernels.targets import BETA, METRICS, needs_jax
from tests.statistical import assert_mean
from tests.toys import NO_DATA, build_params, build_path

TARGETS = {
    "gradient": targets.mixed(),
    "table": targets.mixed("table"),
    "flip": targets.mixed("table", targets.one_by_one(3)),
}
SCALES = np.array([1.0, 0.6, 0.5, 0.5, 0.5])
FACTOR = np.diag(SCALES)
FACTOR[:2, :2] = METRICS["dense"]
#: Kernels of the continuous dimensions with a step size that rejects now and then, a metric, and what moves the sites.
KERNELS = {
    "kick-drift-kick": (Hamiltonian(), 1.1, SCALES, "gradient"),
    "kick-drift-kick-table": (Hamiltonian(), 1.0, FACTOR, "table"),
    "kick-drift-kick-flip": (Hamiltonian(), 1.1, SCALES, "flip"),
    "kick-drift-kick-thrice": (Hamiltonian(n_leapfrog=3), 1.1, SCALES, "flip"),
    "drift-kick-drift": (Hamiltonian("drift-kick-drift"), 1.2, FACTOR, "gradient"),
    "random-walk": (RandomWalk(), 1.5, FACTOR, "gradient"),
}


def composed(kernel, rule, module_composed=Composed):
    return in_turn(kernel, Gibbs((TARGETS[rule].block,)), module_composed)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", KERNELS)
def test_leaves_a_skewed_target_invariant(name):
    kernel, step_size, metric, rule = KERNELS[name]
    found, rate = moved(TARGETS[rule], composed(kernel, rule), (1, 10), metric, step_size)
    assert 0.3 < rate < 0.9  # a test without rejections would be blind to half of the mutants
    for n_steps, features in zip((1, 10), found, strict=True):
        assert_mean(*features, f"after {n_steps} steps")


@pytest.mark.slow
@needs_jax
@pytest.mark.parametrize(
    ("integrator", "build_mutant"),
    [pytest.param(name, f, id=f.__name__.strip("_")) for name, fs in COMPOSED_MUTANTS.items() for f in fs],
)
def test_the_same_test_catches_wrong_compositions(integrator, build_mutant):
    wrong = composed(Hamiltonian(integrator), "flip", build_mutant().Composed)
    assert is_seen(TARGETS["flip"], wrong, SCALES, 1.1)


# Several blocks ------------------------------------------------------------------------------------------

#: Kernels of the two continuous dimensions, the metric, what moves the sites, and when.
BLOCKS = {
    "two tuned": (Hamiltonian(), RandomWalk(), SCALES, "gradient", 2),
    "walk first": (RandomWalk(), Hamiltonian(), FACTOR, "flip", 2),
    "one of its own": (Hamiltonian("drift-kick-drift"), Hamiltonian(damping=0.5, step_size=0.8), FACTOR, "table", 2),
    "the first of its own": (RandomWalk(step_size=0.6), Hamiltonian(n_leapfrog=2), SCALES, "gradient", 2),
    "two walks": (RandomWalk(), RandomWalk(), FACTOR, "gradient", 2),
    "sites between": (Hamiltonian(), Hamiltonian("drift-kick-drift"), SCALES, "flip", 1),
}


def three(name, module_composed=Composed):
    first, second, _, rule, place = BLOCKS[name]
    blocks = [Block(first, 0, 1), Block(second, 1, 2)]
    blocks.insert(place, Block(Gibbs((TARGETS[rule].block,)), 2, 5))
    return module_composed(tuple(blocks))


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
def test_three_blocks_leave_a_skewed_target_invariant(name):
    *_, metric, rule, _ = BLOCKS[name]
    found, rate = moved(TARGETS[rule], three(name), (1, 10), metric, 1.3)
    assert 0.3 < rate < 0.95
    for n_steps, features in zip((1, 10), found, strict=True):
        assert_mean(*features, f"after {n_steps} steps")


@needs_jax
@pytest.mark.few(2)
@pytest.mark.parametrize("build_mutant", MUTANTS_OF_BLOCKS, ids=lambda f: f.__name__.strip("_"))
def test_the_same_test_catches_wrong_blocks(build_mutant):
    assert is_seen(TARGETS["flip"], three("sites between", build_mutant().Composed), SCALES, 1.3)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("numbers", [(1e-12, 1.0), (1.0, 1e-12)], ids=["first", "second"])
def test_every_block_is_judged_by_a_number_of_its_own(name, numbers):
    first, second = numbers
    density = TARGETS[BLOCKS[name][3]].density(np)
    of_second = 0 if BLOCKS[name][4] == 2 else 3  # numbers are in the order of the blocks
    noise = Noise(np.array([0.3, 0.8]), first, np.insert(NUMBERS, of_second, second))
    params = build_params(0.5, SCALES, 0.6)
    end, _ = three(name).build(np, build_path(np, density))(one_state(density), noise, BETA, params, NO_DATA)
    np.testing.assert_array_equal(end.position[:2] != X[:2], np.array(numbers) < 0.5)


@pytest.mark.parametrize("name", BLOCKS)
def test_every_block_costs_what_it_says_and_moves_its_own_dimensions(name):
    first, second, _, rule, _ = BLOCKS[name]
    kernel, target, counts = three(name), TARGETS[rule], []
    density = target.density(np)

    def counting(x):
        counts.append(x)
        return density(x)

    numbers = np.array([0.001, 0.999, 0.02, 0.001])
    noise, params = Noise(np.array([0.3, 0.8]), 1e-12, numbers), build_params(0.5, FACTOR, 0.6)
    end, _ = kernel.build(np, build_path(np, counting))(one_state(density), noise, BETA, params, NO_DATA)
    assert len(counts) == kernel.n_gradients
    assert kernel.n_gradients == sum(k.n_gradients + (not keeps_gradients(k)) for k in (first, second)) + (
        kernel.sites.n_evaluations
    )
    assert kernel.n_uniforms == 3 + 1
    assert np.all(end.position[:2] != X[:2])
    for carried, fresh in zip(end[2:], density(end.position), strict=True):
        np.testing.assert_allclose(carried, fresh, rtol=1e-15)


def test_the_leading_block_is_the_first_that_is_tuned():
    assert three("two tuned").acceptance_target == Hamiltonian.acceptance_target
    assert three("walk first").acceptance_target == RandomWalk.acceptance_target
    late = three("the first of its own")
    assert late.step_size is None
    assert late.acceptance_target == Hamiltonian.acceptance_target
    np.testing.assert_array_equal(late.persistence(0.3), Hamiltonian(n_leapfrog=2).persistence(0.3))
    assert Composed((Block(RandomWalk(), 0, 1), Block(Hamiltonian(), 1, 2))).uses_gradients
    assert not Composed((Block(RandomWalk(), 0, 1), Block(RandomWalk(), 1, 2))).uses_gradients


def test_programs_of_blocks_differ_where_their_transitions_do():
    walk, other = RandomWalk(), RandomWalk(step_size=0.5)
    kernels = [
        (Block(walk, 0, 1), Block(walk, 1, 2)),
        (Block(walk, 0, 2), Block(walk, 1, 2)),
        (Block(walk, 1, 2), Block(walk, 0, 1)),
        (Block(walk, 0, 1), Block(other, 1, 2)),
        (Block(other, 0, 1), Block(walk, 1, 2)),
        (Block(walk, 0, 1), Block(RandomWalk(step_size=0.6), 1, 2)),
        (Block(Hamiltonian(), 0, 1), Block(Hamiltonian(step_size=0.6), 1, 2)),
        (Block(Hamiltonian(), 0, 1), Block(Hamiltonian(step_size=0.6, damping=1.0), 1, 2)),
    ]
    assert len({Composed(blocks).program for blocks in kernels}) == len(kernels)


class Conditional:
    """Draw z from its conditional distribution at beta, given y: N(y, 1 / (1 + beta))."""

    step_size, n_gradients, n_uniforms, uses_gradients, keeps_gradients = 1.0, 1, 0, False, True
    program = "Conditional"

    def persistence(self, step_sizes):
        return np.ones_like(step_sizes, dtype=float)

    def build(self, xp, path, jit=identity, jit_density=None, loop=None):
        evaluate_at = build_evaluate_at(path)

        def transition(state, noise, beta, params, data):
            _, whole = data
            end = evaluate_at(whole[1:] + noise.normal / xp.sqrt(1.0 + beta), state.momentum, beta, data)
            return end, KernelInfo(1.0, False, 0.0)

        return transition


class Pair:
    """z given y is N(y, 1 / (1 + beta)), and y is N(0.4 beta, 1)."""

    def density(self, xp):
        def density(x, *data):
            z, y = x[0], x[1]
            ratio = -0.5 * (z - y) ** 2 + 0.4 * y
            gradients = xp.stack((y - z, z - 2.0 * y)), xp.stack((y - z, z - y + 0.4))
            # Of y alone, the integral over z is the same at every y.
            return -0.5 * (z - y) ** 2 - 0.5 * y**2, ratio, *gradients

        return density

    def sample(self, rng, n):
        y = 0.4 * BETA + rng.standard_normal(n)
        return np.stack([y + rng.standard_normal(n) / np.sqrt(1.0 + BETA), y], axis=1)

    def features(self, x, v):
        z, y = x.T
        return np.stack([z - y, y, (z - y) ** 2, y**2, y * (z - y), (z - y) ** 4, y**3], axis=1)

    def expected(self):
        mean, variance = 0.4 * BETA, 1.0 / (1.0 + BETA)
        return np.array([0.0, mean, variance, 1.0 + mean**2, 0.0, 3.0 * variance**2, mean**3 + 3.0 * mean])


def test_a_block_may_be_drawn_from_what_is_given():
    """Without sites; the kernel of the first block finds the other in its data."""
    kernel = Composed((Block(Conditional(), 0, 1), Block(RandomWalk(), 1, 2)))
    assert (kernel.n_sites, kernel.n_uniforms, kernel.n_gradients, kernel.step_size) == (0, 1, 2, None)
    found, rate = moved(Pair(), kernel, (1, 10), np.ones(2), 1.5)
    assert 0.3 < rate < 0.9
    for n_steps, features in zip((1, 10), found, strict=True):
        assert_mean(*features, f"after {n_steps} steps")


# One particle at a time ----------------------------------------------------------------------------------

X, V = np.array([0.1, -0.4, 1.0, 0.0, 1.0]), np.array([0.5, -1.0])
NUMBERS = np.array([0.05, 0.999, 0.02])


def one_state(density):
    return ParticleState(X, V, *density(X))


def step(target, kernel, uniform, density=None, step_size=0.5, state=None):
    density = target.density(np) if density is None else density
    transition = kernel.build(np, build_path(np, density))
    state = one_state(target.density(np)) if state is None else state
    noise, params = Noise(np.array([0.3, 0.8]), uniform, NUMBERS), build_params(step_size, SCALES, 0.6)
    with np.errstate(all="ignore"):
        return transition(state, noise, BETA, params, NO_DATA)


@pytest.mark.parametrize("uniform", [1e-12, 1.0], ids=["accepted", "rejected"])
@pytest.mark.parametrize("name", KERNELS)
def test_a_transition_costs_the_evaluations_it_says_and_carries_those_of_its_end(name, uniform):
    kernel, _, _, rule = KERNELS[name]
    target, counts = TARGETS[rule], []
    density = target.density(np)

    def counting(x):
        counts.append(x)
        return density(x)

    end, _ = step(target, composed(kernel, rule), uniform, counting)
    assert len(counts) == composed(kernel, rule).n_gradients
    assert np.array_equal(end.position[:2], X[:2]) == (uniform == 1.0)
    assert not np.array_equal(end.position[2:], X[2:])
    for carried, fresh in zip(end[2:], density(end.position), strict=True):
        np.testing.assert_allclose(carried, fresh, rtol=1e-15)


@pytest.mark.parametrize("uniform", [1e-12, 1.0], ids=["accepted", "rejected"])
@pytest.mark.parametrize("name", KERNELS)
def test_a_transition_is_one_of_the_rest_at_fixed_sites_and_then_a_sweep(name, uniform):
    kernel, _, _, rule = KERNELS[name]
    target, size = TARGETS[rule], 0.5
    density = target.density(np)

    def given_the_sites(y):
        values = density(np.concatenate([y, X[2:]]))
        return *values[:2], *(gradient[:2] for gradient in values[2:])

    first = kernel.build(np, build_path(np, given_the_sites))
    noise, params = Noise(np.array([0.3, 0.8]), uniform), build_params(size, SCALES[:2], 0.6)
    rest, rest_info = first(ParticleState(X[:2], V, *given_the_sites(X[:2])), noise, BETA, params, NO_DATA)
    position = np.concatenate([rest.position, X[2:]])
    sweep = Gibbs((target.block,)).build(np, build_path(np, density))
    state = ParticleState(position, rest.momentum, *density(position))
    expected = sweep(state, NUMBERS, BETA, build_params(size, SCALES, 0.6), NO_DATA)
    end, info = step(target, composed(kernel, rule), uniform, step_size=size)
    for one, other in zip((*end, *info), (*expected, *rest_info), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("rule", TARGETS)
@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_a_density_that_is_lost_moves_nothing(rule, bad):
    def density(x):
        return bad, bad, np.full(5, np.nan), np.full(5, np.nan)

    state = ParticleState(X, V, *density(X))
    end, info = step(TARGETS[rule], composed(Hamiltonian(), rule), 1e-12, density, state=state)
    np.testing.assert_array_equal(end.position, X)
    assert info.acceptance_rate == 0.0


def test_sites_alone_are_accepted_always():
    target = targets.boltzmann()
    kernel = in_turn(None, Gibbs((target.block,)))
    density, sites = target.density(np), np.zeros(4)
    state = ParticleState(sites, np.zeros(0), *density(sites))
    noise, params = Noise(np.zeros(0), 0.5, np.full(4, 0.9)), build_params(1.0, np.ones(4), 0.0)
    end, info = kernel.build(np, build_path(np, density))(state, noise, BETA, params, NO_DATA)
    assert (info.acceptance_rate, info.is_divergent, info.energy_error) == (1.0, False, 0.0)
    assert end.position.sum() > 0
    assert kernel.n_gradients == kernel.sites.n_evaluations == 2


# As the rest of the program sees it ----------------------------------------------------------------------


def test_it_speaks_for_its_parts():
    sites, sizes = Gibbs((TARGETS["table"].block, targets.counts().block)), np.array([0.1, 0.4])
    for part in (Hamiltonian(damping=0.7, step_size=0.3), RandomWalk()):
        kernel = in_turn(part, sites)
        for name in ("step_size", "uses_gradients", "acceptance_target"):
            assert getattr(kernel, name) == getattr(part, name)
        np.testing.assert_array_equal(kernel.persistence(sizes), part.persistence(sizes))
        assert (kernel.n_sites, kernel.n_uniforms, kernel.constraints) == (5, 3 + 4, None)


def test_sites_alone_have_no_momentum_to_keep_and_no_gradients_to_follow():
    kernel = in_turn(None, Gibbs((targets.boltzmann().block,)))
    np.testing.assert_array_equal(kernel.persistence(np.array([0.1, 0.4])), np.ones(2))
    assert not kernel.uses_gradients


def test_a_transition_counts_the_gradients_of_both_parts():
    sites = Gibbs((TARGETS["table"].block,))  # two values and two colours
    counts = {kernel: in_turn(kernel, sites).n_gradients for kernel, *_ in KERNELS.values()}
    assert sites.n_evaluations == 4
    for kernel, n in counts.items():
        renewed = getattr(kernel, "integrator", None) == "drift-kick-drift"
        assert n == kernel.n_gradients + renewed + 4


def test_gradients_are_evaluated_anew_after_a_kernel_that_does_not_say_that_it_keeps_them():
    class Unsaid:
        n_gradients = 1

    assert keeps_gradients(Hamiltonian())
    assert keeps_gradients(RandomWalk())
    assert not keeps_gradients(Hamiltonian("drift-kick-drift"))
    assert in_turn(Unsaid(), Gibbs((TARGETS["table"].block,))).n_gradients == 1 + 1 + 4


def test_programs_differ_where_a_part_does():
    parts = [None, Hamiltonian(), Hamiltonian("drift-kick-drift"), Hamiltonian(n_leapfrog=2), RandomWalk()]
    sites = [Gibbs((target.block,)) for target in TARGETS.values()]
    programs = {in_turn(part, one).program for part in parts for one in sites}
    assert len(programs) == len(parts) * len(sites)
    assert in_turn(Hamiltonian(damping=1.0), sites[0]).program == in_turn(Hamiltonian(), sites[0]).program
