"""The path from a mixture: the densities of a reference and of a fit, each with its share, against SciPy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import approx_fprime
from scipy.special import logsumexp

from pymc_hais.kernels import paths
from pymc_hais.kernels.paths import Defended, Geometric
from tests.mutants import mutate
from tests.toys import HAS_JAX, NO_DATA
from tests.truth import LogGamma

TOY = LogGamma(np.array([0.8, 1.4]), np.array([0.5, 1.0]), np.array([3.0, 1.0]), np.array([2.0, 6.0]), -0.3)
FACTOR = np.array([[0.9, 0.0], [-0.5, 0.6]])
SCALES = {"dense": FACTOR, "diagonal": np.array([0.9, 0.6])}
CENTRE = np.array([0.3, -1.0])
#: Gaussians beside the fit: centres as if the fit's were at the origin, factors, and shares of what the fit has.
BESIDE = [
    (np.array([-1.0, 0.5]), np.array([[0.3, 0.0], [0.1, 0.2]]), 0.3),
    (np.array([0.8, 0.1]), 0.4 * np.eye(2), 0.2),
]
NAMESPACES = {"numpy": np}
if HAS_JAX:
    import jax.numpy as jnp

    NAMESPACES["jax"] = jnp


def build(path, xp=np, density=None):
    density = TOY.density(xp) if density is None else density
    functions = path.build(xp, lambda x, data: density(x))
    data = ((xp.asarray(CENTRE), *map(xp.asarray, path.arrays)), ())
    return functions, lambda x: functions.evaluate(xp.asarray(x), 0.0, data)


def known(df, scale):
    factor = scale if scale.ndim == 2 else np.diag(scale)
    if np.isinf(df):
        return stats.multivariate_normal(CENTRE, factor @ factor.T)
    return stats.multivariate_t(CENTRE, factor @ factor.T, df=df)


points = st.tuples(st.floats(-3.0, 1.0), st.floats(-3.0, 1.0)).map(np.array)


@pytest.mark.few(5)
@pytest.mark.every(3)
@pytest.mark.parametrize("name", NAMESPACES)
@pytest.mark.parametrize("kind", SCALES)
@pytest.mark.parametrize("df", [2.0, 7.0, np.inf])
@given(x=points, share=st.floats(0.01, 0.99), n_beside=st.integers(0, 2))
def test_the_mixture_and_its_gradients_are_right(name, kind, df, x, share, n_beside):
    scale = SCALES[kind]
    beside = [(centre, factor, (1.0 - share) * part) for centre, factor, part in BESIDE[:n_beside]]
    _, evaluate = build(Defended.from_fit(df, scale, share, beside=beside), NAMESPACES[name])
    log_reference, log_ratio, grad_reference, grad_ratio = (np.asarray(one) for one in evaluate(x))
    own, ratio, grad_own, grad_of_ratio = TOY.density(np)(x)

    def mixture(x):
        near = [stats.multivariate_normal(CENTRE + one[0], one[1] @ one[1].T).logpdf(x) for one in beside]
        shares = [one[2] for one in beside]
        return logsumexp(
            [TOY.density(np)(x)[0], known(df, scale).logpdf(x), *near], b=[share, 1.0 - share - sum(shares), *shares]
        )

    np.testing.assert_allclose(log_reference, mixture(x), rtol=1e-9, atol=1e-9)
    # The target is the same.
    np.testing.assert_allclose(log_reference + log_ratio, own + ratio, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(grad_reference + grad_ratio, grad_own + grad_of_ratio, rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(grad_reference, approx_fprime(x, mixture, 1e-7), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("is_dense", [False, True])
@given(x=points)
def test_without_a_fit_it_is_the_geometric_path_to_the_bit(is_dense, x):
    _, evaluate = build(Defended.from_fit(np.inf, np.eye(2) if is_dense else np.ones(2), 1.0))
    for one, other in zip(evaluate(x), TOY.density(np)(x), strict=True):
        np.testing.assert_array_equal(one, other)


def test_increments_and_densities_between_are_those_of_the_geometric_path():
    functions, evaluate = build(Defended.from_fit(3.0, FACTOR, 0.1))
    values = evaluate([0.1, -0.4])
    geometric = Geometric().build(np, lambda x, data: values)
    np.testing.assert_allclose(functions.log_density(*values[:2], 0.3), geometric.log_density(*values[:2], 0.3))
    np.testing.assert_allclose(functions.gradient(*values[2:], 0.3), geometric.gradient(*values[2:], 0.3))
    state = type("State", (), {"log_ratio": values[1]})()
    assert functions.arrive(state, 0.2, 0.5, NO_DATA) == geometric.arrive(state, 0.2, 0.5, NO_DATA)


@pytest.mark.parametrize("df", [3.0, np.inf])
def test_where_the_own_reference_has_no_density_the_fit_alone_counts(df):
    def nowhere(x):
        return -np.inf, -np.inf, np.full(2, np.nan), np.full(2, np.nan)

    with np.errstate(invalid="ignore"):
        _, evaluate = build(Defended.from_fit(df, FACTOR, 0.1), density=nowhere)
        log_reference, log_ratio, grad_reference, _ = evaluate([0.1, -0.4])
    np.testing.assert_allclose(log_reference, np.log(0.9) + known(df, FACTOR).logpdf([0.1, -0.4]))
    assert log_ratio == -np.inf
    assert np.all(np.isfinite(grad_reference))


def test_far_from_everything_the_shares_do_not_underflow():
    _, evaluate = build(Defended.from_fit(np.inf, 1e-3 * np.ones(2), 0.1))
    log_reference, *_ = evaluate([-900.0, -900.0])  # the fit's log density is about -10^12
    np.testing.assert_allclose(log_reference, np.log(0.1) + TOY.density(np)(np.array([-900.0, -900.0]))[0])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("join(of_path[2][0] + log_own", "join(log_own"),
        ("slope * pull(inverse, z)", "slope * push(inverse, z)"),
        ("numbers[2] - xp.where", "0.0 - xp.where"),
        ("2.0 * numbers[4] * numbers[3] / spread", "numbers[4] * numbers[3] / spread"),
    ],
)
def test_wrong_mixtures_are_seen(old, new):
    wrong = mutate(paths, (old, new)).Defended
    values = [build(path.from_fit(4.0, FACTOR, 0.3))[1]([0.1, -0.4]) for path in (wrong, Defended)]
    assert not np.allclose(values[0][0], values[1][0]) or not np.allclose(values[0][2], values[1][2])
