"""The overcomplete model against closed forms and quadrature, and its Gibbs draws at every beta."""

from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor import function
from pytensor.graph.replace import clone_replace
from scipy import stats
from scipy.integrate import quad, trapezoid

import pymc_hais
from examples.overcomplete import gibbs
from examples.overcomplete.gibbs import GibbsSweeps, SourceGibbs
from examples.overcomplete.model import (
    build_learnt_model,
    build_model,
    generate,
    log_p_complete,
    null_basis,
    spread,
    standard_normal,
)
from examples.overcomplete.scoring import score
from examples.overcomplete.sources import ExponentialPower, Mixture, StudentT, cauchy, laplace
from examples.overcomplete.training import fit
from pymc_hais.core.records import KernelParams, Noise, ParticleState
from tests.marks import slow_but

SOURCES = {
    "student": (StudentT(3.0, 0.7), stats.t(3.0, scale=0.7).logpdf),
    "cauchy": (cauchy(0.5), stats.cauchy(scale=0.5).logpdf),
    "laplace": (laplace(1.2), stats.laplace(scale=1.2).logpdf),
    "power": (ExponentialPower(0.6, 0.4), stats.gennorm(0.6, scale=0.4).logpdf),
    "normal": (ExponentialPower(2.0, np.sqrt(2.0)), stats.norm.logpdf),
    "mixture": (
        Mixture((0.7, 0.3), (0.4, 2.0)),
        lambda s: np.logaddexp(*(np.log(w) + stats.norm.logpdf(s, scale=c) for w, c in ((0.7, 0.4), (0.3, 2.0)))),
    ),
}
BASIS = np.array([[1.0, -0.4, 0.6], [0.2, 0.9, 0.7]])
ROW = np.array([1.5, -0.8])


def along(logpdf, x, a=BASIS):
    """Return log p(x, z) as a function of numbers z (n,), for a null space of one dimension."""
    null, seen = null_basis(a)[0], np.linalg.pinv(a) @ x
    volume = 0.5 * np.linalg.slogdet(a @ a.T)[1]
    return lambda z: logpdf(seen + np.multiply.outer(z, null)).sum(axis=-1) - volume


def exact(logpdf, x, a=BASIS):
    """Return log p(x) by quadrature between the places where a source is zero."""
    null, seen = null_basis(a)[0], np.linalg.pinv(a) @ x
    log_p = along(logpdf, x, a)
    edges = [-np.inf, *np.sort(-seen / null), np.inf]
    pairs = pairwise(edges)
    return np.log(sum(quad(lambda z: np.exp(log_p(z)), *pair, limit=200)[0] for pair in pairs))


@pytest.mark.parametrize("name", SOURCES)
def test_densities_are_those_of_scipy(name):
    source, logpdf = SOURCES[name]
    s = np.array([-30.0, -2.0, -1e-3, 0.0, 0.3, 1.0, 12.0])
    found = (source.log_constant() + source.log_shape(pt.as_tensor(s), pt)).eval(mode="FAST_COMPILE")
    np.testing.assert_allclose(found, logpdf(s), rtol=1e-10)
    np.testing.assert_allclose(source.log_shape(s, np), logpdf(s) - logpdf(0.0), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", SOURCES)
def test_complete_models_have_a_closed_form(name):
    source, logpdf = SOURCES[name]
    a = np.array([[2.0, 0.5], [-0.3, 0.7]])
    rows = np.random.default_rng(1).normal(size=(5, 2))
    expected = logpdf(np.linalg.solve(a, rows.T).T).sum(axis=1) - np.log(abs(np.linalg.det(a)))
    np.testing.assert_allclose(log_p_complete(rows, a, source), expected)


@pytest.mark.parametrize("name", [one for one in SOURCES if one != "cauchy"])
@pytest.mark.parametrize("beta", [0.05, 0.4, 1.0])
def test_mixtures_are_near_the_power_of_the_density(name, beta):
    # The Metropolis step allows any mixture; one within a factor lets nearly all draws be taken.
    source, _ = SOURCES[name]
    s = np.linspace(0.0, 8.0, 200)[:, None]
    log_g, _ = gibbs.log_mixture(s[:, 0], *source.mixture(beta, np), np)
    apart = log_g - beta * source.log_shape(s[:, 0], np)
    assert np.ptp(apart) < (np.log(2.0) if name == "mixture" else 0.1)


@pytest.mark.exhaustive
def test_rows_of_normal_sources_have_a_closed_form():
    rng = np.random.default_rng(3)
    a = rng.normal(size=(3, 6))
    source = ExponentialPower(2.0, np.sqrt(2.0))
    rows = generate(a, source, 8, rng)
    expected = stats.multivariate_normal(np.zeros(3), a @ a.T).logpdf(rows)
    for kwargs in ({}, {"kernel": SourceGibbs(a, source), "reference": "prior"}):
        found = held_out(build_model(a, source), rows, **kwargs)
        # Eight rows and two ways: |z| beyond 4.5 once in 10^4.
        assert np.all(np.abs(found["value"] - expected) < 4.5 * found["se"])
        assert found["se"].max() < 0.12


@pytest.mark.every(6)
@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_rows_agree_with_quadrature_by_either_transition(name):
    source, logpdf = SOURCES[name]
    rows = np.array([ROW, [0.1, 0.2], [-2.0, 1.0], [0.0, 3.0]])
    expected = np.array([exact(logpdf, x) for x in rows])
    for kwargs in ({}, {"kernel": SourceGibbs(BASIS, source), "reference": "prior"}):
        found = held_out(build_model(BASIS, source), rows, **kwargs)
        # 48 rows in all: |z| beyond 4.8 once in 10^4.
        assert np.all(np.abs(found["value"] - expected) < 4.8 * found["se"]), kwargs
        assert found["se"].max() < 0.12


@pytest.mark.slow
def test_rows_annealed_from_around_their_gibbs_draws_agree_with_quadrature():
    source, logpdf = SOURCES["student"]
    rows = np.array([ROW, [0.1, 0.2], [-2.0, 1.0], [0.0, 3.0]])
    values, errors, _ = score(rows, BASIS, source, draws=500)
    # Four rows: |z| beyond 4.2 once in 10^4.
    assert np.all(np.abs(values - [exact(logpdf, x) for x in rows]) < 4.2 * errors)
    assert errors.max() < 0.12


def held_out(model, rows, **kwargs):
    found = pymc_hais.log_likelihood(model, {"x": rows}, random_seed=1, progressbar=False, **kwargs)["held_out"]
    return found.to_dataset()


def path_of(logpdf, x):
    """Return the functions of the geometric path, of which SourceGibbs takes three."""
    log_p, size = along(logpdf, x), spread(np.linalg.pinv(BASIS) @ x, len(BASIS))

    def evaluate(position, beta, data):
        log_q = stats.norm.logpdf(position[0])
        return log_q, log_p(size * position[0]) + np.log(size) - log_q, position, position

    return SimpleNamespace(evaluate=evaluate, log_density=lambda q, ratio, beta: q + beta * ratio)


def quantiles_after_a_draw(kernel, logpdf, beta, n=2000):
    """Return where points of the path's density at beta are after one transition, as shares of that density."""
    path, rng = path_of(logpdf, ROW), np.random.default_rng(5)
    grid = np.linspace(-14.0, 14.0, 8001)
    log_q, log_ratio = path.evaluate(grid[None], beta, None)[:2]
    density = np.exp(log_q + beta * log_ratio)
    below = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    below /= below[-1]
    transition = kernel.build(np, path)
    moved = np.empty(n)
    for i, place in enumerate(np.interp((np.arange(n) + 0.5) / n, below, grid)):
        position = np.array([place])
        state = ParticleState(position, np.zeros(1), *path.evaluate(position, beta, None))
        noise = Noise(rng.normal(size=1), rng.random(), rng.random(kernel.n_uniforms))
        end, _ = transition(state, noise, beta, KernelParams(1.0, np.ones(1), 1.0), ((), ()))
        moved[i] = end.position[0]
    return np.interp(moved, grid, below)


@pytest.mark.every(3)
@pytest.mark.parametrize("beta", slow_but({0.3}, [0.0, 0.3, 1.0]))
@pytest.mark.parametrize("name", slow_but({"mixture"}, ["student", "laplace", "mixture"]))
def test_a_draw_leaves_the_density_invariant(name, beta):
    source, logpdf = SOURCES[name]
    shares = quantiles_after_a_draw(SourceGibbs(BASIS, source, x=ROW), logpdf, beta)
    # Nine tests at 1e-5; the target is skewed, as x is not zero.
    assert stats.kstest(shares, "uniform").pvalue > 1e-5


@dataclass(frozen=True)
class WrongBeta(StudentT):
    """Weights of precisions as at beta = 1."""

    def mixture(self, beta, xp):
        return super().mixture(1.0, xp)


@pytest.mark.slow
def test_precisions_of_another_beta_are_mended_by_the_metropolis_step_alone(monkeypatch):
    source, logpdf = SOURCES["student"]
    kernel = SourceGibbs(BASIS, WrongBeta(source.nu, source.scale), x=ROW)
    assert stats.kstest(quantiles_after_a_draw(kernel, logpdf, 0.3), "uniform").pvalue > 1e-5

    def take_always(xp, threshold):
        return lambda kept, end, log_start, log_end, uniform: (end, None)

    monkeypatch.setattr(gibbs, "build_accept", take_always)
    assert stats.kstest(quantiles_after_a_draw(kernel, logpdf, 0.3), "uniform").pvalue < 1e-5


def test_precisions_of_student_t_sources_are_of_their_prior():
    rng = np.random.default_rng(2)
    source = StudentT(3.0, 0.7)
    precisions = source.draw_precisions(source.draw((4000, 3), rng), rng)
    # Over sources and their rows: nu scale^2 times a precision is chi-squared.  At 1e-5.
    assert stats.kstest(precisions.ravel() * 3.0 * 0.7**2, stats.chi2(3.0).cdf).pvalue > 1e-5


@pytest.mark.parametrize("name", ["laplace", "student"])
def test_sweeps_of_all_rows_leave_the_posterior_invariant(name):
    rng = np.random.default_rng(8)
    source, _ = SOURCES[name]
    cdf = {"laplace": stats.laplace(scale=1.2), "student": stats.t(3.0, scale=0.7)}[name].cdf
    s = source.draw((4000, 3), rng)
    rows = s @ BASIS.T
    parameters = {"A": BASIS} | {one: np.full(3, getattr(source, one)) for one in source.learnt}
    moved = GibbsSweeps(source, 3)(rows, s, parameters, rng)
    np.testing.assert_allclose(moved @ BASIS.T, rows, atol=1e-8)
    assert np.abs(moved - s).mean() > 0.1
    # Sources and rows of the model: the sources stay of their density.  Four tests at 1e-5.
    for column in moved.T[:2]:
        assert stats.kstest(column, cdf).pvalue > 1e-5


def test_the_gradient_of_the_joint_density_is_that_of_the_rows_in_the_mean():
    logpdf = stats.t(3.0).logpdf
    model, learnt = build_learnt_model(BASIS, StudentT(3.0))
    assert set(learnt) == {"A", "nu"}
    # Fisher's identity by quadrature: the posterior mean of d log p(x, z) / dA is d log p(x) / dA.
    s = pt.vector("s", shape=(3,), dtype="float64")
    log_p = clone_replace(pm.logp(model["x"], ROW), {model["s"]: s})
    gradient = function([s], pt.grad(log_p, model["A"]), mode="FAST_COMPILE")
    step, null, seen = 1e-5, null_basis(BASIS)[0], np.linalg.pinv(BASIS) @ ROW
    z = np.linspace(-60.0, 60.0, 6001)
    weights = np.exp(along(logpdf, ROW)(z))
    values = np.array([gradient(seen + one * null) for one in z[::10]])
    mean = trapezoid(weights[::10, None, None] * values, z[::10], axis=0) / trapezoid(weights[::10], z[::10])
    for i, j in [(0, 0), (1, 2)]:
        change = np.zeros_like(BASIS)
        change[i, j] = step
        slope = (exact(logpdf, ROW, BASIS + change) - exact(logpdf, ROW, BASIS - change)) / (2.0 * step)
        assert mean[i, j] == pytest.approx(slope, abs=2e-3)


def test_what_a_row_determines_of_the_sources_stays_near_it():
    # Without, the density that is learnt is flat over M dimensions of s: chains run away before the fit begins.
    model, _ = build_learnt_model(BASIS, StudentT(3.0))
    s = pt.vector("s", shape=(3,), dtype="float64")
    terms = clone_replace([pm.logp(model["x"], ROW), pm.logp(model["s"], s).sum()], {model["s"]: s})
    log_p = function([s], sum(terms), mode="FAST_COMPILE")
    apart = np.linalg.pinv(BASIS) @ [3.0, 2.0]
    found = log_p(np.linalg.pinv(BASIS) @ ROW + 0.7 * null_basis(BASIS)[0] + apart)
    expected = along(stats.t(3.0).logpdf, ROW)(0.7) - 0.5 * apart @ apart - np.log(2.0 * np.pi)
    assert found == pytest.approx(expected, rel=1e-10)


def mean_log_p(rows, a, source):
    """Return the mean of log p(x) over many rows, by a trapezoidal rule."""
    null, u = null_basis(a)[0], np.linspace(-6.0, 6.0, 301)
    s = (rows @ np.linalg.pinv(a).T)[:, None] + np.sinh(u)[:, None] * null
    log_p = source.log_shape(s, np).sum(axis=-1)
    constant = (
        np.sum(source.log_constant().eval(mode="FAST_COMPILE") * np.ones(3)) - 0.5 * np.linalg.slogdet(a @ a.T)[1]
    )
    return np.log(trapezoid(np.exp(log_p) * np.cosh(u), u, axis=1)).mean() + constant


@pytest.mark.exhaustive
def test_a_fit_of_one_sweep_a_step_finds_the_sources_that_made_the_rows(monkeypatch):
    truth = StudentT(3.0)
    for seed in (2, 1):
        rows = generate(BASIS, truth, 4000, np.random.default_rng(seed))
        found = fit(rows, 3, 800, n_sweeps=1, seed=seed)
        lengths = np.linalg.norm(found.a, axis=0), np.linalg.norm(BASIS, axis=0)
        cosines = np.abs(BASIS.T @ found.a) / np.outer(lengths[1], lengths[0])
        pairs = cosines.argmax(axis=1)
        assert sorted(pairs) == [0, 1, 2]
        assert cosines.max(axis=1).min() > 0.98
        np.testing.assert_allclose(lengths[0][pairs], lengths[1], rtol=0.15)
        # The maximum lies above the sources that made the rows, by 9 / 8000 in the mean.
        assert mean_log_p(rows, found.a, found.source) > mean_log_p(rows, BASIS, truth)

    # With a density that is flat over what a row determines, chains begin far off.
    without = lambda z, n: 0.0 if n == 2 else standard_normal(z, n)  # noqa: E731
    monkeypatch.setattr("examples.overcomplete.model.standard_normal", without)
    lost = fit(rows, 3, 800, n_sweeps=1, seed=1)
    assert mean_log_p(rows, lost.a, lost.source) < mean_log_p(rows, BASIS, truth) - 0.01


@pytest.mark.slow
def test_estimates_are_conservative_on_average():
    source, logpdf = SOURCES["student"]
    rows = np.repeat(ROW[None], 60, axis=0)
    found = held_out(build_model(BASIS, source), rows, target_se=None, draws=100)
    ratio = np.exp(found["value"].values - exact(logpdf, ROW))
    error = ratio.std(ddof=1) / np.sqrt(len(ratio))
    # An unbiased estimate of p(x), so that its logarithm is low in the mean.
    assert abs(ratio.mean() - 1.0) < 4.0 * error
    assert np.log(ratio).mean() < 4.0 * error


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="full row rank"):
        null_basis(np.ones((2, 3)))
    with pytest.raises(ValueError, match="log_p_complete"):
        build_model(np.eye(2), laplace())
    with pytest.raises(ValueError, match="alpha"):
        ExponentialPower(3.0)
    with pytest.raises(ValueError, match="add up to one"):
        Mixture((0.5, 0.6), (1.0, 2.0))
    other = SourceGibbs(np.eye(4, 6), laplace())
    with pytest.raises(ValueError, match="one row of shape"):
        pymc_hais.log_likelihood(build_model(BASIS, laplace()), {"x": ROW[None]}, kernel=other, progressbar=False)
