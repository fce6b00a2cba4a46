"""Results that are out of the ordinary are extended like any other, or refused before any work."""

import importlib
import logging

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_hais
from pymc_hais.runner.timing import Size
from tests.quick import QUICK, TRUTH, interrupt, one_mean
from tests.statistical import threshold
from tests.toys import HAS_JAX

pytestmark = pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")

OPTIONS = {**QUICK, "random_seed": 1}
#: Nothing is tuned, and there are two temperatures.
SHORT = {"kernel": pymc_hais.Hamiltonian(step_size=0.5), "schedule": "linear", "n_temperatures": 2}


@pytest.fixture(scope="module")
def model():
    return one_mean()


@pytest.fixture(scope="module")
def first(model):
    return pymc_hais.sample_hais(model=model, **OPTIONS)


def extend(idata, model, **given):
    return pymc_hais.extend(idata, model=model, progressbar=False, random_seed=1, **given)


def estimate(idata):
    return pymc_hais.log_marginal_likelihood(idata)


def findings(idata):
    return {one.name: one for one in estimate(idata).findings}


def assert_right(idata):
    ours = estimate(idata)
    assert abs(ours.value - TRUTH) <= threshold() * ours.se + 1e-9


@pytest.mark.exhaustive
def test_a_result_of_the_interpreter_is_extended(model):
    options = {**OPTIONS, **SHORT, "draws": 100, "reference": "prior", "compile_kwargs": {"mode": "FAST_COMPILE"}}
    idata = pymc_hais.sample_hais(model=model, **options)
    assert idata["posterior"].attrs["engine"] == "python"
    more = extend(idata, model, chains=1)
    assert more["posterior"].sizes["chain"] == 3
    assert estimate(more).per_chain[:2] == estimate(idata).per_chain
    assert_right(more)


def test_the_backend_of_a_file_is_its_own(model, first, tmp_path, monkeypatch):
    first.to_netcdf(tmp_path / "result.nc")

    def read(function, model, given, *_, **__):
        raise ZeroDivisionError(given["backend"])

    monkeypatch.setattr("pymc_hais.calls.extend.read", read)
    with pytest.raises(ZeroDivisionError, match=r"^jax$"):
        extend(tmp_path / "result.nc", model, chains=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "n_chains", "n_draws", "n_particles"), [({"chains": 1}, 3, 200, 40), ({"draws": 100}, 2, 300, 140)]
)
def test_few_particles_stay_few_and_the_draws_as_many(model, given, n_chains, n_draws, n_particles, monkeypatch):
    # What a limit of time does.
    monkeypatch.setattr("pymc_hais.run.rounds.fit_into", lambda _, wanted, *__: Size(wanted.n_steps, 40))
    few = pymc_hais.sample_hais(model=model, **OPTIONS, reference="prior")
    monkeypatch.undo()
    assert few["posterior"].attrs["particles"] == 40
    more = extend(few, model, **given)
    assert dict(more["posterior"].sizes) == {"chain": n_chains, "draw": n_draws}
    assert dict(more["annealing"]["final_log_weight"].sizes) == {"chain": n_chains, "particle": n_particles}
    attrs = more["posterior"].attrs
    assert (attrs["draws"], attrs["particles"]) == (n_draws, n_particles)
    # As many evaluations as new particles; draws that hold copies are not moved.
    steps = attrs["n_temperatures"]
    added = attrs["n_gradients"] - few["posterior"].attrs["n_gradients"]
    assert added >= (40 if "chains" in given else 200) * (1 + steps)
    assert_right(more)
    assert extend(more, model, chains=1)["posterior"].sizes["chain"] == n_chains + 1
    # N(0, 3^2) and three data of variance 1: precision 3 + 1 / 9, of which 40 particles a chain know the mean.
    mean = 4.0 / (3.0 + 1.0 / 9.0)
    assert abs(float(more["posterior"]["mu"].mean()) - mean) < threshold() * np.sqrt(0.33 / 20.0)


class Plain:
    """A reference of a user's own that says nothing of itself."""

    def sample(self, n, rng):
        return 3.0 * rng.standard_normal((n, 1))

    def logp(self, x):
        return pt.sum(-0.5 * (x / 3.0) ** 2 - np.log(3.0 * np.sqrt(2.0 * np.pi)))


class Other(Plain):
    pass


@pytest.mark.exhaustive
def test_a_reference_that_says_nothing_of_itself_is_passed_again(model):
    idata = pymc_hais.sample_hais(model=model, **OPTIONS, reference=Plain())
    kept = Plain()  # another one, at another place
    more = extend(idata, model, chains=1, reference=kept)
    assert more["posterior"].sizes["chain"] == 3
    assert_right(more)
    with pytest.raises(ValueError, match=r"learnt with the reference <.*Plain object> \(Plain\), and `reference` is"):
        extend(idata, model, chains=1, reference=Other())


def test_what_was_added_to_a_result_is_left_out_and_said_before_any_work(model, first, caplog):
    added = first.copy()
    added["posterior"] = added["posterior"].assign(
        square=added["posterior"]["mu"] ** 2, one=added["posterior"]["mu"].sum()
    )
    added["sample_stats"] = added["sample_stats"].assign(mine=added["sample_stats"]["log_weight"])
    added["predictions"] = added["posterior"].copy()
    with caplog.at_level(logging.WARNING, logger="pymc.hais"):
        more = extend(added, model, chains=1)
    said = "posterior/square, posterior/one, sample_stats/mine, predictions, which the model cannot"
    assert said in caplog.text
    assert set(more["posterior"].data_vars) == {"mu"}
    np.testing.assert_array_equal(more["posterior"]["mu"], extend(first, model, chains=1)["posterior"]["mu"])


@pytest.mark.parametrize("change", [lambda mu: mu.expand_dims(k=2, axis=2), lambda mu: mu.mean("draw")])
def test_a_variable_of_another_shape_is_refused_before_any_work(model, first, change, monkeypatch):
    changed = first.copy()
    changed["posterior"] = changed["posterior"].assign(mu=change(changed["posterior"]["mu"]))
    monkeypatch.setattr("pymc_hais.run.extending.anneal_rows", lambda *_: pytest.fail("work has begun"))
    message = "of 200 draws, of which its group `posterior`|`mu` of the posterior of `idata` has sizes"
    with pytest.raises(ValueError, match=message):
        extend(changed, model, chains=1)


# Interrupted -------------------------------------------------------------------------------------------------

ROUNDS = {**OPTIONS, "target_se": 1e-4, "n_temperatures": 16}


def test_the_folder_of_an_interrupted_run_is_not_that_of_one_that_has_ended(model, tmp_path, monkeypatch):
    interrupt(monkeypatch, "Round 2")
    idata = pymc_hais.sample_hais(model=model, checkpoint=tmp_path, **ROUNDS)
    monkeypatch.undo()
    assert "interrupted" in findings(idata)["standard_error"].message
    with pytest.raises(ValueError, match="is not finished: repeat the call that began it"):
        extend(tmp_path, model, chains=1)
    # The result itself is extended, and goes on to say what was never looked for.
    more = findings(extend(idata, model, chains=1))
    assert "round 2 (interrupted)" in more["unfinished"].message
    assert "the search for modes (interrupted before)" in more["unfinished"].message
    pymc_hais.sample_hais(model=model, checkpoint=tmp_path, **ROUNDS)
    assert "unfinished" not in findings(extend(tmp_path, model, chains=1))


def test_a_target_that_needs_too_many_chains_is_refused_with_their_number(model, first, monkeypatch):
    monkeypatch.setattr("pymc_hais.run.extending.anneal_rows", lambda *_: pytest.fail("work has begun"))
    with pytest.raises(ValueError, match=r"target_se = 1e-20 needs about [\d,]{20,} chains .* larger `target_se`"):
        extend(first, model, target_se=1e-20)


def test_an_extension_keeps_the_chains_that_were_added_before_an_interrupt(model, first, monkeypatch):
    extending = importlib.import_module("pymc_hais.run.extending")
    anneal, calls = extending.anneal_rows, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return anneal(*args)

    monkeypatch.setattr(extending, "anneal_rows", interrupted)
    monkeypatch.setattr(extending, "_needed", lambda estimate, mass, n_chains, target: n_chains + 2.0)
    more = extend(first, model, target_se=1e-3)
    assert more["posterior"].sizes["chain"] == 4
    assert more["posterior"].attrs["stopped_by"] == "interrupt"
    assert "2 more chains (interrupted)" in findings(more)["unfinished"].message
    calls[:] = [None]
    with pytest.raises(KeyboardInterrupt):
        extend(first, model, target_se=1e-3)


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("run.posterior.move", "the moves that part copies"),
        pytest.param("run.final_particles.find_lag", "the diagnosis of the particles' spread", marks=pytest.mark.slow),
        pytest.param("results.datatree.compute_log_likelihood", "the group `log_likelihood`", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("error", [RuntimeError("injected"), KeyboardInterrupt()])
def test_what_follows_the_populations_does_not_cost_them(model, first, place, what, error, monkeypatch):
    whole = first.copy()
    whole["log_likelihood"] = pm.compute_log_likelihood(
        first, model=model, progressbar=False, extend_inferencedata=False
    )
    value = estimate(extend(whole, model, chains=1)).value

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(f"pymc_hais.{place}", fail)
    more = extend(whole, model, chains=1)
    assert estimate(more).value == value
    assert what in findings(more)["unfinished"].message
