"""Compiled models with discrete variables: what the first data say of interactions does not hold for others."""

import functools
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_hais
from pymc_hais.core.seeds import Seeds
from pymc_hais.density import build_density, build_layout, read_containers, varying_containers
from pymc_hais.density.compiling import compile_density
from pymc_hais.problem import problem as problem_module
from pymc_hais.problem.building import build_problem
from pymc_hais.problem.problem import Compiler
from tests.discrete_sums import sum_states
from tests.discrete_truth import log_densities
from tests.front_door import assert_right
from tests.marks import seeds

RUN = {"draws": 500, "chains": 2, "random_seed": 3, "progressbar": False, "n_temperatures": 60, "target_se": None}
GRID = np.linspace(-6.0, 6.0, 41)


# Which sites interact, at the density ----------------------------------------------------------------------

N = 5
SYMMETRIC = np.random.default_rng(8).normal(size=(N, N))
PAIRS = np.array([(0, 1), (1, 2), (0, 4), (2, 3)]).T


def draw(*shape):
    return lambda rng: rng.normal(size=shape)


#: A term -> graph of the sites and of data, what nothing interacts by, and how other data are drawn.
TERMS = {
    "matrix": (lambda s, w: pt.dot(s, pt.dot(w, s)), np.zeros((N, N)), draw(N, N)),
    "triangle": (lambda s, w: pt.dot(s, pt.dot(pt.triu(w, 1), s)), np.zeros((N, N)), draw(N, N)),
    "halves": (lambda s, w: pt.dot(s[:2], pt.dot(w, s[2:])), np.zeros((2, N - 2)), draw(2, N - 2)),
    "pairs": (lambda s, j: (j * s[PAIRS[0]] * s[PAIRS[1]]).sum(), np.zeros(4), draw(4)),
    "gate": (
        lambda s, j: pt.switch(pt.gt(j, 0), pt.exp(0.3 * s[PAIRS[0]] * s[PAIRS[1]]), 0.4 * s[:4]).sum(),
        -np.ones(4),
        draw(4),
    ),
    "index": (lambda s, i: (np.arange(1.0, N + 1) * s * s[i]).sum(), np.arange(N), lambda rng: rng.permutation(N)),
    "write": (
        lambda s, i: (pt.inc_subtensor(pt.zeros(N)[i], s) ** 2).sum(),
        np.arange(N),
        lambda rng: rng.integers(N, size=N),
    ),
    "table": (lambda s, t: t[s[:-1], s[1:]].sum(), np.zeros((3, 3)), draw(3, 3)),
    "row": (lambda s, t: t[0, s].sum() + t[s, s[::-1]].sum(), np.zeros((3, 3)), draw(3, 3)),
    "square": (lambda s, a: (pt.dot(a, s) ** 2).sum(), np.eye(N), draw(N, N)),
    "product": (lambda s, a: pt.prod(1.0 + a * s), np.zeros(N), draw(N)),
    "scale": (lambda s, a: pt.exp(a * s.sum()) + s.sum(), np.zeros(()), draw()),
}
VARIABLES = {
    "two": lambda: pymc_hais.FlatDiscrete("s", shape=N),
    "three": lambda: pymc_hais.FlatDiscrete("s", 0, 2, shape=N),
    "drawn": lambda: pm.Bernoulli("s", pm.Data("p", np.full(N, 0.4)), shape=N),
}


def build_random(rng):
    """Build a model of a few terms, with the data by which nothing interacts; return also other data."""
    kind = str(rng.choice(list(VARIABLES)))
    names = rng.choice(list(TERMS), size=rng.integers(1, 4), replace=False)
    with pm.Model() as model:
        s = VARIABLES[kind]()
        for name in names:
            build, none, _ = TERMS[name]
            pm.Potential(f"of {name}", build(s, pm.Data(name, none)))
    other = {name: np.asarray(TERMS[name][2](rng)) for name in names}
    if kind == "drawn":
        other["p"] = rng.uniform(0.1, 0.9, size=N)
    return model, other


def compile_for_any(graph):
    """Return a function of a position and data: what the graph gives."""
    function, n = compile_density(graph, "FAST_COMPILE"), len(graph.preparation.shapes)

    def evaluate(x, values):
        return [np.asarray(one) for one in function(x, *graph.preparation(values), *graph.data_values[n:])]

    return evaluate


def odds_error(graph, model, rng):
    """Return by how much odds, as sites of a colour are drawn together by them, differ from changes of model.logp()."""
    evaluate, values, variable = compile_for_any(graph), read_containers(model), graph.rules[0].variable
    states = np.array(list(np.ndindex(*[variable.n_values] * N)), dtype=float)
    exact = log_densities(model, s=states)
    worst = 0.0
    for rule in graph.rules:
        for _ in range(12):
            row = rng.integers(len(states))
            chosen = (rule.colours == rng.integers(1 + rule.colours.max())) & (rng.uniform(size=N) < 0.7)
            moved = (states[row] + chosen) % variable.n_values
            here, there = (evaluate(x, values) for x in (states[row], moved))
            worst = max(worst, abs(here[0] + here[1] - exact[row]))
            slopes, others = (one[2] + one[3] for one in (here, there))
            change = (moved - states[row]) * slopes if rule.rule == "gradient" else others - slopes
            target = exact[np.flatnonzero((states == moved).all(axis=1))[0]]
            worst = max(worst, abs(change[chosen].sum() - (target - exact[row])))
    return worst


@pytest.mark.every(8)
@pytest.mark.few(2)
@pytest.mark.parametrize("seed", seeds(4, 20, 30))
def test_odds_are_right_where_the_first_data_had_no_interactions(seed):
    rng = np.random.default_rng(seed)
    model, other = build_random(rng)
    graph = build_density(model, build_layout(model), containers=read_containers(model))
    assert odds_error(graph, model, rng) < 1e-8
    pm.set_data(other, model=model)
    assert odds_error(graph, model, rng) < 1e-8


@pytest.mark.parametrize("name", ["matrix", "pairs", "index", "square", "halves"])
def test_what_the_first_data_say_would_be_wrong(name):
    """The same test sees colours that were read from the first numbers."""
    build, none, draw_other = TERMS[name]
    with pm.Model() as model:
        pm.Potential("term", build(pymc_hais.FlatDiscrete("s", shape=N), pm.Data(name, none)))
    layout, rng = build_layout(model), np.random.default_rng(1)
    (of_numbers,) = build_density(model, layout).rules
    graph = build_density(model, layout, containers=read_containers(model))
    assert graph.rules[0].colours.max() > of_numbers.colours.max()
    wrong = replace(graph, rules=(replace(graph.rules[0], colours=of_numbers.colours),))
    pm.set_data({name: draw_other(rng)}, model=model)
    assert odds_error(wrong, model, rng) > 0.01


def test_containers_from_which_values_are_read_do_not_vary():
    with pm.Model() as model:
        names = ["n", "low", "high", "top", "good", "drawn", "bad", "p", "y"]
        n, low, high, top, good, drawn, bad = (pm.Data(name, 3 + i) for i, name in enumerate(names[:7]))
        pm.Binomial("binomial", n, pm.Data("p", 0.5))
        pm.DiscreteUniform("uniform", low, high)
        pymc_hais.FlatDiscrete("flat", 0, top)
        pm.HyperGeometric("hyper", N=good + bad + 20, k=good, n=drawn)
        pm.Normal("y_", 0.0, 1.0, observed=pm.Data("y", 1.0))
    assert varying_containers(model) == ("bad", "p", "y")


def test_a_container_that_cannot_vary_is_no_argument():
    """Also for those who build a problem with arguments of their own choice."""
    with pm.Model() as model:
        k = pymc_hais.FlatDiscrete("k", 0, pm.Data("top", 2.0))
        pm.Potential("term", k * pm.Data("w", 0.5))

    def build(*names):
        containers = {name: read_containers(model)[name] for name in names}
        return build_problem(model, "prior", Compiler(), Seeds((1,)), containers=containers)

    assert build("w").preparation.names == ("w",)
    for names in (["top"], ["w", "top"]):
        with pytest.raises(ValueError, match=r"`top`.*cannot vary"):
            build(*names)


@pytest.mark.slow
def test_other_values_of_a_discrete_variable_are_refused():
    """Its states are counted when it is compiled."""
    with pm.Model() as model:
        k = pymc_hais.FlatDiscrete("k", 0, pm.Data("top", np.array([1, 2])), shape=2)
        pm.Potential("term", pt.dot(k, pm.Data("w", np.zeros(2))))
    compiled = pymc_hais.compile(model, backend="jax")
    pm.set_data({"w": np.ones(2)}, model=model)
    exact = np.log1p(np.e) + np.log(1.0 + np.e + np.e**2)
    assert_right(estimate(run(compiled)), exact)
    pm.set_data({"top": np.array([2, 2])}, model=model)
    with pytest.raises(ValueError, match=r"`top`.*pymc_hais.compile again"):
        run(compiled)


# Through the front door ------------------------------------------------------------------------------------


def run(model, **options):
    return pymc_hais.sample_hais(model=model, **{**RUN, **options})


def estimate(idata):
    return pymc_hais.log_marginal_likelihood(idata)


def restricted_boltzmann():
    with pm.Model() as model:
        w, b, c = pm.Data("w", np.zeros((4, 3))), pm.Data("b", np.zeros(4)), pm.Data("c", np.zeros(3))
        v, h = pymc_hais.FlatDiscrete("v", shape=4), pymc_hais.FlatDiscrete("h", shape=3)
        pm.Potential("energy", pt.dot(v, pt.dot(w, h)) + pt.dot(b, v) + pt.dot(c, h))
    return model


def draw_restricted(rng):
    return {"w": 1.5 * rng.normal(size=(4, 3)), "b": rng.normal(size=4), "c": rng.normal(size=3)}


def boltzmann():
    with pm.Model() as model:
        w, b = pm.Data("w", np.zeros((6, 6))), pm.Data("b", np.zeros(6))
        s = pymc_hais.FlatDiscrete("s", shape=6)
        pm.Potential("energy", 0.5 * pt.dot(s, pt.dot(w, s)) + pt.dot(b, s))
    return model


def draw_boltzmann(rng):
    w = np.triu(rng.normal(size=(6, 6)), 1)
    return {"w": w + w.T, "b": rng.normal(size=6)}


def spike_and_slab():
    with pm.Model() as model:
        x, y = pm.Data("x", np.zeros((9, 3))), pm.Data("y", np.zeros(9))
        included = pm.Bernoulli("included", 0.4, shape=3)
        weight = pm.Normal("weight", 0.0, 1.0)
        pm.Normal("observed", pt.dot(x, included) * weight, 0.8, observed=y)
    return model


def draw_regression(rng):
    x = rng.normal(size=(9, 3))
    return {"x": x, "y": x @ np.array([1.0, 0.0, 1.0]) + 0.8 * rng.normal(size=9)}


def mixture():
    with pm.Model() as model:
        mean, y = pm.Data("mean", np.zeros(3)), pm.Data("y", np.zeros(4))
        z = pm.Categorical("z", pm.Data("share", np.ones(3) / 3), shape=4)
        shift = pm.Normal("shift", 0.0, 1.0)
        pm.Normal("observed", mean[z] + shift, 0.7, observed=y)
    return model


def draw_mixture(rng):
    return {"mean": 2.0 * rng.normal(size=3), "y": 2.0 * rng.normal(size=4), "share": rng.dirichlet(np.ones(3))}


#: Model, how its data are drawn, and the values over which its density is summed.
MODELS = {
    "restricted Boltzmann machine": (restricted_boltzmann, draw_restricted, {"v": [0, 1], "h": [0, 1]}),
    "Boltzmann machine": (boltzmann, draw_boltzmann, {"s": [0, 1]}),
    "spike and slab": (spike_and_slab, draw_regression, {"included": [0, 1], "weight": GRID}),
    "mixture": (mixture, draw_mixture, {"z": [0, 1, 2], "shift": GRID}),
}


@functools.cache
def compiled_of(name):
    """Compile a model at its first data, and the loops of a run."""
    compiled = pymc_hais.compile(MODELS[name][0](), backend="jax")
    run(compiled)
    return compiled


def refuse_to_compile(*args, **kwargs):
    raise AssertionError("compiled again")


@pytest.fixture(autouse=True)
def needs_jax():
    pytest.importorskip("jax")


@pytest.mark.every(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_other_data_compile_nothing_and_give_the_exact_log_z(name, monkeypatch):
    _, draw_data, values = MODELS[name]
    compiled = compiled_of(name)
    assert compiled.is_flexible
    monkeypatch.setattr(problem_module, "compile_engine", refuse_to_compile)
    for seed in range(2):
        pm.set_data(draw_data(np.random.default_rng(seed)), model=compiled.model)
        idata = run(compiled, random_seed=seed)
        found, exact = estimate(idata), sum_states(compiled.model, **values)
        assert_right(found, exact.log_z)
        assert found.se < 0.1
        assert idata["posterior"].attrs["compile_time"] == 0.0
        for site in compiled._problem.layout.sites:
            draws = np.asarray(idata["posterior"][site.name], dtype=float)
            error = np.abs(draws.mean(axis=(0, 1)) - exact.means[site.name])
            assert np.all(error <= 5 * draws.std(axis=(0, 1)) / np.sqrt(300.0) + 0.01)


@pytest.mark.every(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_call_is_that_of_a_model_compiled_for_its_data(name):
    build, draw_data, _ = MODELS[name]
    data, compiled, other = draw_data(np.random.default_rng(5)), compiled_of(name), build()
    for model in (compiled.model, other):
        pm.set_data(data, model=model)
    ours, fresh = run(compiled), run(pymc_hais.compile(other, backend="jax"))
    assert estimate(ours) == estimate(fresh)
    for site in compiled._problem.layout.sites:
        np.testing.assert_array_equal(ours["posterior"][site.name], fresh["posterior"][site.name])


@pytest.mark.slow
def test_a_reference_is_held_to_the_values_that_are_possible_now():
    with pm.Model() as model:
        k = pm.Categorical("k", pm.Data("p", np.array([0.5, 0.5, 0.0])))
        pm.Normal("y", 1.0 * k, 1.0, observed=[0.3])
    reference = {"k": pm.Categorical.dist(np.array([0.5, 0.5, 0.0]))}
    compiled = pymc_hais.compile(model, backend="jax", reference=reference)
    pm.set_data({"p": np.array([0.3, 0.7, 0.0])}, model=model)
    run(compiled)
    pm.set_data({"p": np.array([0.3, 0.3, 0.4])}, model=model)
    with pytest.raises(ValueError, match="log Z would miss"):
        run(compiled)


@pytest.mark.filterwarnings("default:At .* draws of the reference:UserWarning")
def test_a_table_that_is_looked_up_past_its_end_for_other_data_is_said():
    with pm.Model() as model:
        k = pm.Bernoulli("k", 0.5)
        offset = pm.Data("offset", np.array(0))
        pm.Potential("term", pt.as_tensor([0.1, 0.7])[k + offset])
    compiled = pymc_hais.compile(model, backend="jax")
    assert_right(estimate(run(compiled)), np.log(0.5 * np.exp([0.1, 0.7]).sum()))
    pm.set_data({"offset": np.array(1)}, model=model)
    with pytest.warns(UserWarning, match="past the end of a table"):
        idata = run(compiled)
    assert_right(estimate(idata), np.log(0.5) + 0.7)


@pytest.mark.every(2)
@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", ["numba", "c"])
def test_other_engines(backend):
    _, draw_data, values = MODELS["Boltzmann machine"]
    compiled = pymc_hais.compile(boltzmann(), backend=backend)
    for seed in range(2):
        pm.set_data(draw_data(np.random.default_rng(seed)), model=compiled.model)
        found = estimate(run(compiled, draws=200))
        assert_right(found, sum_states(compiled.model, **values).log_z)
