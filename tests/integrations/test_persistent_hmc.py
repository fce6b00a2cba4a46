"""``pm.sample(step=PersistentHMC())``: the right density at every beta, by PyMC's rules.

Every comparison states its false-alarm level through ``tests.statistical.threshold``: 5e-7 for all the numbers of one
assertion, with Monte Carlo errors estimated by ArviZ.
"""

import functools
import pickle

import arviz_stats
import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.blocking import DictToArrayBijection
from pymc.exceptions import SamplingError
from pymc.sampling.mcmc import assign_step_methods

from pymc_hais.integrations import PersistentHMC
from tests.quick import schools
from tests.statistical import threshold

QUIET = {"cores": 1, "chains": 2, "progressbar": False, "quiet": True, "compute_convergence_checks": False}


def draw(model, seed=1, draws=600, tune=500, **settings):
    with model:
        return pm.sample(draws, tune=tune, step=PersistentHMC(**settings), random_seed=seed, **QUIET)


def flat(dataset):
    return np.concatenate([np.ravel(dataset[name]) for name in sorted(dataset.data_vars)])


def moments(idata, kind, names):
    """Return means or standard deviations of the posterior, and their Monte Carlo errors."""
    posterior = idata["posterior"].to_dataset()[names]
    value = getattr(posterior, {"mean": "mean", "sd": "std"}[kind])(("chain", "draw"))
    return flat(value), flat(arviz_stats.mcse(posterior, method=kind))


def largest_score(idata, truths):
    """Score means and standard deviations, {name: (mean, sd)}, in Monte Carlo errors."""
    scores = []
    for i, kind in enumerate(("mean", "sd")):
        value, error = moments(idata, kind, sorted(truths))
        scores.append((value - np.array([truths[name][i] for name in sorted(truths)])) / error)
    return np.max(np.abs(scores)), threshold(2 * len(truths))


# The density ----------------------------------------------------------------------------------------------


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"n_leapfrog": 3, "n_transitions": 4}], ids=["one", "three"])
def test_agrees_with_nuts_on_eight_schools(settings):
    ours, reference = draw(schools(), **settings), nuts_on_schools()
    for kind in ("mean", "sd"):
        (a, error_a), (b, error_b) = (moments(i, kind, ["mu", "tau", "z"]) for i in (ours, reference))
        scores = (a - b) / np.hypot(error_a, error_b)
        assert np.max(np.abs(scores)) <= threshold(scores.size), (kind, scores)


@functools.cache
def nuts_on_schools():
    with schools():
        return pm.sample(700, tune=500, nuts_sampler="pymc", target_accept=0.95, random_seed=2, **QUIET)


def cut_prior():
    # The likelihood is zero for half of the prior, and 0 * -inf must not cut that half off.
    with pm.Model() as model:
        x = pm.Normal("x", 1.0, 2.0)
        pm.Gamma("g", 3.0, 0.5)
        pm.Potential("cut", pt.switch(x > 1.0, -5.0 * x, -np.inf))
    return model


# Gamma(shape 3, rate 0.5): mean 3 / 0.5, variance 3 / 0.5^2.
PRIOR = {"x": (1.0, 2.0), "g": (6.0, np.sqrt(12.0))}


@pytest.mark.slow
def test_beta_zero_is_the_prior_even_where_the_likelihood_is_zero():
    score, limit = largest_score(draw(cut_prior(), beta=0.0), PRIOR)
    assert score <= limit


def one_mean():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 3.0)
        pm.Normal("y", mu, 1.0, observed=[1.2, 0.3, 2.5])
        pm.Potential("more", -0.5 * (mu - 4.0) ** 2)
    return model


def tempered_mean(beta):
    # Precisions add: 1/9 + beta (3 + 1), the last for the potential, which counts as an observation of 4.
    precision = 1.0 / 9.0 + 4.0 * beta
    return {"mu": (beta * (1.2 + 0.3 + 2.5 + 4.0) / precision, precision**-0.5)}


@pytest.mark.few(2)
@pytest.mark.parametrize("beta", [0.5, 1.0])
def test_tempered_conjugate_normal(beta):
    idata = draw(one_mean(), beta=beta)
    score, limit = largest_score(idata, tempered_mean(beta))
    assert score <= limit
    # The same assertion sees a beta that is wrong.
    score, limit = largest_score(idata, tempered_mean(1.5 - beta))
    assert score > limit


@pytest.mark.slow
def test_other_variables_that_move_between_draws_are_noticed():
    with pm.Model() as model:
        k = pm.Bernoulli("k", 0.3)
        x = pm.Normal("x", 3.0 * k, 1.0)
    with model:
        idata = pm.sample(1500, tune=300, step=PersistentHMC([x], n_transitions=3), random_seed=3, **QUIET)
    # E x = 3 * 0.3; Var x = 1 + 9 * 0.3 * 0.7.
    score, limit = largest_score(idata, {"x": (0.9, np.sqrt(2.89))})
    assert score <= limit


# By PyMC's rules ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def idata():
    return draw(one_mean(), draws=300, tune=300)


def test_statistics_have_pymc_s_names(idata):
    stats = idata["sample_stats"].to_dataset()
    names = {"lp", "acceptance_rate", "diverging", "divergences", "energy", "energy_error", "step_size", "n_steps"}
    assert names | {"step_size_bar", "perf_counter_diff"} <= set(stats.data_vars)
    assert (stats["n_steps"] == 10).all()
    assert not stats["diverging"].any()
    mu = idata["posterior"]["mu"].values
    lp = one_mean().compile_logp(mode="FAST_COMPILE")
    np.testing.assert_allclose(stats["lp"].values[:, -1], [lp({"mu": value}) for value in mu[:, -1]])
    assert (stats["energy"] >= -stats["lp"]).all()


def test_adaptation_ends_with_warm_up_and_reaches_its_target(idata):
    stats = idata["sample_stats"].to_dataset()
    assert np.ptp(stats["step_size"].values, axis=1).max() == 0.0
    assert len(np.unique(stats["step_size"])) == 2  # each chain its own
    np.testing.assert_allclose(stats["acceptance_rate"].mean(), 0.9, atol=0.05)


def test_the_metric_finds_the_scales():
    with pm.Model() as model:
        pm.Normal("x", 0.0, [0.01, 1.0, 100.0])
    with model:
        step = PersistentHMC()
        pm.sample(10, tune=1000, step=step, random_seed=1, **QUIET | {"chains": 1})
    scales = np.sqrt(step.potential.velocity(np.ones(3)))
    assert np.all(np.abs(np.log(scales / [0.01, 1.0, 100.0])) < 0.5), scales


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode", ["FAST_COMPILE", pytest.param(None, marks=pytest.mark.exhaustive)], ids=["without fast math", "default"]
)
def test_chains_in_processes_are_those_of_one_process(mode):
    # Another test may have started JAX's threads, which a fork would lose.
    in_processes = QUIET | {"cores": 2, "mp_ctx": "forkserver"}
    with one_mean():
        one, other = (
            pm.sample(20, tune=0, step=PersistentHMC(compile_kwargs=mode and {"mode": mode}), random_seed=1, **settings)
            for settings in (QUIET, in_processes)
        )
    if mode:
        np.testing.assert_array_equal(other["posterior"]["mu"], one["posterior"]["mu"])
    else:
        # PyTensor's default, Numba, computes with fast math: code that was compiled just now and code that was loaded
        # from the disk cache may round differently, and chains amplify that.  Of 20 transitions little is amplified.
        np.testing.assert_allclose(other["posterior"]["mu"], one["posterior"]["mu"], rtol=1e-6)


def walk(step, point, n):
    points = []
    for _ in range(n):
        point, _ = step.step(point)
        points.append(DictToArrayBijection.map(point).data)
    return point, np.array(points)


@pytest.fixture
def half_way():
    with schools() as model:
        step = PersistentHMC(beta=0.7, n_transitions=2)
        step.setup_chain(np.random.default_rng(4), 200, 100)
        point, _ = walk(step, model.initial_point(), 150)
        yield step, point


@pytest.mark.slow
def test_a_chain_goes_on_from_its_sampling_state(half_way):
    step, point = half_way
    state = pickle.loads(pickle.dumps(step.sampling_state))  # as a Zarr store keeps it
    other = PersistentHMC(beta=0.7, n_transitions=2)
    other.sampling_state = state
    np.testing.assert_array_equal(walk(other, point, 20)[1], walk(step, point, 20)[1])
    for wrong in (PersistentHMC(beta=0.6, n_transitions=2), PersistentHMC(beta=0.7, n_transitions=2, damping=1.0)):
        with pytest.raises(ValueError, match="frozen"):
            wrong.sampling_state = state


def test_a_pickled_step_walks_on_alike(half_way):
    step, point = half_way
    copy = cloudpickle.loads(cloudpickle.dumps(step))  # as PyMC sends it to its workers
    np.testing.assert_array_equal(walk(copy, point, 20)[1], walk(step, point, 20)[1])


def test_a_new_chain_forgets_the_last(half_way):
    step, point = half_way
    before = step.momentum
    step.setup_chain(np.random.default_rng(5), 0, 10)
    assert not step.tune
    assert step.step_size == PersistentHMC(beta=0.7).step_size
    assert np.all(step.momentum != before)
    fresh = PersistentHMC(beta=0.7, n_transitions=2)
    fresh.setup_chain(np.random.default_rng(5), 0, 10)
    np.testing.assert_array_equal(walk(step, point, 5)[1], walk(fresh, point, 5)[1])


def test_it_is_never_chosen_automatically():
    _, chosen = assign_step_methods(schools(), methods=[PersistentHMC, pm.NUTS])
    assert list(chosen) == [pm.NUTS]


def test_progress_shows(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with one_mean():
        pm.sample(20, tune=20, step=PersistentHMC(), random_seed=1, **QUIET | {"progressbar": True, "quiet": False})
    shown = capsys.readouterr().out
    assert "Step size" in shown
    assert "Grad evals" in shown


# Refusals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"beta": -0.1},
        {"beta": 1.1},
        {"beta": np.nan},
        {"target_accept": 1.0},
        {"target_accept": "high"},
        {"n_transitions": 0},
        {"n_transitions": 2.5},
        {"step_scale": 0.0},
    ],
)
def test_settings_out_of_range_are_named(settings):
    with one_mean(), pytest.raises(ValueError, match=next(iter(settings))):
        PersistentHMC(**settings)


@pytest.mark.parametrize(
    ("unknown", "hint"),
    [
        ("bta", "did you mean `beta`"),
        ("n_leapfrogs", "did you mean `n_leapfrog`"),
        ("max_treedepth", "its arguments are"),
    ],
)
def test_arguments_that_it_does_not_have(unknown, hint):
    with one_mean(), pytest.raises(TypeError, match=f"PersistentHMC.. has no argument `{unknown}`: {hint}"):
        PersistentHMC(**{unknown: 1})


def test_discrete_variables_are_named():
    with pm.Model():
        pm.Normal("x")
        pm.Poisson("count", 3.0)
        pm.Bernoulli("switch", 0.5)
        with pytest.raises(NotImplementedError, match="`count`, `switch`"):
            PersistentHMC()


def test_a_part_of_the_variables_has_no_tempered_target():
    with pm.Model():
        x = pm.Normal("x")
        pm.Normal("y", x)
        with pytest.raises(ValueError, match="all variables"):
            PersistentHMC([x], beta=0.5)


def test_a_start_of_density_zero_is_an_error():
    with pm.Model() as model:
        x = pm.Normal("x", initval=1.0)
        pm.Potential("cut", pt.switch(x > 0.0, -np.inf, 0.0))
        step = PersistentHMC()
        with pytest.raises(SamplingError, match="-inf"):
            step.step(model.initial_point())
