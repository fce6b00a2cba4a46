"""Walls: reflection stays inside, keeps speed, can be undone, and leaves truncated targets invariant."""

from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pymc_hais.core.records import Noise, ParticleState
from pymc_hais.kernels import Hamiltonian, LinearConstraints, RandomWalk
from pymc_hais.kernels.leapfrog import build_metric
from pymc_hais.kernels.reflection import build_reflecting_drift
from tests.kernels.targets import BETA, Truncated, is_seen, move, needs_jax, observables
from tests.mutants import (
    REFLECTION_MUTANTS,
    mirrored_at_each_wall_once,
    of_reflection,
    walk_that_ignores_the_walls,
)
from tests.statistical import assert_mean
from tests.toys import NO_DATA, build_params, build_path

TWO = np.array([2.0, 1.0]), np.array([1.0, 3.0]), np.array([-1.5, 2.0])
#: Its walls meet at 29 degrees.
ACUTE = np.array([[1.0, 0.9], [0.0, 0.5]])
TARGETS = {
    "box": Truncated(*TWO, np.array([0.0, -0.5]), np.array([0.9, np.inf]), np.eye(2)),
    "wedge": Truncated(*TWO, np.zeros(2), np.full(2, np.inf), ACUTE),
}
ONE_BOUNCE = ("max(32, 4 * len(constraints.bounds))", "1")
METRICS = {"box": np.array([0.4, 0.7]), "wedge": np.array([[0.5, 0.0], [0.1, 0.2]])}


def region(toy):
    """Return lower <= mix^-1 x <= upper as constraints."""
    inverse, box = np.linalg.inv(toy.mix), LinearConstraints.box(toy.lower, toy.upper)
    return LinearConstraints(box.normals @ inverse, box.bounds)


KERNELS = {
    "kick-drift-kick": (Hamiltonian, 1.4),
    "drift-kick-drift-twice": (partial(Hamiltonian, "drift-kick-drift", 2), 1.1),
    "random-walk": (RandomWalk, 1.0),
}


@pytest.mark.every(3)
@pytest.mark.slow
@pytest.mark.parametrize("n_steps", [1, 10])
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("target", TARGETS)
def test_leaves_a_truncated_target_invariant(target, name, n_steps):
    toy, (kernel, step_size) = TARGETS[target], KERNELS[name]
    walls = region(toy)
    x, v, rate = move(toy, kernel(constraints=walls).build, n_steps, step_size, METRICS[target])
    assert 0.3 < rate < 0.97
    assert np.all(x @ walls.normals.T <= walls.bounds + 1e-12)
    assert_mean(*observables(toy, x, v))


@needs_jax
@pytest.mark.parametrize("build_mutant", REFLECTION_MUTANTS, ids=lambda f: f.__name__.strip("_"))
def test_a_wrong_reflection_is_seen(build_mutant):
    toy = TARGETS["wedge"]
    build = partial(build_mutant().build_hamiltonian, constraints=region(toy))
    assert is_seen(toy, build, 1.4, METRICS["wedge"])


@needs_jax
def test_mirroring_the_end_is_wrong_in_a_corner():
    toy = TARGETS["wedge"]
    build = partial(mirrored_at_each_wall_once().build_hamiltonian, constraints=region(toy))
    assert is_seen(toy, build, 1.4, METRICS["wedge"])


@needs_jax
def test_a_random_walk_through_the_walls_is_seen():
    toy = TARGETS["wedge"]
    walk = walk_that_ignores_the_walls().RandomWalk(constraints=region(toy))
    assert is_seen(toy, walk.build, 1.0, METRICS["wedge"])


@pytest.mark.parametrize("n_steps", [1, 10])
def test_rejecting_what_bounces_too_often_is_invariant_too(n_steps):
    toy = TARGETS["wedge"]
    build = partial(of_reflection(ONE_BOUNCE).build_hamiltonian, constraints=region(toy))
    x, v, _ = move(toy, build, n_steps, 1.4, METRICS["wedge"])
    assert_mean(*observables(toy, x, v))


@needs_jax
def test_stopping_what_bounces_too_often_is_seen():
    toy = TARGETS["wedge"]
    module = of_reflection(ONE_BOUNCE, ("xp.nan, 1.0", "1.0, 1.0"))
    assert is_seen(toy, partial(module.build_hamiltonian, constraints=region(toy)), 1.4, METRICS["wedge"])


def test_a_particle_caught_between_narrow_walls_is_rejected_as_divergent():
    walls = LinearConstraints.box(-1e-4, [1e-4])
    transition = Hamiltonian(constraints=walls).build(
        np, build_path(np, lambda x: (0.0, 0.0, np.zeros(1), np.zeros(1)))
    )
    state = ParticleState(np.zeros(1), np.ones(1), 0.0, 0.0, np.zeros(1), np.zeros(1))
    end, info = transition(state, Noise(np.zeros(1), 0.1), BETA, build_params(1.0, np.ones(1), 1.0), NO_DATA)
    assert info.acceptance_rate == 0.0
    assert info.is_divergent
    np.testing.assert_array_equal(end.position, state.position)
    np.testing.assert_array_equal(end.momentum, -state.momentum)


# One drift at a time -------------------------------------------------------------------------------------


def drift(walls, x, v, time, metric):
    return build_reflecting_drift(np, walls, *build_metric())(x, v, time, metric)


@st.composite
def flights(draw):
    """Draw a polytope around a start, a momentum, a metric and a time."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_dims, n_walls = draw(st.integers(1, 4)), draw(st.integers(1, 7))
    x = rng.normal(size=n_dims)
    normals = rng.normal(size=(n_walls, n_dims)) * rng.uniform(0.1, 5.0, size=(n_walls, 1))
    walls = LinearConstraints(normals, normals @ x + rng.uniform(0.0, 1.0, size=n_walls))
    if draw(st.booleans()):
        lower = x - rng.uniform(0.05, 1.0, size=n_dims)
        walls = LinearConstraints.box(lower, lower + 1.1)
    factor = np.tril(rng.normal(size=(n_dims, n_dims))) + 1.5 * np.eye(n_dims)
    metric = draw(st.sampled_from([factor, np.exp(rng.normal(size=n_dims))]))
    return walls, x, rng.normal(size=n_dims), draw(st.floats(0.0, 3.0)), metric


@given(flight=flights())
def test_a_drift_stays_inside_keeps_its_speed_and_returns_backwards(flight):
    walls, x, v, time, metric = flight
    end, momentum = drift(walls, x, v, time, metric)
    assume(np.all(np.isfinite(momentum)))
    scale = 1.0 + np.abs(walls.normals).max() * (np.abs(end).max() + np.abs(x).max())
    assert np.all(walls.normals @ end <= walls.bounds + 1e-13 * scale)
    np.testing.assert_allclose(np.linalg.norm(momentum), np.linalg.norm(v), rtol=1e-12)
    back, reversed_momentum = drift(walls, end, -momentum, time, metric)
    np.testing.assert_allclose(back, x, atol=1e-9)
    np.testing.assert_allclose(-reversed_momentum, v, atol=1e-9)


@given(x=st.floats(-1.0, 0.49), v=st.floats(-3.0, 3.0), time=st.floats(0.0, 1.0))
def test_at_one_wall_the_drift_is_the_papers(x, v, time):
    walls, scales = LinearConstraints([[0.0, 2.0]], [1.0]), np.array([0.7, 1.3])
    end, momentum = drift(walls, np.array([3.0, x]), np.array([-1.0, v]), time, scales)
    free = x + time * 1.3 * v
    mirrored, negated = (1.0 - free, -v) if free > 0.5 else (free, v)
    np.testing.assert_allclose(end, [3.0 - 0.7 * time, mirrored], atol=1e-13)
    np.testing.assert_allclose(momentum, [-1.0, negated], atol=1e-13)


def test_a_corner_of_an_acute_wedge_turns_the_particle_around_by_its_images():
    # The wedge of 30 degrees has 12 images around the corner: unfolding them makes the path straight, so that
    # the distance from the corner is that of the straight line.
    angle = np.pi / 6
    walls = LinearConstraints([[0.0, -1.0], [-np.sin(angle), np.cos(angle)]], [0.0, 0.0])
    x, v = np.array([1.0, 0.3]), np.array([-1.0, -0.2])
    for time in (0.5, 1.0, 2.0, 5.0):
        end, momentum = drift(walls, x, v, time, np.ones(2))
        np.testing.assert_allclose(np.linalg.norm(end), np.linalg.norm(x + time * v), rtol=1e-12)
        assert np.all(walls.normals @ end <= 1e-12)
        np.testing.assert_allclose(np.linalg.norm(momentum), np.linalg.norm(v), rtol=1e-14)


@given(v=st.floats(0.1, 3.0), time=st.floats(1e-3, 2.0))
def test_a_particle_on_the_wall_leaves_it_once(v, time):
    walls = LinearConstraints.box(-np.inf, [1.0])
    for direction in (v, -v):  # both end at the same place: the first turns around at once
        end, momentum = drift(walls, np.ones(1), np.array([direction]), time, np.ones(1))
        np.testing.assert_allclose(end, 1.0 - time * v, atol=1e-13)
        np.testing.assert_allclose(momentum, -v)
