"""Sums of many terms that choose from few numbers: the graph that is left, and the same numbers as before."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.utils import rewrite_graph
from scipy.special import gammaln

from pymc_hais.density.rewrites.simplification import before_gradient, first, simplify_values
from tests.density.rewrites.test_rewrites import FINITE, X, assert_same, evaluate, names, rewritten

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

RNG = np.random.default_rng(3)
TABLE = RNG.random((40, 30)) < 0.4
COUNTS = RNG.poisson(3.0, size=(40, 30)).astype(float)
GROUP = RNG.integers(0, 3, size=200)
Y = RNG.poisson(3.0, size=200).astype(float)


def largest(*outputs):
    """Return the size of the largest array that is computed."""
    graph = FunctionGraph(outputs=list(outputs), clone=True)
    return max(int(np.prod(node.outputs[0].type.shape)) for node in graph.toposort())


def choose(first, second):
    return pt.switch(TABLE, first, second)


CHOICES = {
    "choice": lambda x: choose(x[0], x[1]).sum(axis=1),
    "product": lambda x: (COUNTS * choose(x[0], x[1])).sum(axis=1),
    "all axes": lambda x: (COUNTS * choose(x[0], x[1])).sum(),
    "other axis": lambda x: (COUNTS * choose(x[0], x[1])).sum(axis=0),
    "log likelihood": lambda x: (COUNTS * choose(x[0], x[1]) - choose(pt.exp(x[0]), pt.exp(x[1])) - 7.0).sum(axis=1),
    "quotient": lambda x: (pt.switch(TABLE, x[0], -x[1]) / (1.0 + COUNTS)).sum(axis=1),
    "negative": lambda x: (-pt.switch(TABLE, x[0], 2.0) - x[3]).sum(axis=1),
    "of rows": lambda x: pt.switch(TABLE, pt.tile(x, 7)[:40][:, None], x[0]).sum(axis=1),
    "choice of choices": lambda x: pt.switch(TABLE, pt.switch(COUNTS > 2.0, x[0], x[1]), x[2]).sum(axis=1),
    "scaled": lambda x: (x[2] * COUNTS * choose(x[0], x[1])).sum(axis=1),
    "looked up": lambda x: (Y * x[:3][GROUP]).sum(),
    "looked up and scaled": lambda x: (x[4] * (Y * x[:3][GROUP] - pt.exp(x[:3])[GROUP])).sum(),
    "looked up from behind": lambda x: (Y * x[GROUP - 6]).sum(),
}  # fmt: skip


@pytest.mark.few(3)
@pytest.mark.parametrize("name", CHOICES)
def test_the_terms_are_counted_beforehand(name):
    old = CHOICES[name](X)
    new = rewritten(old)
    assert largest(new) <= 42 < largest(old)
    assert_same(old, new, {X: FINITE}, rtol=1e-11)
    gradients = [pt.grad(output.sum(), X) for output in (old, new)]
    assert largest(gradients[1]) <= 42
    np.testing.assert_allclose(*(evaluate(gradient, {X: FINITE}) for gradient in gradients), rtol=1e-11, atol=1e-12)


STAY = {
    "not linear": lambda x: (choose(x[0], x[1]) ** 2 * pt.switch(TABLE.T, x[2], x[1]).T).sum(axis=1),
    "no constant": lambda x: pt.switch(x > 0.0, x, 1.0).sum(),
    "varies": lambda x: (x[:, None] * COUNTS[:6]).sum(axis=1),
    "unknown condition": lambda x: (COUNTS * pt.switch(x[5] > COUNTS, x[0], x[1])).sum(axis=1),
    "a mask": lambda x: (2.0 * x[np.array([True, False, True, True, False, False])]).sum(),
}  # fmt: skip


@pytest.mark.parametrize("name", STAY)
def test_other_sums_stay_right(name):
    old = STAY[name](X)
    assert_same(old, rewritten(old), {X: FINITE}, rtol=1e-11)


def test_a_part_that_is_not_linear_is_summed_apart():
    old = (COUNTS * pt.switch(TABLE, X[0], X[1]) + pt.log1p(COUNTS * pt.exp(X[2]))).sum(axis=1)
    new = rewritten(old)
    assert "Switch" not in names(new)
    assert_same(old, new, {X: FINITE}, rtol=1e-11)


def test_what_no_term_chooses_does_not_count():
    """A rate that overflows where no year has it."""
    all_first = np.vstack([np.ones((1, 30), dtype=bool), TABLE])
    old = pt.switch(all_first, X[0], X[1]).sum(axis=1)
    value = np.array([2.0, np.inf, 0, 0, 0, 0])
    new = evaluate(rewritten(old), {X: value})
    assert new[0] == 60.0
    np.testing.assert_array_equal(new, evaluate(old, {X: value}))


def test_what_is_checked_of_many_is_asked_of_the_few():
    old = pt.all(pt.switch(TABLE, X[0] > 0.0, X[1] > 0.0))
    new = rewritten(old)
    assert largest(new) == 1
    for value in ([1, 1], [1, -1], [-1, 1], [-1, -1]):
        at = np.resize(np.array(value, float), 6)
        assert evaluate(new, {X: at}) == evaluate(old, {X: at})
    unused = rewritten(pt.all(pt.switch(np.ones((40, 30), dtype=bool), X[0] > 0.0, X[1] > 0.0)))
    assert evaluate(unused, {X: np.resize([1.0, -1.0], 6)})


NEVER = {
    "exponential": lambda x: pt.eq(pt.exp(x), 0.0),
    "zero first": lambda x: pt.eq(0.0, pt.exp(x)),
    "chosen": lambda x: pt.eq(pt.switch(x > 0.0, pt.exp(x), 3.0), 0.0),
    "product": lambda x: pt.eq(2.0 * pt.exp(x) / pt.sqrt(pt.exp(-x)), 0.0),
    "looked up": lambda x: pt.eq(pt.exp(x)[np.array([0, 2, 2])], 0.0),
    "logarithm": lambda x: pt.eq(pt.log(1.5 * pt.exp(x)), -np.inf),
}


@pytest.mark.parametrize("name", NEVER)
def test_what_is_positive_by_its_form_is_never_zero(name):
    graph = FunctionGraph(outputs=[NEVER[name](X)], clone=True, copy_inputs=False)
    first.rewrite(graph)
    assert names(*graph.outputs) == []
    assert not graph.outputs[0].eval(mode="FAST_COMPILE").any()


@pytest.mark.parametrize(
    "asked",
    [
        lambda x: pt.eq(x, 0.0),
        lambda x: pt.eq(pt.exp(x), 1.0),
        lambda x: pt.eq(pt.exp(x) - 1.0, 0.0),
        lambda x: pt.eq(pt.switch(x > 0.0, pt.exp(x), 0.0), 0.0),
        lambda x: pt.eq(pt.log(pt.sigmoid(x) * x), -np.inf),
        lambda x: pt.eq(pt.log(pt.exp(x)), 0.0),
    ],
)
def test_what_may_be_zero_is_asked(asked):
    graph = FunctionGraph(outputs=[asked(X)], clone=True, copy_inputs=False)
    first.rewrite(graph)
    assert names(*graph.outputs).count("EQ") == 1


def test_a_poisson_likelihood_of_two_rates_has_two_sufficient_statistics():
    """Coal mining disasters: 12,000 terms of two rates, whose gradient was as long."""
    with pm.Model() as model:
        rates = pm.Exponential("rates", 1.0, shape=2)
        rate = pt.switch(TABLE, rates[0], rates[1])
        pm.Potential("y", pt.logsumexp(pm.logp(pm.Poisson.dist(rate), COUNTS.astype(int)).sum(axis=1)))
    (logp,) = [model.logp(jacobian=False, sum=True)]
    (new,) = simplify_values([logp])
    assert largest(new) <= 40
    value = model.value_vars[0]
    for at in ([0.3, 1.7], [-40.0, 3.0]):
        old_value, new_value = (
            pytensor.function([value], output, mode="FAST_COMPILE")(np.array(at)) for output in (logp, new)
        )
        np.testing.assert_allclose(new_value, old_value, rtol=1e-11)
    # A rate that underflows: its logarithm is still known, so that counts of it are unlikely, and not impossible.
    far = pytensor.function([value], new, mode="FAST_COMPILE")(np.array([-800.0, 0.1]))
    log_p = np.where(TABLE, -800.0, 0.1) * COUNTS - np.where(TABLE, 0.0, np.exp(0.1)) - gammaln(COUNTS + 1.0)
    prior = -np.exp(0.1)  # of both rates together, without the Jacobian
    np.testing.assert_allclose(far, np.logaddexp.reduce(log_p.sum(axis=1)) + prior, rtol=1e-11)


def test_rates_of_groups_have_one_term_a_group():
    with pm.Model() as model:
        rates = pm.Gamma("rates", 2.0, 1.0, shape=3)
        pm.Poisson("y", rates[GROUP], observed=Y.astype(int))
    (new,) = simplify_values([model.logp(sum=True, jacobian=False)])
    graph = FunctionGraph(outputs=[new], clone=True)
    rewrite_graph(graph, include=("canonicalize",))
    before_gradient.rewrite(graph)
    assert largest(*graph.outputs) <= 3


RATES = {
    "looked up in a table": lambda eta: pt.exp(eta.reshape((2, 3)))[RNG.integers(0, 2, 9), RNG.integers(0, 3, 9)],
    "hardly more than there are": lambda eta: pt.exp(eta)[np.array([0, 1, 2, 3, 4, 5, 0, 1, 0])],
    "chosen from as many": lambda eta: pt.switch(np.arange(6) % 2 == 0, pt.exp(eta), 1e-9),
    "a part": lambda eta: pt.exp(eta)[2:],
    "scaled": lambda eta: 3.0 * pt.exp(eta) / 7.0,
}


@pytest.mark.parametrize("name", RATES)
def test_rates_that_underflow_make_no_count_certain(name):
    """Poisson counts of zero have log probability 0 there, and PyMC says so; so must what is left of its graph."""
    with pm.Model() as model:
        eta = pm.Normal("eta", 0.0, 500.0, shape=6)
        rate = RATES[name](eta)
        pm.Poisson("y", rate, observed=np.zeros(rate.type.shape, dtype=int))
    old = model.datalogp
    (new,) = simplify_values([old])
    at = {model.value_vars[0]: np.full(6, -800.0)}
    np.testing.assert_allclose(evaluate(new, at), evaluate(old, at), atol=1e-7)


def test_a_guard_of_a_quotient_stays():
    old = pt.switch(pt.eq(pt.exp(X), 0.0), 0.0, X / pt.exp(X)).sum()
    (new,) = simplify_values([old])
    at = {X: np.full(6, -800.0)}
    assert evaluate(new, at) == evaluate(old, at) == 0.0


def test_sums_of_shared_parts_are_taken_apart_in_no_time():
    """A recursion such as logistic growth: written out as a tree it has 3^25 leaves."""
    x = X
    for _ in range(25):
        x = x + 0.3 * x * (1.0 - x / 9.0)
    old = x.sum()
    assert_same(old, rewritten(old), {X: FINITE / 3.0}, rtol=1e-9)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64"])
def test_small_integers_as_index(dtype):
    table = pt.vector("table", shape=(200,), dtype="float64")
    index = (np.arange(900) % (100 if dtype == "int8" else 200)).astype(dtype)
    value = RNG.normal(size=200)
    for old in ((table[index] * 2.0).sum(), pt.all(table[index] > -9.0)):
        new = rewritten(old)
        assert largest(new) <= 200
        np.testing.assert_allclose(evaluate(new, {table: value}), evaluate(old, {table: value}), rtol=1e-11)


def test_an_index_out_of_range_stays_an_error():
    old = (2.0 * X[:3][np.array([1, 2, 3])]).sum()
    with pytest.raises(IndexError):
        evaluate(rewritten(old), {X: FINITE})


def test_booleans_are_not_added_as_numbers():
    either = pt.switch(TABLE, X[0] > 0.0, X[1] > 0.0) + pt.switch(TABLE.T.reshape(40, 30), X[2] > 0.0, X[3] > 0.0)
    old = (COUNTS * either).sum()
    assert_same(old, rewritten(old), {X: FINITE})
