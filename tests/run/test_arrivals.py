"""Chains from the prior that end among the particles of a run from a fit, and chains that do not."""

from dataclasses import replace

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import gammaln

from pymc_hais.calls import stages
from pymc_hais.core.records import Ladder, Schedule
from pymc_hais.problem.building import build_problem
from pymc_hais.run.arrivals import Arrivals, Ends, compare, kolmogorov_smirnov
from pymc_hais.run.plan import Fallback
from pymc_hais.run.populations import anneal_alive
from tests.front_door import estimate
from tests.runs import call_of
from tests.statistical import assert_mean
from tests.toys import HAS_JAX

RNG = np.random.default_rng(5)


def ends(positions, log_ratio=None, width=1.0):
    """Build ends; the target is a normal distribution of this width around the centre of the fit."""
    log_joint = -0.5 * np.sum((positions / width) ** 2, axis=1) - positions.shape[1] * np.log(width)
    log_ratio = np.zeros(len(positions)) if log_ratio is None else log_ratio
    return Ends(positions, log_joint, log_ratio, np.linalg.norm(positions, axis=1))


PARTICLES = ends(RNG.normal(size=(2000, 3)))


@pytest.mark.parametrize(("n", "m"), [(8, 2000), (40, 50), (300, 2000)])
def test_the_test_of_two_samples_is_about_that_of_scipy(n, m):
    rng = np.random.default_rng(0)
    for shift in (0.0, 0.3, 1.0):
        samples = rng.normal(size=n), rng.normal(shift, 1.0, size=m)
        exact = stats.ks_2samp(*samples, method="exact").pvalue
        np.testing.assert_allclose(kolmogorov_smirnov(*samples), exact, rtol=0.2, atol=1e-12)


def test_chains_that_end_among_the_particles_confirm_a_fit():
    found = compare(ends(RNG.normal(size=(100, 3))), RNG.normal(size=100), PARTICLES)
    assert found.n_arrived >= 97
    assert found.n_confirming == found.n_arrived


def test_chains_where_the_target_is_far_above_the_fit_do_not():
    is_there = np.arange(100) < 8
    chains = ends(RNG.normal(size=(100, 3)), np.where(is_there, 30.0, 0.0))
    found = compare(chains, np.zeros(100), PARTICLES)
    assert found.n_elsewhere >= 8
    assert found.are_elsewhere
    assert found.n_confirming == 0


def test_chains_that_were_among_the_particles_may_visit_tails_but_not_stay():
    rng = np.random.default_rng(6)
    had_arrived = np.zeros(200, bool)
    compare(ends(rng.normal(size=(200, 3))), np.zeros(200), PARTICLES, 0.0, had_arrived)
    assert had_arrived.mean() > 0.97
    had_arrived[:4] = True
    log_ratio = np.where(np.arange(200) < 4, 30.0, 0.0)  # four are now where the target is far above the fit
    chains = ends(rng.normal(size=(200, 3)), log_ratio)
    found = compare(chains, np.zeros(200), PARTICLES, 0.0, had_arrived)
    assert found.n_visiting == 4
    assert found.n_elsewhere == 0
    assert found.n_confirming == found.n_arrived
    stayed = compare(chains, np.zeros(200), PARTICLES, 0.0, had_arrived)
    assert stayed.n_elsewhere == 4
    assert stayed.n_confirming == 0
    had_arrived[:4] = True
    weighty = compare(chains, np.where(np.arange(200) == 0, 8.0, 0.0), PARTICLES, 0.0, had_arrived)
    assert weighty.n_visiting == 4
    assert weighty.n_confirming == 0  # one of them has nearly all of the weight


def test_chains_in_a_wide_region_of_low_density_do_not_where_it_has_weight():
    """Of the same mass in three dimensions, ten times as wide: its density is 7 nats lower."""
    is_wide = np.arange(100) < 30
    chains = ends(np.where(is_wide[:, None], 10.0, 1.0) * RNG.normal(size=(100, 3)))
    log_joint = np.where(is_wide, -12.0, chains.log_joint)
    wide = chains._replace(log_joint=log_joint)
    found = compare(wide, np.zeros(100), PARTICLES)
    assert found.n_late >= 30
    assert not found.are_elsewhere
    assert found.n_confirming == 0
    # Arrived chains without weight, as behind hard edges, hide nothing.
    dead = compare(wide, np.where(~is_wide & (np.arange(100) < 40), -np.inf, 0.0), PARTICLES)
    assert dead.n_late >= 30
    assert dead.n_confirming == 0
    # Chains that were too slow have lost their weight on the way.
    late = compare(wide, np.where(is_wide, -100.0, 0.0), PARTICLES)
    assert late.n_confirming == late.n_arrived > 60


def test_chains_that_fill_less_or_more_than_the_particles_do_not():
    for width in (0.3, 1.0):
        particles = ends(PARTICLES.positions * [1.0, 1.0, 1.3 - width])
        found = compare(ends(RNG.normal(size=(100, 3)) * [1.0, 1.0, width]), np.zeros(100), particles)
        assert found.n_arrived > 50
        assert found.p_value < 1e-3
        assert found.n_confirming == 0


@pytest.mark.parametrize(
    ("found", "n_confirming"),
    [
        (Arrivals(97, n_elsewhere=1, share_elsewhere=0.01), 97),
        (Arrivals(97, n_elsewhere=2), 0),
        (Arrivals(98, n_elsewhere=1, share_elsewhere=0.1), 0),  # one chain that has most of the mass
        (Arrivals(98, n_late=2, share=0.01), 98),
        (Arrivals(98, n_late=2, share=0.1), 0),
        (Arrivals(98, excess=5.0), 98),
        (Arrivals(98, excess=8.0), 0),  # the mean weight is e^8 times Z once in e^8 times, at most
        (Arrivals(20, n_tests=171), 0),
        (Arrivals(30, n_tests=171), 30),
        (Arrivals(98, p_value=1e-4), 0),
        (Arrivals(96, n_visiting=4), 96),
        (Arrivals(90, n_visiting=10), 0),
    ],
)
def test_a_few_chains_may_be_elsewhere_but_no_mass(found, n_confirming):
    assert found.n_confirming == n_confirming


def test_chains_of_which_none_arrives_say_nothing():
    nowhere = ends(np.full((100, 3), np.nan), np.full(100, np.nan))._replace(
        log_joint=np.full(100, -np.inf), distances=np.full(100, np.inf)
    )
    assert compare(nowhere, np.full(100, -np.inf), PARTICLES).n_confirming == 0


@pytest.mark.slow
@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
def test_chains_of_a_vague_prior_start_where_numbers_can_be_held_and_count_the_others():
    """Half of a Gamma(0.001, 0.001) is below the smallest number; log Z is that of a conjugate normal."""
    y, shape = np.array([0.4, -1.2, 2.0, 0.3]), 0.001
    with pm.Model() as model:
        tau = pm.Gamma("tau", shape, shape, shape=2)
        pm.Normal("y", 0.0, tau=tau, observed=np.stack([y, 3.0 * y], axis=1))
    posterior, rates = shape + 2.0, shape + 0.5 * np.array([1.0, 9.0]) * np.sum(y**2)
    log_z = shape * np.log(shape) - gammaln(shape) + gammaln(posterior) - posterior * np.log(rates)
    exact = np.sum(log_z - 2.0 * np.log(2.0 * np.pi))
    runner = call_of(model, draws=100, chains=1)
    problem = build_problem(model, "prior", runner.compiler, runner.seeds)
    n_steps = 300
    settings = np.full(n_steps, 0.3), np.zeros(n_steps, int), (np.ones(2),), np.full(n_steps, 0.7)
    ladder = Ladder(Schedule(np.concatenate([[0.0], np.logspace(-6.0, 0.0, n_steps)])), *settings, resample_below=0.0)
    runs = [anneal_alive(problem, ladder, runner.next_round(), lambda *_: None, runner) for _ in range(60)]
    shares = [np.isfinite(run.log_weights).mean() for run in runs]
    assert min(shares) < 1.0  # where fewer of the draws than should be enough can be held
    assert np.mean(shares) > 0.9
    ratios = np.exp([run.log_z[0] - exact for run in runs])
    assert_mean(ratios, 1.0)
    assert ratios.std() < 1.0


def halves():
    """Six shrunk slopes, whose joint density has no mode, and the size of a number whose sign nothing tells."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(40, 6))
    with pm.Model() as model:
        tau, local = pm.HalfStudentT("tau", 2, 0.2), pm.HalfStudentT("local", 3, 1.0, shape=6)
        slopes = pm.Normal("z", 0.0, 1.0, shape=6) * tau * local
        pm.Normal("y", x @ slopes, 1.0, observed=x[:, 0] * 2.0 + rng.normal(size=40))
        number = pm.Normal("number", 0.0, 1.0)
        pm.Normal("size", 10.0 * pm.math.abs(number), 1.0, observed=8.0)
    return model


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
@pytest.mark.parametrize(("part", "is_confirmed"), [("both", True), ("positive", False)])
def test_a_fit_to_one_of_two_halves_gives_way_to_the_prior(monkeypatch, part, is_confirmed):
    model, run_rounds, priors = halves(), stages.run_rounds, []

    def doubt(problem, plan, runner):
        if problem.is_prior:
            priors.append((problem, plan))
            return run_rounds(problem, plan, runner)
        fallback = Fallback(lambda: priors[0], int(priors[0][1].lengths[0]))
        plan = replace(plan, n_confirming=0.0, fallback=fallback)
        return run_rounds(problem, plan, runner)

    monkeypatch.setattr(stages, "run_rounds", doubt)
    monkeypatch.setattr(stages, "find_modes", lambda *_: None)
    monkeypatch.setattr(stages, "_AFFORDABLE", 100.0)
    whole, idata = estimate(model, reference="prior", draws=1000, random_seed=1)
    posterior = idata["posterior"].dataset
    draws = {name: posterior[name].values.reshape(-1, *posterior[name].shape[2:]) for name in posterior}
    is_chosen = np.abs(draws["number"]) > 0.0 if part == "both" else draws["number"] > 0.0
    assert is_chosen.mean() > 0.4
    fit = az.from_dict({"posterior": {name: values[is_chosen][None] for name, values in draws.items()}})
    found, idata = estimate(model, reference=fit, random_seed=2)
    assert (idata["posterior"].attrs["reference"] != "the prior") == is_confirmed
    assert abs(found.value - whole.value) < 4.0 * np.hypot(found.se, whole.se)
    assert found.se < 0.2
