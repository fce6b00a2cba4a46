"""Each rewrite: the graph it leaves, and the same numbers as before, also at extreme arguments."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import CheckParameterValue
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Split
from pytensor.tensor.special import logsumexp

from pymc_hais.density.rewrites.simplification import (
    after_gradient,
    before_gradient,
    simplify,
    simplify_values,
    transpose_narrow,
)

X = pt.vector("x", dtype="float64", shape=(6,))
EXTREME = np.array([-800.0, -30.0, -1e-9, 0.3, 40.0, 800.0])
FINITE = np.array([-2.0, -0.5, -1e-9, 0.3, 1.0, 3.0])
MASK = np.array([True, False, True, True, False, False])

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def rewritten(output, rewriter=before_gradient):
    graph = FunctionGraph(outputs=[output], clone=True, copy_inputs=False)
    rewrite_graph(graph, include=("canonicalize",), exclude=("local_log1mexp_log1mexp",))
    rewriter.rewrite(graph)
    return graph.outputs[0]


def names(*outputs):
    """Name the functions in a graph, each as often as it occurs."""
    nodes = dict.fromkeys(variable.owner for variable in ancestors(list(outputs)) if variable.owner)
    found = [getattr(node.op, "scalar_op", getattr(node.op, "core_op", node.op)) for node in nodes]
    return [type(op).__name__ for op in found]


def evaluate(output, inputs):
    """Evaluate as written, by NumPy."""
    function = pytensor.function(list(inputs), output, mode="FAST_COMPILE", on_unused_input="ignore")
    return function(*inputs.values())


def assert_same(old, new, inputs, rtol=1e-12):
    np.testing.assert_allclose(evaluate(new, inputs), evaluate(old, inputs), rtol=rtol, atol=1e-300)


# Functions of numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_choice_of_values_becomes_one_of_arguments(sign):
    old = pt.switch(MASK, sign * pt.softplus(-X), sign * pt.softplus(X))
    new = rewritten(old)
    assert names(new).count("Softplus") == 1
    assert "Switch" not in names(new)  # a constant choice between x and -x is a factor
    assert_same(old, new, {X: EXTREME})


def test_a_choice_between_different_functions_stays():
    old = pt.switch(X > 0, pt.log1p(X), pt.exp(X))
    assert {"Log1p", "Exp", "Switch"} <= set(names(rewritten(old)))


def sizes(name, *outputs):
    """Return how many numbers each function of a name is evaluated for."""
    nodes = dict.fromkeys(variable.owner for variable in ancestors(list(outputs)) if variable.owner)
    found = [node for node in nodes if type(getattr(node.op, "scalar_op", None)).__name__ == name]
    return sorted(int(np.prod(node.outputs[0].type.shape)) for node in found)


FEW = {
    "before and after a change": lambda f, x: f(pt.switch(MASK, x[0], x[1])),
    "in a table": lambda f, x: f(pt.switch(np.tile(MASK, (5, 1)), x[0], x[1])),
    "of groups": lambda f, x: f(x[:3][np.array([0, 2, 2, 1, 0, 1, 1, 2])]),
}


@pytest.mark.parametrize("few", FEW)
@pytest.mark.parametrize("function", [pt.log1p, pt.exp, pt.sigmoid, lambda x: pt.exp(pt.ge(x, 0.2) * 1.0)])
def test_functions_are_evaluated_for_the_few_numbers_that_there_are(few, function):
    old = FEW[few](function, X)
    new = rewritten(old)
    name = {pt.log1p: "Log1p", pt.exp: "Exp", pt.sigmoid: "Sigmoid"}.get(function, "GE")
    assert sum(sizes(name, new)) <= 3 < sum(sizes(name, old))
    assert_same(old, new, {X: FINITE + 3.0})
    assert_same(old, new, {X: EXTREME})


def test_functions_of_as_many_numbers_stay_where_they_are():
    old = pt.log1p(pt.switch(MASK, X, 2.0 * X))
    assert sizes("Log1p", rewritten(old)) == [6]
    old = pt.log1p(X[np.array([0, 3])])  # fewer than there are
    assert sizes("Log1p", rewritten(old)) == [2]


@pytest.mark.parametrize("shape", [(None,), (None, 3)])
def test_a_choice_of_unknown_size_becomes_one_of_arguments_too(shape):
    x = pt.tensor("x", dtype="float64", shape=shape)
    old = pt.switch(x > 0, pt.softplus(x), pt.softplus(-x))
    new = rewritten(old)
    assert names(new).count("Softplus") == 1
    value = np.resize(EXTREME, (2,) * (len(shape) - 1) + (3,))
    assert_same(old, new, {x: value})
    assert names(rewritten(pt.log1p(pt.switch(x > 0, 0.5, x)))).count("Log1p") == 1


def test_a_function_of_two_choices_stays():
    old = pt.ge(pt.switch(MASK, X[0], X[1]), pt.switch(MASK, X[1], X[0]))
    new = rewritten(old)
    np.testing.assert_array_equal(evaluate(new, {X: FINITE}), evaluate(old, {X: FINITE}))


@pytest.mark.parametrize(
    "scale",
    [
        lambda x: 0.06 * pt.exp(x),
        lambda x: pt.sqrt(pt.exp(x) / 3.0),
        lambda x: 1.0 / pt.sqrt(6.0 * pt.exp(x)),
        lambda x: np.arange(1.0, 7.0) * pt.exp(x) * pt.exp(-2.0 * x),
    ],
)
def test_logarithms_of_scales_need_no_logarithm(scale):
    old = pt.log(scale(X))
    new = rewritten(old)
    assert not {"Log", "Exp"} & set(names(new))
    assert_same(old, new, {X: FINITE})
    assert np.isfinite(evaluate(new, {X: EXTREME})).all()  # log(exp(800)) is a number


@pytest.mark.parametrize("minus", [lambda x: -x, lambda x: -1.0 * x, lambda x: x * -1.0])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_complements_of_sigmoids_keep_their_digits(minus, dtype):
    x = pt.vector("x", dtype=dtype, shape=(6,))
    new = rewritten(pt.log1p(minus(pt.sigmoid(x))))
    assert not {"Log1p", "Sigmoid"} & set(names(new))
    # log(1 - 1 / (1 + exp(-x))) = -log(1 + exp(x)), in numbers of NumPy
    rtol = 100 * np.finfo(dtype).eps
    exact = -np.logaddexp(0.0, EXTREME.astype(dtype).astype(float))
    np.testing.assert_allclose(evaluate(new, {x: EXTREME.astype(dtype)}), exact, rtol=rtol, atol=1e-300)


@pytest.mark.parametrize("inner", [lambda x: pt.sigmoid(x), lambda x: -2.0 * pt.sigmoid(x), lambda x: -pt.exp(x)])
def test_other_complements_stay(inner):
    old = pt.log1p(inner(X))
    new = rewritten(old)
    assert "Log1p" in names(new)
    assert_same(old, new, {X: -np.abs(FINITE) - 1.0})


@pytest.mark.parametrize("minus", [lambda x: 1.0 - x, lambda x: -x + 1.0])
def test_a_likelihood_of_sigmoids_is_one_of_softplus(minus):
    x = pt.vector("x", shape=(6,))
    (new,) = simplify_values([pt.switch(MASK, pt.log(pt.sigmoid(x)), pt.log(minus(pt.sigmoid(x)))).sum()])
    assert "Softplus" in names(new)
    assert not {"Log1p", "Log", "Sigmoid"} & set(names(new))
    np.testing.assert_allclose(evaluate(new, {x: EXTREME}), -np.logaddexp(0.0, np.where(MASK, -EXTREME, EXTREME)).sum())


def test_logarithms_of_what_may_be_negative_stay():
    for x in (X, -pt.exp(X), pt.exp(X) - 1.0, pt.sqrt(X)):
        assert "Log" in names(rewritten(pt.log(x)))


def test_powers_of_positive_products_go_through_their_logarithm():
    a = pt.scalar("a", dtype="float64")
    old = (np.arange(1.0, 7.0) * pt.exp(-X) / 3.0) ** a
    new = rewritten(old)
    assert "Pow" not in names(new)
    assert_same(old, new, {X: FINITE, a: 1.7})
    assert np.isfinite(evaluate(new, {X: EXTREME, a: 0.1})).all()  # exp(800)^0.1 is a number


@pytest.mark.parametrize("base", [X, X - 1.0, np.arange(6.0) * pt.exp(X)])
def test_powers_of_what_may_be_zero_or_negative_stay(base):
    a = pt.scalar("a", dtype="float64")
    assert "Pow" in names(rewritten(base**a))


def test_a_complement_of_a_checked_complement_is_undone():
    check = CheckParameterValue("x < 1", can_be_replaced_by_ninf=True)
    u = -pt.exp(X)
    new = rewritten(pt.log1mexp(check(pt.log1mexp(u), pt.all(X < 1e4))))
    assert "Log1mexp" not in names(new)
    np.testing.assert_allclose(evaluate(new, {X: FINITE}), -np.exp(FINITE), rtol=1e-14)


@pytest.mark.parametrize("holds", [lambda x: pt.ge(pt.sigmoid(x), 0), lambda x: pt.le(pt.sigmoid(x), 1)])
def test_a_bound_that_holds_only_asks_for_numbers(holds):
    new = rewritten(holds(X), after_gradient)
    assert "Sigmoid" not in names(new)
    x = np.array([np.nan, -np.inf, np.inf, 0.0, -800.0, 800.0])
    np.testing.assert_array_equal(evaluate(new, {X: x}), ~np.isnan(x))


def test_an_exponential_is_positive_where_it_does_not_underflow():
    new = rewritten(pt.gt(pt.exp(X), 0), after_gradient)
    assert "Exp" not in names(new)
    edge = -745.1332191019412
    x = np.array([np.nan, -np.inf, np.nextafter(edge, -800), edge, np.nextafter(edge, 0), 1.0])
    np.testing.assert_array_equal(evaluate(new, {X: x}), np.exp(x) > 0)


# Logarithms of sums --------------------------------------------------------------------------------------


def test_the_gradient_of_logsumexp_is_softmax():
    table = pt.matrix("table", dtype="float64", shape=(6, 3))
    weights = np.linspace(-1.0, 2.0, 6)

    def gradient(values):
        (value,) = values
        return pytensor.grad((value * weights).sum(), table)

    old, new = gradient([logsumexp(table, axis=1)]), gradient(simplify_values([logsumexp(table, axis=1)]))
    value = np.random.default_rng(0).normal(size=(6, 3)) * 100.0
    assert_same(old, new, {table: value})
    graph = simplify([table], [simplify_values([logsumexp(table, axis=1)])[0], new])
    assert names(*graph.outputs).count("Exp") == 1  # the value's own terms
    np.testing.assert_allclose(evaluate(graph.outputs[1], {graph.inputs[0]: value}), evaluate(old, {table: value}))


def test_the_gradient_of_logaddexp_is_softmax():
    old = pt.logaddexp(X, 2.0 * X).sum()
    new = simplify_values([old])[0]
    assert "DirectLogAddExp" in names(new)
    for x in (FINITE, EXTREME):
        assert_same(pytensor.grad(old, X), pytensor.grad(new, X), {X: x})


# Arrays --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [[0, 2, 1, 1, 2, 0], [-1, 0, -3, 1, 2, 2]])
def test_known_columns_are_searched_for(columns):
    table = pt.matrix("table", dtype="float64", shape=(6, 3))
    old = table[np.arange(6), np.array(columns)]
    new = rewritten(old)
    assert "AdvancedSubtensor" not in names(new)
    value = np.random.default_rng(1).normal(size=(6, 3))
    value[np.arange(6), (np.array(columns) + 1) % 3] = np.inf  # what is not chosen does not matter
    assert_same(old, new, {table: value})
    assert_same(pytensor.grad(old.sum(), table), pytensor.grad(new.sum(), table), {table: value})


def test_columns_out_of_range_stay_an_error():
    table = pt.matrix("table", dtype="float64", shape=(6, 3))
    assert "AdvancedSubtensor" in names(rewritten(table[np.arange(6), np.full(6, 3)]))


@pytest.mark.parametrize("write", ["inc", "set"])
def test_diagonals_are_written_by_a_choice(write):
    table = pt.matrix("table", dtype="float64", shape=(6, 6))
    old = getattr(table[np.arange(6), np.arange(6)], write)(X[0])
    new = rewritten(old, after_gradient)
    assert "AdvancedIncSubtensor" not in names(new)
    assert_same(old, new, {table: np.random.default_rng(2).normal(size=(6, 6)), X: FINITE})


def test_what_was_joined_is_summed_and_split_by_its_parts():
    whole = pt.join(0, X, 2.0 * X)
    first, second = Split(2, 0)(whole, np.array([6, 6]))
    assert not names(rewritten(first))
    assert "Join" not in names(rewritten(second))
    assert "Join" not in names(rewritten(whole.sum()))
    assert_same(second, rewritten(second), {X: FINITE})
    assert_same(whole.sum(), rewritten(whole.sum()), {X: FINITE})


@pytest.mark.parametrize("otherwise", [-np.inf, 0.0])
@pytest.mark.parametrize("x", [FINITE, np.full(6, -1.0)])
def test_one_check_decides_for_a_sum(otherwise, x):
    old = pt.switch(pt.any(X > 0), pt.exp(X), otherwise).sum()
    new = rewritten(old, after_gradient)
    assert type(new.owner.op.scalar_op).__name__ == "Switch"
    assert_same(old, new, {X: x})


def test_dimensions_that_were_added_are_left_away():
    column = X.dimshuffle(0, "x")
    old = pt.exp(-column) * 2.0
    new = rewritten(old, after_gradient)
    assert [variable.type.ndim for variable in ancestors([new]) if names(variable)[:1] == ["Exp"]] == [1]
    assert_same(old, new, {X: FINITE})


def test_narrow_tables_are_computed_transposed():
    """Everything between the inputs and a sum over three columns, and its gradient."""
    rows = pt.vector("rows", dtype="float64", shape=(40,))
    three = X[:3]
    table = pt.join(1, pt.exp(rows[:, None] * three), pt.zeros((40, 1)))
    old = pt.log(pt.cumsum(table[:, 1:], axis=1).sum(axis=1)).sum()
    outputs = [old, pytensor.grad(old, X), pytensor.grad(old, rows)]
    values = {X: FINITE, rows: np.random.default_rng(3).normal(size=40)}
    graph = FunctionGraph([X, rows], list(outputs), clone=True)
    transpose_narrow.rewrite(graph)
    sizes = [v.type.shape for v in ancestors(list(graph.outputs)) if names(v)[:1] == ["Exp"] and v.type.ndim == 2]
    assert set(sizes) == {(3, 40)}
    for before, after in zip(outputs, graph.outputs, strict=True):
        ours = evaluate(after, dict(zip(graph.inputs, values.values(), strict=True)))
        np.testing.assert_allclose(ours, evaluate(before, values), rtol=1e-12)


# Matrices ------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(5)
COVARIANCE = (lambda a: a @ a.T / 12 + 0.2 * np.eye(6))(RNG.normal(size=(6, 12)))
FACTOR = np.linalg.cholesky(COVARIANCE)
SOLVERS = {"Solve", "SolveTriangular", "CholeskySolve", "Cholesky", "MatrixInverse"}
NORMALS = {
    "cov": lambda mu, s: pm.MvNormal.dist(mu, cov=COVARIANCE),
    "tau": lambda mu, s: pm.MvNormal.dist(mu, tau=COVARIANCE),
    "chol": lambda mu, s: pm.MvNormal.dist(mu, chol=FACTOR),
    "scaled cov": lambda mu, s: pm.MvNormal.dist(mu, cov=s**2 * COVARIANCE),
    "scaled chol": lambda mu, s: pm.MvNormal.dist(mu, chol=s * FACTOR),
    "Student-t": lambda mu, s: pm.MvStudentT.dist(nu=4.0, mu=mu, scale=COVARIANCE),
}


@pytest.mark.few(2)
@pytest.mark.every(3)
@pytest.mark.parametrize("name", NORMALS)
def test_constant_covariances_leave_products(name):
    s = pt.exp(X[0])
    old = pm.logp(NORMALS[name](X * 0.1, s), np.arange(6.0)).sum()
    outputs = [old, pytensor.grad(old, X)]
    (value,) = simplify_values([pm.logp(NORMALS[name](X * 0.1, s), np.arange(6.0)).sum()])
    new = simplify([X], [value, pytensor.grad(value, X)]).outputs
    assert not SOLVERS & set(names(*new))
    for before, after in zip(outputs, new, strict=True):
        np.testing.assert_allclose(
            evaluate(after, {after_input(new): FINITE}), evaluate(before, {X: FINITE}), rtol=1e-10
        )


def after_input(outputs):
    return next(variable for variable in ancestors(list(outputs)) if variable.name == "x")


@pytest.mark.parametrize("name", ["general", "symmetric", "positive", "factor", "upper", "unit"])
def test_systems_with_constant_matrices_become_products(name):
    general = COVARIANCE + np.triu(np.ones((6, 6)), 1)  # of which the other kinds read a triangle
    solve = {
        "general": lambda b: pt.linalg.solve(general, b, assume_a="gen", b_ndim=1),
        "symmetric": lambda b: pt.linalg.solve(general, b, assume_a="sym", lower=True, b_ndim=1),
        "positive": lambda b: pt.linalg.solve(general, b, assume_a="pos", lower=True, b_ndim=1),
        "factor": lambda b: pt.linalg.cho_solve((FACTOR, True), b, b_ndim=1),
        "upper": lambda b: pt.linalg.solve_triangular(general, b, lower=False, b_ndim=1),
        "unit": lambda b: pt.linalg.solve_triangular(general, b, lower=True, unit_diagonal=True, b_ndim=1),
    }[name]
    old = solve(X)
    new = rewritten(old)
    assert not SOLVERS & set(names(new))
    assert_same(old, new, {X: FINITE}, rtol=1e-10)


def test_an_ill_conditioned_constant_is_solved_for():
    factor = np.diag(np.logspace(0, -8, 6)) + np.tril(np.ones((6, 6)), -1)
    assert "SolveTriangular" in names(rewritten(pt.linalg.solve_triangular(factor, X, lower=True, b_ndim=1)))


def test_gaussian_terms_are_differentiated_by_the_inverse():
    """Of a covariance given with a symmetric part that depends on the parameters and one that does not."""
    covariance = pt.exp(-pt.sqr(X[:, None] - X)) + pt.diag(pt.full(6, pt.exp(X[0])))
    old = pm.logp(pm.MvNormal.dist(pt.sin(X), cov=covariance), np.arange(12.0).reshape(2, 6) / 6.0).sum()
    (new,) = simplify_values([old])
    assert {"HalfLogDeterminant", "QuadraticForm"} <= set(names(new))
    before, after = [old, pytensor.grad(old, X)], simplify([X], [new, pytensor.grad(new, X)]).outputs
    x = after_input(after)
    for one, two in zip(before, after, strict=True):
        np.testing.assert_allclose(evaluate(two, {x: FINITE}), evaluate(one, {X: FINITE}), rtol=1e-9)


def test_a_covariance_that_is_none_has_density_zero():
    old = pm.logp(pm.MvNormal.dist(np.zeros(2), cov=pt.stacklists([[1.0, X[0]], [X[0], 1.0]])), np.ones(2))
    (new,) = simplify([X], simplify_values([old])).outputs
    assert evaluate(new, {after_input([new]): np.full(6, 2.0)}) == -np.inf
    assert np.isfinite(evaluate(new, {after_input([new]): np.full(6, 0.5)}))
