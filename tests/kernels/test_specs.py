"""Kernels as their users describe them: what is refused, what is said, what tells two programs apart."""

import math

import numpy as np
import pytest

from pymc_hais.kernels import Hamiltonian, LinearConstraints, RandomWalk


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"integrator": "verlet"}, "'verlet'.*'kick-drift-kick' or 'drift-kick-drift'"),
        ({"n_leapfrog": 0}, "n_leapfrog is 0: pass an integer"),
        ({"n_leapfrog": 1.5}, "n_leapfrog is 1.5: pass an integer"),
        ({"damping": 0.0}, "damping is 0.0: pass a positive number, or math.inf"),
        ({"step_size": "a"}, "step_size is 'a': pass a positive number, or None"),
        ({"damping": math.nan}, "damping is nan"),
        ({"step_size": -0.1}, "step_size is -0.1: pass a positive number, or None"),
        ({"step_size": math.inf}, "step_size is inf"),
        (
            {"constraints": {"mu": (0, 1)}},
            r"must be a pymc_hais.LinearConstraints, .*; got {'mu': \(0, 1\)}.*sample_hais",
        ),
    ],
)
def test_hamiltonian_refuses_what_makes_no_transition(settings, message):
    with pytest.raises(ValueError, match=message):
        Hamiltonian(**settings)


def test_a_random_walk_refuses_a_step_size_that_is_not_positive():
    with pytest.raises(ValueError, match="step_size is 0"):
        RandomWalk(step_size=0.0)
    with pytest.raises(ValueError, match=r"must be a pymc_hais.LinearConstraints, or None; got 'x'"):
        RandomWalk(constraints="x")


def test_walls_that_are_no_numbers_are_shown():
    with pytest.raises(ValueError, match=r"must be numbers .*; got 'a' and 'b'"):
        LinearConstraints("a", "b")


def test_momentum_power_decays_in_simulation_time():
    sizes = np.array([0.2, 0.5])
    kept = Hamiltonian(n_leapfrog=3, damping=math.log(2.0)).persistence(sizes)
    np.testing.assert_allclose(kept**2, 2.0 ** -(3 * sizes), rtol=1e-14)  # half a unit of time


@pytest.mark.parametrize("sizes", [np.array([0.0, 0.3]), 0.3])
def test_infinite_damping_renews_the_momentum(sizes):
    np.testing.assert_array_equal(Hamiltonian(damping=math.inf).persistence(sizes), np.zeros(np.shape(sizes)))


def test_programs_differ_where_the_machine_code_does():
    box, other = LinearConstraints.box(0.0, [1.0, np.inf]), LinearConstraints.box(0.0, [2.0, np.inf])
    kernels = [Hamiltonian(), Hamiltonian("drift-kick-drift"), Hamiltonian(n_leapfrog=2), RandomWalk()]
    kernels += [kernel(constraints=region) for kernel in (Hamiltonian, RandomWalk) for region in (box, other)]
    assert len({kernel.program for kernel in kernels}) == len(kernels)
    assert Hamiltonian(damping=1.0, step_size=0.1).program == Hamiltonian().program
    assert RandomWalk(step_size=0.1).program == RandomWalk().program
    assert Hamiltonian(constraints=box) == Hamiltonian(constraints=LinearConstraints.box(0.0, [1.0, np.inf]))
    assert Hamiltonian(constraints=box) != Hamiltonian(constraints=other)
    assert hash(box) != hash(other)


# Constraints ---------------------------------------------------------------------------------------------


def test_a_box_has_a_constraint_for_each_finite_bound():
    box = LinearConstraints.box([0.0, -np.inf, -1.0], [np.inf, 2.0, 1.0])
    assert box.normals.shape == (4, 3)
    positions = np.array([[0.5, 1.0, 0.0], [-0.1, 1.0, 0.0], [0.5, 2.1, 0.0], [0.5, 1.0, 1.1], [0.5, 1.0, -1.1]])
    np.testing.assert_array_equal(box.contains(positions), [True, False, False, False, False])


@pytest.mark.parametrize(
    ("normals", "bounds", "message"),
    [
        (np.ones((2, 3)), np.ones(3), r"pass \(m, D\) and \(m,\)"),
        (np.ones(3), np.ones(1), r"pass \(m, D\) and \(m,\)"),
        (np.ones((0, 3)), np.ones(0), "m >= 1"),
        (np.ones((1, 2)), [np.inf], "leave out those that bind nothing"),
        ([[1.0, 0.0], [0.0, 0.0]], np.ones(2), "pass the direction"),
    ],
)
def test_constraints_refuse_what_bounds_nothing(normals, bounds, message):
    with pytest.raises(ValueError, match=message):
        LinearConstraints(normals, bounds)


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        (-np.inf, [np.inf, np.inf], "has no finite bound"),
        (1.0, [0.0, 2.0], "lower < upper"),
        (np.nan, [0.0, 2.0], "lower < upper"),
        (np.zeros((2, 2)), 1.0, r"vectors \(D,\)"),
        ("a", "b", "`lower` and `upper` must be numbers or vectors .*; got 'a' and 'b'"),
    ],
)
def test_a_box_refuses_what_is_no_box(lower, upper, message):
    with pytest.raises(ValueError, match=message):
        LinearConstraints.box(lower, upper)


@pytest.mark.parametrize("positions", [np.zeros(3), np.zeros((4, 3)), 0.0])
def test_positions_have_the_dimensions_of_the_constraints(positions):
    with pytest.raises(ValueError, match=r"`positions` must have shape \(P, 2\), .*; got shape \("):
        LinearConstraints.box([0.0, 0.0], 1.0).contains(positions)


def test_constraints_keep_a_copy_that_nobody_changes():
    normals = np.eye(2)
    region = LinearConstraints(normals, np.ones(2))
    normals[0, 0] = 5.0
    assert region.normals[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        region.bounds[0] = 2.0
