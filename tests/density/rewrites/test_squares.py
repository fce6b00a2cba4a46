"""Sums of squares around linear predictors: fewer rows, and the same numbers and gradients as before."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import equal_computations
from pytensor.graph.fg import FunctionGraph

from pymc_hais.density.compiling import compile_interpreted
from pymc_hais.density.proofs.linear import LinearReader
from pymc_hais.density.rewrites.simplification import simplify_values, sum_fewer_squares

RNG = np.random.default_rng(8)
N = 300
TABLE, Y = RNG.normal(size=(N, 4)), RNG.normal(3.0, 2.0, size=N)
GROUP, OTHER = RNG.integers(0, 9, size=N), RNG.integers(0, 5, size=N)
COLUMN, WEIGHTS = TABLE[:, 0], RNG.uniform(0.5, 2.0, size=N)
ANGLES = np.linspace(0.0, 9.0, N)[:, None] * np.arange(1, 6)


def regression(predictor, sigma=None, y=Y, size=9):
    """Return a model of normal errors around a predictor of coefficients (size,) and a scale."""
    with pm.Model() as model:
        b, scale = pm.Normal("b", shape=size), pm.HalfNormal("scale")
        pm.Normal("y", predictor(b, scale), scale if sigma is None else sigma(b, scale), observed=y)
    return model


PREDICTORS = {
    "one number": lambda b, s: b[0],
    "table": lambda b, s: b[4] + pt.dot(TABLE, b[:4]),
    "table on the right": lambda b, s: pt.dot(b[:4], TABLE.T) - 3.0,
    "sum of products": lambda b, s: (TABLE * b[:4]).sum(axis=1) + b[8],
    "columns": lambda b, s: b[0] + b[1] * COLUMN - b[2] * COLUMN**2 / 2.0,
    "looked up": lambda b, s: b[GROUP],
    "looked up and scaled": lambda b, s: b[0] + s * b[GROUP] + (b[1] * b[2]) * COLUMN,
    "looked up and shifted": lambda b, s: (b[0] + b[GROUP] * s) * COLUMN,
    "looked up twice": lambda b, s: b[:5][OTHER] - b[4:][OTHER] * COLUMN,
    "joined with a constant": lambda b, s: pt.concatenate([[0.0], b[:4]])[OTHER],
    "scaled coefficients": lambda b, s: pt.dot(TABLE, b[:4] * pt.exp(b[4:8])),
    "constants that are computed": lambda b, s: pt.dot(pt.sin(pt.as_tensor(ANGLES)), b[:5]) + pt.zeros(N),
    "two parts of one vector": lambda b, s: pt.dot(np.cos(ANGLES), b[:5]) + pt.dot(np.sin(ANGLES)[:, 1:], b[1:5]),
    "a column of the coefficients": lambda b, s: pt.dot(TABLE[:, :3], b.reshape((3, 3)))[:, 1],
    "pairs": lambda b, s: b.reshape((3, 3))[GROUP % 3, OTHER % 3],
    "divided by a number": lambda b, s: (b[GROUP] - COLUMN) / (1.0 + s),
    "a group without rows": lambda b, s: b[np.where(GROUP == 3, 4, GROUP)],
    "functions of few": lambda b, s: pt.exp(b)[GROUP],
}  # fmt: skip


def densities(model):
    """Return the log likelihood as it is, and from fewer rows, with gradients; and what they depend on."""
    old = simplify_values([model.datalogp])
    new = sum_fewer_squares([old[0]])
    return old[0], new[0], model.value_vars


def evaluate(outputs, inputs, at):
    gradients = [one for out in outputs for one in pytensor.grad(out, inputs, disconnected_inputs="ignore")]
    function = pytensor.function(inputs, [*outputs, *gradients], mode="FAST_COMPILE", on_unused_input="ignore")
    return function(*at)


def largest(output):
    graph = FunctionGraph(outputs=[output], clone=True)
    return max(int(np.prod(node.outputs[0].type.shape)) for node in graph.toposort())


@pytest.mark.every(2)
@pytest.mark.few(2)
@pytest.mark.parametrize("name", PREDICTORS)
def test_fewer_rows_have_the_same_sum_and_gradients(name):
    old, new, inputs = densities(regression(PREDICTORS[name]))
    assert largest(new) <= 100 < largest(old)  # a triangle of at most ten columns
    for at in ([RNG.normal(size=9), 0.3], [30.0 * RNG.normal(size=9), -4.0]):
        values = evaluate([old, new], inputs, [np.asarray(one) for one in at])
        np.testing.assert_allclose(values[1], values[0], rtol=1e-12)
        for one, other in zip(values[2:4], values[4:], strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-10, atol=1e-10 * np.abs(one).max())


SERIES = RNG.normal(size=(N, 3)).cumsum(axis=0)


def series(b, s):
    """Predict three series, each from the rows of all of them before."""
    return pt.dot(np.concatenate([np.zeros((1, 3)), SERIES[:-1]]), b.reshape((3, 3)))


SCALES = {
    "of columns": lambda b, s, y: pm.Normal("y", series(b, s), pt.exp(b[:3]) * s, observed=y),
    "of rows": lambda b, s, y: pm.Normal("y", series(b, s).T, (pt.exp(b[:3]) * s)[:, None], observed=y.T),
    "of columns, one row": lambda b, s, y: pm.Normal("y", b[:3], pt.exp(b[3:6]), observed=y),
    "covariances": lambda b, s, y: pm.MvNormal("y", series(b, s), chol=s * np.tri(3) + pt.diag(b[:3] ** 2), observed=y),
    "one mean": lambda b, s, y: pm.MvNormal("y", b[:3], cov=np.eye(3) * s + pt.outer(b[3:6], b[3:6]), observed=y),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALES)
def test_scales_of_columns_are_kept_apart(name):
    with pm.Model() as model:
        b, scale = pm.Normal("b", shape=9), pm.HalfNormal("scale")
        SCALES[name](b, scale, SERIES)
    old, new, inputs = densities(model)
    assert largest(new) <= 243 < largest(old)  # seven rows at most of three numbers, from nine coefficients
    values = evaluate([old, new], inputs, [0.3 * RNG.normal(size=9), np.asarray(-0.5)])
    np.testing.assert_allclose(values[1], values[0], rtol=1e-12)
    for one, other in zip(values[2:4], values[4:], strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-9 * np.abs(one).max())


STAY = {
    "a quadratic predictor": regression(lambda b, s: b[GROUP] ** 2 * b[OTHER]),
    "as many numbers as rows": regression(lambda b, s: b, y=Y[:9]),
    "a scale for each row": regression(lambda b, s: b[GROUP], lambda b, s: s * pt.exp(b[1] * COLUMN)),
}  # fmt: skip


@pytest.mark.parametrize("name", STAY)
def test_other_sums_of_squares_stay(name):
    old, new, _ = densities(STAY[name])
    assert equal_computations([new], [old])


def test_a_long_chain_of_operations_is_not_read():
    """As a loop over the steps of a series makes it."""
    b = pt.vector("b", shape=(9,))
    level: Any = b[GROUP]
    for t in range(3000):
        level = level[::-1] + COLUMN[t % N] * b[t % 9]
    assert LinearReader(N).read(level) is None


def test_shapes_that_are_not_known_stay():
    with pm.Model() as model:
        b = pm.Normal("b", shape=9)
        chosen = b[pt.nonzero(pt.as_tensor(np.arange(9)) * pm.math.sqr(b[0]) > -1.0)[0]]
        pm.Normal("y", chosen.sum() + COLUMN + pt.concatenate([chosen, chosen])[:1], 1.0, observed=Y)
    old, new, _ = densities(model)
    assert equal_computations([new], [old])


def test_a_summand_of_unknown_shape_is_spread_out():
    with pm.Model() as model:
        k, b = pm.Normal("k", shape=9), pm.Normal("b", shape=N)
        pm.Potential("y", (COLUMN * k[GROUP] - pt.exp(b[b > -1e9])).sum())
    old, _, inputs = densities(model)
    at = [RNG.normal(size=9), RNG.normal(size=N)]
    expected = (COLUMN * at[0][GROUP] - np.exp(at[1])).sum()
    np.testing.assert_allclose(evaluate([old], inputs, at)[0], expected, rtol=1e-12)


def test_an_index_out_of_range_is_left_to_the_model():
    old, new, _ = densities(regression(lambda b, s: b[GROUP + 5]))
    assert equal_computations([new], [old])


def test_other_errors_than_normal_ones_stay():
    with pm.Model() as model:
        b = pm.Normal("b", shape=9)
        pm.StudentT("y", nu=4.0, mu=b[GROUP], sigma=1.0, observed=Y)
    old, new, _ = densities(model)
    assert equal_computations([new], [old])


def test_known_errors_of_rows_are_weights():
    model = regression(PREDICTORS["looked up"], lambda b, s: WEIGHTS)
    old, new, inputs = densities(model)
    assert largest(new) <= 100
    values = evaluate([old, new], inputs, [np.arange(9.0), np.asarray(0.0)])
    np.testing.assert_allclose(values[1], values[0], rtol=1e-12)


def test_a_table_of_observations_has_fewer_rows():
    y = RNG.normal(size=(60, 4))
    with pm.Model() as model:
        b, slope = pm.Normal("b", shape=4), pm.Normal("slope")
        pm.Normal("y", b + slope * np.arange(60.0)[:, None], 2.0, observed=y)
    old, new, inputs = densities(model)
    assert largest(new) <= 36
    values = evaluate([old, new], inputs, [np.arange(4.0), np.asarray(0.1)])
    np.testing.assert_allclose(values[1], values[0], rtol=1e-12)


def values_at(model, b, scale=0.0):
    """Return the log likelihood as it is, and from fewer rows."""
    old, new, inputs = densities(model)
    assert largest(new) < largest(old)
    function = pytensor.function(inputs, [old, new], mode="FAST_COMPILE", on_unused_input="ignore")
    return function(np.array([*b, *np.zeros(9 - len(b))]), np.asarray(scale))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_where_numbers_overflow_the_density_is_zero():
    model = regression(lambda b, s: pt.dot(TABLE, pt.exp(b[:4])))
    for b in ([800.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 800.0]):
        assert values_at(model, b) == [-np.inf, -np.inf]
    with pm.Model() as model:
        b, scale = pm.Normal("b", shape=9), pm.Normal("scale")
        pm.Potential("y", -0.5 * (((Y - b[GROUP]) / pt.exp(scale)) ** 2).sum())
    assert values_at(model, [1.0], -800.0) == [-np.inf, -np.inf]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_no_number_stays_none():
    assert np.isnan(values_at(regression(lambda b, s: pt.sqrt(b)[GROUP]), [-1.0])).all()
    table = np.where(np.arange(N)[:, None] == 7, np.nan, TABLE)
    for predictor in (lambda b, s: pt.dot(table, b[:4]), lambda b, s: b[0] + b[1] * table[:, 0]):
        old, new, _ = densities(regression(predictor))
        assert equal_computations([new], [old])


@pytest.mark.parametrize(("center", "sigma", "n"), [(1e6, 0.1, 20_000), (1e8, 0.01, 5_000)])
def test_no_digit_is_lost_beside_the_fit(center, sigma, n):
    """One standard error from the least squares, where large numbers have a small difference."""
    x = np.linspace(-1.0, 1.0, n)
    y = center + x + sigma * np.random.default_rng(1).normal(size=n)
    old, new, inputs = densities(regression(lambda b, s: b[0] + b[1] * x, lambda b, s: sigma, y=y))
    b = np.linalg.lstsq(np.column_stack([np.ones(n), x]), y)[0] + sigma / np.sqrt(n)
    wide = [one.astype(np.longdouble) for one in (y, x, b)]
    rest = (wide[0] - wide[2][0] - wide[2][1] * wide[1]) / np.longdouble(sigma)
    exact = float(-0.5 * np.sum(rest**2) - n * np.log(sigma * np.sqrt(2.0 * np.pi)))
    before, now = evaluate([old, new], inputs, [np.array([*b, *np.zeros(7)]), np.asarray(0.0)])[:2]
    rounding = np.sqrt(n) * np.spacing(center) / sigma  # of each row's mean, in either form
    assert abs(now - exact) <= abs(before - exact) + rounding


def test_no_digit_is_lost_far_from_zero():
    """Observations near 1e6 with errors of 0.1, and columns that are nearly the same; wide arithmetic is the judge."""
    table = np.column_stack([np.ones(N), COLUMN, COLUMN + 1e-5 * TABLE[:, 1]])
    y = 1e6 + 3.0 * COLUMN + 0.1 * TABLE[:, 2]
    old, new, inputs = densities(regression(lambda b, s: pt.dot(table, b[:3]), lambda b, s: 0.1, y=y))
    b = np.array([1e6, 4.0, -1.0, *np.zeros(6)])
    rest = (y.astype(np.longdouble) - table.astype(np.longdouble) @ b[:3]) / np.longdouble(0.1)
    exact = float(-0.5 * np.sum(rest**2) - N * np.log(0.1 * np.sqrt(2.0 * np.pi)))
    values = evaluate([old, new], inputs, [b, np.asarray(0.0)])[:2]
    np.testing.assert_allclose(values, exact, rtol=1e-9)


@pytest.mark.parametrize("n_waves", [9, 30, 60])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_no_digit_is_lost_where_many_columns_are_nearly_dependent(n_waves, unit):
    """The waves of an approximate Gaussian process, on half of the range that they are made for."""
    at = np.linspace(0.25, 0.75, N)[:, None]
    waves = np.sin(np.pi * at * np.arange(1, n_waves + 1)) * unit
    numbers = 2.0 * np.sin(np.arange(n_waves)) / unit
    y = np.random.default_rng(2).normal(5.0, 3.0, N)
    b = pt.vector("b", shape=(n_waves,))
    (direct,) = simplify_values([pt.sum((y - pt.dot(waves, b)) ** 2)])
    (fewer,) = sum_fewer_squares([direct])
    assert not equal_computations([fewer], [direct])
    wide = y.astype(np.longdouble) - waves.astype(np.longdouble) @ numbers.astype(np.longdouble)
    found = compile_interpreted([b], [fewer])(numbers)[0]
    np.testing.assert_allclose(found, float(np.sum(wide**2)), rtol=1e-9)


PLACES = np.random.default_rng(5).integers(0, 12, size=200)
ADDED = np.random.default_rng(6).normal(size=200)
#: Name -> the shape of an array, the indices, and the numbers that are added there, as a function of a vector (6,).
SCATTERED = {
    "repeated indices": ((12,), (PLACES,), lambda x: x[0] * ADDED + x[1] - 2.0),
    "indices from the end": ((12,), (PLACES - 12,), lambda x: x[PLACES % 6] * ADDED),
    "two indices": ((12, 3), (PLACES, PLACES % 3), lambda x: x[PLACES % 3] / x[5]),
    "rows of a table": ((12, 3), (PLACES,), lambda x: pt.constant(ADDED)[:, None] * x[:3]),
    "a table of indices": ((12,), (PLACES.reshape(20, 10),), lambda x: pt.reshape(x[0] * ADDED + x[2], (20, 10))),
    "a mask": ((300,), (np.arange(300) % 3 > 0,), lambda x: x[0] * ADDED),
    "a slice beside": ((4, 12), (slice(1, 3), PLACES), lambda x: pt.stack([x[0] * ADDED, x[1] * ADDED])),
}


def _scattered(name):
    shape, indices, build = SCATTERED[name]
    x = pt.vector("x", shape=(6,))
    whole = pt.full(shape, x[4])
    added = whole[indices].inc(build(x))
    weights = np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape)
    return x, (weights * added).sum()


@pytest.mark.parametrize("name", SCATTERED)
def test_what_is_added_at_indices_is_a_product(name):
    x, graph = _scattered(name)
    (written,) = sum_fewer_squares([graph])
    ops = {type(node.op).__name__ for node in FunctionGraph(outputs=[written], clone=True).toposort()}
    assert "AdvancedIncSubtensor" not in ops
    functions = [pytensor.function([x], [one, pytensor.grad(one, x)], mode="FAST_COMPILE") for one in (graph, written)]
    for seed in range(3):
        point = np.random.default_rng(seed).normal(size=6)
        for own, other in zip(*(function(point) for function in functions), strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("number", [np.inf, -np.inf, 1e300, np.nan])
def test_what_is_beyond_all_numbers_stays_in_its_place(number):
    x = pt.vector("x", shape=(6,))
    graph = pt.zeros(12)[PLACES].inc(x[PLACES % 6] * np.ones(200))
    (written,) = sum_fewer_squares([graph])
    functions = [
        pytensor.function([x], [one, pytensor.grad(one[1:5].sum(), x)], mode="FAST_COMPILE") for one in (graph, written)
    ]
    (own, slope), (other, other_slope) = (
        function(np.array([number, 1.0, 2.0, 3.0, 4.0, 5.0])) for function in functions
    )
    np.testing.assert_allclose(own, other)
    np.testing.assert_allclose(slope, other_slope)


def test_infinities_of_both_signs_are_no_number():
    x = pt.vector("x", shape=(6,))
    (written,) = sum_fewer_squares([pt.zeros(12)[PLACES].inc((x[0] - x[1]) * np.ones(200))])
    found = pytensor.function([x], written, mode="FAST_COMPILE")
    assert np.isnan(found(np.array([np.inf, np.inf, 0.0, 0.0, 0.0, 0.0]))).all()
    assert (found(np.array([np.inf, -np.inf, np.nan, 0.0, 0.0, 0.0])) == np.inf).all()


@pytest.mark.parametrize("added", [np.zeros(200), np.full(200, 2.5)])
def test_constants_are_added_once(added):
    x = pt.vector("x", shape=(12,))
    (written,) = sum_fewer_squares([x[PLACES].inc(pt.constant(added))])
    found = pytensor.function([x], written, mode="FAST_COMPILE")(np.arange(12.0))
    np.testing.assert_allclose(found, np.arange(12.0) + np.bincount(PLACES, added, 12))


def test_other_additions_stay():
    x = pt.vector("x", shape=(500,))
    many = pt.zeros(12)[PLACES].inc(pt.exp(x[:200]))
    few = pt.zeros(12)[PLACES[:20]].inc(x[:20])
    for graph in (many, few, pt.zeros(12)[PLACES].set(x[0] * ADDED)):
        (written,) = sum_fewer_squares([graph])
        assert equal_computations([written], [graph])


@pytest.mark.parametrize("size", [1e-170, 1.0, 1e170])
def test_a_sum_of_squares_of_constants_is_one_of_a_few(size):
    x = pt.scalar("x")
    (written,) = sum_fewer_squares([pt.sqr(pt.constant(size * ADDED) / x).sum()])
    found = pytensor.function([x], written, mode="FAST_COMPILE")
    assert all(node.outputs[0].type.shape != (200,) for node in FunctionGraph(outputs=[written], clone=True).toposort())
    np.testing.assert_allclose(found(size * 2.0), 0.25 * np.sum(ADDED**2))
