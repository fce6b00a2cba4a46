"""Functions of densities against SciPy's, over the whole domain."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import special

pytest.importorskip("jax")

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)

from pymc_hais.density.jax_forms import functions  # noqa: E402
from pymc_hais.density.jax_forms.linker import _find_function, jax_mode  # noqa: E402

POSITIVE = np.concatenate([np.logspace(-307, 308, 4001), np.linspace(1e-3, 30.0, 4001), 1.0 + np.logspace(-16, 0, 200)])
SIGNED = np.concatenate([POSITIVE, -POSITIVE, np.linspace(-40.0, 40.0, 4001)])
ABOVE_MINUS_ONE = np.concatenate([POSITIVE, -1.0 + np.logspace(-15, 0, 400), -np.logspace(-300, -0.5, 400)])
BETWEEN_POLES = -np.concatenate([np.linspace(n + 0.01, n + 0.99, 99) for n in range(200)])
ENDS = np.array([0.0, np.inf, -np.inf, np.nan, -1.0, -2.5, -3.0])


def softplus(x):
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def log1mexp(x):
    return np.where(x < -np.log(2.0), np.log1p(-np.exp(x)), np.log(-np.expm1(x)))


CASES = {
    "log": (np.log, POSITIVE),
    "log1p": (np.log1p, ABOVE_MINUS_ONE),
    "log1mexp": (log1mexp, -POSITIVE),
    "softplus": (softplus, SIGNED),
    "softplus_of_negative": (softplus, SIGNED),
    "sigmoid": (special.expit, SIGNED),
    "sigmoid_of_negative": (special.expit, SIGNED),
    "gammaln": (special.gammaln, np.concatenate([POSITIVE, BETWEEN_POLES])),
    "digamma": (special.psi, np.concatenate([POSITIVE, BETWEEN_POLES])),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CASES)
def test_functions_are_scipys(name):
    expected, x = CASES[name]
    ours = jax.jit(getattr(functions, name))
    np.testing.assert_allclose(ours(jnp.asarray(x)), expected(x), rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", sorted(set(CASES) - {"digamma"}))
def test_functions_are_scipys_at_the_ends(name):
    """The gamma function has no limit at -inf, and its logarithmic derivative no value at its poles."""
    ends = ENDS[~np.isneginf(ENDS)] if name == "gammaln" else ENDS
    expected = CASES[name][0](ends)
    np.testing.assert_allclose(jax.jit(getattr(functions, name))(jnp.asarray(ends)), expected, 1e-12, 1e-12)


@pytest.mark.parametrize("name", ["log", "log1p", "softplus", "sigmoid"])
def test_small_results_keep_their_digits(name):
    """An absolute error says nothing of them: log(1 + 1e-200), or a probability of 1e-300."""
    expected, _ = CASES[name]
    x = {"log": 1.0 + np.logspace(-15, -3, 99), "log1p": np.logspace(-300, -3, 99)}.get(
        name, np.linspace(-700, -20, 99)
    )
    np.testing.assert_allclose(jax.jit(getattr(functions, name))(jnp.asarray(x)), expected(x), rtol=1e-13)


@pytest.mark.parametrize("orders", [np.array([0]), np.arange(-3, 21), np.array([1, 40])])
def test_bessel_functions_are_scipys(orders):
    """Also where they are tiny: the coefficients of a periodic kernel are divided by one another."""
    x = np.concatenate([[0.0], np.logspace(-6, 6, 601), -np.logspace(-6, 6, 601)])
    ours = jax.jit(functions.scaled_bessel(orders))(jnp.asarray(orders[:, None]), jnp.asarray(x))
    np.testing.assert_allclose(ours, special.ive(orders[:, None], x), rtol=1e-12, atol=1e-300)
    assert np.isnan(functions.scaled_bessel(orders)(jnp.asarray(orders), jnp.asarray(np.nan))).all()


@pytest.mark.parametrize("orders", [np.arange(3), np.arange(3.0), np.int8(2)])
def test_bessel_functions_of_integer_orders_need_no_other_package(orders):
    x = pt.dscalar("x")
    slope = pt.grad(pt.ive(orders, x).sum(), x)
    expected = special.ivp(orders, 0.7).sum() * np.exp(-0.7) - special.ive(orders, 0.7).sum()
    np.testing.assert_allclose(pytensor.function([x], slope, mode=jax_mode())(0.7), expected, rtol=1e-12)


def test_bessel_functions_of_other_orders_are_not_exchanged():
    x = pt.dvector("x")
    assert _find_function(pt.ive(np.array([0.5, 1.5, 2.5]), x).owner) is None
    assert _find_function(pt.ive(pt.dvector("order"), x).owner) is None


@pytest.mark.every(2)
@pytest.mark.few(3)
@pytest.mark.parametrize("n", [1, 2, 5, 16, 17, 33, 80])
def test_triangles_are_inverted(n):
    """Of three matrices at once, as under vmap; what is above the diagonal does not matter."""
    rng = np.random.default_rng(n)
    factors = np.linalg.cholesky(np.stack([a @ a.T + np.eye(n) for a in rng.normal(size=(3, n, n))]))
    inverses = jax.jit(jax.vmap(functions.inverse_of_triangle))(jnp.asarray(factors + np.triu(np.ones((n, n)), 1)))
    np.testing.assert_allclose(inverses, np.linalg.inv(factors), rtol=1e-10, atol=1e-12)


def test_the_inverse_of_a_triangle_is_not_multiplied_by_the_identity():
    """As many products of matrices as the inverse takes, and none more."""
    factor = pt.matrix("factor", shape=(64, 64))
    inverse = pt.linalg.solve_triangular(2.0 * factor, np.eye(64), lower=True, b_ndim=2)
    compute = pytensor.function([factor], inverse, mode=jax_mode())
    value = np.tril(np.random.default_rng(4).normal(size=(64, 64))) + 10.0 * np.eye(64)
    np.testing.assert_allclose(compute(value), 0.5 * np.linalg.inv(value), rtol=1e-10, atol=1e-12)
    found, expected = map(jax.make_jaxpr, (compute.vm.jit_fn, functions.inverse_of_triangle))
    assert str(found(value)).count("dot_general") == str(expected(value)).count("dot_general") > 0


@pytest.mark.parametrize("lower", [True, False])
def test_triangular_systems_are_solved(lower):
    rng = np.random.default_rng(1)
    factor = np.tril(rng.normal(size=(20, 20))) / 5.0 + np.eye(20)
    a, b = factor if lower else factor.T, rng.normal(size=(20, 12))
    solve = functions.solve_lower if lower else functions.solve_upper
    np.testing.assert_allclose(jax.jit(solve)(jnp.asarray(a), jnp.asarray(b)), np.linalg.solve(a, b), rtol=1e-9)


def test_products_with_one_column_or_row():
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(5, 3)), rng.normal(size=(3, 1))
    np.testing.assert_allclose(functions.column_product(jnp.asarray(a), jnp.asarray(b)), a @ b, rtol=1e-14)
    np.testing.assert_allclose(functions.row_product(jnp.asarray(b.T), jnp.asarray(a.T)), b.T @ a.T, rtol=1e-14)


def test_sums_over_axes():
    x = np.random.default_rng(3).normal(size=(2, 3, 4))
    for axis in (None, (1,), (0, 2)):
        np.testing.assert_allclose(functions.sum_of_computed(jnp.asarray(x), axis), x.sum(axis=axis), rtol=1e-14)


def test_in_single_precision_no_function_of_double_precision_takes_its_place():
    """JAX has no 64 bits there, also where a graph holds constants of them."""
    node = pt.log(pt.vector("x", dtype="float64")).owner
    assert _find_function(node) is not None
    with pytensor.config.change_flags(floatX="float32"):
        assert _find_function(node) is None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", ["int64", "int8", "bool"])
@pytest.mark.parametrize("round_", [pt.floor, pt.ceil, pt.trunc])
def test_integers_are_rounded_to_the_type_that_the_graph_says(round_, dtype):
    n = pt.vector("n", dtype=dtype, shape=(2,))
    value = np.array([0, 1], dtype=dtype)
    rounded = round_(n)
    (found,) = pytensor.function([n], [rounded], mode=jax_mode())(value)
    assert found.dtype == rounded.type.dtype
    (found,) = pytensor.function([n], [pt.log(rounded + np.ones(1))], mode=jax_mode())(value)
    np.testing.assert_allclose(found, [0.0, np.log(2.0)], rtol=1e-14)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda n, x: n + x, id="add"),
        pytest.param(lambda n, x: n * x, id="mul"),
        pytest.param(lambda n, x: n / x, id="true_div"),
        pytest.param(lambda n, x: pt.switch(n > 2, n, x), id="switch"),
        pytest.param(lambda n, x: pt.maximum(n, x), id="maximum"),
    ],
)
def test_integers_and_single_precision_make_double_precision(function):
    n, x = pt.vector("n", dtype="int64", shape=(2,)), pt.vector("x", dtype="float32", shape=(2,))
    values = np.array([3, 2**24 + 1]), np.array([0.1, 3.0], dtype="float32")
    expected = np.log(function(*map(pt.constant, values)).eval(mode="FAST_COMPILE"))
    (found,) = pytensor.function([n, x], [pt.log(function(n, x))], mode=jax_mode())(*values)
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_a_constant_gives_single_precision_no_other():
    x = pt.scalar("x", dtype="float32")
    (found,) = pytensor.function([x], [pt.gammaln(0.2 + x)], mode=jax_mode())(np.float32(0.1))
    np.testing.assert_allclose(found, special.gammaln(0.2 + float(np.float32(0.1))), rtol=1e-12)
