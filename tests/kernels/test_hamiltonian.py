"""The persistent-momentum transition leaves pi_beta x N(0, I) invariant, and its wrong variants do not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_hais.core.records import KernelParams, Noise, ParticleState
from pymc_hais.kernels import leapfrog as leapfrog_module
from pymc_hais.kernels.hamiltonian import build_hamiltonian
from pymc_hais.kernels.leapfrog import build_leapfrog
from tests.kernels.targets import BETA, METRICS, MIX, move, observables, skewed_toy
from tests.mutants import HAMILTONIAN_MUTANTS, mutate
from tests.statistical import assert_mean, is_mean
from tests.toys import HAS_JAX, NO_DATA, build_params, build_path, evaluate
from tests.truth import Normal


def moved(metric, n_steps, build=build_hamiltonian):
    """Move exact draws; return their moments, the exact expectations, and the acceptance rate."""
    toy = skewed_toy(MIX if metric == "dense" else None)
    x, v, rate = move(toy, build, n_steps, 1.1, METRICS[metric])
    return *observables(toy, x, v), rate


@pytest.mark.parametrize("n_steps", [1, 10])
@pytest.mark.parametrize("metric", METRICS)
def test_leaves_a_skewed_target_invariant(metric, n_steps):
    values, expected, rate = moved(metric, n_steps)
    assert 0.5 < rate < 0.9  # a test without rejections would be blind to half of the mutants
    assert_mean(values, expected)


@pytest.mark.parametrize("build_mutant", HAMILTONIAN_MUTANTS, ids=lambda f: f.__name__.strip("_"))
def test_the_same_test_catches_wrong_transitions(build_mutant):
    build = build_mutant().build_hamiltonian
    runs = (moved("dense", n_steps, build) for n_steps in (1, 10))
    assert any(not is_mean(values, expected) for values, expected, _ in runs)


@pytest.mark.parametrize("metric", METRICS)
def test_the_missing_flip_shows_at_once_in_x_times_v(metric):
    build = next(f for f in HAMILTONIAN_MUTANTS if "flip" in f.__name__)().build_hamiltonian
    values, expected, _ = moved(metric, 1, build)
    position, product = slice(0, 6), slice(14, 26)
    assert is_mean(values[:, position], expected[position])
    assert not is_mean(values[:, product], expected[product])


# One particle at a time ----------------------------------------------------------------------------------


def one_state(toy, x, v):
    return ParticleState(x, v, *toy.density(np)(x))


def build_one(toy, density=None):
    density = toy.density(np) if density is None else density
    return build_hamiltonian(np, build_path(np, density))


def step(transition, state, noise, params, beta=BETA):
    with np.errstate(over="ignore", invalid="ignore"):
        return transition(state, noise, beta, params, NO_DATA)


def test_rejection_keeps_the_position_and_flips_the_refreshed_momentum():
    toy = skewed_toy()
    state = one_state(toy, np.array([0.1, -0.4]), np.array([0.5, -1.0]))
    noise = Noise(np.array([0.3, 0.8]), 1.0)  # a uniform of one rejects everything
    end, _ = step(build_one(toy), state, noise, build_params(0.9, np.ones(2), 0.6))
    np.testing.assert_array_equal(end.position, state.position)
    np.testing.assert_allclose(end.momentum, -(0.6 * state.momentum + 0.8 * noise.normal), rtol=1e-15)
    for name in ("log_reference", "log_ratio", "grad_reference", "grad_ratio"):
        np.testing.assert_array_equal(getattr(end, name), getattr(state, name))


@given(uniform=st.floats(1e-9, 1.0), step_size=st.floats(0.01, 3.0), x=st.floats(-3.0, 3.0))
def test_the_carried_densities_belong_to_the_position(uniform, step_size, x):
    toy = skewed_toy(MIX)
    state = one_state(toy, np.array([x, -0.4]), np.array([0.5, -1.0]))
    noise = Noise(np.array([0.3, 0.8]), uniform)
    end, _ = step(build_one(toy), state, noise, build_params(step_size, MIX, 0.6))
    for carried, fresh in zip(end[2:], toy.density(np)(end.position), strict=True):
        np.testing.assert_array_equal(carried, fresh)


def test_acceptance_is_the_exponential_of_minus_the_energy_error():
    toy = skewed_toy()
    state = one_state(toy, np.array([0.1, -0.4]), np.array([0.5, -1.0]))
    params = build_params(1.4, np.ones(2), 1.0)
    end, info = step(build_one(toy), state, Noise(np.zeros(2), 1e-12), params)

    def energy(s):
        return -s.log_reference - BETA * s.log_ratio + 0.5 * np.sum(s.momentum**2)

    np.testing.assert_allclose(info.energy_error, energy(end) - energy(state), atol=1e-12)
    np.testing.assert_allclose(info.acceptance_rate, min(1.0, np.exp(-info.energy_error)))


@pytest.mark.parametrize("bad", [np.nan, -np.inf, np.inf])
def test_a_non_finite_energy_is_never_accepted(bad):
    toy = skewed_toy()
    state = one_state(toy, np.array([0.1, -0.4]), np.array([0.5, -1.0]))
    broken = build_one(toy, lambda x: (toy.density(np)(x)[0], bad, np.zeros(2), np.full(2, np.nan)))
    end, info = step(broken, state, Noise(np.zeros(2), 1e-12), build_params(0.5, np.ones(2), 0.9))
    np.testing.assert_array_equal(end.position, state.position)
    assert np.isfinite(end.log_ratio)
    assert np.all(np.isfinite(end.momentum))
    assert info.acceptance_rate == 0.0


@pytest.mark.parametrize(("there", "divergent"), [(np.nan, True), (-1e9, True), (-np.inf, False), (0.0, False)])
def test_divergence_is_nan_or_a_huge_energy_error_but_not_the_edge_of_the_support(there, divergent):
    toy = skewed_toy()
    state = one_state(toy, np.array([0.1, -0.4]), np.array([0.5, -1.0]))
    transition = build_one(toy, lambda x: (toy.density(np)(x)[0], there, np.zeros(2), np.zeros(2)))
    _, info = step(transition, state, Noise(np.zeros(2), 0.5), build_params(0.1, np.ones(2), 0.9))
    assert bool(info.is_divergent) is divergent


@pytest.mark.parametrize("weightless", [-np.inf, np.nan])
def test_a_particle_of_weight_zero_does_not_count_as_divergent(weightless):
    toy = skewed_toy()
    state = one_state(toy, np.zeros(2), np.zeros(2))._replace(log_ratio=weightless)
    _, info = step(build_one(toy), state, Noise(np.ones(2), 0.5), build_params(0.1, np.ones(2), 0.9))
    assert not info.is_divergent


# Leapfrog ------------------------------------------------------------------------------------------------

toys = st.sampled_from(
    [
        skewed_toy(),
        skewed_toy(MIX),
        Normal(np.array([1.0, 3.0]), np.array([0.5, -1.0]), 0.7),
    ]
)
points = st.tuples(st.floats(-2.0, 1.5), st.floats(-2.0, 1.5)).map(np.array)
metrics = st.sampled_from([np.array([0.7, 1.3]), MIX, np.eye(2)])


def leap(toy, state, step_size, metric, beta=BETA, build=build_leapfrog):
    density = toy.density(np)
    return build(np, build_path(np, density))(state, beta, step_size, metric, NO_DATA)


@given(toy=toys, x=points, v=points, step_size=st.floats(1e-3, 0.5), metric=metrics, beta=st.floats(0.0, 1.0))
def test_leapfrog_backwards_returns(toy, x, v, step_size, metric, beta):
    start = one_state(toy, x, v)
    end = leap(toy, start, step_size, metric, beta)
    back = leap(toy, end._replace(momentum=-end.momentum), step_size, metric, beta)
    scale = 1.0 + np.abs(end.momentum).max() + np.abs(end.position).max()
    np.testing.assert_allclose(back.position, x, atol=1e-12 * scale)
    np.testing.assert_allclose(-back.momentum, v, atol=1e-11 * scale)


def energy_errors(toy, x, v, metric, sizes, build=build_leapfrog):
    start = one_state(toy, x, v)

    def energy(s):
        return -s.log_reference - BETA * s.log_ratio + 0.5 * np.sum(s.momentum**2)

    return np.array([energy(leap(toy, start, size, metric, build=build)) - energy(start) for size in sizes])


SIZES = np.array([0.01, 0.005, 0.0025])


@pytest.mark.parametrize("metric", [np.array([0.7, 1.3]), MIX], ids=["diagonal", "dense"])
@pytest.mark.parametrize("mix", [None, MIX], ids=["independent", "mixed"])
def test_the_energy_error_of_a_step_is_of_third_order(metric, mix):
    errors = energy_errors(skewed_toy(mix), np.array([0.3, -0.5]), np.array([0.8, -1.1]), metric, SIZES)
    np.testing.assert_allclose(np.diff(np.log2(np.abs(errors))), -3.0, atol=0.15)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("metric.T @ vector", "metric @ vector"),
        ("(state.grad_reference, state.grad_ratio, beta)", "(state.grad_reference, state.grad_ratio, 0.5 * beta)"),
        (
            "0.5 * step_size * pull(metric, gradient_at(grad_reference, grad_ratio, beta",
            "0.5 * step_size * pull(metric, gradient_at(grad_reference, grad_ratio, 1.0",
        ),
        ("position + time *", "position + 0.5 * time *"),
    ],
)
def test_wrong_leapfrogs_lose_the_third_order(old, new):
    build = mutate(leapfrog_module, (old, new)).build_leapfrog
    errors = energy_errors(skewed_toy(MIX), np.array([0.3, -0.5]), np.array([0.8, -1.1]), MIX, SIZES, build)
    assert np.all(np.diff(np.log2(np.abs(errors))) > -2.0)


@given(toy=toys, x=points, v=points, step_size=st.floats(1e-3, 0.5))
def test_a_diagonal_metric_is_a_dense_one_without_correlations(toy, x, v, step_size):
    scales = np.array([0.7, 1.3])
    diagonal = leap(toy, one_state(toy, x, v), step_size, scales)
    dense = leap(toy, one_state(toy, x, v), step_size, np.diag(scales))
    for a, b in zip(diagonal, dense, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@given(y=points, v=points, step_size=st.floats(1e-3, 0.5))
def test_a_metric_of_factor_L_undoes_the_change_of_variables_x_equals_L_y(y, v, step_size):
    plain, mixed = skewed_toy(), skewed_toy(MIX)
    end = leap(plain, one_state(plain, y, v), step_size, np.ones(2))
    mixed_end = leap(mixed, one_state(mixed, MIX @ y, v), step_size, MIX)
    np.testing.assert_allclose(mixed_end.position, MIX @ end.position, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(mixed_end.momentum, end.momentum, rtol=1e-9, atol=1e-9)


@pytest.mark.skipif(not HAS_JAX, reason="needs JAX")
def test_numpy_and_jax_transitions_agree_to_rounding():
    import jax.numpy as jnp

    toy = skewed_toy(MIX)
    state = evaluate(toy.density(np), np.array([[0.1, -0.4]]), np.array([[0.5, -1.0]]))
    one, noise = ParticleState(*(leaf[0] for leaf in state)), Noise(np.array([0.3, 0.8]), 0.4)
    params = KernelParams(0.7, MIX, 0.6)

    def move(xp):
        density = toy.density(xp)
        return build_hamiltonian(xp, build_path(xp, density))(one, noise, BETA, params, NO_DATA)

    results = [move(np), move(jnp)]
    for a, b in zip(*(moved_state for moved_state, _ in results), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)
