"""What PyTensor's interpreter is given: graphs without graphs within, for which it would make C code."""

import threading
import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.traversal import apply_ancestors
from pytensor.tensor.special import logsumexp, softmax
from pytensor.tensor.subtensor import IncSubtensor

from pymc_hais.density import build_density, build_layout
from pymc_hais.density.compat import find_rng_nodes, reseed_rngs, without_initvals
from pymc_hais.density.compiling import (
    compile_density,
    compile_interpreted,
    freeze_dims_and_data,
    quiet_compilation,
    untraced,
)
from pymc_hais.density.density import gradient_of
from pymc_hais.references.forward import forward_graph

X = pt.vector("x", shape=(3,), dtype="float64")
VALUE = np.array([0.3, -2.0, 900.0])


@pytest.fixture(autouse=True)
def notes():
    """Have PyTensor note where variables are made, which the other tests do without."""
    with pytensor.config.change_flags(traceback__limit=8):
        yield


GRAPHS = {
    "softmax": lambda: softmax(X),
    "log of a sum": lambda: logsumexp(X),
    "as written": lambda: pt.log(pt.sum(pt.exp(X - 900.0))),
    "nested": lambda: logsumexp(softmax(X) + logsumexp(X)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_within_graphs_are_written_out(name):
    output = GRAPHS[name]()
    function = compile_interpreted([X], [output])
    assert not [node for node in function.maker.fgraph.apply_nodes if isinstance(node.op, OpFromGraph)]
    np.testing.assert_allclose(function(VALUE)[0], output.eval({X: VALUE}, mode="FAST_COMPILE"), rtol=1e-13)


def test_the_log_density_and_the_outputs_of_a_simplex_are_without_them():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(4))
        pm.Multinomial("hair", n=592, p=p, observed=[108, 286, 71, 127])
    for inputs, outputs in ((model.value_vars, [model.logp()]), ([], forward_graph(model))):
        function = compile_interpreted(inputs, outputs)
        assert not [node for node in function.maker.fgraph.apply_nodes if isinstance(node.op, OpFromGraph)]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_logs_of_sums_with_one_are_precise_and_no_loops_in_python(dtype):
    x = pt.vector("x", dtype=dtype)
    function = compile_interpreted([x], [pt.softplus(x), pt.log1mexp(x)])
    scalar_ops = [getattr(node.op, "scalar_op", None) for node in function.maker.fgraph.apply_nodes]
    assert not [one for one in scalar_ops if one is not None and one.nfunc_spec is None]
    values = np.array([-np.inf, -1e30, -80.0, -37.0, -5.0, -0.7, np.log(0.5), -0.69, -1e-5, -1e-20], dtype)
    of_sum, of_difference = function(values)
    exact = values.astype(np.longdouble)
    tolerance = 4.0 * np.finfo(dtype).eps
    np.testing.assert_allclose(of_sum, np.log1p(np.exp(exact)), rtol=tolerance)
    expected = np.r_[np.log1p(-np.exp(exact[:6])), np.log(-np.expm1(exact[6:]))]
    np.testing.assert_allclose(of_difference, expected, rtol=tolerance)
    positive = np.array([1e-5, 0.7, 5.0, 17.9, 18.1, 33.4], dtype)
    of_sum = np.log1p(np.exp(positive.astype(np.longdouble)))
    far = np.array([1e30, np.inf, np.nan], dtype)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(function(positive)[0], of_sum, rtol=tolerance)
        np.testing.assert_array_equal(function(far)[0], far)
        np.testing.assert_array_equal(function(np.array([0.0, np.nan], dtype))[1], [-np.inf, np.nan])


def test_remarks_about_the_c_backend_are_silenced_and_others_are_not():
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with quiet_compilation():
            warnings.warn("PyTensor could not link to a BLAS installation. Operations ...", UserWarning, stacklevel=1)
            warnings.warn("something else", UserWarning, stacklevel=1)
    assert [str(one.message) for one in heard] == ["something else"]


def test_a_frozen_copy_is_none_of_the_user_s_gaussian_processes():
    """PyMC warns of their use on a copy, which nobody makes; its warning is an error here."""
    with pm.Model() as model:
        pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, 1.0)).prior("f", X=np.arange(3.0)[:, None])
    freeze_dims_and_data(model)


def test_a_constant_on_both_sides_of_many_switches_keeps_its_stack_trace():
    """Each index of a batch makes a ``switch(0 < 0, 0, 0)``: a rewrite of it tripled the trace of the constant."""
    zero, k = pt.constant(0), pt.lscalar("k")
    zero.tag.trace = [[("a file", 1, "a function", "a line")]]
    output = sum(pt.switch(pt.lt(k, i), zero, zero) * i for i in range(1, 9))
    function = compile_interpreted([k], [output])
    inputs = [one for node in function.maker.fgraph.toposort() for one in node.inputs]
    assert max(len(getattr(one.tag, "trace", [])) for one in [zero, *inputs]) < 3**8
    assert function(np.int64(3))[0] == 0


def test_graphs_are_built_one_thread_after_the_other():
    """PyTensor's own compilation sets the limit for a moment as well, and puts back what it found."""
    before, log = pytensor.config.traceback__limit, []
    assert before != 0

    def build():
        with untraced:
            log.append("other")

    other = threading.Thread(target=build)
    with untraced, untraced:
        other.start()
        other.join(0.05)
        assert pytensor.config.traceback__limit == 0
        log.append("first")
    other.join()
    assert log == ["first", "other"]
    assert pytensor.config.traceback__limit == before


def test_the_notes_come_back_after_an_error():
    before = pytensor.config.traceback__limit
    with pytest.raises(ZeroDivisionError), untraced:
        _ = 1 / 0
    assert pytensor.config.traceback__limit == before


def test_a_model_keeps_its_initial_values_while_it_is_copied_and_frozen():
    with pm.Model() as model:
        x = pm.Normal("x", initval=1.5)
        y = pm.Normal("y", x, initval="prior")

    class Watched(type(model.rvs_to_initial_values)):
        """Another thread may look at any moment, and would keep what it sees."""

        def __setitem__(self, *_):
            raise AssertionError("an initial value was changed")

        update = __setitem__

    model.rvs_to_initial_values = Watched(model.rvs_to_initial_values)
    plain = without_initvals(model)
    assert set(plain.rvs_to_initial_values.values()) == {None}
    assert plain.free_RVs == [x, y]
    copied, frozen = plain.copy(), freeze_dims_and_data(model)
    assert [rv.name for rv in copied.free_RVs] == [rv.name for rv in frozen.free_RVs] == ["x", "y"]
    assert dict(model.rvs_to_initial_values) == {x: 1.5, y: "prior"}


def test_the_place_of_the_largest_site_has_a_gradient():
    with pm.Model() as model:
        s, x = pm.Categorical("s", np.ones(3) / 3, shape=2), pm.Normal("x")
        pm.Potential("first", x * pt.argmax(s) + pt.argmax(pt.eq(s, 1)))
    graph = build_density(model, build_layout(model))
    function = compile_density(graph, "FAST_COMPILE")
    _, ratio, _, slope = function(np.array([0.3, 1.0, 2.0]), *graph.data_values)
    np.testing.assert_allclose([ratio, slope[0]], [0.3, 1.0])


@pytest.mark.parametrize("combine", [pt.add, pt.mul, lambda *terms: sum(terms)])
def test_sums_and_products_of_more_operands_than_numpy_takes_are_interpreted(combine):
    function = compile_interpreted([X], [combine(*[X + 0.01 * i for i in range(40)])])
    terms = VALUE[:, None] + 0.01 * np.arange(40)
    np.testing.assert_allclose(function(VALUE)[0], terms.prod(1) if combine is pt.mul else terms.sum(1), rtol=1e-12)


@pytest.mark.parametrize("scale", [2.5, np.array([1.0, 3.0])])
@pytest.mark.parametrize("shape", [None, (4, 2)])
@pytest.mark.parametrize("floats", ["float32", "float64"])
def test_interpreted_half_normal_draws_are_those_of_pytensor(floats, shape, scale):
    with pytensor.config.change_flags(floatX=floats):
        drawn = pm.HalfNormal.dist(scale, **({} if shape is None else {"shape": shape}))
        functions = compile_interpreted([], [drawn]), pm.compile([], [drawn], mode="FAST_COMPILE")
    draws = []
    for function in functions:
        reseed_rngs(find_rng_nodes(function.maker.fgraph.outputs), 5)
        result = function()
        draws.append(result[0] if isinstance(result, list) else result)
    np.testing.assert_array_equal(*draws)


_P = pt.vector("position", shape=(9,), dtype="float64")
#: Functions of parts of a vector: next to each other, with gaps, twice the same, one element, and more than parts.
_PARTS = {
    "all of it": lambda: pt.sum(_P[:4] ** 2) * pt.exp(_P[4]) + pt.sum(pt.log1p(_P[5:] ** 2)),
    "a gap": lambda: pt.sum(_P[1:3] ** 2) + _P[-2] ** 3,
    "twice": lambda: pt.sum(_P[1:5] ** 2) + pt.sum(pt.exp(pt.identity(_P)[1:5])) * _P[0],
    "overlapping": lambda: pt.sum(_P[:5] ** 2) * pt.sum(pt.sin(_P[3:])),
    "the whole, too": lambda: pt.sum(_P**3) * pt.exp(_P[2]) + pt.sum(_P[4:6] ** 2),
    "by index": lambda: pt.sum(_P[np.array([3, 0, 3])] ** 2) * _P[1],
    "backwards": lambda: pt.sum(_P[::-1][:3] ** 2 * _P[6:]),
    "none of it": lambda: pt.constant(2.0) * pt.constant(3.0),
}


@pytest.mark.parametrize("name", _PARTS)
def test_the_gradient_by_parts_is_that_by_the_whole(name):
    output = _PARTS[name]()
    expected = pytensor.grad(output, _P, disconnected_inputs="ignore")
    function = compile_interpreted([_P], [gradient_of(output, _P), expected])
    np.testing.assert_allclose(*function(np.linspace(-0.9, 1.3, 9)), rtol=1e-13)


def test_a_gradient_by_parts_adds_no_part_to_zeros():
    nodes = apply_ancestors([gradient_of(_PARTS["all of it"](), _P)])
    assert not any(isinstance(node.op, IncSubtensor) for node in nodes)
