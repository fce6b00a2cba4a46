"""The other integrator, several leapfrog steps and the random walk: invariant, and their wrong variants not."""

from functools import partial

import numpy as np
import pytest

from pymc_hais.core.records import Noise, ParticleState
from pymc_hais.kernels import Hamiltonian, RandomWalk, leapfrog
from pymc_hais.kernels.hamiltonian import build_hamiltonian
from pymc_hais.kernels.leapfrog import build_leapfrog
from tests.kernels.targets import BETA, METRICS, MIX, is_seen, move, needs_jax, observables, skewed_toy
from tests.mutants import DRIFT_KICK_DRIFT_MUTANTS, HAMILTONIAN_MUTANTS, RANDOM_WALK_MUTANTS, mutate
from tests.statistical import assert_mean
from tests.toys import NO_DATA, build_params, build_path

TOY = skewed_toy(MIX)
DRIFT_KICK_DRIFT = "drift-kick-drift"
#: Kernels with a step size that rejects now and then.
KERNELS = {
    "drift-kick-drift": (Hamiltonian(DRIFT_KICK_DRIFT), 1.2),
    "drift-kick-drift-twice": (Hamiltonian(DRIFT_KICK_DRIFT, n_leapfrog=2), 1.2),
    "kick-drift-kick-thrice": (Hamiltonian(n_leapfrog=3), 1.1),
    "random-walk": (RandomWalk(), 1.5),
}


@pytest.mark.every(2)
@pytest.mark.few(3)
@pytest.mark.parametrize("n_steps", [1, 10])
@pytest.mark.parametrize("name", KERNELS)
def test_leaves_a_skewed_target_invariant(name, n_steps):
    kernel, step_size = KERNELS[name]
    x, v, rate = move(TOY, kernel.build, n_steps, step_size, METRICS["dense"])
    assert 0.3 < rate < 0.9  # a test without rejections would be blind to half of the mutants
    assert_mean(*observables(TOY, x, v))


def named(mutants):
    return pytest.mark.parametrize("build_mutant", mutants, ids=lambda f: f.__name__.strip("_"))


@needs_jax
@named(DRIFT_KICK_DRIFT_MUTANTS)
def test_a_wrong_drift_kick_drift_is_seen(build_mutant):
    build = partial(build_mutant().build_hamiltonian, integrator=DRIFT_KICK_DRIFT, n_leapfrog=2)
    assert is_seen(TOY, build, 1.2, METRICS["dense"])


@needs_jax
@named([mutant for mutant in HAMILTONIAN_MUTANTS if "half_kick" in mutant.__name__])
def test_a_wrong_step_among_three_is_seen(build_mutant):
    assert is_seen(TOY, partial(build_mutant().build_hamiltonian, n_leapfrog=3), 1.1, METRICS["dense"])


@needs_jax
@named(RANDOM_WALK_MUTANTS)
def test_a_wrong_random_walk_is_seen(build_mutant):
    assert is_seen(TOY, build_mutant().RandomWalk().build, 1.5, METRICS["dense"])


# One particle at a time ----------------------------------------------------------------------------------


def one_state(x=(0.1, -0.4), v=(0.5, -1.0)):
    return ParticleState(np.array(x), np.array(v), *TOY.density(np)(np.array(x)))


def counting(counts):
    density = TOY.density(np)

    def counted(x):
        counts.append(x)
        return density(x)

    return build_path(np, counted)


@pytest.mark.parametrize(
    "kernel",
    [
        RandomWalk(),
        *(Hamiltonian(name, n) for name in ("kick-drift-kick", DRIFT_KICK_DRIFT) for n in (1, 3)),
    ],
)
def test_a_transition_costs_the_evaluations_it_says_and_carries_those_of_its_end(kernel):
    counts = []
    transition = kernel.build(np, counting(counts))
    noise = Noise(np.array([0.3, 0.8]), 1e-12)
    end, info = transition(one_state(), noise, BETA, build_params(0.2, MIX, 0.6), NO_DATA)
    assert len(counts) == kernel.n_gradients
    assert info.acceptance_rate > 0.0
    assert not np.array_equal(end.position, one_state().position)
    energies, gradients = slice(2, 4), slice(4, 6)
    evaluated = ParticleState(*end[:2], *TOY.density(np)(end.position))
    np.testing.assert_array_equal(end[energies], evaluated[energies])
    # A drift-kick-drift step reads gradients midway only, and need not work them out at its end.
    keeps_gradients = getattr(kernel, "integrator", "") == DRIFT_KICK_DRIFT
    np.testing.assert_array_equal(end[gradients], (one_state() if keeps_gradients else evaluated)[gradients])


def leap(state, step_size, **settings):
    density = TOY.density(np)
    return build_leapfrog(np, build_path(np, density), **settings)(state, BETA, step_size, MIX, NO_DATA)


@pytest.mark.parametrize("integrator", ["kick-drift-kick", DRIFT_KICK_DRIFT])
def test_three_leapfrog_steps_are_one_thrice_and_return_backwards(integrator):
    end = thrice = one_state()
    for _ in range(3):
        end = leap(end, 0.3, integrator=integrator)
    thrice = leap(thrice, 0.3, integrator=integrator, n_leapfrog=3)
    for one, other in zip(end, thrice, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    back = leap(thrice._replace(momentum=-thrice.momentum), 0.3, integrator=integrator, n_leapfrog=3)
    np.testing.assert_allclose(back.position, one_state().position, rtol=1e-12)
    np.testing.assert_allclose(-back.momentum, one_state().momentum, rtol=1e-12)


def test_drift_kick_drift_is_written_as_in_the_paper():
    state, density, eps = one_state(), TOY.density(np), 0.3
    half = state.position + eps / 2 * MIX @ state.momentum
    _, _, of_reference, of_ratio = density(half)
    momentum = state.momentum + eps * MIX.T @ (of_reference + BETA * of_ratio)
    end = leap(state, eps, integrator=DRIFT_KICK_DRIFT)
    np.testing.assert_allclose(end.momentum, momentum, rtol=1e-14)
    np.testing.assert_allclose(end.position, half + eps / 2 * MIX @ momentum, rtol=1e-14)


def energy(state):
    return -state.log_reference - BETA * state.log_ratio + 0.5 * np.sum(state.momentum**2)


def energy_orders(build, **settings):
    """Return the exponents at which the energy error of one step grows with its size."""
    density = TOY.density(np)
    step = build(np, build_path(np, density), **settings)
    sizes = np.array([0.01, 0.005, 0.0025])
    errors = [energy(step(one_state(), BETA, size, MIX, NO_DATA)) - energy(one_state()) for size in sizes]
    return -np.diff(np.log2(np.abs(errors)))


def test_the_energy_error_of_drift_kick_drift_is_of_third_order():
    np.testing.assert_allclose(energy_orders(build_leapfrog, integrator=DRIFT_KICK_DRIFT), 3.0, atol=0.15)


def test_a_gradient_of_the_wrong_beta_in_drift_kick_drift_loses_the_third_order():
    wrong = mutate(
        leapfrog,
        (
            "+ step_size * pull(metric, gradient_at(grad_reference, grad_ratio, beta",
            "+ step_size * pull(metric, gradient_at(grad_reference, grad_ratio, 1.0",
        ),
    )
    assert np.all(energy_orders(wrong.build_leapfrog, integrator=DRIFT_KICK_DRIFT) < 2.0)


def test_a_random_walk_rejected_stays_and_keeps_its_momentum():
    density = TOY.density(np)
    transition = RandomWalk().build(np, build_path(np, density))
    end, _ = transition(one_state(), Noise(np.array([0.3, 0.8]), 1.0), BETA, build_params(0.9, MIX, 0.6), NO_DATA)
    for kept, before in zip(end, one_state(), strict=True):
        np.testing.assert_array_equal(kept, before)


def test_a_random_walk_into_the_desert_is_rejected_but_no_divergence():
    density = TOY.density(np)
    transition = RandomWalk().build(np, build_path(np, density))
    noise = Noise(np.array([1.0, 0.0]), 0.5)
    _, info = transition(one_state(), noise, BETA, build_params(9.0, np.ones(2), 0.6), NO_DATA)
    assert info.energy_error > 2000.0
    assert not info.is_divergent


def test_build_hamiltonian_builds_the_default_kernel():
    density = TOY.density(np)
    noise, params = Noise(np.array([0.3, 0.8]), 0.4), build_params(0.7, MIX, 0.6)
    ends = [
        build(np, build_path(np, density))(one_state(), noise, BETA, params, NO_DATA)[0]
        for build in (build_hamiltonian, Hamiltonian().build)
    ]
    for one, other in zip(*ends, strict=True):
        np.testing.assert_array_equal(one, other)
