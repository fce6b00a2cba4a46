"""Starts by a fit are confirmed by draws of the prior, or carry a finding."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp
from scipy.stats import invgamma

import pymc_hais
from pymc_hais.calls import stages
from pymc_hais.estimators import LogZEstimate, Tail
from pymc_hais.planning import confirm
from pymc_hais.planning.confirm import AGREEMENT, Witness, tolerance
from pymc_hais.results.findings.plan import check_start
from pymc_hais.run.arrivals import Arrivals
from pymc_hais.run.evidence import Evidence
from pymc_hais.run.plan import Fallback
from pymc_hais.run.row_evidence import RowEvidence, count_unconfirmed
from tests import bits
from tests.front_door import assert_right, estimate
from tests.runs import build_run, plan_of, still


def pilot(n_families, n_stages=5):
    return SimpleNamespace(n_families=n_families, positions=np.zeros((500, 2)), betas=np.ones(n_stages))


def test_pilots_of_many_families_may_differ_by_less_than_pilots_of_few():
    # A pilot of n independent families has a relative variance of Z of about 1 / n.
    many, few = tolerance(pilot(400), pilot(100)), tolerance(pilot(400), pilot(2))
    bias = 2 / 500 * 5
    assert many == pytest.approx(3.0 * np.sqrt(1 / 400 + 1 / 100) + bias)
    assert few == pytest.approx(AGREEMENT + bias)


def fit_and_prior(of_fit, of_prior):
    """Return trials from a fit and from the prior, whose pilots have found these log Z from ten and two draws."""

    def trial(label, log_z, n_families, length):
        problem = SimpleNamespace(label=label, is_costly=False, engine=SimpleNamespace(source=None))
        runner = SimpleNamespace(sampling=SimpleNamespace(draws=1000, chains=4))
        pilots = [SimpleNamespace(log_z=log_z, **vars(pilot(n_families)))]
        return SimpleNamespace(
            problem=problem, pilots=pilots, plan=SimpleNamespace(log_prior_mass=0.0), runner=runner, length=length
        )

    return trial("a fit", of_fit, 10.0, 260), trial("the prior", of_prior, 2.0, 2000)


# Of a horseshoe pilots from a fit were up to 7 nats too low, and its rounds right; 2 nats mean that mass is missed.
# A population that descends from two draws and finds less says no more than the pilot.
@pytest.mark.parametrize(
    ("along_the_fit", "n_families", "refused_at"),
    [(-157.1, 10.0, None), (-157.1, 2.0, None), (-160.5, 10.0, -160.5), (-158.9, 2.0, -160.8)],
)
def test_a_fit_is_refused_where_a_population_along_its_own_schedule_finds_less_too(
    along_the_fit, n_families, refused_at, monkeypatch
):
    found = {"a fit": (along_the_fit, n_families), "the prior": (-158.3, 10.0)}

    def anneal_few(problem, plan, runner):
        return Witness(*found[problem.label], SimpleNamespace(log_weights=np.zeros((1, 500))))

    monkeypatch.setattr(confirm, "anneal_few", anneal_few)
    confirmed = confirm.confirm(*fit_and_prior(of_fit=-160.8, of_prior=-158.0))
    assert (confirmed.against is not None) == (refused_at is not None)
    if refused_at is None:
        assert confirmed.n_draws >= 5.0
    else:
        assert f"-158.3 instead of {refused_at}" in confirmed.against


@pytest.mark.parametrize(("n_confirming", "is_found"), [(np.inf, False), (5.0, True), (305.0, False)])
def test_a_fit_that_few_draws_of_the_prior_led_to_is_a_finding(n_confirming, is_found):
    plan = SimpleNamespace(n_confirming=n_confirming, fallback=Fallback(None, 740), stretch=1)
    evidence = SimpleNamespace(plan=plan_of(), seconds_per_move=1e-6)
    call = SimpleNamespace(sampling=SimpleNamespace(draws=1000, chains=4))
    found = list(check_start(plan, evidence, call))
    assert [one.name for one in found] == ["unconfirmed"] * is_found
    if is_found:
        assert found[0].severity == "error"
        assert "about 5 effective draws" in found[0].message
        assert "740 temperatures" in found[0].advice


def test_the_error_holds_what_draws_of_the_prior_may_have_missed():
    row = RowEvidence(LogZEstimate(-3.0, 0.01, -3.02, -2.98), None, ())
    # A part of Z that 50 independent draws miss is about 1/50 of it.
    assert count_unconfirmed(row, 50.0).estimate.shortfall == pytest.approx(np.log1p(1 / 50))
    assert count_unconfirmed(row, np.inf) is row


def test_each_start_that_rounds_refute_gives_way_to_the_next(monkeypatch):
    row = RowEvidence(LogZEstimate(-3.0, 0.01, -3.02, -2.98), None, ())
    # All weight is on one particle of the first start, and on another one of the second.
    places = iter([1.0, 2.0, 3.0])
    searched = []

    def refute(problem, plan, _):
        place = next(places)
        log_weights = np.where(np.arange(100) == 7, 0.0, -np.inf)[None]
        state = still(1, 100)._replace(position=np.where(np.arange(100) == 7, place, 0.0)[None, :, None])
        run = build_run(log_weights, [0.0], state=state)
        return Evidence(problem, plan, (row,), None, run, "refuted" if plan.fallback else "target_se", 100)

    monkeypatch.setattr(stages, "with_fewer_particles", lambda problem, plan, _: plan)
    monkeypatch.setattr(stages, "log_start", lambda *_: None)
    monkeypatch.setattr(stages, "find_modes", lambda evidence, runner, points, seen: searched.append(seen))
    monkeypatch.setattr(stages, "run_rounds", refute)
    problem = SimpleNamespace(label="a fit", is_prior=False, layout=SimpleNamespace(n_sites=0), to_model=lambda x: x)
    second = plan_of(fallback=Fallback(lambda: (problem, plan_of())))
    found = stages.run_until_confirmed(problem, plan_of(fallback=Fallback(lambda: (problem, second))), None, None)
    assert found.stopped_by == "target_se"
    assert "spoke against that start" in found.plan.reason
    assert [np.unique(points).tolist() for points in searched] == [[1.0, 2.0]]


@pytest.mark.exhaustive
def test_a_plan_and_an_extension_keep_what_may_have_been_missed(monkeypatch):
    monkeypatch.setattr("pymc_hais.calls.stages.find_modes", lambda *_: None)
    x = np.random.default_rng(4).normal(size=(60, 3))
    with pm.Model() as model:
        slopes, scale = pm.Normal("slopes", 0.0, 5.0, shape=3), pm.HalfNormal("scale", 5.0)
        pm.StudentT("y", 4.0, mu=x @ slopes, sigma=scale, observed=x @ [1.0, 2.0, -1.0] + x[:, 0] * x[:, 1])
    options = {"model": model, "draws": 200, "chains": 2, "progressbar": False, "random_seed": 1}
    idata = pm.sample_hais(**options)
    assert "fitted" in idata["posterior"].attrs["reference"]
    longer = pymc_hais.extend(idata, chains=2, model=model, progressbar=False)
    least = np.log1p(1 / 200)  # the pilot's particles descend from fewer draws than that
    assert pymc_hais.log_marginal_likelihood(idata).shortfall > least
    assert pymc_hais.log_marginal_likelihood(longer).shortfall > least
    assert pymc_hais.log_marginal_likelihood(pm.sample_hais(**options, plan=idata)).shortfall > least


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_the_second_run_keeps_what_the_first_has_measured(seed):
    """A spike on top of a hill in ten dimensions: log Z = log 10, with a tenth of the draws on the hill."""
    n_dims, width = 10, 0.05
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 3.0, shape=n_dims)
        prior = pm.logp(pm.Normal.dist(0.0, 3.0), x).sum()
        hill = pm.logp(pm.Normal.dist(), x).sum()
        spike = pm.logp(pm.Normal.dist(0.0, width), x).sum()
        pm.Potential("both", pm.math.logaddexp(hill, np.log(9.0) + spike) - prior)
    idata = pm.sample_hais(model=model, random_seed=seed, progressbar=False)
    estimate = pymc_hais.log_marginal_likelihood(idata)
    assert abs(estimate.value - np.log(10.0)) < 4.5 * estimate.se
    assert estimate.se < 0.2
    radius = np.linalg.norm(idata["posterior"]["x"].values, axis=-1)
    assert np.mean(radius > 10 * width) == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize(("mass", "is_worth"), [(0.02, True), (0.0, False)])
def test_evaluations_that_a_small_tail_spared_may_go_to_the_prior(mass, is_worth):
    """The prior takes 900 temperatures, the tail would have had 500 and the fit has taken 50."""
    tail, prior = Tail(4.0, mass, 500), Fallback(None, 900)
    plan = SimpleNamespace(n_confirming=10.0, fallback=prior, tail=tail, seconds_per_gradient=1e-6, stretch=1)
    run, kernel = SimpleNamespace(log_weights=np.zeros((4, 100))), SimpleNamespace(n_gradients=1)
    problem = SimpleNamespace(engine=SimpleNamespace(kernel=kernel))
    evidence = SimpleNamespace(plan=plan, run=run, problem=problem, stopped_by="target_se")
    ledger = SimpleNamespace(gradients=Counter(rounds=50 * 400))
    runner = SimpleNamespace(ledger=ledger, clock=SimpleNamespace(left=np.inf))
    assert stages._is_doubted(evidence, plan.fallback)
    assert stages._is_round_affordable(evidence, runner) == is_worth


def doubted_fit(n_confirming):
    """A fit; a round from the prior has 90 temperatures, so that a chain makes 346 transitions."""
    plan = plan_of(n_confirming=n_confirming, fallback=Fallback(lambda: (SimpleNamespace(is_prior=True), None), 90))
    engine = SimpleNamespace(kernel=SimpleNamespace(n_gradients=1), tile=lambda n: n)
    problem = SimpleNamespace(engine=engine, is_prior=True)
    row = RowEvidence(LogZEstimate(-3.0, 0.01, -3.02, -2.98), None, ())
    evidence = Evidence(problem, plan, (row,), None, build_run(np.zeros((4, 1000)), [0.0] * 4), "target_se", 1000)
    ledger = SimpleNamespace(gradients=Counter())
    return evidence, SimpleNamespace(ledger=ledger, clock=SimpleNamespace(left=np.inf))


LATE, ELSEWHERE = Arrivals(60, n_late=30), Arrivals(60, n_elsewhere=30)


@pytest.mark.parametrize(
    ("gradients", "found", "asked_for", "n_confirmed"),
    [
        (150_000, [Arrivals(90)], [(90, 100, 8)], 102.0),
        (150_000, [ELSEWHERE], [(90, 100, 8)], 12.0),
        # Of 10 that arrive, no test could say that they are not at half of the place: 16 are needed.
        (150_000, [Arrivals(10), Arrivals(40)], [(90, 100, 8), (90, 320, 8)], 52.0),
        (150_000, [Arrivals(10), Arrivals(15)], [(90, 100, 8), (90, 320, 8)], 12.0),  # more would cost too much
        (150_000, [LATE, Arrivals(90)], [(90, 100, 8), (360, 100, 8)], 102.0),
        (150_000, [Arrivals(60, n_elsewhere=4, n_late=30), Arrivals(90)], [(90, 100, 8), (360, 125, 8)], 102.0),
        (150_000, [LATE, LATE], [(90, 100, 8), (360, 100, 8)], 12.0),
        (15_000, [], [], 12.0),
        (350_000, [Arrivals(450)], [(90, 500, 8)], 462.0),  # a program for so many is compiled
    ],
)
def test_chains_from_the_prior_confirm_a_fit(monkeypatch, gradients, found, asked_for, n_confirmed):
    asked, left = [], iter(found)

    def count(evidence, prior, plan, length, n_chains, n_missing, runner, most):
        asked.append((length, n_chains, n_missing))
        runner.ledger.gradients["rounds"] += n_chains * 346
        return next(left), length + stages.moves_on(length)

    monkeypatch.setattr(stages, "count_arrivals", count)
    evidence, runner = doubted_fit(12.0)
    runner.ledger.gradients["rounds"] = gradients
    assert stages._ask_prior(evidence, evidence.plan.fallback, runner).plan.n_confirming == n_confirmed
    assert asked == asked_for


@pytest.mark.slow
def test_a_fit_that_too_little_speaks_for_gives_way_to_the_prior_where_that_costs_little(monkeypatch):
    monkeypatch.setattr(stages, "FEWEST_FAMILIES", np.inf)
    monkeypatch.setattr(stages, "_AFFORDABLE", 0.0)
    _, fitted = estimate(bits.regression(), random_seed=1)
    assert "fitted" in fitted["posterior"].attrs["reference"]
    monkeypatch.setattr(stages, "_AFFORDABLE", 20.0)
    found, idata = estimate(bits.regression(), random_seed=1)
    attrs = idata["posterior"].attrs
    assert attrs["reference"] == "the prior"
    assert "confirmed by too few draws" in attrs["reference_reason"]
    assert attrs["n_gradients"] > fitted["posterior"].attrs["n_gradients"]
    assert not [one for one in found.findings if one.severity == "error"]


def vague_regression(sd, shape, n=100, p=2):
    """Return a regression whose priors are a thousand times as wide as its posterior, and log Z by quadrature."""
    rng = np.random.default_rng(1)
    x = np.column_stack([np.ones(n), rng.normal(size=(n, p))])
    y = x @ rng.normal(size=p + 1) + rng.normal(size=n)
    with pm.Model() as model:
        variance = pm.InverseGamma("variance", shape, shape)
        pm.Normal("y", x @ pm.Normal("b", 0.0, sd, shape=p + 1), pm.math.sqrt(variance), observed=y)
    logs = np.linspace(-3.0, 4.0, 2001)
    values, vectors = np.linalg.eigh(sd**2 * x @ x.T)
    spread = np.exp(logs)[:, None] + np.maximum(values, 0.0)
    of_data = -0.5 * np.sum((vectors.T @ y) ** 2 / spread + np.log(2.0 * np.pi * spread), axis=1)
    of_variance = invgamma.logpdf(np.exp(logs), shape, scale=shape) + logs
    return model, logsumexp(of_data + of_variance) + np.log(logs[1] - logs[0])


@pytest.mark.slow
@pytest.mark.every(2)
@pytest.mark.parametrize(("sd", "shape"), [(1e3, 0.01), (1e4, 0.001), (10.0, 0.1)])
def test_draws_of_a_vague_prior_climb_to_the_fit(sd, shape):
    model, truth = vague_regression(sd, shape)
    found, idata = estimate(model)
    assert "fitted" in idata["posterior"].attrs["reference"]
    assert not found.findings
    assert_right(found, truth)


def test_a_start_that_known_modes_are_part_of_says_nothing(monkeypatch):
    monkeypatch.setattr(stages, "count_arrivals", None)
    evidence, runner = doubted_fit(12.0)
    runner.ledger.gradients["rounds"] = 10**9
    beside = Fallback(lambda: (SimpleNamespace(is_prior=False), None), 90)
    assert stages._ask_prior(evidence, beside, runner) is evidence


def test_nothing_is_affordable_when_the_time_is_over():
    evidence, runner = doubted_fit(12.0)
    runner.ledger.gradients["rounds"] = 10**9
    assert evidence.plan.seconds_per_gradient == 0.0  # no pilot has measured it
    assert stages._affordable(evidence, runner) == 2e9
    runner.clock.left = 0.0
    assert stages._affordable(evidence, runner) == 0.0
