"""Incomplete gamma and beta functions of parameters: their gradients, and for which elements they are needed."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.special
from pytensor.graph.traversal import ancestors
from scipy.integrate import quad

from pymc_hais.density import build_density, build_layout
from pymc_hais.density.compiling import compile_interpreted
from pymc_hais.density.rewrites.gradients import Incomplete
from pymc_hais.density.rewrites.simplification import simplify_values
from tests.density.rewrites.test_rewrites import evaluate, rewritten

RNG = np.random.default_rng(6)
N = 20
X = RNG.normal(size=N)
POSITIVE = RNG.gamma(2.0, size=N)
COUNTS = RNG.negative_binomial(2, 0.4, size=N)


def incomplete(graph):
    """Return the outputs of incomplete functions in a graph."""
    return [one for one in ancestors([graph]) if one.owner is not None and isinstance(one.owner.op, Incomplete)]


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("k", [0.05, 0.7, 3.0, 400.0, 1e5])
def test_the_gradient_by_the_order_of_a_gamma_function_is_an_integral(k, upper):
    """The mean of the score over what lies below x, by quadrature; the score has mean zero."""
    order, x = pt.vector("k"), pt.vector("x")
    function = (pt.gammaincc if upper else pt.gammainc)(order, x)
    slopes = pytensor.grad(rewritten(function).sum(), [order, x])
    values = k + np.sqrt(k) * np.array([-0.9, -0.2, 0.0, 1.0, 3.0])
    values = values[values > 0.0]
    found = compile_interpreted([order, x], slopes)(np.full(values.shape, k), values)
    sign = -1.0 if upper else 1.0

    def score(log_u):
        density = np.exp(k * log_u - np.exp(log_u) - scipy.special.gammaln(k))
        return (log_u - scipy.special.psi(k)) * density

    lowest = np.log(k) - 12.0 / np.sqrt(k) - 40.0 / k
    expected = [quad(score, lowest, np.log(one), epsabs=1e-13, limit=500)[0] for one in values]
    np.testing.assert_allclose(found[0], sign * np.array(expected), rtol=2e-6, atol=1e-11)
    density = np.exp((k - 1.0) * np.log(values) - values - scipy.special.gammaln(k))
    np.testing.assert_allclose(found[1], sign * density, rtol=1e-9)


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.5), (2.0, 0.5), (30.0, 0.5), (4.5, 7.0), (800.0, 300.0)])
def test_the_gradient_by_the_parameters_of_a_beta_function_is_an_integral(a, b):
    first, second, x = pt.vector("a"), pt.vector("b"), pt.vector("x")
    slopes = pytensor.grad(rewritten(pt.betainc(first, second, x)).sum(), [first, second, x])
    mean, width = a / (a + b), np.sqrt(a * b / (a + b + 1.0)) / (a + b)
    values = np.clip(mean + width * np.array([-1.0, 0.0, 0.5]), 0.05, 0.95)
    found = compile_interpreted([first, second, x], slopes)(np.full(3, a), np.full(3, b), values)
    whole = scipy.special.psi(a + b)

    def score(t, parameter):
        """Of x = sigmoid(t)."""
        log_x, log_rest = -np.logaddexp(0.0, -t), -np.logaddexp(0.0, t)
        density = np.exp(a * log_x + b * log_rest - scipy.special.betaln(a, b))
        return ((log_x if parameter else log_rest) - scipy.special.psi(a if parameter else b) + whole) * density

    for parameter, slope in ((True, found[0]), (False, found[1])):
        ends = np.log(values / (1.0 - values))
        low = np.log(mean / (1.0 - mean)) - 40.0 / min(a, 1.0)
        expected = [quad(score, low, end, args=(parameter,), epsabs=1e-13, limit=500)[0] for end in ends]
        np.testing.assert_allclose(slope, expected, rtol=2e-6, atol=1e-10)
    log_density = (a - 1.0) * np.log(values) + (b - 1.0) * np.log1p(-values) - scipy.special.betaln(a, b)
    np.testing.assert_allclose(found[2], np.exp(log_density), rtol=1e-8)


def test_constant_parameters_leave_a_function_as_it_is():
    x = pt.vector("x")
    for function in (pt.gammainc(3.0, x), pt.gammaincc(np.array([2.0, 3.0]), x), pt.betainc(2.0, 3.5, x)):
        assert not incomplete(rewritten(function))


def test_beta_functions_of_counts_are_finite_sums():
    a, x = pt.vector("a"), pt.vector("x")
    b = np.array([1.0, 2.0, 7.0, 12.0])
    found = rewritten(pt.betainc(a, b, x))
    assert not incomplete(found)
    for values in (np.full(4, 0.3), np.array([1e-3, 0.5, 0.9, 0.999]), np.full(4, 1e-30)):
        for order in (0.2, 3.0, 50.0):
            given = np.full(4, order)
            expected = scipy.special.betainc(given, b, values)
            np.testing.assert_allclose(evaluate(found, {a: given, x: values}), expected, rtol=1e-12)
    many = rewritten(pt.betainc(a, np.array([1.0, 13.0, 2.0, 3.0]), x))
    assert incomplete(many)


#: Likelihood, and how many of the data need an incomplete function at most.
MODELS = {
    "censored gamma": (
        lambda k, mu: pm.Censored("y", pm.Gamma.dist(k, k / mu), None, 2.0, observed=np.minimum(POSITIVE, 2.0)),
        (POSITIVE >= 2.0).sum(),
    ),
    "gamma, censored on both sides": (
        lambda k, mu: pm.Censored("y", pm.Gamma.dist(k, k / mu), 0.5, 2.0, observed=np.clip(POSITIVE, 0.5, 2.0)),
        max((POSITIVE >= 2.0).sum(), (POSITIVE <= 0.5).sum()),
    ),
    "truncated gamma": (
        lambda k, mu: pm.Truncated("y", pm.Gamma.dist(k, k / mu), lower=0.1, observed=0.1 + POSITIVE),
        N,
    ),
    "censored Student's t": (
        lambda k, mu: pm.Censored(
            "y", pm.StudentT.dist(1.0 + k, mu=mu, sigma=1.0), 0.0, 1.5, observed=np.clip(X, 0.0, 1.5)
        ),
        max((X <= 0.0).sum(), (X >= 1.5).sum()),
    ),
    "a table": (
        lambda k, mu: pm.Censored(
            "y",
            pm.Gamma.dist(k, (k / mu).reshape((4, 5))[:, :1]),
            None,
            2.0,
            observed=np.minimum(POSITIVE, 2.0).reshape(4, 5),
        ),
        (POSITIVE >= 2.0).sum(),
    ),
    "zero-truncated counts": (
        lambda k, mu: pm.Truncated("y", pm.NegativeBinomial.dist(mu=mu, alpha=k), lower=1, observed=1 + COUNTS),
        0,
    ),
    "hurdle": (lambda k, mu: pm.HurdleNegativeBinomial("y", 0.4, mu=mu, alpha=k, observed=COUNTS), 0),
    "censored counts": (
        lambda k, mu: pm.Censored(
            "y", pm.NegativeBinomial.dist(mu=mu, alpha=k), None, 4, observed=np.minimum(COUNTS, 4)
        ),
        0,
    ),
    "truncated beta": (
        lambda k, mu: pm.Truncated("y", pm.Beta.dist(k, 1.5), upper=0.9, observed=0.9 * POSITIVE / (1.0 + POSITIVE)),
        N,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_densities_and_their_slopes_are_those_of_pymc(name):
    likelihood, n_needed = MODELS[name]
    with pm.Model() as model:
        likelihood(pm.Gamma("k", 2.0, 1.0), pt.exp(pm.Normal("a") + pm.Normal("b") * X))
    layout = build_layout(model)
    graph = build_density(model, layout)
    function = compile_interpreted(graph.arguments, graph.density)
    logp = model.compile_logp(mode="FAST_COMPILE")

    def value(theta):
        return sum(function(theta, *graph.data_values)[:2])

    for theta in 0.5 * RNG.normal(size=(3, layout.n_dims)):
        np.testing.assert_allclose(value(theta), logp(layout.unflatten(theta)), rtol=1e-9)
        steps = 1e-5 * np.eye(theta.size)
        expected = [(value(theta + step) - value(theta - step)) / 2e-5 for step in steps]
        found = sum(function(theta, *graph.data_values)[2:])
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    (simple,) = simplify_values([model.logp()])
    sizes = [int(np.prod(one.type.shape)) for one in incomplete(simple)]
    assert max(sizes, default=0) <= n_needed
    assert bool(sizes) == bool(n_needed)
