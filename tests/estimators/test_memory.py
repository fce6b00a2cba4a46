"""Particles that lie too close together are found, in any direction, and nothing else is: on numbers."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import logsumexp

import pymc_hais
from pymc_hais.estimators import memory
from pymc_hais.estimators.memory import NO_LAG, find_lag
from pymc_hais.results.findings.particles import check_lag
from tests.runs import build_run, still


def run_of(x, log_weights=None, ancestors=None):
    """Build a run that ended at positions (C, P, D)."""
    state = still(*x.shape)._replace(position=x)
    return build_run(np.zeros(x.shape[:2]) if log_weights is None else log_weights, ancestors=ancestors, state=state)


def look(x, target, gradient=None, **options):
    """Find the lag of positions (C, P, D) behind a target; without a gradient, blindly."""
    calls = []

    def evaluate(positions):
        calls.append(positions)
        return target(positions)

    found = find_lag(run_of(x, **options), evaluate, None if gradient is None else gradient(x))
    return found, len(calls)


def normal(sd):
    """Build the log density and the gradient of independent normals, up to a constant."""
    precision = np.asarray(sd, dtype=float) ** -2
    return (lambda x: -0.5 * np.sum(precision * x**2, axis=-1)), (lambda x: -precision * x)


def rotation(n_dims, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n_dims, n_dims)))[0]


@pytest.mark.parametrize("is_blind", [False, True])
@pytest.mark.parametrize("sd", [0.3, 0.5, 0.65])
def test_the_share_of_the_variance_in_a_direction_that_is_no_coordinate(sd, is_blind):
    n_dims, basis = 12, rotation(12)
    along = np.geomspace(0.2, 8.0, n_dims)
    density, slope = normal(along)
    behind = np.where(np.arange(n_dims) == n_dims - 1, sd, 1.0)
    x = np.random.default_rng(1).standard_normal((4, 500, n_dims)) * along * behind @ basis
    gradient = None if is_blind else (lambda x: slope(x @ basis.T) @ basis)
    found, _ = look(x, lambda x: density(x @ basis.T), gradient)
    # The axes mix it with its neighbours, which do not lag.
    assert sd**2 < found.share < min(0.5, sd**2 + 0.15)
    assert found.up > found.down


@pytest.mark.parametrize("is_blind", [False, True])
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("wider", [1.0, 3.0])
def test_particles_as_wide_as_the_target_or_wider_are_left_alone(wider, seed, is_blind):
    density, gradient = normal(np.geomspace(1.0, 100.0, 10))
    x = wider * np.geomspace(1.0, 100.0, 10) * np.random.default_rng(seed).standard_normal((2, 250, 10))
    assert look(x, density, None if is_blind else gradient)[0] == NO_LAG


def test_nothing_is_evaluated_where_gradients_do_not_point():
    density, gradient = normal(np.ones(300))
    x = np.random.default_rng(0).standard_normal((4, 1000, 300))
    assert look(x, density, gradient) == (NO_LAG, 0)
    x[..., 7] *= 0.4
    found, n_calls = look(x, density, gradient)
    assert found.share == pytest.approx(0.16, rel=0.2)
    assert 3 <= n_calls <= 9


def test_heavy_tails_of_the_target_are_no_lag():
    x = np.random.default_rng(0).standard_cauchy((4, 1000, 5))
    density, gradient = (lambda x: -np.log1p(x**2).sum(axis=-1)), (lambda x: -2.0 * x / (1.0 + x**2))
    assert look(x, density, gradient)[0] == NO_LAG
    assert look(x, density)[0] == NO_LAG


def test_hard_edges_have_no_gradient_and_are_no_lag():
    def inside(x):
        return np.where(np.all((x > 0.0) & (x < 1.0), axis=-1), 0.0, -np.inf)

    x = np.random.default_rng(0).random((4, 500, 3))
    found, n_calls = look(x, inside, np.zeros_like)
    assert found == NO_LAG
    assert n_calls > 0  # Stein's identity suspects them, balance does not
    assert look(0.25 + 0.25 * x, inside, np.zeros_like)[0].share < 0.5


def test_weights_do_not_count_but_dead_particles_and_odd_numbers_are_left_out():
    """The particles are too close together also where their weights make up for it as well as they can."""
    density, gradient = normal(np.ones(2))
    x = 0.5 * np.random.default_rng(0).standard_normal((4, 500, 2))
    mended = density(x) - 4.0 * density(x)
    found, _ = look(x, density, gradient, log_weights=mended)
    assert found.share == pytest.approx(0.25, rel=0.2)
    dead = np.zeros((4, 500))
    dead[:, ::10] = -np.inf
    spoilt = np.where(np.isinf(dead)[..., None], 1e9, x)
    found, _ = look(spoilt, density, gradient, log_weights=dead - logsumexp(dead, axis=1, keepdims=True))
    assert found.share == pytest.approx(0.25, rel=0.25)
    constant = np.concatenate([x, np.full((4, 500, 1), 3.0)], axis=-1)
    density, gradient = normal(np.ones(3))
    assert look(constant, density, gradient)[0].share == pytest.approx(0.25, rel=0.25)


def test_copies_of_few_ancestors_are_no_evidence():
    """Ten families of fifty copies each: their spread is that of ten numbers."""
    density, gradient = normal(np.ones(1))
    x = np.repeat(0.6 * np.random.default_rng(3).standard_normal((1, 10, 1)), 50, axis=1)
    ancestors = np.repeat(np.arange(10), 50)[None]
    assert look(x, density, gradient, ancestors=ancestors)[0] == NO_LAG


def test_the_table_of_normal_shares():
    shares, imbalances = memory._of_normal()
    assert np.all(np.diff(imbalances) < 0.0)
    assert imbalances[-1] == pytest.approx(0.0, abs=1e-3)  # balance
    assert memory._share(float(imbalances[20])) == pytest.approx(shares[20])
    assert memory._share(-1.0) == 1.0


@pytest.mark.parametrize(("share", "severity"), [(0.5, None), (0.49, "warning"), (0.41, "warning"), (0.39, "error")])
def test_how_severe_it_is(share, severity):
    found = list(check_lag(NO_LAG._replace(share=share, up=0.9, down=0.7)))
    assert [one.severity for one in found] == ([severity] if severity else [])
    for one in found:
        assert one.name == "underdispersion"
        assert all(said in one.message for said in (f"{share:.0%}", "90%", "70%"))
        assert all(said in one.advice for said in ("n_temperatures", "default", 'reference="fitted"'))


def stretched(n_dims=20, condition=35.0):
    """Build Laplace experts in a basis stretched by the condition number, with the exact log Z."""
    basis = rotation(n_dims, 1) * np.geomspace(4.75, 4.75 / condition, n_dims) @ rotation(n_dims, 2)
    with pm.Model() as model:
        x = pm.Flat("x", shape=n_dims)
        pm.Potential("experts", -pt.abs(pt.dot(basis, x)).sum())
    return model, n_dims * np.log(2.0) - np.linalg.slogdet(basis)[1]


def memory_of(idata):
    estimate = pymc_hais.log_marginal_likelihood(idata)
    return estimate, [finding.severity for finding in estimate.findings if finding.name == "underdispersion"]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [pymc_hais.RandomWalk(step_size=0.1), None])
def test_moves_that_are_too_slow_for_a_stretched_target_are_reported_and_the_default_is_not(kernel):
    """The widest directions open in the last hundredth of linear betas; there is no other round to compare with."""
    model, exact = stretched()
    fixed = pymc_hais.paper_settings(500)
    fixed |= {"kernel": kernel} if kernel else {}
    options = {"model": model, "random_seed": 1, "progressbar": False}
    estimate, found = memory_of(pymc_hais.sample_hais(200, reference="gaussian", **fixed, **options))
    assert found == ["error"]
    if kernel is None:
        estimate, found = memory_of(pymc_hais.sample_hais(500, **options))
        assert found == []
        assert abs(estimate.value - exact) <= 4.0 * estimate.se
