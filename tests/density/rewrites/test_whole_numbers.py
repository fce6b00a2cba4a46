"""Whole numbers, small integers, booleans and empty arrays in the rewrites: what is exact stays exact."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import Split
from scipy import stats

from pymc_hais.density import build_density, build_layout
from pymc_hais.density.compiling import compile_interpreted
from pymc_hais.density.rewrites.simplification import after_gradient, before_gradient
from tests.density.rewrites.test_rewrites import EXTREME, FINITE, MASK, X, evaluate, names

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

K = pt.vector("k", dtype="int64", shape=(8,))
WHOLE = np.arange(8)


def int8(x):
    return pt.constant(np.array(x, dtype=np.int8))


def rewritten(output, rewriter=before_gradient):
    graph = FunctionGraph(outputs=[output], clone=True, copy_inputs=False)
    rewriter.rewrite(graph)
    return graph.outputs[0]


POWERS = {
    "of a small integer": lambda k: 2**k,
    "of an integer": lambda k: pt.constant(3) ** k,
    "of a number": lambda k: 2.0**k,
    "by whole numbers of floating point": lambda k: 2.0 ** (k.astype("float64") * 1.0),
    "by rounded numbers": lambda k: 3.0 ** pt.round(k / 1.0),
    "by a choice": lambda k: 2 ** pt.switch(k > 3, k.astype("float64"), 1.0),
    "by what is looked up": lambda k: 2.0 ** k.astype("float64")[np.array([7, 7, 0, 3, 1, 2, 2, 5])],
}


@pytest.mark.parametrize("name", POWERS)
def test_whole_powers_are_whole(name):
    old = POWERS[name](K)
    new = rewritten(old)
    assert new.type.dtype == old.type.dtype
    np.testing.assert_array_equal(evaluate(new, {K: WHOLE}), evaluate(old, {K: WHOLE}))
    assert np.all(evaluate(new, {K: WHOLE}) == np.round(evaluate(new, {K: WHOLE})))


def test_other_powers_of_constants_need_no_power():
    assert "Pow" not in names(rewritten(2.0 ** pt.tanh(X)))


def test_counts_may_be_expected_as_a_whole_power():
    """Poisson of 2^k, the density at every k by SciPy."""
    with pm.Model() as model:
        k = pm.DiscreteUniform("k", 0, 7)
        pm.Poisson("y", 2**k, observed=[7, 9])
    graph = build_density(model, build_layout(model))
    function = compile_interpreted(graph.arguments, graph.density)
    for k in WHOLE:
        reference, ratio, *_ = function(np.array([float(k)]), *graph.data_values)
        expected = stats.poisson(2.0**k).logpmf([7, 9]).sum()
        np.testing.assert_allclose(reference, -np.log(8.0), rtol=1e-7)  # PyMC takes it in single precision
        np.testing.assert_allclose(ratio, expected, rtol=1e-12)


SMALL = {
    "function of a chosen small integer": lambda x: pt.log1p(pt.switch(MASK, 2, x[0] ** 2)),
    "logarithm of a product that overflows": lambda x: pt.log(pt.switch(x > 0, int8(100), int8(50)) * int8(2)),
    "product that overflows to zero": lambda x: pt.eq(pt.switch(x > 0, int8(16), int8(1)) * int8(16), 0) * x,
    "logarithm of exponentials of booleans": lambda x: pt.log(pt.exp((x > 0) * 1.0) * pt.exp(x > -1)),
    "logarithm of a quotient of booleans": lambda x: pt.log(1.0 / (pt.exp(x > 0) * pt.exp(1.0 * (x > 0)))),
    "sum of choices whose product overflows": lambda x: (
        x[0] + pt.switch(MASK, (x[1] > -9).astype("int8") * 100, int8(2)) * int8(100)
    ).sum(),
    "sum of products of integers of parameters": lambda x: (
        (x[0] > -9).astype("int8") * 100 * ((x[1] > -9).astype("int8") * pt.switch(MASK, int8(3), int8(1))) + x[0]
    ).sum(),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_integers_are_computed_as_they_are_written(name):
    """In their own type, where they may overflow; but a function of one, in single precision, may be more precise."""
    old = SMALL[name](X)
    new = rewritten(old)
    for x in (FINITE, EXTREME):
        ours, expected = evaluate(new, {X: x}), evaluate(old, {X: x})
        rtol = 1e-6 if "booleans" in name else 1e-14
        np.testing.assert_allclose(ours, expected, rtol=rtol)


def test_a_mask_of_two_is_no_index_of_two():
    mask = np.array([False, True])
    table = X[:4].reshape((2, 2))
    old = table[mask, mask].set(7.0)
    np.testing.assert_array_equal(evaluate(rewritten(old, after_gradient), {X: FINITE}), evaluate(old, {X: FINITE}))


def test_no_rows_have_no_columns():
    old = pt.exp(X.reshape((2, 3))[:0])[np.arange(0), np.zeros(0, dtype=int)].sum() + X.sum()
    np.testing.assert_allclose(evaluate(rewritten(old), {X: FINITE}), FINITE.sum())


def test_parts_of_another_type_are_split_as_numbers():
    old = Split(2, 0)(pt.join(0, X, X > 0), np.array([6, 6]))[1] / 2.0
    np.testing.assert_array_equal(evaluate(rewritten(old), {X: FINITE}), (FINITE > 0) / 2.0)


def test_a_scale_of_small_integers_does_not_overflow():
    """Of the factor of 100 * 100 exp(x) I, by hand: PyTensor multiplies all of them at a time, as numbers."""
    hundred = int8(100) * (X[0].dimshuffle("x", "x") > -9).astype("int8")
    covariance = pt.mul(hundred, hundred, pt.exp(X[0]).dimshuffle("x", "x"), np.eye(3))
    old = pt.log(pt.diagonal(pt.linalg.cholesky(covariance))).sum()
    np.testing.assert_allclose(evaluate(rewritten(old), {X: FINITE}), 1.5 * (2.0 * np.log(100.0) + FINITE[0]))
