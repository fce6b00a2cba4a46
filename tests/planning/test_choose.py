"""What ``reference="auto"`` decides, and that it says why."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import gammaln
from scipy.stats import norm, poisson

import pymc_hais
from pymc_hais import LinearConstraints
from pymc_hais.core.noise import check_counters
from pymc_hais.planning import confirm, fitted_starts, learning
from pymc_hais.planning.choose import choose
from pymc_hais.planning.learning import adaptation_bias
from pymc_hais.planning.starts import Search, first_reference
from pymc_hais.problem.building import build_problem
from pymc_hais.problem.problem import CHUNK, Compiler, Problem
from pymc_hais.references import Box, Gaussian, StudentT
from pymc_hais.runner.ledger import PILOT
from tests.front_door import assert_right, estimate
from tests.runs import build_pilot, call_of


@pytest.fixture(scope="module")
def call():
    return call_of(draws=500, chains=2, target_se=0.1)


@pytest.fixture(scope="module")
def far(call):
    """A posterior a long way from its prior: 30 well determined coefficients."""
    rng = np.random.default_rng(8)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 10, shape=30)
        pm.Normal("y", rng.normal(size=(100, 30)) @ b, 0.3, observed=rng.normal(size=100))
    return build_problem(model, "prior", Compiler(), call.seeds, takes_fit=True)


@pytest.fixture(scope="module")
def ran(far, call):
    """Both pilots of the problem, run once."""
    pilots = []

    def keep(*arguments):
        pilots.append(run(*arguments))
        return pilots[-1]

    run, learning.run_pilots = learning.run_pilots, keep
    try:
        return choose(Search(far, "auto", call)), pilots
    finally:
        learning.run_pilots = run


@pytest.fixture
def again(ran, monkeypatch):
    """Let the pilots be those, without running them again; any from a fit is the second."""
    monkeypatch.setattr(learning, "run_pilots", lambda problem, rows, number, *_: ran[1][min(number, 1)])
    return monkeypatch


@pytest.mark.slow
def test_a_near_fit_is_taken_and_both_pilots_are_counted(far, call, ran):
    (problem, plan), ((first,), (second,)) = ran
    # Particles do not tell enough of 30 dimensions; the curvature at the mode does.
    assert problem.label == "the prior (10%) and a Gaussian fitted to the mode (90%)"
    assert "From the prior alone, " in plan.reason
    assert int(plan.lengths[0]) < 100
    judging = call.ledger.gradients[PILOT] - first.n_gradients - second.n_gradients
    assert judging > 0
    assert judging % CHUNK == 0
    assert plan.pilot is second


@pytest.mark.slow
def test_the_tail_of_a_fit_is_that_of_both_pilots_each_read_as_its_own(far, call, again, ran):
    read, log_ratios = [], learning.log_ratios

    def note(problem, rows, pilots, source=None):
        read.append((problem, [*rows], pilots, source))
        return log_ratios(problem, rows, pilots, source)

    again.setattr(learning, "log_ratios", note)
    near, _ = choose(Search(far, "auto", call))
    first, second = ran[1]
    assert [(one[1], one[2], one[3]) for one in read] == [([0], first, None), ([0], first, far), ([0], second, None)]
    assert read[0][0] is far
    assert read[1][0] is read[2][0] is near


@pytest.mark.slow
def test_another_reference_is_kept_without_a_second_pilot(far, call, again, ran):
    problem, plan = choose(Search(far, "prior", call))
    assert problem is far
    assert plan.reason == "Chosen by the user."
    assert plan.pilot is ran[1][0][0]
    assert choose(Search(far, "fitted", call))[1].reason == "Chosen by the user."


@pytest.mark.slow
def test_a_start_that_needs_few_temperatures_is_kept_without_a_second_pilot(far, call, again):
    again.setattr(fitted_starts, "_NEAR_MOVES", 10**6)
    problem, plan = choose(Search(far, "auto", call))
    assert problem is far
    assert "would not save time" in plan.reason
    assert choose(Search(far, "fitted", call))[0] is not far


@pytest.mark.slow
def test_pilots_that_disagree_keep_the_prior_where_nothing_else_is_asked(far, call, again):
    again.setattr(Problem, "is_one_hill", property(lambda _: False))
    again.setattr(confirm, "tolerance", lambda *_: -np.inf)
    assert choose(Search(far, "auto", call))[0] is not far  # a population from the prior agrees with the fit
    again.setattr(confirm, "_PARTICLES", 10**9)  # too many for one
    problem, plan = choose(Search(far, "auto", call))
    assert problem is far
    assert "misses something" in plan.reason


@pytest.mark.slow
def test_a_fit_that_needs_more_temperatures_is_not_taken(far, call, again):
    again.setattr(learning, "_shortest", lambda problem, *_: 16 if problem.is_prior else 10**6)
    problem, plan = choose(Search(far, "auto", call))
    assert problem is far
    assert "10,000 temperatures would be needed" in plan.reason


def trial(length, n_rows=1, log_z=0.0, left=np.inf, n_families=300.0):
    sampling = SimpleNamespace(chains=4, draws=1000)
    return SimpleNamespace(
        problem=SimpleNamespace(n_rows=n_rows, label="the prior"), length=length, rows=[0],
        centres=None, residuals=None,
        plan=SimpleNamespace(is_tuned=True, seconds_per_gradient=1e-3),
        pilots=[SimpleNamespace(log_z=log_z, n_families=n_families, positions=np.zeros((500, 1)), betas=[1.0])],
        runner=SimpleNamespace(sampling=sampling, clock=SimpleNamespace(left=left)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("tried", "other", "is_taken"),
    [
        (trial(9, n_families=2.0), trial(192, log_z=-3.0, n_families=96.0), True),  # the first start takes 600
        (trial(9, n_families=2.0), trial(192, n_families=3.0), False),
        (trial(2144), trial(36), True),
        (trial(2144), trial(3000), False),
        (trial(2144), trial(36, log_z=-3.0), False),  # it misses something
        (trial(2144), trial(36, n_families=3.0), False),  # its own particles descend from few draws
        (trial(2144), "No particle has a density above zero.", False),
        (trial(100), None, False),  # hardly longer than a pilot: no other is run
        (trial(2144, n_rows=3), None, False),
        (trial(2144, left=10.0), None, False),  # seconds for a pilot of 15
    ],
)
def test_a_fit_that_needs_a_long_round_is_fitted_again(tried, other, is_taken, monkeypatch):
    def learn(problem, number):
        assert other is not None
        return other

    monkeypatch.setattr(fitted_starts, "fit_to", lambda *_: None)
    search = SimpleNamespace(log_prior_mass=0.0, learn=learn, best=trial(600, n_families=30.0))
    assert fitted_starts._or_better(tried, search) is (other if is_taken else tried)


def test_a_fit_that_is_a_worse_start_than_a_short_one_is_not_fitted_again():
    tried = trial(9, n_families=2.0)
    search = SimpleNamespace(best=trial(100, n_families=30.0))  # no other pilot
    assert fitted_starts._or_better(tried, search) is tried


@pytest.mark.slow
def test_a_second_fit_saves_a_poor_one():
    """Processes of the mean and of the noise, whose first fit has particles that descend from two draws.

    Calls with ``reference=pm.sample(target_accept=0.9)`` gave -34.984 +- 0.071, -35.058 +- 0.060 and -35.034 +- 0.065.
    """
    rng = np.random.default_rng(12)
    x = np.sort(rng.uniform(0.0, 4.0, 60))
    y = np.sin(2.0 * x) + 0.3 * np.exp(-1.0 + 0.5 * x) * rng.normal(size=60)
    with pm.Model() as model:

        def process(name, scale, length, n):
            covariance = pm.HalfNormal(scale, 1.0) ** 2 * pm.gp.cov.ExpQuad(1, pm.InverseGamma(length, 3.0, 3.0))
            return pm.gp.HSGP(m=[n], c=1.6, cov_func=covariance).prior(name, x[:, None])

        mean = process("f", "eta", "ls", 15)
        log_noise = process("g", "eta2", "ls2", 10) + pm.Normal("c", -1.0, 1.0)
        pm.Normal("y", mean, pt.exp(log_noise), observed=y)
    estimate = pymc_hais.log_marginal_likelihood(pm.sample_hais(model=model, random_seed=1, quiet=True))
    assert abs(estimate.value + 35.03) < 4.5 * np.hypot(estimate.se, 0.04)
    assert estimate.se < 0.15


@pytest.mark.slow
def test_a_second_fit_has_the_right_log_z(monkeypatch):
    """Three counts with a mean of their own each: log Z by quadrature."""
    counts, found = [50, 200, 1000], []
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(pm.Normal("x", 0.0, 5.0, shape=3)), observed=counts)
    x = np.linspace(-10.0, 20.0, 300_001)
    logs = [poisson.logpmf(n, np.exp(x)) + norm.logpdf(x, 0.0, 5.0) for n in counts]
    truth = float(np.sum([np.log(np.exp(one).sum() * (x[1] - x[0])) for one in logs]))
    fit_to = fitted_starts.fit_to
    variances = iter([0.1, 1.0, 1.0])  # for the second fit, the first fit, and the fit that is taken

    def keep(*arguments):
        found.append(fit_to(*arguments))
        return found[-1]

    monkeypatch.setattr(fitted_starts, "_LONG_ROUND", 0.0)
    monkeypatch.setattr(fitted_starts, "_variance_beside", lambda one, best: next(variances))
    monkeypatch.setattr(fitted_starts, "fit_to", keep)
    estimated, idata = estimate(model)
    assert len(found) == 2
    assert next(variances, None) is None
    assert "fitted to the pilot" in idata["posterior"].attrs["reference"]
    assert_right(estimated, truth)
    assert estimated.se < 0.1


@pytest.mark.slow
def test_a_target_that_is_hard_to_meet_is_planned_for(far, call, again):
    lengths = [
        int(choose(Search(far, "prior", call.with_sampling(target_se=target)))[1].lengths[0])
        for target in (None, 1.0, 0.1, 0.05, 0.001)
    ]
    # 1000 particles leave a hundredth of a squared standard error of 0.1 to each: the log weights may vary by 10, with
    # room by 4, and for half of the error by a quarter of that.
    assert lengths[0] == lengths[1] < lengths[2] < lengths[3]
    np.testing.assert_allclose(lengths[3] / lengths[2], 4.0, rtol=0.01)
    assert lengths[4] == call.sampling.max_temperatures
    assert choose(Search(far, "prior", call.with_sampling(n_temperatures=7)))[1].lengths.tolist() == [7]


def test_a_pilot_of_many_stages_in_many_dimensions_may_lie_high():
    """150 correlated coefficients: 148 stages of 1,000 particles carried a pilot's log Z up by 8 nats."""
    pilot = replace(build_pilot(), betas=np.linspace(0.01, 1.0, 148), positions=np.zeros((1000, 150)))
    assert adaptation_bias(pilot) == pytest.approx(148 * 0.15)
    few = replace(pilot, positions=np.zeros((1000, 2)))
    assert adaptation_bias(few) < 0.3
    many = replace(pilot, positions=np.zeros((500, 1000)))
    assert adaptation_bias(many) == pytest.approx(4.0)


def test_populations_with_more_numbers_than_counters_are_refused():
    check_counters(2**32 // 6, 10)
    with pytest.raises(ValueError, match="pass at most 715827882 draws"):
        check_counters(2**32 // 6 + 1, 10)


def test_where_the_first_pilot_starts():
    with pm.Model() as proper:
        pm.Normal("x")
    with pm.Model() as improper:
        x = pm.Flat("x", shape=2)
        pm.Potential("energy", -(x**2).sum())
    for name in ("auto", "fitted"):
        assert first_reference(name, proper) == "prior"
        assert isinstance(first_reference(name, improper), StudentT)
    assert first_reference("gaussian", improper) == "gaussian"
    assert isinstance(first_reference(Gaussian(), improper), Gaussian)
    box = first_reference("auto", improper, LinearConstraints([[0.0, -2.0], [1.0, 0.0], [1.0, 1.0]], [4.0, 3.0, 9.0]))
    assert isinstance(box, Box)
    np.testing.assert_array_equal(box.lower, [-np.inf, -2.0])
    np.testing.assert_array_equal(box.upper, [3.0, np.inf])
    with improper:
        pm.Normal("y", x, observed=np.zeros(2))
    assert first_reference("auto", improper) == "prior"  # and the prior will be refused by name
    assert isinstance(first_reference("fitted", improper), StudentT)


# Rows of data ----------------------------------------------------------------------------------------------------


class Scouted:
    """A start whose short round of ten temperatures gave each row a value and an error."""

    problem = SimpleNamespace(label="the prior", n_rows=4)
    runner = SimpleNamespace(sampling=SimpleNamespace(target_se=0.1))
    length = 500

    def __init__(self, values, errors):
        estimates = [SimpleNamespace(value=value, se=se) for value, se in zip(values, errors, strict=True)]
        rounds = [SimpleNamespace(n_steps=10)]
        scouted = tuple(SimpleNamespace(estimate=one, rounds=rounds) for one in estimates)
        self.plan = SimpleNamespace(scouted=scouted)
        self.reason = ""

    def because(self, reason):
        self.reason = reason
        return self


@pytest.mark.parametrize(
    ("values", "errors", "reason"),
    [
        ([-3.0, -5.0, -4.0, -6.0], [0.1, 0.1, 0.1, 0.1], "From the prior alone, 500"),
        ([-3.0, -5.0, -4.2, -6.2], [0.1, 0.1, 0.1, 0.1], "From the prior alone, 500"),  # by chance
        ([-3.0, -5.0, -4.0, -9.0], [0.1, 0.1, 0.1, 0.1], "misses something, 0.74 nats"),  # of one row unlike the others
        (
            [-3.0, -5.0, -4.0, -6.0],
            [0.1, 0.1, 0.1, 0.9],
            "takes 840 temperatures in all, no fewer than",
        ),
        ([-3.0, -5.0, -4.0, -6.0], [0.3] * 4, "takes 360 temperatures in all, no fewer than without one (360)"),
    ],
)
def test_a_short_round_of_all_rows_judges_a_fit(values, errors, reason):
    prior, fit = Scouted([-3.0, -5.0, -4.0, -6.0], [0.3] * 4), Scouted(values, errors)
    found = fitted_starts._accept(fit, SimpleNamespace(best=prior))
    assert reason in (fit.reason if found is fit else found)
    assert (found is fit) == ("alone" in reason)


def test_a_hill_that_no_pilot_reaches_is_climbed():
    """A prior of 200 standard deviations from the data: log Z is that of a negative binomial distribution."""
    y = np.random.default_rng(0).poisson(1000, size=200)
    with pm.Model() as model:
        pm.Poisson("y", pm.Gamma("rate", 9000.0, 900.0), observed=y)
    value, idata = estimate(model, random_seed=1)
    a, b, n, total = 9000.0, 900.0, len(y), float(y.sum())
    exact = a * np.log(b) - gammaln(a) + gammaln(a + total) - (a + total) * np.log(b + n) - gammaln(y + 1.0).sum()
    np.testing.assert_allclose(value.value, exact, rtol=0.0, atol=5.0 * value.se + 1e-3)
    assert "Climbs end at one mode" in idata["posterior"].attrs["reference_reason"]
    assert idata["posterior"].attrs["n_gradients_pilot"] > 0


@pytest.mark.slow
def test_a_target_too_far_away_that_may_have_other_hills_is_refused():
    y = np.random.default_rng(0).poisson(1000, size=200)
    with pm.Model() as model:
        rate = pm.Gamma("rate", 9000.0, 900.0)
        pm.Poisson("y", rate + 1e-9 * rate**2, observed=y)
    message = r"standard deviations of the prior away .* or pass a point of the target"
    with pytest.raises(RuntimeError, match=message) as refusal:
        estimate(model, random_seed=1)
    assert refusal.value.__notes__ == ["No start at the mode: the density is not proven to have one hill."]
