"""Rewritten densities against the models' own, and what is left in their graphs."""

from functools import cache

import numpy as np
import pymc as pm
import pytest
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors

from pymc_hais.density import build_density, build_layout
from pymc_hais.engines import compile_engine
from tests.density.regressions import COVARIANCE, MODELS, YES, X
from tests.marks import slow_but
from tests.populations import state_of

KEY = np.array([1, 2], dtype=np.uint32)
#: PyMC has constants in single precision here (of the normal distribution function, of an exponential prior), which
#: are rounded where they are folded.
SINGLE_CONSTANTS = {"probit", "ordered_probit", "tobit", "truncated_normal", "varying_slopes"}

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


#: Of the models, those that stand for the others in the fast suite.
FAST = ["correlated_logistic", "negative_binomial", "normal_mixture", "gp_marginal"]


#: Those whose factors, functions of counts or categories are looked for.
FACTORISED = ["correlated_logistic", "scaled_covariance", "matrix_normal", "kronecker_normal"]
COUNTED = ["poisson", "binomial"]


@cache
def build(name):
    model = MODELS[name]()
    return model, build_density(model, build_layout(model))


def operations(graph):
    nodes = {variable.owner for variable in ancestors(graph.density) if variable.owner}
    found = [getattr(node.op, "core_op", getattr(node.op, "scalar_op", node.op)) for node in nodes]
    return {type(op).__name__ for op in found}


@pytest.mark.few(4)
@pytest.mark.every(12)
@pytest.mark.parametrize("backend", ["jax", pytest.param("python", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", slow_but(FAST, MODELS))
def test_densities_and_gradients_are_the_models(name, backend):
    if backend == "jax":
        pytest.importorskip("jax")
    model, graph = build(name)
    positions = np.random.default_rng(4).normal(0.0, 0.7, size=(5, graph.layout.n_dims))
    kwargs = {"mode": "FAST_COMPILE"} if backend == "python" else {}
    state = state_of(compile_engine(graph, None if kwargs else backend, kwargs), positions, KEY)
    logp, dlogp = model.compile_logp(mode="FAST_COMPILE"), model.compile_dlogp(mode="FAST_COMPILE")
    rtol = 1e-6 if name in SINGLE_CONSTANTS else 1e-9
    for i, position in enumerate(positions):
        point = graph.layout.unflatten(position)
        np.testing.assert_allclose(state.log_reference[i] + state.log_ratio[i], logp(point), rtol=rtol)
        gradient = np.asarray(state.grad_reference[i] + state.grad_ratio[i])
        expected = dlogp(point)
        np.testing.assert_allclose(gradient, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", slow_but([], ["gp_marginal", "normal_mixture", "negative_binomial"], ["gp_marginal"]))
def test_numba_takes_them(name):
    _, graph = build(name)
    positions = np.random.default_rng(4).normal(0.0, 0.7, size=(5, graph.layout.n_dims))
    states = [state_of(compile_engine(graph, *how), positions, KEY) for how in (("numba", {}), ("c", {}))]
    for one, two in zip(*states, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)


@pytest.mark.few(3)
@pytest.mark.every(3)
@pytest.mark.parametrize("name", slow_but({*FAST, *FACTORISED, *COUNTED, "ordered_logistic", "categorical"}, MODELS))
def test_no_large_constant_stays_in_the_graph(name):
    _, graph = build(name)
    constants = [variable for variable in ancestors(graph.density) if isinstance(variable, Constant)]
    assert max(np.size(constant.data) for constant in constants) < 32
    assert [data.type.shape for data in graph.data] == [value.shape for value in graph.data_values]


@pytest.mark.parametrize("name", FACTORISED)
def test_constant_matrices_are_factorised_outside(name):
    factorisations = {"Cholesky", "SolveTriangular", "Solve", "MatrixInverse", "Eigh", "CholeskySolve"}
    assert not factorisations & operations(build(name)[1])


@pytest.mark.parametrize("name", COUNTED)
def test_functions_of_counts_are_folded(name):
    assert "GammaLn" not in operations(build(name)[1])


def test_categories_need_no_index():
    assert not {"AdvancedSubtensor", "AdvancedIncSubtensor"} & operations(build("categorical")[1])


def test_a_design_is_held_once():
    """For the linear predictor and, transposed, for its gradient."""
    _, graph = build("probability_logistic")
    assert sum(value.size == X.size for value in graph.data_values) == 1


def test_the_data_come_in_the_same_order_again():
    """What is compiled for it can be found on the disk."""
    (_, first), again = build("tobit"), MODELS["tobit"]()
    second = build_density(again, build_layout(again))
    assert len(first.data) > 2
    for one, two in zip(first.data_values, second.data_values, strict=True):
        np.testing.assert_array_equal(one, two)


def test_checks_are_what_the_model_asks_for():
    """Without ``check_bounds`` a parameter out of range is no density of zero."""
    values = []
    for check_bounds in (True, False):
        with pm.Model(check_bounds=check_bounds) as model:
            s = pm.Normal("s")
            pm.Exponential("y", scale=s, observed=1.0)
        engine = compile_engine(build_density(model, build_layout(model)), None, {"mode": "FAST_COMPILE"})
        values.append(state_of(engine, [[-1.0], [0.5]], KEY).log_ratio)
    assert values[0][0] == -np.inf
    assert values[1][0] != -np.inf
    assert values[0][1] == values[1][1]


def test_outside_the_support_the_density_is_zero():
    with pm.Model() as model:
        p = pm.Normal("p")
        pm.Bernoulli("y", p=p, observed=YES)
    engine = compile_engine(build_density(model, build_layout(model)), None, {"mode": "FAST_COMPILE"})
    log_ratio = state_of(engine, [[-0.1], [0.4], [1.1]], KEY).log_ratio
    np.testing.assert_array_equal(np.isfinite(log_ratio), [False, True, False])
    assert np.all(np.isneginf(log_ratio[[0, 2]]))


def test_a_covariance_and_its_scale_are_told_apart():
    """The scaled one's log density, by hand."""
    _, graph = build("scaled_covariance")
    engine = compile_engine(graph, None, {"mode": "FAST_COMPILE"})
    log_scale = 0.3
    assert graph.layout.owners == ("scale", "mu")
    state = state_of(engine, [[log_scale, 0.0, 0.0, 0.0]], KEY)
    precision = np.linalg.inv(COVARIANCE) * np.exp(-2 * log_scale)
    expected = -0.5 * np.einsum("ij,jk,ik", X, precision, X)
    expected -= len(X) * (1.5 * np.log(2 * np.pi) + 0.5 * np.linalg.slogdet(COVARIANCE)[1] + 3 * log_scale)
    np.testing.assert_allclose(state.log_ratio[0], expected, rtol=1e-12)
