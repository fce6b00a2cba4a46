"""A mass that the run has not visited: it is in log Z, or an error says so, and `modes=` puts it there."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from xarray import Dataset, DataTree

import pymc_hais
from pymc_hais.calls import stages
from pymc_hais.estimators.region import compare_regions
from pymc_hais.inputs.draws import read_modes
from pymc_hais.planning.building import compile_first
from pymc_hais.results.findings.others import check_modes
from pymc_hais.run.modes import measured
from pymc_hais.run.modes import search as run_modes
from pymc_hais.run.modes.climbing import Climbed, Joint, Peak, climb, measure_peaks
from tests.front_door import assert_right, estimate
from tests.marks import slow_but
from tests.quick import hierarchy, one_mean, schools, shared
from tests.runs import call_of


def log_normal(x, mean, sd):
    return (-0.5 * ((x - mean) / sd) ** 2 - np.log(sd * np.sqrt(2.0 * np.pi))).sum()


def of_parts(n_dims, parts, prior_sd):
    """Let the joint density be a sum of weighted normals; log Z is the log of the weights' sum."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, prior_sd, shape=n_dims)
        terms = [np.log(weight) + log_normal(x, mean, sd) for weight, mean, sd in parts]
        pm.Potential("parts", pt.logsumexp(pt.stack(terms)) - log_normal(x, 0.0, prior_sd))
    return model, float(np.log(sum(weight for weight, _, _ in parts)))


@cache
def spike(n_dims, centre):
    return of_parts(n_dims, [(1.0, 0.0, 1.0), (100.0, centre, 0.01)], 1.0)


def forty_modes():
    centres = np.random.default_rng(0).uniform(-40.0, 40.0, size=(40, 2))
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 20.0, shape=2)
        distances = ((x[None, :] - centres) ** 2).sum(axis=1)
        log_density = pt.logsumexp(-0.5 * distances) - np.log(40.0 * 2.0 * np.pi)
        pm.Potential("modes", log_density - log_normal(x, 0.0, 20.0))
    return model, 0.0


def errors(found):
    return [finding.name for finding in found.findings if finding.severity == "error"]


class Given:
    """A density of one variable with its first derivative, as climbs take it."""

    precision = np.finfo(np.float64)

    def __init__(self, value, slope):
        self._value, self._slope = value, slope

    def __call__(self, z):
        return self._value(z[:, 0]), self._slope(z)


def test_a_peak_is_where_the_density_is_highest():
    """Of a Cauchy density: from 0.4 the first Newton step goes past the top, to -0.15."""
    cauchy = Given(lambda x: -np.log1p(x**2), lambda x: -2.0 * x / (1.0 + x**2))
    near, far, beyond = measure_peaks(cauchy, np.array([[0.01], [0.4], [0.9]]), np.ones(1))
    assert abs(near.position[0]) < 1e-4
    assert abs(far.position[0]) < 0.01
    assert np.isclose(far.scale[0, 0], np.sqrt(0.5), rtol=0.05)
    assert beyond is None  # too far for the curvature to say anything


def test_a_sharp_kink_is_a_peak():
    """Differences of the gradient make it a parabola as wide as their step, whose top is 0.3 nats lower."""
    kink = Given(lambda x: -5e4 * np.abs(x), lambda x: -5e4 * np.sign(x))
    (peak,) = measure_peaks(kink, np.array([[1e-9]]), np.ones(1))
    assert peak.position[0] == 1e-9
    assert peak.value == -5e-5


def test_an_end_on_a_flat_ridge_is_no_peak_beyond_the_cliff():
    """The slope and the curvature at 50 have the top at 75, where the density is exp(5) nats lower."""
    ridge = Given(lambda x: -1.0 / x - np.exp(x - 70.0), lambda x: x**-2.0 - np.exp(x - 70.0))
    (peak,) = measure_peaks(ridge, np.array([[50.0]]), np.ones(1))
    assert peak is None


MISSED = {
    "a spike on a hill, 2 dimensions": lambda: spike(2, 0.0),
    "a spike on a hill, 10 dimensions": lambda: spike(10, 0.0),
    "a spike near the top": lambda: spike(10, 0.01),
    "two far modes": lambda: of_parts(10, [(1.0, -4.0, 1.0), (3.0, 4.0, 0.5)], 5.0),
    "forty modes": forty_modes,
}


@pytest.mark.slow
@pytest.mark.every(8)
@pytest.mark.parametrize("name", slow_but({"forty modes"}, MISSED))
def test_a_default_call_finds_the_mass(name):
    model, truth = MISSED[name]()
    found, _ = estimate(model)
    assert not errors(found), str(found)
    assert_right(found, truth)


@pytest.mark.exhaustive
def test_what_is_missed_is_measured_and_placed_and_the_advice_helps():
    model, truth = spike(10, 0.01)
    found, idata = estimate(model, draws=200, reference="prior")
    (finding,) = [one for one in found.findings if one.name == "missed_mass"]
    assert "x[0] = 0.01" in finding.message
    group = idata["modes"].to_dataset()
    assert list(group["dimension"].values[:2]) == ["x[0]", "x[1]"]
    assert np.allclose(group["position"][0], 0.01, atol=1e-3)
    # The region holds nine tenths of the spike.
    assert np.isclose(group["log_mass"][0], np.log(90.0), atol=0.1)
    assert group["share"][0] < 1e-3
    assert found.value + group.attrs["gain"] <= truth
    again, _ = estimate(model, draws=200, reference="prior", modes=idata)
    assert not errors(again)
    assert_right(again, truth)


@pytest.mark.parametrize(("energy", "n_blocks"), [(pt.softplus, 0), (pt.log1p, 1)])
def test_blocks_of_variables_climb_where_few_climbs_arrive_unless_the_density_has_one_hill(
    energy, n_blocks, monkeypatch
):
    calls = []
    monkeypatch.setattr(run_modes, "SEARCH", run_modes.SEARCH._replace(hardly_any=1.1))
    monkeypatch.setattr(run_modes, "find_modes_given_others", lambda *_: calls.append(1))
    with pm.Model() as model:
        pm.Potential("energy", -energy(pm.Normal("x") ** 2))
    found, _ = estimate(model)
    assert not errors(found)
    assert len(calls) == n_blocks


@pytest.mark.slow
def test_shares_of_modes_have_errors_that_cover_the_truth():
    """The false-alarm level of both shares is 1e-5."""
    model, _ = of_parts(2, [(0.9, -3.0, 0.5), (0.1, 3.0, 0.5)], 3.0)
    _, idata = estimate(model, draws=500)
    group = idata["modes"].to_dataset()
    assert group.sizes["mode"] == 2
    # Each region holds nine tenths of its mode.
    np.testing.assert_array_less(np.abs(group["share"] - [0.81, 0.09]), 4.5 * group["share_se"])
    np.testing.assert_array_less(group["share_se"], [0.1, 0.03])
    shares = [
        f"{share:.2f} ± {se:.2f}" for share, se in zip(group["share"].values, group["share_se"].values, strict=True)
    ]
    assert f"Shares of the posterior around the modes: {shares[0]}, {shares[1]}\n" in str(pymc_hais.summary(idata))


@pytest.mark.slow
def test_a_run_that_has_missed_modes_is_made_again_from_these_and_says_so(caplog, monkeypatch):
    model, truth = spike(10, 0.01)
    with caplog.at_level("INFO", logger="pymc.hais"):
        found, idata = estimate(model, draws=200)
    assert_right(found, truth)
    assert "misses modes that a search has found" in caplog.text
    attrs = idata["posterior"].attrs
    assert "had missed modes" in attrs["reference_reason"]
    assert "Gaussian" in attrs["reference"]
    with monkeypatch.context() as patch:
        patch.setattr("pymc_hais.calls.sample.run_from_missed_modes", lambda evidence, _, runner: (evidence, runner))
        _, once = estimate(model, draws=200)
    # The first run's round and search are counted; it makes no final moves, as no draws are taken from it.
    of_round = 2 * 200 * (1 + once["posterior"].attrs["n_temperatures"])
    assert attrs["n_gradients"] > of_round + once["modes"].attrs["n_gradients"]
    # What follows goes on from the run that is reported.
    again = pymc_hais.extend(idata, chains=2, model=model, progressbar=False)
    assert_right(pymc_hais.log_marginal_likelihood(again), truth)
    found, _ = estimate(model, draws=200, plan=idata)
    assert_right(found, truth)


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize("given", [{"target_se": None}, {"reference": "prior"}, {"max_seconds": 1e-3}])
def test_no_other_run_is_made_where_one_was_asked_for_or_there_is_no_time(given, monkeypatch):
    monkeypatch.setattr(stages, "start_beside", lambda *_: pytest.fail("another run has begun"))
    monkeypatch.setattr(run_modes, "SEARCH", run_modes.SEARCH._replace(share_of_time=np.inf))  # the search itself ends
    found, _ = estimate(spike(10, 0.01)[0], draws=200, **given)
    assert found.value < 1.0


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize("error", [RuntimeError("injected"), KeyboardInterrupt()])
def test_the_first_run_is_kept_where_the_other_one_does_not_end(error, monkeypatch):
    def fail(*_):
        raise error

    monkeypatch.setattr(stages, "start_beside", fail)
    found, idata = estimate(spike(10, 0.01)[0], draws=200)
    assert {"missed_mass", "unfinished"} <= {finding.name for finding in found.findings}
    assert "posterior" in idata.children


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bits_in_its_second_half(tmp_path, monkeypatch):
    model, _ = spike(10, 0.01)
    options = {"draws": 200, "checkpoint": tmp_path / "kept"}
    whole, _ = estimate(model, draws=200)

    def fail(*_):
        raise OSError("the machine is gone")

    with monkeypatch.context() as patch:
        patch.setattr(stages, "start_beside", fail)
        with pytest.raises(OSError, match="gone"):
            estimate(model, **options)
    again, _ = estimate(model, **options)
    assert (again.value, again.se) == (whole.value, whole.se)


@pytest.mark.slow
def test_a_named_point_leads_to_a_spike_that_nothing_else_leads_to():
    model, truth = spike(10, 0.3)
    found, idata = estimate(model, modes={"x": np.full(10, 0.305)})
    assert_right(found, truth)
    assert not found.findings
    assert "Gaussian" in idata["posterior"].attrs["reference"]


@pytest.mark.slow
def test_the_check_needs_the_runs_own_share(monkeypatch):
    """A mutant that counts every mass as missed raises an alarm on an honest run; the check does not."""
    found, _ = estimate(shared(one_mean), draws=200)
    assert not found.findings

    def without_share(log_z, masses, shares, errors):
        return compare_regions(log_z, masses, 0.0 * shares, errors)

    monkeypatch.setattr(measured, "compare_regions", without_share)
    found, _ = estimate(shared(one_mean), draws=200)
    assert errors(found) == ["missed_mass"]


@pytest.mark.slow
def test_the_check_needs_fresh_draws_of_the_mass(monkeypatch):
    """A mutant without any mass finds nothing where there is a spike."""
    monkeypatch.setattr(
        run_modes, "measure_region", lambda *args: replace(MEASURE(*args), log_mass=-np.inf, is_reliable=False)
    )
    found, _ = estimate(spike(10, 0.0)[0], draws=200)
    assert not found.findings
    assert found.value < 1.0


MEASURE = run_modes.measure_region


def funnel():
    """A density without a mode: it rises without end as v falls."""
    with pm.Model() as model:
        v = pm.Normal("v", 0.0, 3.0)
        x = pm.Flat("x", shape=5)
        pm.Potential("x given v", (-0.5 * (x * pm.math.exp(-0.5 * v)) ** 2 - 0.5 * v).sum())
    return model


def kinked():
    with pm.Model() as model:
        x = pm.Laplace("x", 0.0, 1.0, shape=4)
        pm.Normal("y", x.sum(), 0.3, observed=0.5)
    return model


def bounded():
    with pm.Model() as model:
        sd, p = pm.HalfCauchy("sd", 1.0), pm.Uniform("p", 0.0, 1.0)
        w = pm.Dirichlet("w", np.full(3, 0.5))
        pm.Normal("y", p + w[0], sd, observed=[0.1, 0.2, 0.15])
    return model


HONEST = {"schools": schools, "hierarchy": lambda: hierarchy()[0], "funnel": funnel, "kinks": kinked, "bounds": bounded}


@pytest.mark.slow
@pytest.mark.every(6)
@pytest.mark.parametrize("name", slow_but({"schools"}, HONEST))
def test_no_alarm_on_honest_runs(name):
    model = HONEST[name]()
    for seed in range(1, 4):
        found, _ = estimate(model, draws=200, target_se=None, random_seed=seed)
        assert "missed_mass" not in errors(found), str(found)


def test_a_point_may_be_in_the_variables_own_spaces_or_in_the_unconstrained_one():
    with pm.Model() as model:
        sd = pm.HalfNormal("sd", 1.0)
        mu = pm.Normal("mu", 0.0, 3.0)
        pm.Normal("y", mu, sd, observed=[1.0, 1.4, 0.8])
    own = {"sd": 0.3, "mu": 1.0}
    free = {"sd_log__": np.log(0.3), "mu": 1.0}
    tree = DataTree.from_dict(
        {"/posterior": Dataset({name: (("chain", "draw"), [[value]]) for name, value in own.items()})}
    )
    expected = [[np.log(0.3), 1.0]]
    for given in (own, free, {**own, **free}, [own], (free,), tree, [tree]):
        assert np.allclose(read_modes(model, given), expected)
    assert np.allclose(read_modes(model, [tree, own]), expected * 2)


@pytest.mark.exhaustive
def test_draws_of_pm_sample_lead_to_modes():
    model, truth = of_parts(2, [(1.0, -3.0, 1.0), (3.0, 3.0, 0.5)], 4.0)
    with model:
        draws = pm.sample(100, tune=300, chains=2, cores=1, random_seed=1, progressbar=False)
    found, _ = estimate(model, draws=200, modes=draws)
    assert_right(found, truth)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"mu": 1.0, "nu": 2.0}, "'nu'.*free variables are `mu`"),
        ({}, "no value of `mu`"),
        ({"mu": [1.0, 2.0]}, r"shape \(2,\); the model's is \(\)"),
        ({"mu": "one"}, "no array of numbers: 'one'"),
        ({"mu": np.nan}, "value of `mu` that is not finite"),
        ([], "non-empty list"),
        (3.0, "must be what pm.find_MAP"),
        ([{"mu": 1.0}, 2.0], "must be what pm.find_MAP"),
    ],
)
def test_slips_are_answered_before_any_work(given, words):
    with pytest.raises(ValueError, match=words):
        pymc_hais.sample_hais(model=one_mean(), modes=given, progressbar=False)


@pytest.mark.exhaustive
def test_results_of_other_models_are_refused():
    _, idata = estimate(shared(schools), draws=200, target_se=None)
    with pytest.raises(ValueError, match="another model"):
        pymc_hais.sample_hais(model=shared(one_mean), modes=idata, progressbar=False)


def test_modes_stand_beside_no_other_reference_model_or_path():
    with pytest.raises(ValueError, match="leave one of them out"):
        pymc_hais.sample_hais(model=one_mean(), modes={"mu": 1.0}, reference=one_mean(), progressbar=False)


def test_modes_need_gradients():
    with pytest.raises(ValueError, match="needs the gradients"):
        pymc_hais.sample_hais(
            model=shared(one_mean), modes={"mu": 1.0}, kernel=pymc_hais.RandomWalk(), random_seed=1, progressbar=False
        )


@pytest.mark.parametrize("n_rare", [0, 1, 3])
def test_modes_that_one_climb_alone_has_reached_are_an_error(n_rare):
    modes = SimpleNamespace(n_rare=n_rare, refute=lambda estimate: False)
    found = list(check_modes(modes, None))
    assert [(one.name, one.severity) for one in found] == [("unconfirmed", "error")] * (n_rare > 0)


def test_climbs_from_particles_of_earlier_runs_hide_no_mode_that_one_climb_alone_has_reached(monkeypatch):
    seen = []

    def keep(evidence, runner, points=None, remembered=None):
        seen.append((evidence, runner))

    def climb_once(joint, starts, *options):
        climbed = climb(joint, starts, *options)
        arrivals = np.zeros_like(climbed.arrivals)
        arrivals[:8] = arrivals[100] = True  # those of earlier runs, and one
        return climbed._replace(arrivals=arrivals)

    monkeypatch.setattr(stages, "find_modes", keep)
    estimate(of_parts(1, [(1.0, 0.0, 1.0)], 3.0)[0], random_seed=1)
    monkeypatch.setattr(run_modes, "climb", climb_once)
    assert run_modes.find_modes(*seen[0]).n_rare == 0
    assert run_modes.find_modes(*seen[0], remembered=np.zeros((8, 1))).n_rare == 1


def test_climbs_are_counted_by_where_they_end():
    model, _ = of_parts(2, [(1.0, -4.0, 1.0), (3.0, 4.0, 0.5)], 5.0)
    call = call_of(model, backend="jax")
    joint = Joint(compile_first(model, "auto", call).problem)
    starts = np.array([[-4.5, -3.0], [4.1, 4.2], [3.5, 4.0], [-3.5, -4.5], [4.0, 4.4]])
    climbed = climb(joint, starts, np.ones(2), 60)
    by_place = {
        round(float(peak.position[0])): n for peak, n in zip(climbed.peaks, climbed.arrivals.sum(0), strict=True)
    }
    assert by_place == {-4: 2, 4: 3}
    assert climbed.has_arrived.all()


def test_a_place_beside_which_the_gradient_is_no_number_is_no_mode():
    one_sided = Given(lambda x: -0.5 * x**2, lambda x: np.where(x > 0.0, np.nan, -x))
    assert not climb(one_sided, np.zeros((2, 1)), np.ones(1), 20).peaks


def test_other_climbs_add_arrivals_and_peaks_and_lose_none():
    def peak(place, value):
        return Peak(np.array([place]), value, np.eye(1), np.eye(1), 0.0)

    first = Climbed(
        [peak(0.0, -1.0), peak(9.0, -3.0)], np.array([[True, False], [False, True], [False, False], [False, False]])
    )
    others = Climbed([peak(5.0, -2.0), peak(0.0, -1.0)], np.array([[False, True], [True, False]]))
    both = first.with_others(others, np.array([2, 3]))
    assert [float(one.position[0]) for one in both.peaks] == [0.0, 5.0, 9.0]
    np.testing.assert_array_equal(
        both.arrivals, [[True, False, False], [False, False, True], [True, False, False], [False, True, False]]
    )
    assert first.arrivals.sum() == 2
