"""A log density is said to be concave only where it is: models, and random graphs against what concave means."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph

from pymc_hais.density import build_density, build_layout, is_log_concave
from pymc_hais.density.proofs import concavity
from pymc_hais.density.proofs.concavity import Curvature, is_concave_in
from tests.marks import slow_but

X = np.random.default_rng(0).normal(size=(40, 3))
COUNTS = np.arange(40) % 3


def proven(model):
    graph = build_density(model, build_layout(model))
    return is_log_concave(graph, graph.data_values)


def regression(likelihood, prior=lambda: pm.Normal("b", 0.0, 1.0, shape=3)):
    with pm.Model() as model:
        likelihood(0.3 + X @ prior())
    return model


def normal(sd):
    return lambda mu: pm.Normal("y", mu, sd(), observed=COUNTS)


CONCAVE = {
    "logistic": lambda mu: pm.Bernoulli("y", logit_p=mu, observed=COUNTS > 0),
    "probit": lambda mu: pm.Bernoulli("y", p=pm.math.invprobit(mu), observed=COUNTS > 0),
    "binomial": lambda mu: pm.Binomial("y", 5, logit_p=mu, observed=COUNTS),
    "negative binomial": lambda mu: pm.NegativeBinomial("y", mu=pm.math.exp(mu), alpha=2.0, observed=COUNTS),
    "Poisson": lambda mu: pm.Poisson("y", pm.math.exp(mu), observed=COUNTS),
    "multinomial logit": lambda mu: pm.Categorical(
        "y", logit_p=mu[:, None] * np.array([0.0, 1.0, -0.5]), observed=COUNTS
    ),
    "normal": normal(lambda: 2.0),
    "energy": lambda mu: pm.Potential("energy", -pt.softplus(mu).sum() - abs(mu[0])),
}
NOT_PROVEN = {
    "unknown sd": normal(lambda: pm.HalfNormal("sd", 1.0)),
    "heavy tails": lambda mu: pm.StudentT("y", 4.0, mu, sigma=1.0, observed=COUNTS),
    "two hills": lambda mu: pm.NormalMixture("y", [0.5, 0.5], pt.stack([mu, -mu], axis=-1), 1.0, observed=COUNTS),
    "bent": lambda mu: pm.Normal("y", mu**2, 1.0, observed=COUNTS),
    "a ridge": lambda mu: pm.Normal("y", mu[0] * mu[1], 1.0, observed=1.0),
    "convex": lambda mu: pm.Potential("energy", pt.softplus(mu).sum()),
    "a condition": lambda mu: pm.Potential("energy", pt.switch(mu[0] > 0.0, -mu[0], -2.0 * mu[1])),
    "a probability that it chooses": lambda mu: pm.Potential(
        "energy", pt.log1p(-pt.sigmoid(pt.stack([mu, -mu]))[pt.cast(mu < 0.0, "int64")]).sum()
    ),
    "whole numbers": lambda mu: pm.Potential("energy", pt.cast(pt.cast(mu[0], "int64"), "float64")),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", CONCAVE)
def test_regressions_of_one_hill_are_proven(name):
    assert proven(regression(CONCAVE[name]))
    assert proven(regression(CONCAVE[name], lambda: pm.Laplace("b", 0.0, 1.0, shape=3)))
    assert proven(regression(CONCAVE[name], lambda: pm.MvNormal("b", np.zeros(3), np.eye(3) + 0.5)))
    assert not proven(regression(CONCAVE[name], lambda: pm.Cauchy("b", 0.0, 1.0, shape=3)))


@pytest.mark.few(3)
@pytest.mark.parametrize("name", NOT_PROVEN)
def test_nothing_else_is(name):
    assert not proven(regression(NOT_PROVEN[name]))


@pytest.mark.parametrize(
    "rate", [lambda: pm.LogNormal("rate"), lambda: pm.Gamma("rate", 9.0, 2.0), lambda: pm.Exponential("rate", 1.0)]
)
def test_rates_of_one_hill_are_proven(rate):
    """Their logarithm is bounded, because PyMC asks for a rate that is above zero."""
    with pm.Model() as model:
        pm.Gamma("y", 3.0, rate(), observed=[0.2, 4.0])
    assert proven(model)


def with_pivot(u):
    return pm.math.softmax(pt.concatenate([u[:, :2], np.zeros((40, 1))], axis=1), axis=1)


#: Likelihoods of a table (40, 3) of utilities, in several layouts.
OF_UTILITIES = {
    "pivot": lambda u: pm.Categorical("y", p=with_pivot(u), observed=COUNTS),
    "counts with a pivot": lambda u: pm.Multinomial("y", n=6, p=with_pivot(u), observed=np.tile([1, 2, 3], (40, 1))),
    "many columns": lambda u: pm.Categorical("y", logit_p=u @ np.ones((3, 50)), observed=COUNTS),
    "tables": lambda u: pm.Categorical("y", logit_p=u.reshape((4, 10, 3)), observed=np.reshape(COUNTS, (4, 10))),
    "columns": lambda u: pm.Categorical("y", p=pm.math.softmax(u.T, axis=0).T, observed=COUNTS),
    "counts in columns": lambda u: pm.Multinomial(
        "y", n=6, p=pm.math.softmax(u.T, axis=0).T, observed=np.tile([1, 2, 3], (40, 1))
    ),
    "one row": lambda u: pm.Categorical("y", p=pm.math.softmax(u[:1], axis=1), observed=[1]),
    "a vector": lambda u: pm.Categorical("y", logit_p=u[0], observed=COUNTS),
    "a potential": lambda u: pm.Potential("y", -pt.logsumexp(u, axis=1).sum()),
}


@pytest.mark.parametrize("name", OF_UTILITIES)
def test_utilities_in_any_layout_have_one_hill(name):
    with pm.Model() as model:
        OF_UTILITIES[name](X @ pm.Normal("b", 0.0, 1.0, shape=(3, 3)))
    assert proven(model)


def test_probabilities_of_one_hill_are_proven():
    with pm.Model() as model:
        pm.Binomial("y", 5, pm.Beta("p", 2.0, 1.0, shape=4)[np.arange(40) % 4], observed=COUNTS)
    assert proven(model)


def test_rows_that_are_alike_do_not_hide_the_one_hill():
    with pm.Model() as model:
        rate = pm.math.exp(pm.Normal("a") + pm.Normal("b") * np.repeat([0.0, 1.0, 2.0], 20))
        pm.Poisson("y", rate, observed=np.tile([0, 1, 2, 3], 15))
    assert proven(model)


def test_counts_of_no_exposure_do_not_hide_the_one_hill():
    """An exposure of zero makes a rate of zero for all positions, which PyMC's density asks about."""
    exposures = np.arange(40) % 3
    assert proven(regression(lambda mu: pm.Poisson("y", exposures * pm.math.exp(mu), observed=COUNTS)))
    assert proven(
        regression(
            lambda mu: pm.Poisson("y", exposures * pm.math.exp(mu) * pm.Gamma("rate", 0.1, 0.1), observed=COUNTS)
        )
    )
    assert not proven(regression(lambda mu: pm.Poisson("y", exposures * pm.math.softplus(mu), observed=COUNTS)))


def test_what_data_decide_is_read_from_the_data_of_this_run():
    with pm.Model() as model:
        sign = pm.Data("sign", np.ones(4))
        b = pm.Normal("b")
        pm.Potential("energy", -(sign * pt.softplus(b)).sum())
    containers = {"sign": np.ones(4)}
    graph = build_density(model, build_layout(model), containers=containers)
    values = [np.asarray(value) for value in graph.data_values]
    assert is_log_concave(graph, values)
    assert not is_log_concave(graph, [-value for value in values])


def chain(likelihood):
    with pm.Model() as model:
        likelihood(pm.GaussianRandomWalk("h", sigma=pm.HalfNormal("s"), init_dist=pm.Normal.dist(), shape=40))
    return model


GROUPS, EXPOSURE = np.array([[0.0], [1.0]]), np.triu(np.ones((2, 40)), 1)
#: Given all other variables, whatever their values are.
CONCAVE_IN_A_CHAIN = {
    **CONCAVE,
    "unknown sd": NOT_PROVEN["unknown sd"],
    "volatility": lambda h: pm.Normal("y", 0.0, pm.math.exp(0.5 * h + pm.Normal("mu")), observed=COUNTS - 1.0),
    "volatility with heavy tails": lambda h: pm.StudentT(
        "y", pm.Exponential("nu", 0.1), pm.Normal("mu"), lam=pm.math.exp(-2.0 * h), observed=COUNTS - 1.0
    ),
    "rates": lambda h: pm.Exponential("y", pm.math.exp(h) * pm.HalfNormal("scale"), observed=COUNTS + 1.0),
    "dispersion": lambda h: pm.NegativeBinomial("y", mu=pm.math.exp(h), alpha=pm.HalfNormal("a"), observed=COUNTS),
    # The product with zeros is guarded where it is differentiated.
    "hazards of two groups": lambda h: pm.Poisson(
        "y", EXPOSURE * pm.Gamma("base", 0.01, 0.01, shape=40) * pm.math.exp(GROUPS * h), observed=EXPOSURE > 0.0
    ),
    "loadings": lambda h: pm.Poisson("y", pm.math.exp(pm.Normal("load") * h), observed=COUNTS),
}
NOT_PROVEN_IN_A_CHAIN = {
    **{name: one for name, one in NOT_PROVEN.items() if name != "unknown sd"},
    "either sign": lambda h: pm.Potential("energy", -pm.Normal("b", 3.0) * pm.math.exp(h).sum()),
    "level with heavy tails": lambda h: pm.StudentT("y", 4.0, h, sigma=pm.HalfNormal("scale"), observed=COUNTS),
}


def is_concave_in_chain(model):
    return concavity.is_concave_in(model, build_layout(model), ["h"])


@pytest.mark.few(3)
@pytest.mark.parametrize("name", CONCAVE_IN_A_CHAIN)
def test_chains_of_one_hill_are_proven_whatever_the_other_variables_are(name):
    assert is_concave_in_chain(chain(CONCAVE_IN_A_CHAIN[name]))


@pytest.mark.few(3)
@pytest.mark.parametrize("name", NOT_PROVEN_IN_A_CHAIN)
def test_no_other_chain_is(name):
    assert not is_concave_in_chain(chain(NOT_PROVEN_IN_A_CHAIN[name]))


#: Means and precisions of areas, given a chain, and whether the density is concave in both together.
AREAS = {
    "on their own": (lambda h: {"mu": np.zeros(3), "tau": pm.Gamma("tau", 2.0, 1.0)}, True),
    "around a convex function of the chain": (lambda h: {"mu": pm.math.exp(h[:3]), "tau": 1.0}, False),
    "as strong as the chain says": (lambda h: {"mu": np.zeros(3), "tau": pm.math.exp(h[0])}, False),
}


@pytest.mark.parametrize("name", AREAS)
def test_areas_have_one_hill_beside_a_chain_unless_they_depend_on_it(name):
    build, is_proven = AREAS[name]
    with pm.Model() as model:
        h = pm.GaussianRandomWalk("h", sigma=1.0, init_dist=pm.Normal.dist(), shape=4)
        x = pm.CAR("x", W=np.array([[0.0, 1, 0], [1, 0, 1], [0, 1, 0]]), alpha=0.5, **build(h))
        pm.Normal("y", x.sum() + h.sum(), 1.0, observed=1.0)
    assert concavity.is_concave_in(model, build_layout(model), ["h", "x"]) == is_proven
    assert concavity.is_concave_in(model, build_layout(model), ["x"])


@pytest.mark.parametrize(
    "name", slow_but({"binomial", "dispersion"}, [*CONCAVE, "dispersion", "volatility with heavy tails"])
)
def test_likelihoods_that_are_proven_bend_down_between_random_points(name):
    """Of the model's own log density, which no rule has simplified, given each of a few values of the others."""
    rng = np.random.default_rng(8)
    model = chain(CONCAVE_IN_A_CHAIN[name])
    layout = build_layout(model)
    logp = model.logp(sum=True)
    ends = rng.normal(scale=1.5, size=(2, 20, layout.n_dims))
    is_chain = np.repeat([owner == "h" for owner in layout.owners], layout.sizes)
    ends[1] = np.where(is_chain, ends[1], ends[0])
    points = [layout.unflatten(x) for x in np.concatenate([*ends, ends.mean(axis=0)])]
    function = pytensor.function(model.value_vars, logp, mode="FAST_COMPILE")
    first, second, middle = np.split(np.array([function(**point) for point in points]), 3)
    assert np.isfinite(middle).all()
    assert np.all(middle - 0.5 * (first + second) > 0.0)


SOME = np.array([True, False])


def sum_less(x, shift):
    return pt.exp(x - shift).sum() + shift


def log_sum(x, shift):
    return pt.log(pt.exp(x - shift).sum()) + shift


#: Functions of a vector, and what they are.
KNOWN = {
    "log odds": (lambda x: pt.softplus(-x) + -pt.softplus(x), Curvature.AFFINE),
    "log odds of another number": (lambda x: pt.softplus(-x) + -pt.softplus(x[::-1]), Curvature.UNKNOWN),
    "both of one sign": (lambda x: pt.softplus(-x) + pt.softplus(x), Curvature.CONVEX),
    "log of a normal tail": (lambda x: pt.log(3.0 * pt.erfc(-2.0 * x)), Curvature.CONCAVE),
    "log of another tail": (lambda x: pt.log1p(-0.5 * pt.erfc(x)), Curvature.CONCAVE),
    "log of part of a tail": (lambda x: pt.log1p(-0.4 * pt.erfc(x)), Curvature.UNKNOWN),
    "log of two tails": (lambda x: pt.log(pt.erfc(x) * pt.erfc(-x)), Curvature.UNKNOWN),
    "log of the tail of a square": (lambda x: pt.log(pt.erfc(pt.sqr(x))), Curvature.UNKNOWN),
    "log of a probability": (lambda x: pt.log1p(-pt.sigmoid(3.0 * x)[::-1]), Curvature.CONCAVE),
    "log of a probability that the position chooses": (
        lambda x: pt.log1p(-pt.sigmoid(pt.stack([x, -x]))[pt.cast(x < 0.0, "int64")]),
        Curvature.UNKNOWN,
    ),
    "log of tails with factors of their own": (
        lambda x: pt.log1p(np.array([[-0.5], [-1.0]]) * (np.array([[1.0, 0.5]]) * pt.erfc(x[None]))),
        Curvature.UNKNOWN,
    ),
    "log of more than a probability": (lambda x: pt.log1p(pt.sigmoid(x)), Curvature.UNKNOWN),
    "log probabilities": (lambda x: x - pt.logsumexp(x, keepdims=True), Curvature.CONCAVE),
    "log probabilities of exponentials": (lambda x: x - pt.logsumexp(pt.exp(x), keepdims=True), Curvature.CONCAVE),
    "log probabilities of squares": (lambda x: x - pt.logsumexp(-pt.sqr(x), keepdims=True), Curvature.UNKNOWN),
    "log of a sum less its maximum": (lambda x: log_sum(x, x.max()), Curvature.CONVEX),
    "sum less its maximum": (lambda x: sum_less(x, x.max()), Curvature.UNKNOWN),
    "log of a sum less another": (lambda x: pt.log(pt.exp(x - x.max()).sum()) + x.min(), Curvature.UNKNOWN),
    "log of a sum of differences": (lambda x: log_sum(x, pt.sqr(x)), Curvature.UNKNOWN),
    "within the range of a shift": (
        lambda x: pt.switch(pt.abs(log_sum(x, pt.log(x[0] ** 2 - 1.0))) < np.inf, -pt.sqr(x[0]), -np.inf),
        Curvature.UNKNOWN,
    ),
    "log of a sum over columns": (
        lambda x: pt.log(pt.exp(pt.outer(x, x[:1]) - pt.sqr(x)[None]).sum(axis=0)) + pt.sqr(x),
        Curvature.UNKNOWN,
    ),
    "sums": (lambda x: pt.cumsum(-pt.softplus(x)), Curvature.CONCAVE),
    "log of a sum of exponentials": (lambda x: pt.log1p(pt.exp(x) * 2.0 + pt.exp(-x[::-1])), Curvature.CONVEX),
    "log of a difference": (lambda x: pt.log1p(pt.exp(x) - 0.5 * pt.exp(-x[::-1])), Curvature.UNKNOWN),
    "log of a sum with others": (lambda x: pt.log1p(pt.exp(x) + pt.sqr(x)), Curvature.UNKNOWN),
    "sign of an exponential": (lambda x: pt.sign(pt.exp(x)) * x, Curvature.AFFINE),
    "sign": (pt.sign, Curvature.UNKNOWN),
    "products": (pt.cumprod, Curvature.UNKNOWN),
    "branches that numbers choose": (
        lambda x: pt.switch(pt.and_(SOME, pt.exp(x) >= 0.0), -pt.sqr(x), pt.sqr(x)),
        Curvature.UNKNOWN,
    ),
    "branches of a table without rows": (
        lambda x: pt.switch(np.ones(0) * pt.erfc(x[:0]) <= 1.0, -x[:0], pt.sqr(x[:0])),
        Curvature.CONVEX,
    ),
    "branches that weights choose": (lambda x: pt.switch(SOME * pt.exp(x) > 0.0, -x, pt.sqr(x)), Curvature.CONVEX),
    "within open bounds": (
        lambda x: pt.switch(pt.and_(SOME, pt.and_(x > -1.0, x[::-1] < 2.0)), -pt.sqr(x), -np.inf),
        Curvature.CONCAVE,
    ),
    "convex within bounds": (lambda x: pt.switch(x > -1.0, pt.sqr(x), -np.inf), Curvature.UNKNOWN),
    "beyond bounds on both sides": (lambda x: pt.switch(pt.sqr(x) > 1.0, -pt.sqr(x), -np.inf), Curvature.UNKNOWN),
    "finite beyond bounds": (lambda x: pt.switch(x > -1.0, -pt.sqr(x), -9.0), Curvature.UNKNOWN),
    "branches where a number is infinite": (
        lambda x: pt.switch(pt.eq(x + np.array([0.0, np.inf]), np.inf), pt.sqr(x), -pt.sqr(x)),
        Curvature.UNKNOWN,
    ),
    "branches where a number is none": (
        lambda x: pt.switch(pt.isnan(x + np.array([0.0, np.nan])), pt.sqr(x), -pt.sqr(x)),
        Curvature.UNKNOWN,
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_functions_are_what_they_are_said_to_be(name):
    position = pt.vector("position", shape=(2,))
    function, expected = KNOWN[name]
    output = function(position)
    assert concavity._Reader(position, {}).read([output])[output] is expected


UNARY = [
    *(pt.exp, pt.softplus, pt.neg, pt.abs, pt.sqr, pt.sigmoid, pt.sin),
    *(lambda x: pt.log(x + 9.0), lambda x: 0.5 * x, lambda x: x - 1.0, lambda x: x**2),
    *(lambda x: x * np.array([1.0, -1.0]), lambda x: pt.dot(np.array([[0.6, -0.8], [0.8, 0.6]]), x)),
    *(lambda x: 1.0 / pt.exp(x), lambda x: pt.sqrt(pt.exp(x)), lambda x: -0.3 * pt.exp(x), lambda x: pt.log(pt.exp(x))),
    *(lambda x: x[::-1], lambda x: pt.stack([x.sum(), x[0]])),
]
OF_PROBABILITIES = [
    *(pt.neg, pt.exp, pt.sqr, pt.erfc, lambda x: 0.5 * x, lambda x: x[::-1]),
    *(lambda x: pt.log(0.5 * pt.erfc(x)), lambda x: pt.log1p(-0.5 * pt.erfc(x))),
    *(lambda x: x - pt.logsumexp(x, keepdims=True), lambda x: 0.5 * x + log_sum(x, x.max())),
]
BINARY = [
    *(pt.add, pt.sub, lambda x, y: pt.switch(SOME, x, y), lambda x, y: x * y, lambda x, y: x / y),
    lambda x, y: pt.switch(pt.and_(SOME, pt.exp(x) >= 0.0), x, y),
]


def random_graph(rng, unary, *inputs):
    """Build a vector of a few operations on the position, and on constants that are not known."""
    made = [*inputs]
    for _ in range(rng.integers(1, 6)):
        one = made[rng.integers(len(made))]
        if rng.random() < 0.6:
            one = BINARY[rng.integers(len(BINARY))](one, made[rng.integers(len(made))])
        made.append(unary[rng.integers(len(unary))](one))
    return made[-1]


def wrong_claims(n, most=np.inf, unary=UNARY):
    """Compare the claims about n random graphs with the middles of random lines; count wrong claims and right ones.

    It stops after ``most`` wrong claims.
    """
    rng, wrong, right = np.random.default_rng(3), 0, 0
    for _ in range(n):
        position = pt.vector("position", shape=(2,))
        fixed = pt.vector("fixed", shape=(2,))
        output = random_graph(rng, unary, position, fixed)
        said = concavity._Reader(position, {}, fixed).read([output]).get(output, Curvature.AFFINE)
        if said is Curvature.UNKNOWN:
            continue
        points, constants = pt.matrix("points", shape=(None, 2)), pt.matrix("constants", shape=(None, 2))
        ends, values = rng.normal(scale=2.0, size=(2, 40, 2)), rng.normal(size=(40, 2))
        evaluate = pytensor.function(
            [points, constants],
            vectorize_graph(output, {position: points, fixed: constants}),
            mode="FAST_COMPILE",
            on_unused_input="ignore",
        )
        with np.errstate(all="ignore"):
            first, second, middle = (evaluate(one, values) for one in (*ends, ends.mean(axis=0)))
            bent, changes = middle - 0.5 * (first + second), middle - first
        bent = bent[np.isfinite(bent).all(axis=1)]
        scale = 1e-9 * (1.0 + np.abs(bent).max(initial=0.0))
        is_wrong = {
            Curvature.CONCAVE: np.any(bent < -scale),
            Curvature.CONVEX: np.any(bent > scale),
            Curvature.AFFINE: np.any(np.abs(bent) > scale),
            Curvature.CONSTANT: np.any(np.abs(changes) > scale),
        }[said]
        wrong, right = wrong + bool(is_wrong), right + (not is_wrong)
        if wrong == most:
            break
    return wrong, right


@pytest.mark.parametrize(("unary", "n", "least"), [(UNARY, 300, 80), (OF_PROBABILITIES, 150, 40)])
def test_random_graphs_are_what_they_are_said_to_be(unary, n, least):
    wrong, right = wrong_claims(n, unary=unary)
    assert wrong == 0
    assert right > least


MUTANTS = {
    "signs do not matter": ("_sign", lambda self, variable: 1.0),
    "a difference is a sum": ("_of_difference", concavity._Reader._of_sum),
    "any square is convex": ("_of_distance", lambda self, op, inputs: Curvature.CONVEX),
    "anything is of exponentials": ("_is_node_of_exponentials", lambda self, node: True),
    "the first branch is taken": ("_of_switch", lambda self, op, inputs: self._of(inputs[1])),
    "any function that rises keeps all": ("_of_rising", lambda self, op, inputs: Curvature.CONVEX),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_random_graphs_show_each_rule_that_is_wrong(name, monkeypatch):
    attribute, mutant = MUTANTS[name]
    before = getattr(concavity._Reader, attribute)
    monkeypatch.setattr(concavity._Reader, attribute, mutant)
    monkeypatch.setattr(
        concavity, "_RULES", {kind: mutant if rule is before else rule for kind, rule in concavity._RULES.items()}
    )
    assert wrong_claims(300, most=1)[0] > 0


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_joined_weights_have_a_sign_if_all_of_them_have_it(sign):
    """With a negative weight of the first, its term exp(a) log(1 + exp(x)) is convex."""
    with pm.Model() as model:
        a, x = pm.Normal("a", shape=2), pm.Normal("x", shape=2)
        weights = pt.concatenate([sign * pt.exp(a[:1]), pt.exp(a[1:])])
        pm.Potential("energy", -(weights * pt.softplus(x)).sum())
    assert is_concave_in(model, build_layout(model), ["x"]) is (sign > 0.0)


def test_a_constant_density_is_concave():
    with pm.Model() as model:
        pm.Uniform("x", 0.0, 1.0, default_transform=None)
        pm.Potential("energy", pt.as_tensor(0.5))
    graph = build_density(model, build_layout(model))
    assert is_log_concave(replace(graph, density=[pt.constant(one) for one in (0.0, 0.5, 0.0, 0.0)]), graph.data_values)
