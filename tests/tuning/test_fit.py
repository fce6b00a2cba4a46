from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2
from threadpoolctl import threadpool_info, threadpool_limits

from pymc_hais.references import Fitted, Gaussian, Gaussians, StudentT
from pymc_hais.tuning import fit, fit_reference, log_densities, log_near

LOC = np.array([1.0, -2.0, 100.0])
FACTOR = np.array([[1.0, 0.0, 0.0], [0.5, 2.0, 0.0], [-0.3, 0.7, 0.01]])


def test_gaussian_particles_give_a_gaussian():
    rng = np.random.default_rng(1)
    fit = fit_reference(LOC + rng.normal(size=(2000, 3)) @ FACTOR.T)
    assert isinstance(fit, Gaussian)
    np.testing.assert_allclose(fit.loc, LOC, atol=5 * np.sqrt(np.diag(FACTOR @ FACTOR.T) / 2000).max())
    # As good along the narrow direction, of scale 0.01, as along the others.
    np.testing.assert_allclose(np.linalg.solve(FACTOR, fit.scale), np.eye(3), atol=0.1)


def test_a_fit_uses_one_thread_of_blas_and_puts_back_how_many_there_were(monkeypatch):
    def threads():
        return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]

    seen, inner = [], fit._fit
    monkeypatch.setattr(fit, "_fit", lambda *args: seen.extend(threads()) or inner(*args))
    with threadpool_limits(2, "blas"):
        before = threads()
        fit_reference(np.random.default_rng(1).normal(size=(100, 3)))
        assert threads() == before
    assert set(seen) == {1}


@pytest.mark.parametrize("df", [2.0, 5.0])
def test_heavy_tails_give_a_student_t_of_their_own_degrees(df):
    rng = np.random.default_rng(2)
    radius = np.sqrt(rng.chisquare(df, size=(2000, 1)) / df)
    fit = fit_reference(LOC + (rng.normal(size=(2000, 3)) / radius) @ FACTOR.T)
    assert isinstance(fit, StudentT)
    assert df / 2 < fit.df <= 2 * df
    np.testing.assert_allclose(np.linalg.solve(FACTOR, fit.scale), np.eye(3), atol=0.25)


def test_the_tails_decide_also_in_many_dimensions():
    rng = np.random.default_rng(3)
    light = rng.normal(size=(500, 200))
    heavy = light / np.sqrt(rng.chisquare(3.0, size=(500, 1)) / 3.0)
    assert isinstance(fit_reference(light), Gaussian)
    assert fit_reference(heavy).df <= 5.0
    assert fit_reference(heavy).scale.shape == (200,)  # too few particles for a dense one


def test_one_dimension():
    fit = fit_reference(np.random.default_rng(4).normal(3.0, 0.1, size=(500, 1)))
    np.testing.assert_allclose(fit.loc, 3.0, atol=0.03)
    np.testing.assert_allclose(fit.scale, 0.1, rtol=0.2)


@pytest.mark.parametrize("share_beside", [0.0, 0.5])
def test_draws_of_a_fit_and_what_is_beside_it_have_their_density(share_beside):
    """Weights of draws, against a density that covers them, average to one."""
    beside = Gaussians([Gaussian(LOC + 3.0, 0.5 * np.eye(3)), Gaussian(LOC - 4.0, np.eye(3))], [0.3, 0.7])
    fitted = Fitted(StudentT(5.0, np.zeros(3), np.eye(3)), LOC[None], 0.1)
    if share_beside:
        fitted = replace(fitted, beside=beside, share_beside=share_beside)
    x = fitted.draw(0, 20_000, np.random.default_rng(4))
    is_near_second = np.sum((x - LOC + 4.0) ** 2, axis=1) < 9.0
    weights = np.exp(log_densities(Gaussian(LOC - 4.0, np.eye(3)), x) - log_near(fitted, x, 0))
    if share_beside:  # the second Gaussian's share of what is near is 0.35 / 0.9
        assert weights.mean() == pytest.approx(1.0, abs=5 * weights.std() / np.sqrt(len(x)))
        assert is_near_second.mean() == pytest.approx(0.35 / 0.9 * chi2.cdf(9.0, 3), abs=0.02)
    own = np.exp(log_densities(Gaussian(LOC, 0.5 * np.eye(3)), x) - log_near(fitted, x, 0))
    assert own.mean() == pytest.approx(1.0, abs=5 * own.std() / np.sqrt(len(x)))
