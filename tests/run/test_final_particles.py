"""The final particles of a run become draws of the target: those that count, with their weights over all chains."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pymc_hais.density import Layout
from pymc_hais.kernels import Hamiltonian, LinearConstraints, RandomWalk
from pymc_hais.run.final_particles import measure
from pymc_hais.runner.ledger import DIAGNOSIS
from tests.runs import build_run, call_of, still

LAYOUT = Layout(("a", "b"), ("a", "b"), ((2,), ()), ("", "circular"))


def problem_of(kernel, n_evaluations=0):
    def start(positions, inputs, keys):
        log_density = -0.5 * np.sum(positions**2, axis=-1)
        return still(*positions.shape)._replace(log_ratio=log_density, grad_ratio=-positions)

    path = SimpleNamespace(n_evaluations=n_evaluations)
    engine = SimpleNamespace(kernel=kernel, path=path, start=start, grain=lambda n: 1)
    return SimpleNamespace(engine=engine, layout=LAYOUT, inputs=lambda rows: [])


def run_of(x, log_weights, **options):
    return build_run(log_weights, state=still(*x.shape)._replace(position=x, grad_ratio=-x), **options)


def test_particles_without_weight_or_position_are_left_out():
    x, log_weights = np.random.default_rng(0).normal(size=(2, 5, 3)), np.zeros((2, 5))
    log_weights[0, 1], x[0, 1], x[1, 2, 0] = -np.inf, 1e9, np.nan
    run = run_of(x, log_weights, log_z=np.log([1.0, 3.0]))
    draws = measure(lambda draws: draws, problem_of(Hamiltonian()), run, call_of())
    kept = [0, 2, 3, 4, 5, 6, 8, 9]
    weights = np.r_[np.full(4, 0.25 / 4.0), np.full(4, 0.75 / 5.0)]
    np.testing.assert_array_equal(draws.positions, x.reshape(10, 3)[kept])
    np.testing.assert_array_equal(draws.families, kept)
    np.testing.assert_array_equal(draws.slopes, -draws.positions)
    np.testing.assert_allclose(draws.weights, weights / weights.sum())
    np.testing.assert_allclose(draws.log_density(draws.positions), -0.5 * np.sum(draws.positions**2, axis=1))
    assert draws.blocks.tolist() == [0, 0, -1]


def test_gradients_are_those_of_the_kernel_or_evaluated_anew():
    x = np.random.default_rng(0).normal(size=(2, 5, 3))
    run = run_of(x, np.zeros((2, 5)))
    stale = replace(run, state=run.state._replace(grad_ratio=np.zeros_like(x)))
    forgetful = SimpleNamespace(uses_gradients=True, constraints=None, n_sites=0)
    runner = call_of()
    draws = measure(lambda draws: draws, problem_of(forgetful), stale, runner)
    np.testing.assert_array_equal(draws.slopes, -x.reshape(10, 3))
    draws.log_density(x[0])
    assert runner.ledger.gradients == {DIAGNOSIS: 10 + 5}
    assert measure(lambda draws: draws.slopes, problem_of(RandomWalk()), run, call_of()) is None


def test_the_density_is_zero_outside_of_constraints():
    kernel = Hamiltonian(constraints=LinearConstraints(np.eye(3), np.ones(3)))
    run = run_of(np.zeros((1, 5, 3)), np.zeros((1, 5)))
    log_density = measure(lambda draws: draws.log_density, problem_of(kernel), run, call_of())
    assert log_density(np.array([[0.0, 0.0, 0.0], [0.0, 2.0, 0.0]])).tolist() == [0.0, -np.inf]


@pytest.mark.parametrize("reason", ["a path of its own", "no particle with a weight", "discrete sites"])
def test_what_cannot_be_compared_with_the_density_is_not(reason):
    kernel = SimpleNamespace(uses_gradients=True, n_sites=1) if reason == "discrete sites" else Hamiltonian()
    log_z = np.full(2, -np.inf) if reason == "no particle with a weight" else np.zeros(2)
    run = run_of(np.zeros((2, 5, 3)), np.zeros((2, 5)), log_z=log_z)
    assert measure(lambda draws: draws, problem_of(kernel, int(reason == "a path of its own")), run, call_of()) is None
