"""What a second call on the same model keeps of the first, and when it must not."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_hais
from pymc_hais.core.seeds import Seeds
from pymc_hais.density import identify
from pymc_hais.density.identity import identity
from pymc_hais.kernels import Hamiltonian
from pymc_hais.problem.building import build_problem
from pymc_hais.problem.kept import find_problem
from pymc_hais.problem.problem import Compiler
from pymc_hais.references import StudentT


def build_model(y=(0.3, 1.2)):
    with pm.Model() as model:
        data = pm.Data("data", np.asarray(y))
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1.0, observed=data)
    return model


def log_z_of(y):
    """Closed form: y ~ N(0, I + 11')."""
    y = np.asarray(y)
    covariance = np.eye(y.size) + 1.0
    return float(-0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1]))


def run(model, **kwargs):
    settings = {"draws": 200, "chains": 2, "random_seed": 4, "progressbar": False, "backend": "jax"}
    return pm.sample_hais(model=model, **(settings | kwargs))


def estimate(idata):
    return pymc_hais.log_marginal_likelihood(idata)


@pytest.fixture(autouse=True)
def needs_jax():
    pytest.importorskip("jax")


def test_a_second_call_compiles_nothing_and_gives_the_same(caplog):
    model = build_model()
    with caplog.at_level("INFO", "pymc.hais"):
        first, second = run(model), run(model)
    first_said, second_said = (line for line in caplog.messages if line.startswith("Sampling"))
    assert "compiled in" in first_said
    assert "already compiled" in second_said
    assert first["posterior"].attrs["compile_time"] > 0.0
    assert second["posterior"].attrs["compile_time"] == 0.0
    assert estimate(second) == estimate(first)
    np.testing.assert_array_equal(second["posterior"]["mu"], first["posterior"]["mu"])
    assert estimate(run(build_model())) == estimate(first)  # of a model that nothing is known of


def test_an_extension_of_a_default_call_compiles_nothing():
    model = build_model()
    first = run(model, backend=None)
    assert first["posterior"].attrs["backend"] == "jax"
    kept = pymc_hais.extend(first, chains=1, model=model, random_seed=5, progressbar=False)
    assert kept["posterior"].attrs["compile_time"] == first["posterior"].attrs["compile_time"]
    assert find_problem(model, identify(model), "prior", Compiler(backend="jax"), True) is not None
    assert find_problem(model, identify(model), "prior", Compiler(backend="numba"), True) is None
    anew = pymc_hais.extend(first, chains=1, model=build_model(), random_seed=5, progressbar=False)
    np.testing.assert_array_equal(kept["posterior"]["mu"], anew["posterior"]["mu"])


@pytest.mark.slow
def test_new_data_count():
    model, y = build_model(), [2.0, 3.1, -0.4]
    before = estimate(run(model))
    model.set_data("data", y)
    after = estimate(run(model))
    assert abs(before.value - log_z_of([0.3, 1.2])) < 5 * before.se
    assert abs(after.value - log_z_of(y)) < 5 * after.se


@pytest.mark.slow
def test_a_new_term_counts():
    model = build_model()
    before = estimate(run(model))
    with model:
        pm.Potential("penalty", pt.constant(-1.5))
    after = estimate(run(model))
    assert after.value - before.value == pytest.approx(-1.5, abs=4 * (before.se + after.se))


CHANGES = {
    "data": lambda model: model.set_data("data", [0.3, 1.3]),
    "a variable": lambda model: model.register_rv(pm.Normal.dist(), "more"),
    "a transform": lambda model: model.rvs_to_transforms.update({model["mu"]: object()}),
    "bounds": lambda model: setattr(model, "check_bounds", False),
}


@pytest.mark.parametrize("what", CHANGES)
def test_an_identity_changes_with(what):
    model = build_model()
    before = identify(model)
    assert not before.difference(identify(model))
    CHANGES[what](model)
    assert before.difference(identify(model))


def test_data_that_were_changed_in_place_change_the_identity():
    y = np.array([0.1, 0.2, 0.3])
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), observed=y)
    constant = model.rvs_to_values[model["y"]]
    before = identify(model)
    constant.data[0] += 1.0
    assert before.difference(identify(model)) == "the data of its `y` are others"


def test_drawing_from_a_model_does_not_change_its_identity():
    model = build_model()
    before = identify(model)
    pm.draw(model["mu"], 3)
    assert identify(model) == before


@pytest.mark.slow
def test_other_references_and_kernels_are_told_apart():
    model, compiler = build_model(), Compiler(backend="jax")
    now = identify(model)
    build_problem(model, "prior", compiler, Seeds((1,)))
    assert find_problem(model, now, "prior", compiler, False) is not None
    assert find_problem(model, now, "prior", compiler, True) is None
    assert find_problem(model, now, "gaussian", compiler, False) is None
    assert find_problem(model, now, StudentT(3.0), compiler, False) is None
    assert find_problem(model, now, "prior", Compiler(Hamiltonian(damping=1.0), "jax"), False) is None
    assert find_problem(model, now, "prior", Compiler(backend="numba"), False) is None
    assert find_problem(model, now, "prior", replace(compiler, normals=True), False) is None
    build_problem(model, StudentT(3.0), compiler, Seeds((1,)))
    assert find_problem(model, now, StudentT(3.0), compiler, False) is not None
    assert find_problem(model, now, StudentT(4.0), compiler, False) is None


@pytest.mark.slow
def test_a_model_is_free_to_go():
    model = build_model()
    run(model)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_threads_share_what_is_kept():
    model = build_model()
    first = estimate(run(model))
    with ThreadPoolExecutor(4) as pool:
        others = list(pool.map(lambda seed: estimate(run(model, random_seed=seed)), [4, 5, 4, 6]))
    assert others[0] == others[2] == first
    assert len({one.value for one in others}) == 3


def test_a_call_looks_at_its_model_once_and_writes_its_density_for_the_engine_and_the_check_alone(monkeypatch):
    seen = []

    def spy(owner, name):
        own = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, **kwargs: seen.append(name) or own(*args, **kwargs))

    spy(identity, "terms_of")
    spy(pm.Model, "logp")
    model = build_model()
    run(model, target_se=None, n_temperatures=8)
    assert seen.count("terms_of") == 1
    assert seen.count("logp") == 3  # the prior, the likelihood, and both as written
    seen.clear()
    run(model, target_se=None, n_temperatures=8)
    assert seen == ["terms_of"]
