"""Which sites interact, by flips; and what stands at each site: its log odds, or the sum of the terms it is in."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import sparse

import pymc_hais
from pymc_hais.density import build_density, build_layout, log_count
from pymc_hais.density.compiling import compile_density
from pymc_hais.density.sites import conditionals
from pymc_hais.density.sites.conditionals import colour
from pymc_hais.references import build_prior
from tests.marks import fast_but

RNG = np.random.default_rng(5)
Y = RNG.normal(size=8)
X = RNG.normal(size=(12, 4))


def chain(n_values, coupling=0.7):
    with pm.Model() as model:
        z = pymc_hais.FlatDiscrete("z", 0, n_values - 1, shape=8)
        table = pt.as_tensor(RNG.normal(size=(n_values, n_values)))
        pm.Potential("links", coupling * table[z[:-1], z[1:]].sum())
        pm.Normal("y", 1.0 * z, 1.0, observed=Y)
    return model


def grid():
    with pm.Model() as model:
        spin = 2 * pymc_hais.FlatDiscrete("s", shape=(4, 4)) - 1
        strength = pm.HalfNormal("strength", 1.0)
        pm.Potential("bonds", strength * ((spin[1:] * spin[:-1]).sum() + (spin[:, 1:] * spin[:, :-1]).sum()))
    return model


def machine():
    with pm.Model() as model:
        v, h = pymc_hais.FlatDiscrete("v", shape=5), pymc_hais.FlatDiscrete("h", shape=3)
        pm.Potential("energy", pt.dot(pt.dot(v, RNG.normal(size=(5, 3))), h) + v.sum() - 0.3 * h.sum())
    return model


def mixture(n_components):
    with pm.Model() as model:
        mean = pm.Normal("mean", 0.0, 3.0, shape=n_components)
        z = pm.Categorical("z", np.full(n_components, 1.0 / n_components), shape=8)
        pm.Normal("y", mean[z], 1.0, observed=Y)
    return model


def two_components():
    with pm.Model() as model:
        z = pm.Bernoulli("z", pm.Beta("p", 1.0, 1.0), shape=8)
        pm.Normal("y", pm.Normal("mean", 0.0, 3.0, shape=2)[z], 1.0 + z, observed=Y)
    return model


def selection():
    with pm.Model() as model:
        z, b = pm.Bernoulli("z", 0.3, shape=4), pm.Normal("b", 0.0, 1.0, shape=4)
        pm.Normal("y", pt.dot(X, z * b), 1.0, observed=RNG.normal(size=12))
    return model


def counts():
    with pm.Model() as model:
        n = pm.Poisson("n", pm.Gamma("rate", 2.0, 1.0), shape=3)
        pm.Binomial("y", n, 0.5, observed=[1, 0, 2])
    return model


def parents():
    with pm.Model() as model:
        kind = pm.Bernoulli("kind", 0.4)
        pm.Bernoulli("z", pt.switch(kind, 0.9, 0.2), shape=8)
        pm.Normal("y", 2.0 * model["z"], 1.0, observed=Y)
    return model


def torus():
    with pm.Model() as model:
        spin = 2 * pymc_hais.FlatDiscrete("s", shape=(4, 4)) - 1
        pm.Potential("bonds", 0.3 * (spin * (pt.roll(spin, 1, axis=0) + pt.roll(spin, 1, axis=1))).sum())
    return model


def hidden_chain():
    with pm.Model() as model:
        first = pm.Bernoulli("first", 0.5)
        z = pm.Categorical("z", pt.as_tensor([[0.9, 0.1], [0.2, 0.8]])[first], shape=8)
        pm.Potential("moves", pt.log(pt.as_tensor([[0.9, 0.1], [0.2, 0.8]])[z[:-1], z[1:]]).sum())
        pm.Potential("start", pt.as_tensor([-0.2, -1.7])[z[0]])
        pm.Normal("y", pt.as_tensor([0.0, 2.0])[z], 1.0, observed=Y)
    return model


#: Model, and the rule and number of colours of each discrete variable.
MODELS = {
    "chain of two values": (lambda: chain(2), {"z": ("gradient", 2)}),
    "chain of three values": (lambda: chain(3), {"z": ("table", 2)}),
    "grid with a free coupling": (grid, {"s": ("gradient", 2)}),
    "torus": (torus, {"s": ("gradient", 2)}),
    "hidden chain": (hidden_chain, {"first": ("table", 1), "z": ("gradient", 2)}),
    "Boltzmann machine": (machine, {"v": ("gradient", 1), "h": ("gradient", 1)}),
    "mixture of three": (lambda: mixture(3), {"z": ("table", 1)}),
    "mixture of two": (two_components, {"z": ("gradient", 1)}),
    "selection": (selection, {"z": ("table", 4)}),
    "counts": (counts, {"n": ("walk", 1)}),
    "a parent and its children": (parents, {"kind": ("gradient", 1), "z": ("gradient", 1)}),
}


#: These take seconds to build, and have relatives among the others.
SLOW = ["torus", "grid with a free coupling", "mixture of three", "a parent and its children"]


@pytest.fixture(scope="module", params=fast_but(SLOW, MODELS))
def case(request):
    build, expected = MODELS[request.param]
    model = build()
    sampler = build_prior(model)
    values, _ = sampler.sample(60, 1)
    layout = build_layout(model, [value[0] for value in values])
    x = layout.flatten(values)
    return model, layout, x, build_density(model, layout), expected


@pytest.mark.every(2)
@pytest.mark.few(3)
def test_rules_and_colours_are_those_of_the_model(case):
    *_, graph, expected = case
    assert {rule.variable.name: (rule.rule, 1 + rule.colours.max()) for rule in graph.rules} == expected


@pytest.mark.every(2, start=1)
@pytest.mark.few(3)
def test_what_stands_at_the_sites_tells_the_change_of_the_log_density(case):
    x, graph = case[2:4]
    function = compile_density(graph, "FAST_COMPILE")
    rng = np.random.default_rng(0)

    def at(position):
        return [np.asarray(one, float) for one in function(position, *graph.data_values)]

    for state in x[np.isfinite([np.sum(at(row)[:2]) for row in x])][:8]:
        reference, ratio, grad_reference, grad_ratio = at(state)
        for rule in graph.rules:
            v = rule.variable
            colour_of = rule.colours == rng.integers(1 + rule.colours.max())
            chosen = v.start + np.flatnonzero(colour_of & (rng.uniform(size=colour_of.size) < 0.6))
            moved = state.copy()
            moved[chosen] = 1.0 - state[chosen] if v.n_values == 2 else (state[chosen] + 1.0) % (v.n_values or 1000)
            after = at(moved)
            slopes = (grad_reference, grad_ratio)
            for before, there, slope, other in zip((reference, ratio), after[:2], slopes, after[2:], strict=True):
                if rule.rule == "gradient":
                    change = np.sum((moved - state)[chosen] * slope[chosen])
                else:
                    change = np.sum(other[chosen] - slope[chosen])
                np.testing.assert_allclose(there - before, change, rtol=1e-6, atol=1e-6)


def test_gradients_of_continuous_dimensions_are_those_of_the_model(case):
    model, layout, x, graph, _ = case
    if not layout.n_continuous:
        pytest.skip("sites alone")
    function, log_density = compile_density(graph, "FAST_COMPILE"), model.compile_logp(mode="FAST_COMPILE")

    def at(position):
        values = layout.unflatten(position)
        return float(log_density({var.name: np.asarray(values[var.name], var.dtype) for var in model.value_vars}))

    for state in x[:5]:
        _, ratio, *gradients = function(state, *graph.data_values)
        if not np.isfinite(ratio):
            continue
        for dim in range(layout.n_continuous):
            step = 1e-5 * (np.arange(layout.n_dims) == dim)
            expected = (at(state + step) - at(state - step)) / 2e-5
            np.testing.assert_allclose(sum(gradients)[dim], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [20, 40])
def test_rules_take_memory_in_proportion_to_the_links(size):
    with pm.Model() as model:
        y = RNG.normal(size=size**2)
        z = pm.Categorical("z", pm.Dirichlet("w", np.ones(3)), shape=size**2)
        pm.Normal("y", pm.Normal("mu", 0.0, 3.0, shape=3)[z], 1.0, observed=y)
        spin = 2 * pymc_hais.FlatDiscrete("s", 0, 2, shape=(size, size)) - 1
        pm.Potential("bonds", ((spin[1:] * spin[:-1]) ** 2).sum() + pt.exp(spin[:, 1:] * spin[:, :-1]).sum())
    rules = {rule.variable.name: rule for rule in build_density(model, build_layout(model)).rules}
    held = {name: sum(m.nnz for side in rule.members for m in side) for name, rule in rules.items()}
    assert held["z"] == 2 * size**2
    assert held["s"] == size**2 + 4 * size * (size - 1)  # its range, and both ends of every bond
    assert {name: rule.colours.max() for name, rule in rules.items()} == {"z": 0, "s": 1}


def test_colours_are_few_and_right():
    linked = RNG.uniform(size=(30, 30)) < 0.1
    linked = (linked | linked.T) & ~np.eye(30, dtype=bool)
    colours = colour(linked)
    assert not linked[colours[:, None] == colours].any()
    assert 1 + colours.max() <= 1 + linked.sum(axis=1).max()
    assert set(colours) == set(range(1 + colours.max()))
    np.testing.assert_array_equal(colour(np.zeros((5, 5), dtype=bool)), 0)
    np.testing.assert_array_equal(colour(~np.eye(5, dtype=bool)), np.arange(5))


def test_supports_are_those_of_the_distributions():
    with pm.Model() as model:
        rate = pm.HalfNormal("rate", 1.0)
        pm.Bernoulli("coin", 0.5)
        pm.Categorical("class", np.ones(4) / 4, shape=2)
        pm.DiscreteUniform("day", -3, 6)
        pm.Binomial("hits", [5, 9], 0.5)
        pm.Binomial("many", 1000, 0.5)
        pm.BetaBinomial("over", 1.0, 1.0, 7)
        pm.HyperGeometric("drawn", 50, 10, 20)
        pm.Poisson("count", rate)
        pymc_hais.FlatDiscrete("flat", 2, 4)
        pm.Categorical("moving", pt.stack([rate, 1.0]) / (1.0 + rate))
    found = {v.name: (v.low, v.n_values) for v in build_layout(model).sites}
    assert found == {
        "coin": (0, 2),
        "class": (0, 4),
        "day": (-3, 10),
        "hits": (0, 10),
        "many": (0, 0),
        "over": (0, 8),
        "drawn": (0, 11),
        "count": (0, 0),
        "flat": (2, 3),
        "moving": (0, 2),
    }


def test_states_are_counted():
    with pm.Model() as model:
        pm.Bernoulli("coin", 0.5)
        pymc_hais.FlatDiscrete("a", 2, 4, shape=5)
        pymc_hais.FlatDiscrete("b", 0, [1, 3])
    expected = 5 * np.log(3.0) + np.log(2.0) + np.log(4.0)
    np.testing.assert_allclose(log_count(model, build_layout(model)), expected)


@pytest.mark.parametrize(("gathered", "most_dense"), [(100, 0), (0, 10**9), (0, 0)], ids=["gathered", "dense", "added"])
def test_terms_are_summed_by_site_in_any_way(monkeypatch, gathered, most_dense):
    monkeypatch.setattr(conditionals, "_GATHERED", gathered)
    monkeypatch.setattr(conditionals, "_MOST_DENSE", most_dense)
    members = RNG.uniform(size=(6, 30)) < 0.3
    members[2] = False
    terms = RNG.normal(size=30)
    terms[[4, 7]] = -np.inf, np.nan
    found = conditionals._sum_members(sparse.csr_array(members), pt.as_tensor(terms)).eval(mode="FAST_COMPILE")
    for site, own in enumerate(members):
        total = terms[own].sum()
        if np.isfinite(total):
            np.testing.assert_allclose(found[site], total, rtol=1e-12)
        else:  # one site's impossible term says nothing of another's
            assert np.isnan(found[site]) or found[site] < -1e15


def test_what_could_be_summed_out_is_named():
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.3, shape=5)
        kind = pm.Categorical("kind", [0.2, 0.3, 0.5])
        pm.Normal("y", 1.0 * z + kind, 1.0, observed=np.zeros(5))
        edges = pm.Bernoulli("edge", 0.5, shape=4)
        pm.Potential("links", (edges[1:] * edges[:-1]).sum())
        pm.Poisson("n", 2.0)
        pymc_hais.FlatDiscrete("flat")
    graph = build_density(model, build_layout(model))
    assert conditionals.summable(model, graph.rules) == ("z", "kind")
    assert graph.layout.owners == ("z", "kind", "edge", "n", "flat")
