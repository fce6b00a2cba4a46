"""A compiled model that a user holds: other data without compiling, threads, and what it refuses."""

import functools
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytest
from pymc.model.transform.optimization import freeze_dims_and_data
from pytensor.graph.traversal import ancestors

import pymc_hais
from pymc_hais.density import build_density, build_layout, read_containers, varying_containers
from tests.truth import log_evidence_normal, log_evidence_regression

RUN = {"draws": 300, "chains": 2, "random_seed": 3, "progressbar": False}
DESIGN = np.random.default_rng(1).normal(size=(40, 2))


def run(model, **options):
    return pymc_hais.sample_hais(model=model, **{**RUN, **options})


def estimate(idata):
    return pymc_hais.log_marginal_likelihood(idata)


def build_regression(y=None, design=DESIGN):
    with pm.Model() as model:
        x = pm.Data("x", design)
        data = pm.Data("data", np.zeros(len(design)) if y is None else y)
        weights = pm.Normal("weights", 0, 2, shape=2)
        fitted = pm.Deterministic("fitted", x @ weights)
        pm.Normal("y", fitted, 0.7, observed=data)
    return model


def build_hierarchy(y, scale=1.0):
    with pm.Model() as model:
        data, width = pm.Data("data", y), pm.Data("width", scale)
        tau = pm.HalfNormal("tau", width)
        theta = pm.Normal("theta", 0, tau, shape=len(y))
        pm.Normal("y", theta, 0.5, observed=data)
    return model


def simulate(seed):
    rng = np.random.default_rng(seed)
    return DESIGN @ rng.normal(0, 2, 2) + rng.normal(0, 0.7, len(DESIGN))


@pytest.fixture(autouse=True)
def needs_jax():
    pytest.importorskip("jax")


@functools.cache
def compiled_regression():
    return pymc_hais.compile(build_regression(), backend="jax")


@pytest.mark.slow
def test_other_data_compile_nothing_and_give_the_exact_log_z():
    compiled = compiled_regression()
    for seed in range(3):
        y = simulate(seed)
        pm.set_data({"data": y}, model=compiled.model)
        idata = run(compiled, random_seed=seed)
        found = estimate(idata)
        assert abs(found.value - log_evidence_regression(DESIGN, y, 2.0, 0.7)) < 4.5 * found.se
        np.testing.assert_array_equal(idata["observed_data"]["y"], y)
        np.testing.assert_array_equal(idata["constant_data"]["data"], y)
        weights = idata["posterior"]["weights"].values
        np.testing.assert_allclose(idata["posterior"]["fitted"], weights @ DESIGN.T)
    assert idata["posterior"].attrs["compile_time"] == 0.0  # the first run compiled the loops


@pytest.mark.slow
def test_a_call_is_that_of_a_new_model():
    compiled, y = compiled_regression(), simulate(7)
    design = DESIGN[::-1] * 1.5
    pm.set_data({"data": y, "x": design}, model=compiled.model)
    ours, plain = estimate(run(compiled)), estimate(run(build_regression(y, design), backend="jax"))
    pm.set_data({"x": DESIGN}, model=compiled.model)
    np.testing.assert_allclose(ours.per_chain, plain.per_chain, atol=1e-6)


@pytest.mark.slow
def test_data_of_a_call_are_those_at_its_beginning():
    compiled, y = compiled_regression(), simulate(8)
    pm.set_data({"data": y}, model=compiled.model)
    opened = compiled._open({})
    pm.set_data({"data": simulate(9)}, model=compiled.model)
    np.testing.assert_array_equal(opened.model["data"].get_value(), y)
    named = opened.build_outputs(build_layout(opened.model))
    assert named(np.zeros((1, 1, 2)))["fitted"].shape == (1, 1, 40)


@pytest.mark.slow
def test_the_data_of_earlier_calls_are_let_go():
    compiled, gone = compiled_regression(), []
    for seed in (10, 11):
        pm.set_data({"data": simulate(seed)}, model=compiled.model)
        gone.append(weakref.ref(compiled._open({}).model))
        run(compiled)
    gc.collect()
    assert gone[0]() is None
    assert gone[1]() is not None


@pytest.mark.slow
def test_a_plan_of_an_earlier_run_is_followed():
    compiled, y = compiled_regression(), simulate(12)
    first = run(compiled)
    pm.set_data({"data": y}, model=compiled.model)
    idata = run(compiled, plan=first)
    assert idata["posterior"].attrs["compile_time"] == 0.0
    assert abs(estimate(idata).value - log_evidence_regression(DESIGN, y, 2.0, 0.7)) < 4.5 * estimate(idata).se


@pytest.mark.slow
def test_threads_on_the_same_data_get_what_one_gets():
    compiled = compiled_regression()
    pm.set_data({"data": simulate(4)}, model=compiled.model)
    alone = run(compiled)
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda _: run(compiled), range(2)))
    for idata in together:
        assert estimate(idata) == estimate(alone)
        np.testing.assert_array_equal(idata["posterior"]["weights"], alone["posterior"]["weights"])


@pytest.mark.slow
def test_threads_with_data_of_their_own(monkeypatch):
    compiled, begun = pymc_hais.compile(build_located(np.ones(3), 0.0), backend="jax"), threading.Event()
    places = (-2.0, 3.0)

    def move(place):
        pm.set_data({"centre": place, "data": np.full(3, place)}, model=compiled.model)

    def begin(choices, opening=compiled._open):
        opened = opening(choices)
        begun.set()
        return opened

    alone = []
    for place in places:
        move(place)
        alone.append(run(compiled))
    monkeypatch.setattr(compiled, "_open", begin)
    with ThreadPoolExecutor(2) as pool:
        calls = []
        for place in places:
            begun.clear()
            move(place)
            calls.append(pool.submit(run, compiled))
            assert begun.wait(60)
    for call, expected in zip(calls, alone, strict=True):
        np.testing.assert_array_equal(call.result()["posterior"]["mu"], expected["posterior"]["mu"])
        assert estimate(call.result()) == estimate(expected)


@pytest.mark.exhaustive
def test_a_hierarchy_in_other_coordinates():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 6)) * [[1.0], [2.0]]
    compiled = pymc_hais.compile(build_hierarchy(first), backend="jax")
    assert compiled._problem.chart is not None
    short = {"n_temperatures": 20, "target_se": None}
    run(compiled, **short)
    pm.set_data({"data": second, "width": 3.0}, model=compiled.model)
    idata = run(compiled, **short)
    plain = estimate(run(build_hierarchy(second, 3.0), backend="jax", **short))
    np.testing.assert_allclose(estimate(idata).per_chain, plain.per_chain, atol=1e-6)
    assert idata["posterior"].attrs["compile_time"] == 0.0


def build_located(y, location):
    with pm.Model() as model:
        data, centre = pm.Data("data", y), pm.Data("centre", location)
        mu = pm.Normal("mu", centre, 1.5)
        pm.Normal("y", mu, 1.0, observed=data)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["prior", pymc_hais.Mixture(["prior", pymc_hais.Gaussian(0.0, 5.0)])])
def test_a_prior_that_depends_on_data(reference):
    y = np.array([4.0, 5.5, 5.0])
    compiled = pymc_hais.compile(build_located(y, 0.0), backend="jax", reference=reference)
    pm.set_data({"centre": 20.0, "data": y + 20.0}, model=compiled.model)
    found = estimate(run(compiled, target_se=0.05))
    assert abs(found.value - log_evidence_normal(y + 20.0, 20.0, 1.5, 1.0)) < 4.5 * found.se


@pytest.mark.exhaustive
def test_data_of_the_first_call_come_back():
    """Of the sampler of a prior that depends on data: 0, 4, and 0 again."""
    y = np.array([2.0, 2.5, 1.0])
    compiled = pymc_hais.compile(build_located(y, 0.0), backend="jax")
    calls = []
    for centre in (0.0, 4.0, 0.0):
        pm.set_data({"centre": centre}, model=compiled.model)
        calls.append(run(compiled))
        found = estimate(calls[-1])
        assert abs(found.value - log_evidence_normal(y, centre, 1.5, 1.0)) < 4.5 * found.se
        assert calls[-1]["constant_data"]["centre"] == centre
    first, _, last = calls
    assert estimate(first) == estimate(last)
    np.testing.assert_array_equal(first["posterior"]["mu"], last["posterior"]["mu"])


def test_what_depends_on_data_alone_is_not_in_the_density():
    with pm.Model() as model:
        x, counts = pm.Data("x", DESIGN), pm.Data("counts", np.arange(40))
        standardised = (x - x.mean(axis=0)) / x.std(axis=0)
        weights = pm.Normal("weights", 0, 1, shape=2)
        pm.Poisson("y", pm.math.exp(standardised @ weights), observed=counts)

    def costly(graph):
        ops = (getattr(one.owner.op, "scalar_op", None) for one in set(ancestors(graph.density)) if one.owner)
        return sorted(name for op in ops if (name := type(op).__name__) in ("Exp", "Log", "GammaLn", "TrueDiv"))

    layout, values = build_layout(model), read_containers(model)
    graph = build_density(model, layout, containers=values)
    assert costly(graph) == costly(build_density(model, layout)) == ["Exp"]
    assert not {"x", "counts"} & {variable.name for variable in ancestors(graph.density)}
    prepared = graph.preparation(values)
    for ours, theirs in zip(graph.data_values[: len(prepared)], prepared, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_numbers_that_are_shapes_do_not_vary():
    with pm.Model(coords={"row": range(3)}) as model:
        n, keep = pm.Data("n", np.array(3)), pm.Data("keep", np.array([True, False, True]))
        data = pm.Data("data", np.zeros(3), dims="row")
        mu = pm.Normal("mu", 0, 1, shape=(n.astype("int64"),))
        pm.Normal("y", mu[keep], 1.0, observed=data[keep])
    assert varying_containers(model) == ("data",)


def change_shape(model):
    pm.set_data({"data": np.zeros(4)}, model=model)


def add_variable(model):
    with model:
        pm.Normal("more")


def add_potential(model):
    with model:
        pm.Potential("penalty", model["mu"] * 2.0)


def change_bounds(model):
    model.check_bounds = False


def change_observed(model):
    model.rvs_to_values[model["other"]].data[0] += 1.0


CHANGES = {
    change_shape: r"`data` has shape \(4,\).*compiled for \(3,\).*pymc_hais.compile again",
    add_variable: r"new: `more`.*pymc_hais.compile again",
    add_potential: r"new: `penalty`.*pymc_hais.compile again",
    change_bounds: "check_bounds.*pymc_hais.compile again",
    change_observed: "the data of its `other` are others.*pymc_hais.compile again",
}


def build_pair():
    with pm.Model() as model:
        data = pm.Data("data", np.zeros(3))
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1.0, observed=data)
        pm.Normal("other", mu, 1.0, observed=np.array([0.5]))
    return model


@pytest.mark.few(2)
@pytest.mark.every(3)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_another_model_is_refused(change):
    model = build_pair()
    compiled = pymc_hais.compile(model, backend="jax", reference="prior")
    change(model)
    with pytest.raises(ValueError, match=CHANGES[change]):
        run(compiled)


@pytest.mark.parametrize(
    "choice",
    [
        {"reference": "prior"},
        {"kernel": pymc_hais.Hamiltonian(damping=1.0)},
        {"backend": "numba"},
        {"constraints": {"weights": (0, None)}},
        {"compile_kwargs": {"mode": "FAST_RUN"}},
        {"path": {"data": (0.0, 1.0)}},
    ],
    ids=lambda choice: next(iter(choice)),
)
def test_choices_of_compile_are_refused_in_a_call(choice):
    with pytest.raises(ValueError, match=r"belongs to the compiled model.*pymc_hais.compile"):
        run(compiled_regression(), **choice)


@pytest.mark.exhaustive
def test_equal_choices_are_taken():
    compiled = pymc_hais.compile(build_regression(), backend="jax", reference="prior", kernel=pymc_hais.Hamiltonian())
    run(compiled, reference="prior", backend="jax", kernel=pymc_hais.Hamiltonian())


def test_data_that_are_impossible_are_refused():
    with pm.Model() as model:
        data = pm.Data("data", np.ones(3))
        pm.Exponential("y", pm.Gamma("rate", 2, 2), observed=data)
    compiled = pymc_hais.compile(model, backend="jax")
    pm.set_data({"data": -np.ones(3)}, model=model)
    with pytest.raises(ValueError, match="comes from `y`"):
        run(compiled)


@pytest.mark.slow
def test_an_index_out_of_range_is_refused():
    with pm.Model() as model:
        group = pm.Data("group", np.array([0, 1, 2]))
        mu = pm.Normal("mu", 0, 1, shape=3)
        pm.Normal("y", mu[group], 1.0, observed=np.zeros(3))
    compiled = pymc_hais.compile(model, backend="jax", reference="prior")
    pm.set_data({"group": np.array([2, 2, 0])}, model=model)
    found = estimate(run(compiled))
    shared = log_evidence_normal([0.0, 0.0], 0.0, 1.0, 1.0)
    assert abs(found.value - shared - log_evidence_normal([0.0], 0.0, 1.0, 1.0)) < 4.5 * found.se
    pm.set_data({"group": np.array([0, 1, 3])}, model=model)
    with pytest.raises(ValueError, match="cannot be evaluated"):
        run(compiled)


def test_it_says_what_it_is():
    compiled = compiled_regression()
    said = repr(compiled)
    assert "weights" in said
    assert "data (40,)" in said
    assert "jax" in said
    assert f"{compiled.n_bytes:,} bytes" in said
    assert compiled.n_bytes >= DESIGN.nbytes


def test_others_take_the_model_itself():
    with pytest.raises(ValueError, match=r"Pass its `\.model`"):
        pymc_hais.log_likelihood(compiled_regression(), {"data": np.zeros((2, 40))})
    with pytest.raises(ValueError, match="by name"):
        pymc_hais.sample_hais(compiled_regression())
    with pytest.raises(ValueError, match="cannot be another model"):
        pymc_hais.compile(build_regression(), reference=build_regression())


def test_frozen_data_are_part_of_the_model():
    compiled = pymc_hais.compile(freeze_dims_and_data(build_regression(simulate(1))), reference="prior")
    assert "data that may vary: none" in repr(compiled)
    again = pymc_hais.compile(build_regression(simulate(1)), reference="prior")
    options = {"draws": 100, "n_temperatures": 30, "target_se": None}
    np.testing.assert_allclose(estimate(run(compiled, **options)).value, estimate(run(again, **options)).value)


@pytest.mark.every(2)
@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", ["numba", "c"])
def test_other_engines(backend):
    compiled = pymc_hais.compile(build_regression(), backend=backend, reference="prior")
    options = {"draws": 100, "n_temperatures": 300, "target_se": None}
    for seed in (5, 6):
        y = simulate(seed)
        pm.set_data({"data": y}, model=compiled.model)
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(lambda _: estimate(run(compiled, **options)), range(2))
        assert first == second
        assert abs(first.value - log_evidence_regression(DESIGN, y, 2.0, 0.7)) < 5 * first.se
