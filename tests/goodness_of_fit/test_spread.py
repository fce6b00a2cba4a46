"""Particles that lie too close together are found, in any direction, and nothing else is: on numbers."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.stats import norm

import pymc_hais
from pymc_hais.core.weights import normalise
from pymc_hais.goodness_of_fit import spread
from pymc_hais.goodness_of_fit.draws import Draws
from pymc_hais.goodness_of_fit.spread import Lag, find_lag
from pymc_hais.results.findings.particles import check_lag


def draws_of(x, density, gradient=None, blocks=None, log_weights=None, families=None):
    """Build draws (n, D), and the list of the positions at which their density is evaluated."""
    calls, n = [], len(x)

    def evaluate(positions):
        calls.append(positions)
        return density(positions)

    weights = np.full(n, 1.0 / n) if log_weights is None else np.exp(normalise(log_weights))
    families = np.arange(n) if families is None else families
    blocks = np.arange(x.shape[1]) if blocks is None else blocks
    return Draws(x, weights, families, evaluate, None if gradient is None else gradient(x), blocks), calls


def look(*draws, **options):
    """Find the lag of draws behind a target; without a gradient, blindly.  Return the number of evaluations too."""
    draws, calls = draws_of(*draws, **options)
    return find_lag(draws), len(calls)


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
    x = np.random.default_rng(1).standard_normal((2000, n_dims)) * along * behind @ basis
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
    x = wider * np.geomspace(1.0, 100.0, 10) * np.random.default_rng(seed).standard_normal((500, 10))
    assert look(x, density, None if is_blind else gradient)[0] is None


def test_nothing_is_evaluated_where_gradients_do_not_point():
    density, gradient = normal(np.ones(100))
    x = np.random.default_rng(0).standard_normal((4000, 100))
    assert look(x, density, gradient) == (None, 0)
    x[..., 7] *= 0.4
    found, n_calls = look(x, density, gradient)
    assert found.share == pytest.approx(0.16, rel=0.2)
    assert 3 <= n_calls <= 9


def test_heavy_tails_of_the_target_are_no_lag():
    x = np.random.default_rng(0).standard_cauchy((4000, 5))
    density, gradient = (lambda x: -np.log1p(x**2).sum(axis=-1)), (lambda x: -2.0 * x / (1.0 + x**2))
    assert look(x, density, gradient)[0] is None
    assert look(x, density)[0] is None


def test_hard_edges_have_no_gradient_and_are_no_lag():
    def inside(x):
        return np.where(np.all((x > 0.0) & (x < 1.0), axis=-1), 0.0, -np.inf)

    x = np.random.default_rng(0).random((2000, 3))
    found, n_calls = look(x, inside, np.zeros_like)
    assert found is None
    assert n_calls > 0  # Stein's identity suspects them, balance does not
    assert look(0.25 + 0.25 * x, inside, np.zeros_like)[0].share < 0.5


def test_weights_do_not_count_but_X_and_odd_numbers_are_left_out():
    """The particles are too close together also where their weights make up for it as well as they can."""
    density, gradient = normal(np.ones(2))
    x = 0.5 * np.random.default_rng(0).standard_normal((2000, 2))
    mended = density(x) - 4.0 * density(x)
    found, _ = look(x, density, gradient, log_weights=mended)
    assert found.share == pytest.approx(0.25, rel=0.2)
    constant = np.concatenate([x, np.full((2000, 1), 3.0)], axis=-1)
    density, gradient = normal(np.ones(3))
    assert look(constant, density, gradient)[0].share == pytest.approx(0.25, rel=0.25)


def test_copies_of_few_ancestors_are_no_evidence():
    """Ten families of fifty copies each: their spread is that of ten numbers."""
    density, gradient = normal(np.ones(1))
    x = np.repeat(0.6 * np.random.default_rng(3).standard_normal((10, 1)), 50, axis=0)
    assert look(x, density, gradient, families=np.repeat(np.arange(10), 50))[0] is None


def test_the_shares_of_normal_particles():
    t = norm.ppf((np.arange(20_000) + 0.5) / 20_000)

    def imbalance(share):
        up, down = (
            np.exp(np.minimum(np.log(factor) - 0.5 * (factor**2 - 1.0) * share * t**2, 0.0)).mean()
            for factor in (spread._STRETCH, 1.0 / spread._STRETCH)
        )
        return float(np.log(up / down))

    assert imbalance(1.0) == pytest.approx(0.0, abs=1e-3)  # balance
    for share in (0.01, 0.25, 0.5, 0.9):
        assert spread._share(imbalance(share)) == pytest.approx(share, rel=1e-2)
    assert spread._share(-1.0) == 1.0


@pytest.mark.parametrize(("share", "severity"), [(0.5, None), (0.49, "warning"), (0.41, "warning"), (0.39, "error")])
def test_how_severe_it_is(share, severity):
    found = list(check_lag(Lag(share, 0.9, 0.7)))
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


def spread_of(idata):
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
    estimate, found = spread_of(pymc_hais.sample_hais(200, reference="gaussian", **fixed, **options))
    assert found == ["error"]
    if kernel is None:
        estimate, found = spread_of(pymc_hais.sample_hais(500, **options))
        assert found == []
        assert abs(estimate.value - exact) <= 4.0 * estimate.se
