"""What PyTensor's interpreter is given: graphs without graphs within, for which it would make C code."""

import threading
import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.tensor.special import logsumexp, softmax

from pymc_hais.density import build_density, build_layout
from pymc_hais.density.compat import without_initvals
from pymc_hais.density.compiling import (
    compile_density,
    compile_interpreted,
    freeze_dims_and_data,
    quiet_compilation,
    untraced,
)
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
    np.testing.assert_allclose(function(VALUE)[0], output.eval({X: VALUE}), rtol=1e-13)


def test_the_log_density_and_the_outputs_of_a_simplex_are_without_them():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(4))
        pm.Multinomial("hair", n=592, p=p, observed=[108, 286, 71, 127])
    for inputs, outputs in ((model.value_vars, [model.logp()]), ([], forward_graph(model))):
        function = compile_interpreted(inputs, outputs)
        assert not [node for node in function.maker.fgraph.apply_nodes if isinstance(node.op, OpFromGraph)]


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
