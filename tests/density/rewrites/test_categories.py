"""Probabilities of categories: one sum of exponentials for log densities, their gradients and PyMC's checks."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.tensor.special import LogSoftmax, log_softmax

from pymc_hais.density.rewrites.simplification import simplify, simplify_values
from tests.density.rewrites.test_rewrites import assert_same, evaluate, names, rewritten

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

#: Likelihoods of rows of three utilities.
OF_CATEGORIES = {
    "category": lambda u: pm.Categorical("y", p=pm.math.softmax(u, axis=1), observed=[0, 2, 1, 1]),
    "logits": lambda u: pm.Categorical("y", logit_p=u, observed=[0, 2, 1, 1]),
    "counts": lambda u: pm.Multinomial("y", n=4, p=pm.math.softmax(u, axis=1), observed=np.tile([1, 0, 3], (4, 1))),
    "columns": lambda u: pm.Categorical("y", p=pm.math.softmax(u.T, axis=0).T, observed=[0, 2, 1, 1]),
    "one row for all": lambda u: pm.Categorical("y", logit_p=u[0], observed=[0, 2, 1, 1]),
    "tables": lambda u: pm.Categorical("y", logit_p=u.reshape((2, 2, 3)), observed=[[0, 2], [1, 1]]),
}
USUAL = np.linspace(-2.0, 1.0, 12).reshape(4, 3) ** 2
ALLOWED = [USUAL, np.linspace(-900.0, 900.0, 12).reshape(4, 3), np.array([[0.0, -np.inf, 1.0]] * 4)]
#: PyMC's check of the probabilities fails.
REFUSED = [np.full((4, 3), -np.inf), np.array([[0.0, np.inf, 1.0]] * 4), np.array([[0.0, np.nan, 1.0]] * 4)]


@pytest.mark.parametrize("name", OF_CATEGORIES)
def test_likelihoods_of_categories_take_each_exponential_once(name):
    """Values, gradients and checks share one sum of exponentials; the density is PyMC's, also where it is zero."""
    with pm.Model() as model:
        u = pm.Flat("u", shape=(4, 3))
        OF_CATEGORIES[name](u)
    value = model.rvs_to_values[u]
    (log_density,) = simplify_values([model.datalogp])
    gradient = pt.grad(log_density, value)
    graph = simplify([value], [log_density, gradient])
    found = names(*graph.outputs)
    assert found.count("Exp") == 1
    assert not {"Softmax", "LogSoftmax", "DirectLogSumExp"} & set(found)
    new, new_gradient = [lambda at, one=one: evaluate(one, {graph.inputs[0]: at}) for one in graph.outputs]
    for utilities in ALLOWED:
        np.testing.assert_allclose(new(utilities), evaluate(model.datalogp, {value: utilities}), rtol=1e-12)
    assert [new(utilities) for utilities in REFUSED] == [-np.inf] * 3
    old_gradient = evaluate(pt.grad(model.datalogp, value), {value: USUAL})
    np.testing.assert_allclose(new_gradient(USUAL), old_gradient, rtol=1e-11, atol=1e-14)


def test_log_probabilities_keep_their_digits_in_single_precision():
    """A common offset of 3,000 leaves four digits to a sum of exponentials, and seven to differences."""
    u = pt.matrix("u", dtype="float32", shape=(50, 3))
    value = (3000.0 + np.random.default_rng(0).normal(size=(50, 3))).astype("float32")
    (new,) = simplify_values([log_softmax(u, axis=1)])
    exact = evaluate(log_softmax(u.astype("float64"), axis=1), {u: value})
    np.testing.assert_allclose(evaluate(new, {u: value}), exact, atol=1e-6)


def test_log_probabilities_over_all_axes_are_summed():
    """Of an operation that is built by hand, without the axes that PyTensor's own functions fill in."""
    u = pt.matrix("u", shape=(2, 3))
    (new,) = simplify_values([LogSoftmax(axis=None)(u)])
    assert_same(log_softmax(u, axis=(0, 1)), new, {u: np.arange(6.0).reshape(2, 3)})


@pytest.mark.parametrize(
    "check",
    [
        lambda p: pt.ge(p, 0.1).all(),
        lambda p: pt.le(p, 0.9).all(),
        lambda p: pt.ge(p, 0.0).all(axis=0),
        lambda p: pt.eq(p.sum(axis=0), 1.0).all(),
    ],
)
def test_other_bounds_of_probabilities_stay(check):
    p = pm.math.softmax(pt.matrix("u", shape=(4, 3)), axis=1)
    assert "Softmax" in names(rewritten(check(p)))
