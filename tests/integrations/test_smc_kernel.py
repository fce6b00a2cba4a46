"""``pm.sample_smc(kernel=HAIS)``: log Z against closed forms, from populations that start as prior draws."""

import functools
import importlib.util

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.smc.kernels import IMH, SMC_KERNEL
from scipy import stats

from pymc_hais.integrations import HAIS
from tests.marks import slow_but
from tests.quick import hierarchy
from tests.statistical import LEVEL
from tests.truth import log_evidence_gamma_poisson, log_evidence_regression

HAS_JAX = importlib.util.find_spec("jax") is not None
jax_only = pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
#: Compiles in less time, and gives the same numbers to rounding (``test_backends_agree``).
MODE = {"compile_kwargs": {"mode": "JAX"}} if HAS_JAX else {}


def build(model, kernel=HAIS, draws=200, **settings):
    with model:
        return kernel(draws=draws, **{**MODE, **settings})


def run(kernel, seed):
    """Run one population as ``pm.sample_smc`` does; return log Z."""
    kernel.initialize(None, np.random.default_rng(seed))
    while kernel.beta < 1:
        kernel.update_beta_and_weights()
        kernel.step()
    return kernel.log_marginal_likelihood


def p_value(log_z, truth):
    """Test that the mean of independent estimates Z is the true one, by Student's t.

    The adaptive temperatures bias Z by an amount far below the errors here (it falls with the number of draws).
    """
    return stats.ttest_1samp(np.exp(np.array(log_z) - truth), 1.0).pvalue


def sample(model, draws=200, **settings):
    settings = {"chains": 2, "cores": 1, "random_seed": 3, "progressbar": False, **settings}
    with model:
        return pm.sample_smc(draws, kernel=HAIS, compute_convergence_checks=False, **settings)


# log Z ----------------------------------------------------------------------------------------------------


def regression(n_dims, n_rows):
    rng = np.random.default_rng(0)
    correlation = 0.9 ** np.abs(np.subtract.outer(np.arange(n_dims), np.arange(n_dims)))
    design = rng.normal(size=(n_rows, n_dims)) @ np.linalg.cholesky(correlation).T
    y = design @ rng.normal(size=n_dims) + rng.normal(size=n_rows)
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 2.0, shape=n_dims)
        pm.Normal("y", design @ w, 1.0, observed=y)
    return model, log_evidence_regression(design, y, 2.0, 1.0)


def counts():
    y = np.array([3, 7, 1, 4, 0])
    with pm.Model() as model:
        pm.Poisson("y", pm.Gamma("g", 1.5, 0.3), observed=y)
    return model, log_evidence_gamma_poisson(y, 1.5, 0.3)


CASES = {"regression": lambda: regression(2, 8), "skewed": counts, "hierarchy": hierarchy}


@functools.cache
def compiled(name):
    model, truth = CASES[name]()
    return build(model), truth


@pytest.mark.every(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(["hierarchy"], CASES))
def test_log_z_is_right(name):
    kernel, truth = compiled(name)
    log_z = [run(kernel, seed) for seed in range(20)]
    assert p_value(log_z, truth) >= LEVEL
    # 20 populations see an error of a third of a nat.
    assert p_value(np.array(log_z) + 0.33, truth) < LEVEL


@pytest.mark.exhaustive
def test_log_z_is_right_where_the_default_kernel_of_pymc_is_not():
    model, truth = regression(20, 60)
    kernel, default = build(model), build(model, IMH, compile_kwargs={})
    assert p_value([run(kernel, seed) for seed in range(14)], truth) >= LEVEL
    # On average log Z is too low if anything (Jensen), and theirs is too high, by about two nats.
    theirs = [run(default, seed) for seed in range(14)]
    assert stats.ttest_1samp(theirs, truth, alternative="greater").pvalue < LEVEL


@pytest.mark.slow
def test_draws_of_the_posterior_have_its_moments():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 3.0)
        pm.Normal("y", mu, 1.0, observed=[1.2, 0.3, 2.5])
    idata = sample(model, draws=500, chains=4, random_seed=1, **MODE)
    # Precision 1/9 + 3; the draws of one population are nearly independent, so four of them bound the error.
    mean, variance = 4.0 / (3.0 + 1.0 / 9.0), 1.0 / (3.0 + 1.0 / 9.0)
    mu = idata["posterior"]["mu"].values
    assert abs(mu.mean() - mean) < 6.0 * np.sqrt(variance / 500)
    assert abs(mu.var() / variance - 1.0) < 6.0 * np.sqrt(2.0 / 500)


# Where particles start and what they weigh ----------------------------------------------------------------


def test_particles_start_as_prior_draws_whatever_the_initval():
    with pm.Model() as model:
        x = pm.Normal("x", 1.0, 2.0, initval=50.0)
        scale = pm.Exponential("scale", 1.0, initval=1e-3)
        pm.Normal("y", x, scale, observed=0.5)
    kernel = build(model, draws=2000)
    population = kernel.initialize_population()
    assert set(population) == {"x", "scale_log__"}
    scores = stats.kstest(population["x"], stats.norm(1.0, 2.0).cdf).pvalue
    assert min(scores, stats.kstest(np.exp(population["scale_log__"]), stats.expon.cdf).pvalue) >= LEVEL
    # PyMC's own population fails the same test.
    assert np.ptp(SMC_KERNEL.initialize_population(kernel)["x"]) == 0.0


@pytest.mark.slow
def test_nan_counts_as_zero_likelihood():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("half", pt.log(x))  # not a number for x < 0
    kernel = build(model)
    log_z = [run(kernel, seed) for seed in range(20)]
    # The integral of x N(x; 0, 1) over x > 0.
    assert p_value(log_z, -0.5 * np.log(2.0 * np.pi)) >= LEVEL
    assert np.all(kernel.tempered_posterior > 0.0)


@pytest.mark.slow
def test_likelihoods_of_any_scale_are_reached_in_steps():
    # log Z for y ~ N(x, sigma^2) is that of y ~ N(0, 1 + sigma^2).
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Normal("y", x, 1e-5, observed=0.5)
    kernel = build(model)
    assert p_value([run(kernel, seed) for seed in range(14)], stats.norm(0.0, np.hypot(1.0, 1e-5)).logpdf(0.5)) >= LEVEL


def test_momenta_travel_through_resampling():
    kernel, _ = compiled("skewed")
    kernel.initialize(None, np.random.default_rng(1))
    kernel.update_beta_and_weights()
    before = np.asarray(kernel._state.momentum)[0]
    kernel.resample()
    np.testing.assert_array_equal(kernel._state.momentum[0], before[kernel.resampling_indexes])
    assert len(np.unique(kernel.resampling_indexes)) < kernel.draws


# By PyMC's rules ------------------------------------------------------------------------------------------


def last(idata, name="log_marginal_likelihood"):
    return np.array([row[-1] for row in idata["sample_stats"][name].values], dtype=float)


@pytest.fixture(scope="module")
def idata():
    return sample(counts()[0], **MODE)


def test_statistics_of_every_stage(idata):
    data = idata["sample_stats"]
    assert set(data.data_vars) == set(HAIS.stats_dtypes_shapes)
    for beta, log_z, moves in zip(
        *(data[name].values for name in ("beta", "log_marginal_likelihood", "n_moves")), strict=True
    ):
        assert np.all(np.diff([0.0, *beta]) > 0)
        assert beta[-1] == 1.0
        assert np.isnan(np.array(log_z[:-1], dtype=float)).all()
        assert min(moves) >= 4
    assert data.attrs["threshold"] == 0.8
    assert idata["posterior"]["g"].shape == (2, 200)


@pytest.mark.exhaustive
def test_processes_give_what_one_process_gives():
    idata = sample(counts()[0])
    # Not forked: another test may have started JAX's threads in this process.
    again = sample(counts()[0], cores=2, mp_ctx="forkserver")
    np.testing.assert_array_equal(again["posterior"]["g"], idata["posterior"]["g"])
    np.testing.assert_array_equal(last(again), last(idata))


# Numba takes long to compile.
@pytest.mark.parametrize(
    "mode",
    [pytest.param("JAX", marks=[jax_only, pytest.mark.slow]), pytest.param("NUMBA", marks=pytest.mark.exhaustive)],
)
def test_backends_agree(mode):
    model, _ = counts()
    plain, other = (build(model, draws=50, compile_kwargs={"mode": name}) for name in ("FAST_COMPILE", mode))
    np.testing.assert_allclose(run(other, 8), run(plain, 8), rtol=1e-6)
    np.testing.assert_allclose(other.tempered_posterior, plain.tempered_posterior, rtol=1e-5)


@pytest.mark.slow
def test_a_pickled_kernel_runs_alike():
    kernel, _ = compiled("skewed")
    copy = cloudpickle.loads(cloudpickle.dumps(kernel))
    assert run(copy, 5) == run(kernel, 5)


def test_chains_do_not_depend_on_the_chains_before():
    kernel, _ = compiled("skewed")
    first = run(kernel, 6)
    run(kernel, 7)
    assert run(kernel, 6) == first


# Refusals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"threshold": 1.0},
        {"correlation_threshold": 0.0},
        {"target_accept": 1.5},
        {"max_moves": 0},
        {"threshold": "low"},
        {"draws": 5},
    ],
)
def test_settings_out_of_range_are_named(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        build(counts()[0], **settings)


def test_unknown_settings_are_answered_before_any_work(monkeypatch):
    monkeypatch.setattr("pymc_hais.integrations.smc_kernel.build_problem", lambda *_: pytest.fail("work has begun"))
    with pytest.raises(TypeError, match=r"HAIS\(\) has no argument `max_move`: did you mean `max_moves`\?"):
        build(counts()[0], max_move=2)


def test_discrete_variables_are_named():
    with pm.Model() as model:
        pm.Poisson("count", 3.0)
    with pytest.raises(NotImplementedError, match="`count`"):
        build(model)


def test_a_population_without_any_likelihood_is_an_error():
    kernel, _ = compiled("skewed")
    kernel.initialize(None, np.random.default_rng(1))
    kernel.likelihood_logp = np.full(kernel.draws, -np.inf)
    with pytest.raises(FloatingPointError, match="No particle"):
        kernel.update_beta_and_weights()
