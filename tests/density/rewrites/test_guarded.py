"""Gradients where a branch is not chosen: finite, and those of the branch that is, by differences and by hand."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_hais.density import build_density, build_layout
from pymc_hais.density.rewrites.simplification import simplify, simplify_values
from tests.density.rewrites.test_rewrites import names

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

X = pt.vector("x", dtype="float64", shape=(3,))
T = np.linspace(0.5, 2.0, 4)
DOSES = np.array([0.0, 0.5, 0.0, 2.0])
GROUP = np.array([0, 1, 2, 0, 1])
#: Points on either side of every condition below, and on the edge of some.
POINTS = np.array(
    [[0.7, 0.3, 1.2], [-0.7, 0.3, 1.2], [0.7, -0.3, -1.2], [0.0, 0.3, 1.2], [0.0, 0.0, 0.0], [-1.0, -2.0, -3.0]]
)

BRANCHES = {
    "logarithm": lambda x: pt.switch(x > 0, pt.log(x), 0).sum(),
    "quotient of one number": lambda x: pt.switch(x[0] > 1e-3, (1 - pt.exp(-x[0] * T)) / x[0], T).sum(),
    "root of one number, at some times": lambda x: pt.switch(pt.and_(x[0] > 0, x[1] < T), pt.sqrt(x[0]) * T, T).sum(),
    "power of one number": lambda x: pt.switch(pt.and_(x[0] > 0.1, x[1] < T), x[0] ** x[2] * T, T).sum(),
    "quotient, at some times": lambda x: pt.switch(pt.and_(x[0] > 0.1, x[1] < T), x[2] / x[0] * T, T).sum(),
    "product with a matrix": lambda x: pt.switch(x > 0, pt.dot(np.eye(3) + 1.0, pt.log(x)), 0).sum() * (x[1] < 0.2),
    "table of rows": lambda x: pt.switch(x[:, None] > 0.2, pt.log(x - 0.2)[:, None] * T, 0).sum(),
    "looked up": lambda x: pt.switch((x > 0.1)[GROUP], pt.sqrt(x - 0.1)[GROUP], 0.5).sum(),
    "put together": lambda x: pt.switch(x > 0.1, pt.concatenate([pt.log(x[:2] - 0.1), x[2:]]), x).sum(),
    "cumulated": lambda x: pt.switch(pt.all(x > 0.1), pt.cumsum(pt.log(x - 0.1)), x).sum(),
    "gamma function": lambda x: pt.switch((x > 0.1)[GROUP], pt.gammaln(x - 0.1)[GROUP], 0).sum(),
    "arcsine": lambda x: pt.switch(pt.and_(abs(x[0]) < 0.5, x[1] < T), pt.arcsin(2 * x[0]) * T, 0).sum(),
    "root of a maximum": lambda x: pt.sqrt(pt.maximum(x - 0.1, 0)).sum(),
    "power of a maximum": lambda x: (pt.maximum(x[0] - T + 0.9, 0) ** pt.sigmoid(x[1]) * T).sum(),
    "power of the larger": lambda x: (pt.maximum(x[0] * 0.0, x[1]) ** 0.7 + pt.maximum(0.0, x[2]) ** 2.5).sum(),
    "root of what is clipped": lambda x: pt.sqrt(pt.clip(x - 0.1, 0, 4) * 2.0).sum(),
    "root of a product with zeros": lambda x: pt.sqrt(pt.maximum(DOSES * x[0] / 2.0, 0)).sum() + x[1],
    "root of a quotient": lambda x: pt.sqrt(DOSES * pt.exp(x[0]) / (1.0 + x[1] ** 2)).sum(),
    "root of two products": lambda x: pt.sqrt(DOSES * pt.exp(x[0]) + pt.exp(x[1]) * (DOSES * x[2] ** 2)).sum(),
    "power of a product with zeros": lambda x: ((DOSES * pt.exp(x[0])) ** pt.sigmoid(x[1])).sum() * x[2],
    "root of a factor and a maximum": lambda x: (pt.sqrt(x[1] ** 2 * pt.maximum(x[0] - T + 0.9, 0)) * T).sum(),
    "root of what is zero where not chosen": lambda x: pt.sqrt(pt.exp(x[0]) * pt.switch(x > 0.1, x, 0)).sum(),
    "root of a minimum": lambda x: pt.sqrt(-pt.minimum(x[0] - T, 0)).sum(),
}


def ours(function):
    (value,) = simplify_values([function(X)])
    graph = simplify([X], [value, pytensor.grad(value, X)])
    return pytensor.function(graph.inputs, list(graph.outputs), mode="FAST_COMPILE")


def slopes(function, x, step=1e-6):
    """Return central differences; NaN where the two sides differ, or where the value itself is not finite."""
    value = pytensor.function([X], function(X), mode="FAST_COMPILE")
    found = []
    for direction in np.eye(3) * step:
        low, middle, high = value(x - direction), value(x), value(x + direction)
        is_smooth = abs(high - 2.0 * middle + low) < 1e-3 * step
        found.append((high - low) / (2.0 * step) if is_smooth else np.nan)
    return np.array(found)


@pytest.mark.few(2)
@pytest.mark.every(4)
@pytest.mark.parametrize("name", BRANCHES)
def test_what_is_not_chosen_has_no_part_in_the_gradient(name):
    evaluate = ours(BRANCHES[name])
    n_compared = 0
    for x in POINTS:
        value, gradient = evaluate(x)
        if not np.isfinite(value):
            continue
        expected = slopes(BRANCHES[name], x)
        smooth = np.isfinite(expected)
        n_compared += smooth.sum()
        np.testing.assert_allclose(gradient[smooth], expected[smooth], rtol=1e-5, atol=1e-7, err_msg=str(x))
    assert n_compared >= 6


def guarded(*outputs):
    return names(*outputs).count("Guarded")


def test_only_what_needs_it_is_guarded():
    for function, n in [
        (lambda x: pt.switch(x > 0, pt.log(x), 0).sum(), 0),  # number by number: PyTensor chooses between products
        (lambda x: pt.switch(x[0] > 0, pt.dot(np.eye(3), pt.exp(x)), 0).sum(), 0),  # nothing infinite
        (lambda x: pt.switch(x[0] > 0, pt.dot(np.eye(3), pt.log(pt.exp(x) * 3.0)), 0).sum(), 0),  # nothing, by its form
        (lambda x: pt.log(x).sum() + pt.sqrt(x).sum() / x[0], 0),  # no choice
        (lambda x: pt.switch(np.array([True, False]), pt.log(x[0]) * np.ones(2), x[1]).sum(), 0),  # a known choice
        (lambda x: pt.switch(x[0] > 0, pt.dot(np.eye(3), pt.log(x)), -np.inf).sum(), 0),  # no density otherwise
        (lambda x: pt.switch(x[0] > 0, pt.dot(np.eye(3), x**2), 0).sum(), 0),  # a polynomial
        (lambda x: pt.maximum(x, 0.0).sum(), 0),
        (lambda x: pt.sqrt(pt.maximum(x, 0.0)).sum(), 1),
        (lambda x: pt.sqrt(pt.maximum(x, 0.0) + 1e-9).sum(), 0),
        (lambda x: pt.sqrt(DOSES * x[0]).sum(), 1),
        (lambda x: pt.sqrt(T * x[0]).sum() + pt.log(1.0 + DOSES * x[0]).sum(), 0),  # not zero
        (lambda x: (x[1] / (x[2] + DOSES * x[0])).sum() + pt.exp(DOSES * x[0]).sum(), 0),
        (lambda x: pt.switch(x[0] > 0, pt.dot(np.eye(3), pt.log(x)), 0).sum(), 1),
    ]:
        assert guarded(*simplify_values([function(X)])) == n


def test_values_are_not_touched():
    """A guard is gone before anything is compiled."""
    old = pt.sqrt(pt.maximum(X, 0.0)).sum()
    (value,) = simplify_values([old])
    (new,) = simplify([X], [value]).outputs
    assert guarded(new) == 0
    assert sorted(set(names(new))) == ["Add", "Maximum", "Sqrt"]  # a sum of three


def test_growth_after_a_change_point_has_a_gradient_before_it():
    """y = (t - t0)_+^a: where all t are before t0 the data say nothing, and the gradient is the prior's, by hand."""
    with pm.Model() as model:
        t0, a = pm.Normal("t0", 0.0, 2.0), pm.Normal("a", 0.5, 0.1)
        pm.Normal("y", pt.maximum(T - t0, 0.0) ** a, 1.0, observed=np.zeros(4))
    layout = build_layout(model)
    graph = build_density(model, layout)
    assert guarded(*graph.density) == 0
    function = pytensor.function(graph.arguments, graph.density, mode="FAST_COMPILE")
    *_, grad_prior, grad_ratio = function(np.array([3.0, 0.4]), *graph.data_values)
    np.testing.assert_allclose(grad_prior, [-3.0 / 4.0, 0.1 / 0.01])
    np.testing.assert_array_equal(grad_ratio, 0.0)


@pytest.mark.parametrize("kind", ["response", "exposure"])
def test_doses_of_zero_say_nothing_of_what_they_are_multiplied_by(kind):
    """The gradient is that without them: where nothing is given, nothing depends on the factor or the power."""
    gradients = []
    for given in (DOSES, DOSES[DOSES > 0]):
        with pm.Model() as model:
            rate, power = pm.LogNormal("rate"), pm.Beta("power", 2.0, 2.0)
            if kind == "response":
                pm.Normal("y", (rate * given) ** power, 0.3, observed=2.0 * given)
            else:
                pm.Poisson("y", rate * given, observed=np.ceil(given).astype(int))
        layout = build_layout(model)
        graph = build_density(model, layout)
        function = pytensor.function(graph.arguments, graph.density, mode="FAST_COMPILE", on_unused_input="ignore")
        gradients.append(function(np.array([0.3, -0.2]), *graph.data_values)[3])
    np.testing.assert_allclose(*gradients, rtol=1e-12)
    assert gradients[0][0] != 0.0
