"""A plan that was learnt once: what it gives on the same data, on other data, and what it refuses."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

import pymc_hais
from pymc_hais.inputs.results import read_plan
from pymc_hais.results.findings.plan import check_plan
from pymc_hais.run.plan import Origin, Promise
from tests.data_sets import DataSets, learn
from tests.marks import slow_but
from tests.quick import hierarchy, one_mean, schools, shared
from tests.runs import build_run, plan_of
from tests.statistical import assert_share
from tests.truth import log_evidence_normal

QUICK = {"draws": 300, "chains": 2, "progressbar": False, "backend": "jax", "random_seed": 1, "target_se": None}


@pytest.fixture(autouse=True)
def needs_jax():
    pytest.importorskip("jax")


def sample(model, **options):
    return pymc_hais.sample_hais(model=model, **(QUICK | options))


def estimate(idata):
    return pymc_hais.log_marginal_likelihood(idata)


def means(y=(1.2, 0.3, 2.5), sd=3.0):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, sd)
        pm.Normal("y", mu, 1.0, observed=np.asarray(y))
    return model


def flips():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        s = pm.Bernoulli("s", 0.4, shape=3)
        pm.Normal("y", mu + 2.0 * s, 1.0, observed=[0.0, 2.0, 1.5])
    return model


@pytest.fixture(scope="module")
def learnt():
    pytest.importorskip("jax")
    return sample(shared(means))


CASES = {
    "prior": (means, {"reference": "prior"}),
    "fitted": (means, {"reference": "fitted"}),
    "chart": (lambda: hierarchy()[0], {"reference": "fitted"}),
    "transform": (schools, {}),
    "given": (means, {"reference": pymc_hais.Gaussian(0.0, 3.0)}),
    "sites": (flips, {"reference": "fitted"}),
    "untuned": (means, pymc_hais.paper_settings(30) | {"reference": "prior"}),
    "linear": (means, {"schedule": "linear", "n_temperatures": 30}),
    "importance": (means, {"n_temperatures": 0}),
    "modes": (means, {"modes": {"mu": 1.0}}),
}


@pytest.mark.every(6)
@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(["fitted", "untuned"], CASES))
def test_on_the_same_data_with_the_same_seed_a_plan_gives_the_same_to_the_bit_without_a_pilot(name, tmp_path):
    build, options = CASES[name]
    first = sample(build(), **options)
    pymc_hais.save_plan(first, tmp_path / "plan")
    again = sample(build(), plan=tmp_path / "plan")
    assert again["posterior"].attrs["n_gradients_pilot"] == 0
    assert replace(estimate(again), findings=()) == replace(estimate(first), findings=())
    xr.testing.assert_equal(again["posterior"].to_dataset(), first["posterior"].to_dataset())
    assert again["posterior"].attrs["reference"] == first["posterior"].attrs["reference"]


@pytest.mark.slow
def test_a_result_that_was_written_and_read_is_as_good_as_its_plan(learnt, tmp_path):
    learnt.to_netcdf(tmp_path / "result.nc")
    with xr.open_datatree(tmp_path / "result.nc") as read:
        again = sample(means(), plan=read)
    assert estimate(again).value == estimate(learnt).value
    assert estimate(sample(means(), plan=tmp_path / "result.nc")).value == estimate(learnt).value


@pytest.mark.slow
def test_rounds_follow_the_plan_of_the_last_one_until_the_target(learnt):
    more = sample(shared(means), plan=learnt, target_se=0.01, max_temperatures=400)
    rounds = more["log_marginal_likelihood"]["round_n_temperatures"].values
    assert rounds[0] == learnt["posterior"].attrs["n_temperatures"]
    assert len(rounds) > 1
    assert np.all(np.diff(rounds) > 0)
    after = sample(shared(means), plan=more, max_temperatures=400)
    assert after["posterior"].attrs["n_temperatures"] == rounds[-1]
    # With the same seed it goes on where the plan had come to: particles that refined a plan never follow it.
    assert read_plan(more).origin.n_rounds == len(rounds) - 1
    assert estimate(after).per_chain == estimate(more).per_chain
    assert estimate(after).value == more["log_marginal_likelihood"]["round_value"].values[-1]


def test_a_round_may_be_no_longer_than_max_temperatures(learnt):
    assert sample(shared(means), plan=learnt, max_temperatures=5)["posterior"].attrs["n_temperatures"] == 5


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize("y", [(2.4, 0.1, 1.3, 0.8), (0.7, 1.9, 1.0)], ids=["number", "values"])
def test_other_data_have_their_own_log_z(learnt, y):
    found = estimate(sample(means(y), plan=learnt))
    assert abs(found.value - log_evidence_normal(y, 0.0, 3.0, 1.0)) < 5 * found.se


@pytest.mark.exhaustive
def test_the_mass_of_a_prior_is_measured_again_where_the_prior_has_changed():
    y = [0.5, 1.0, 2.0]

    def build(extra):
        """Build a standard normal prior with so many nats too many, which are data."""

        def logp(value, extra):
            return pm.logp(pm.Normal.dist(), value) + extra

        def random(extra, rng=None, size=None):
            return rng.normal(size=size)

        with pm.Model() as model:
            x = pm.CustomDist("x", pm.Data("extra", extra), logp=logp, random=random)
            pm.Normal("y", x, 1.0, observed=y)
        return model

    first = sample(build(0.0), reference="fitted")
    assert sample(build(0.0), plan=first)["posterior"].attrs["n_gradients_pilot"] == 0
    other = sample(build(1.5), plan=first)
    assert other["posterior"].attrs["n_gradients_pilot"] > 0
    found = estimate(other)
    assert abs(found.log_prior_mass - 1.5) < 0.1
    # The prior's part of the mixture is normalised by the mass that it has now.
    assert abs(found.value - log_evidence_normal(y, 0.0, 1.0, 1.0)) < 5 * found.se < 0.1


@pytest.mark.slow
def test_a_prior_that_no_longer_integrates_to_one_is_measured():
    """A plan of a normalised prior has no mass to go by."""
    y = [0.5, 1.0, 2.0]
    with pm.Model() as plain:
        x = pm.Normal("x")
        pm.Normal("y", x, 1.0, observed=y)
    with pm.Model() as other:
        logp = lambda value: pm.logp(pm.Normal.dist(), value) + 1.5  # noqa: E731
        x = pm.CustomDist("x", logp=logp, random=lambda rng=None, size=None: rng.normal(size=size))
        pm.Normal("y", x, 1.0, observed=y)
    found = estimate(sample(other, plan=sample(plain, reference="fitted")))
    assert abs(found.log_prior_mass - 1.5) < 0.1
    assert abs(found.value - log_evidence_normal(y, 0.0, 1.0, 1.0)) < 5 * found.se < 0.1


def stretched(c):
    """Build a standard normal that is stretched to the variance 1 / (1 - c): log Z = -log(1 - c) / 2."""
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("stretch", 0.5 * c * x**2)
    return model


@pytest.mark.slow
def test_the_tail_of_the_log_ratio_is_that_of_the_data_of_the_run():
    """At c = 0.8 the log ratio is twice a chi-squared, of which 0.031 lie beyond a normal's highest 0.005."""
    first = sample(stretched(0.05), reference="prior")
    assert read_plan(first).tail.mass == 0.0
    other = sample(stretched(0.8), plan=first, draws=2000)
    mass = stats.chi2(1).sf(1.0 + np.sqrt(2.0) * stats.norm.ppf(0.995)) - 0.005
    tail = read_plan(other).tail
    # Four standard errors of 4,000 draws, half of them independent, where a chi-squared's mean and sd are not known.
    assert abs(tail.mass - mass) < 0.02
    assert estimate(other).shortfall >= tail.shortfall(other["posterior"].attrs["n_temperatures"]) > 0.0
    found = estimate(other)
    assert abs(found.value + 0.5 * np.log(0.2)) < 5 * found.se


class Mine:
    """A reference of the user's own."""

    def __init__(self, scale):
        self.scale = scale

    def sample(self, n, rng):
        return self.scale * rng.normal(size=(n, 1))

    def logp(self, x):
        return (-0.5 * (x / self.scale) ** 2 - np.log(self.scale) - 0.5 * np.log(2.0 * np.pi)).sum()

    def __str__(self):
        return f"mine of {self.scale}"


@pytest.mark.exhaustive
def test_a_reference_of_the_users_own_is_passed_again():
    first = sample(means(), reference=Mine(2.0))
    assert estimate(sample(means(), plan=first, reference=Mine(2.0))).value == estimate(first).value
    with pytest.raises(ValueError, match=r"a reference of your own, mine of 2\.0: pass it again"):
        sample(means(), plan=first)
    with pytest.raises(ValueError, match=r"mine of 2\.0 \(Mine\), and `reference` is mine of 3\.0"):
        sample(means(), plan=first, reference=Mine(3.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "linear"}, r"schedule of its own, so leave out `schedule` \(got 'linear'\)"),
        ({"n_temperatures": 64}, r"number of temperatures of its own.*\(got 64\)"),
        ({"modes": {"mu": 1.0}}, "reference of its own, so leave out `modes`"),
        ({"reference": "prior"}, "reference of its own, .*leave out `reference`"),
        (
            {"kernel": pymc_hais.Hamiltonian(n_leapfrog=3)},
            "with Hamiltonian.*asks for Hamiltonian.*n_leapfrog=3",
        ),
        ({"path": {"w": (0.0, 1.0)}}, "geometric path"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_contradicts_a_plan_is_refused(learnt, options, message):
    with pytest.raises(ValueError, match=message):
        sample(shared(means), plan=learnt, **options)


def test_the_kernel_of_the_plan_may_be_passed_again(learnt):
    again = sample(shared(means), plan=learnt, kernel=pymc_hais.Hamiltonian())
    assert estimate(again).value == estimate(learnt).value


def renamed():
    with pm.Model() as model:
        nu = pm.Normal("nu", 0.0, 3.0)
        pm.Normal("y", nu, 1.0, observed=[1.0])
    return model


def reshaped():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 3.0, shape=2)
        pm.Normal("y", mu, 1.0, observed=[1.0, 2.0])
    return model


def transformed():
    with pm.Model() as model:
        mu = pm.HalfNormal("mu", 3.0)
        pm.Normal("y", mu, 1.0, observed=[1.0])
    return model


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (renamed, "model is another one than that of `plan`: its free variables are `nu`, and not `mu`"),
        (reshaped, r"`mu` has the unconstrained shape \(2,\), and not \(\)"),
        (transformed, "`mu` has the transform 'log', and not no transform"),
    ],
)
def test_a_model_of_another_structure_is_refused(learnt, build, message):
    with pytest.raises(ValueError, match=message):
        sample(build(), plan=learnt)


def test_what_is_no_plan_is_refused(learnt, tmp_path):
    with pytest.raises(ValueError, match=r"`plan` must be a result .* or the path .*; got int"):
        sample(shared(means), plan=3)
    with pytest.raises(ValueError, match="no group `plan`"):
        sample(shared(means), plan=xr.DataTree.from_dict({"/posterior": learnt["posterior"].to_dataset()}))
    (tmp_path / "script.py").write_bytes(b"import pymc")
    for other in (tmp_path / "script.py", str(tmp_path)):
        with pytest.raises(ValueError, match=r"is neither a file of pymc_hais.save_plan nor one of a result") as caught:
            sample(shared(means), plan=other)
        assert "delete" not in str(caught.value)
    pymc_hais.save_plan(learnt, tmp_path / "plan")
    (tmp_path / "plan").write_bytes((tmp_path / "plan").read_bytes()[:-20])
    with pytest.raises(ValueError, match="is damaged"):
        sample(shared(means), plan=tmp_path / "plan")
    with pytest.raises(OSError, match="check that it exists"):
        sample(shared(means), plan=tmp_path / "none")
    with pytest.raises(ValueError, match="`idata` must be a result of sample_hais; got str"):
        pymc_hais.save_plan("result.nc", tmp_path / "plan")
    for path in (".", tmp_path, 3):
        with pytest.raises(ValueError, match="`path` must be the path of a file to write, not of a folder; got "):
            pymc_hais.save_plan(learnt, path)


@pytest.mark.slow
def test_a_plain_run_is_the_same_with_and_without_its_plan_kept(monkeypatch):
    with_plan = sample(one_mean())
    monkeypatch.setattr("pymc_hais.run.evidence.Evidence.finished_plan", lambda *args: None)
    without = sample(one_mean())
    assert "plan" not in without.children
    assert estimate(with_plan) == estimate(without)


# A plan that does not fit ---------------------------------------------------------------------------------


def run_of(discrepancy, acceptance):
    run = build_run(np.zeros((2, 100)))
    statistics = {"discrepancy": discrepancy, "acceptance_rate": acceptance}
    return replace(run, temperature={name: np.tile(value, (2, 1)) for name, value in statistics.items()})


def learnt_plan(discrepancy=0.2, acceptance=0.88, n_steps=20):
    promise = Promise(np.full(n_steps, discrepancy), np.full(n_steps, acceptance))
    return plan_of(origin=Origin(None, None, None, promise))


def test_a_run_as_promised_is_no_finding():
    assert not list(check_plan(learnt_plan(), run_of(np.full(20, 0.25), np.full(20, 0.8))))
    assert not list(check_plan(plan_of(), run_of(np.full(20, 9.0), np.full(20, 0.1))))


def test_a_step_that_takes_all_is_a_misfit():
    steps = np.full(20, 0.2)
    steps[0] = 16.0  # 19 * 0.2 + 16 against 20 * 0.2: five times
    (finding,) = check_plan(learnt_plan(), run_of(steps, np.full(20, 0.88)))
    assert (finding.name, finding.severity) == ("plan_misfit", "warning")
    assert "about 5 times as many temperatures" in finding.message
    # The same ratio of a variance that hardly counts.
    assert not list(check_plan(learnt_plan(0.01), run_of(0.05 * steps, np.full(20, 0.88))))


def test_moves_that_are_not_accepted_are_a_misfit():
    rates = np.full(20, 0.88)
    rates[7] = 0.4
    (finding,) = check_plan(learnt_plan(), run_of(np.full(20, 0.2), rates))
    assert "40% of the moves were accepted, where 88% had been" in finding.message


@pytest.mark.every(2)
@pytest.mark.exhaustive
@pytest.mark.parametrize("reference", ["prior", "fitted"])
def test_a_misfit_is_never_seen_on_like_data_and_always_on_gross_ones(reference):
    sets = DataSets()
    plan = learn(sets, reference)
    for kind, least, most in (("like", 0.0, 0.02), ("gross", 0.98, 1.0)):
        found = [plan.run(y, seed) for seed, y in enumerate(sets.draw(kind, 200))]
        assert_share(sum(one.is_misfit for one in found), 200, least, most)


@pytest.mark.every(4)
@pytest.mark.slow
@pytest.mark.parametrize(("target_se", "n"), [(None, 200), (0.1, 60)])
@pytest.mark.parametrize("reference", ["prior", "fitted"])
def test_one_plan_covers_log_z_of_data_from_the_whole_prior_predictive(reference, target_se, n):
    sets = DataSets()
    plan = learn(sets, reference)
    found = [plan.run(y, seed, target_se) for seed, y in enumerate(sets.draw("predictive", n))]
    assert_share(sum(one.covers for one in found), n, 0.92, 1.0)
    for one in found:
        assert target_se is None or one.estimate.se <= target_se


def test_a_printed_result_shows_one_line_of_its_plan(learnt):
    assert list(learnt.children)[-1] == "plan"
    assert list(learnt["plan"].data_vars) == ["record"]
    assert len(repr(learnt["plan"].to_dataset()).splitlines()) <= 6


def test_a_printed_result_shows_each_attribute_once(learnt):
    lines = repr(learnt).splitlines()
    assert len(lines) <= 125
    assert sum("inference_library:" in line for line in lines) == 1
    seen = [name for group in learnt.subtree for name in group.attrs if name not in ("quantity", "chains", "findings")]
    assert len(seen) == len(set(seen)) + 1  # the gradients of the search for modes, beside those of the run
