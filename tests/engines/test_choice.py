"""A model that an engine cannot take goes to the next, with one warning that says why."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from pymc_hais.density import build_density, build_layout
from pymc_hais.engines import choice, compile_engine
from tests.populations import state_of
from tests.toys import HAS_JAX

needs_jax = pytest.mark.skipif(not HAS_JAX, reason="needs JAX")


class Opaque(Op):
    """Minus half a square, known to Python only."""

    __props__ = ()

    def make_node(self, x):
        x = pt.as_tensor(x)
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = -0.5 * inputs[0] ** 2

    def pullback(self, inputs, outputs, cotangents):
        return [-cotangents[0] * inputs[0]]


class Untraceable(Opaque):
    """With a Numba form, and a JAX form that only fails when it is traced."""


def register_forms():
    from pytensor.link.numba.dispatch.basic import numba_funcify, numba_njit

    @numba_funcify.register(Untraceable)
    def _(op, node=None, **kwargs):
        @numba_njit
        def square(x):
            return -0.5 * x**2

        return square

    if HAS_JAX:
        from pytensor.link.jax.dispatch import jax_funcify

        @jax_funcify.register(Untraceable)
        def _(op, **kwargs):
            return lambda x: -0.5 * np.asarray(x) ** 2


def build_graph(op):
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        pm.Potential("op", op(x).sum())
    return build_density(model, build_layout(model, [np.zeros(2)]))


def choose(graph, backend=None):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        engine = compile_engine(graph, backend, {})
    return engine, [str(one.message) for one in caught if issubclass(one.category, UserWarning)]


def assert_density(engine):
    state = state_of(engine, np.array([[1.0, 2.0]]), np.zeros(2, dtype=np.uint32))
    np.testing.assert_allclose(state.log_ratio, [-2.5])
    np.testing.assert_allclose(state.grad_ratio, [[-1.0, -2.0]])


@pytest.fixture
def opaque():
    return build_graph(Opaque())


def test_an_op_of_python_alone_goes_to_the_python_engine_with_one_warning(opaque):
    engine, messages = choose(opaque)
    assert (engine.name, engine.backend) == ("python", "c")
    assert len(messages) == 1
    assert messages[0].count("Opaque") == (2 if HAS_JAX else 1)
    assert "backend='c'" in messages[0]
    assert_density(engine)
    assert choose(opaque, "c")[1] == []


@pytest.mark.slow
@needs_jax
def test_an_op_that_jax_cannot_trace_goes_to_numba_with_one_warning():
    register_forms()
    engine, messages = choose(build_graph(Untraceable()))
    assert engine.name == "numba"
    assert len(messages) == 1
    assert "no jax form" in messages[0]
    assert "traced array" in messages[0]
    assert_density(engine)


@pytest.mark.parametrize("backend", [pytest.param("jax", marks=needs_jax), "numba"])
def test_a_backend_that_was_asked_for_does_not_fall_back(opaque, backend):
    with pytest.raises(NotImplementedError, match="Opaque"):
        choose(opaque, backend)


def test_the_interpreter_is_the_last_resort(opaque, monkeypatch):
    compile_one = choice._compile

    def without_compilers(backend, *rest):
        if backend != "python":
            raise RuntimeError(f"no compiler for {backend}")
        return compile_one(backend, *rest)

    monkeypatch.setattr(choice, "_compile", without_compilers)
    engine, messages = choose(opaque)
    assert (engine.name, engine.backend) == ("python", "python")
    assert len(messages) == 1
    assert_density(engine)


def test_what_fails_everywhere_is_an_error_of_the_model(opaque, monkeypatch):
    def fail(*args):
        raise ZeroDivisionError("of the model")

    monkeypatch.setattr(choice, "_compile", fail)
    with pytest.raises(ZeroDivisionError, match="of the model"):
        compile_engine(opaque, None, {})
