"""Readers of what PyMC and PyTensor make: graphs, operations, compiled functions and models."""

from typing import Any

import numpy as np
import pymc as pm
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type import TensorType

from pymc_hais.model.compat import AbstractFunctionGraph, FrozenApply, implementations_of
from pymc_hais.model.compat import Function as CompiledFunction
from pymc_hais.model.identity.objects import attributes_of
from pymc_hais.model.identity.packages import home_of, is_importable
from pymc_hais.model.identity.walk import Leniently, Parts, Walk, read


def terms_of(model: Any) -> dict[str, list[Any]]:
    """Return what a model's log density is made from: of each variable and potential its graph, value and transform."""
    terms = {rv.name: [rv, model.rvs_to_values[rv], model.rvs_to_transforms.get(rv)] for rv in model.basic_RVs}
    return terms | {potential.name: [potential] for potential in model.potentials}


@read.register
def _read_model(model: pm.Model) -> Parts:
    return Parts(f"model {model.check_bounds}", list(terms_of(model).items()))


@read.register
def _read_variable(variable: Variable) -> Parts:
    kind = ("type", variable.type)
    if isinstance(variable, Constant | SharedVariable):
        return _read_value(variable)
    if variable.owner is None:
        return Parts("input", [kind])
    return Parts(f"output {variable.owner.outputs.index(variable)}", [("", variable.owner)])


def _read_value(variable: Any) -> Parts:
    """Read a constant, or what a variable holds; random states do not count."""
    kind = ("type", variable.type)
    if isinstance(variable.type, RandomType):
        return Parts("random state", [kind])
    value = variable.data if isinstance(variable, Constant) else variable.get_value(borrow=True)
    if isinstance(value, np.ndarray | np.generic | float | int) and not np.asarray(value).dtype.hasobject:
        content, _ = Walk().digest("", np.asarray(value))
        return Parts("numbers", [kind], content.encode())
    return Parts("value", [kind, ("value", value)])


@read.register(Apply)
@read.register(FrozenApply)
def _read_node(node: Any) -> Parts:
    return Parts(
        "node",
        [
            (f"Op `{getattr(node.op, 'name', None) or type(node.op).__name__}`", node.op),
            *(("", one) for one in node.inputs),
            *(("", one.type) for one in node.outputs),
        ],
    )


@read.register
def _read_type(kind: TensorType) -> Parts:
    return Parts(f"{type(kind).__name__} {kind.dtype} {kind.shape}")


@read.register
def _read_op(op: Op) -> Parts:
    """Read what an operation is made with: its ``__props__``, its inner graph, or all of its attributes."""
    kind = type(op)
    declaring = next((base for base in kind.__mro__ if "__props__" in vars(base)), None)
    names = getattr(op, "__props__", None) if declaring else None
    inner = [(name, getattr(op, name)) for name in ("fgraph", "info") if hasattr(op, name)]
    # By `__props__` of his own, somebody says what decides; those of a package's class say nothing of a class on it.
    is_said = names is not None and not home_of(kind.__module__) and not home_of(declaring.__module__)
    is_complete = is_said or bool(inner) or (names is not None and bool(home_of(kind.__module__)))
    props = [(name, getattr(op, name, None)) for name in names or ()]
    attributes = [] if is_complete else sorted(attributes_of(op).items())
    of_class = [("", Leniently(one) if is_said else one) for one in (kind, *_own_implementations(kind))]
    return Parts("op", [*of_class, *props, *inner, *attributes])


def _own_implementations(kind: type) -> list[Any]:
    """Return what a user has registered for an operation, which is no part of its class."""
    is_packaged = bool(home_of(kind.__module__)) and is_importable(kind)
    found = implementations_of(kind)
    return [one for one in found if not home_of(one.__module__) or (not is_packaged and not is_importable(one))]


@read.register
def _read_graph(graph: AbstractFunctionGraph) -> Parts:
    return Parts("graph", [("", one) for one in (*graph.inputs, *graph.outputs)])


@read.register
def _read_compiled(function: CompiledFunction) -> Parts:
    return Parts("compiled", [("graph", function.maker.fgraph)])


@read.register
def _read_mode(mode: Mode) -> Parts:
    tags = [getattr(mode.provided_optimizer, name, None) or () for name in ("include", "exclude", "require")]
    return Parts(f"mode {[type(mode.linker).__name__, *(sorted(map(str, one)) for one in tags)]}")
