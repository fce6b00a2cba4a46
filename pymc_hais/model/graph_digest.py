"""What a model computes, as digests that are the same in every process: data containers apart, and no addresses."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import graph_inputs, io_toposort

from pymc_hais.model.fingerprint import take_fingerprint

__all__ = ["describe_model", "describe_symbolic", "digest_graph", "digest_graphs"]

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


def describe_model(model: Any) -> dict[str, Any]:
    """Describe a model as plain facts: its variables, and digests of what it computes and of its numbers.

    Parameters
    ----------
    model : pymc.Model
    """
    return {
        "float": pytensor.config.floatX,
        "variables": [f"{rv.name}: {rv.type}" for rv in model.basic_RVs],
        "graph": digest_graph(model),
        "data": take_fingerprint(model).digest.hex(),
    }


def describe_symbolic(value: Any) -> Any:
    """Describe an object of PyMC or PyTensor as plain facts; None if it is none."""
    if isinstance(value, pm.Model):
        return describe_model(value)
    if isinstance(value, Variable):
        return [str(value.type), digest_graphs([value]), *_shared(value)]
    if isinstance(value, Mode):
        tags = [getattr(value.provided_optimizer, name, None) or () for name in ("include", "exclude", "require")]
        return [type(value.linker).__name__, *(sorted(map(str, one)) for one in tags)]
    return None


def _shared(variable: Variable) -> list[str]:
    """Digest the numbers in a graph that may be set; random states do not count."""
    held = [one.get_value(borrow=True) for one in graph_inputs([variable]) if isinstance(one, SharedVariable)]
    arrays = [np.ascontiguousarray(one) for one in held if isinstance(one, np.ndarray | np.generic)]
    return [f"{one.dtype} {one.shape} {hashlib.blake2b(one.tobytes(), digest_size=8).hexdigest()}" for one in arrays]


def digest_graph(model: Any) -> str:
    """Return a digest of the operations of a model's log density, and of the constants in it.

    Parameters
    ----------
    model : pymc.Model
    """
    try:
        return digest_graphs(model.logp(sum=False), model.value_vars)
    except Exception:  # a model that cannot be annealed, of which the checks will say why
        return digest_graphs([*model.basic_RVs, *model.potentials])


def digest_graphs(outputs: Sequence[Any], inputs: Sequence[Any] = ()) -> str:
    """Return a digest of graphs of PyTensor: operations, types, and how they hang together.

    Parameters
    ----------
    outputs : sequence of Variable
    inputs : sequence of Variable
        In an order that means something; others count in the order in which they are met.
    """
    digest = hashlib.blake2b(digest_size=16)
    _update(digest, list(outputs), list(inputs))
    return digest.hexdigest()


def _update(digest: Any, outputs: list[Any], inputs: list[Any]) -> None:
    inputs = list(dict.fromkeys([*inputs, *graph_inputs(outputs)]))
    numbers = {variable: i for i, variable in enumerate(inputs)}
    for variable in inputs:
        digest.update(_plain(variable.type).encode())
        if isinstance(variable, Constant):
            digest.update(_bytes(variable.data))
    for node in io_toposort(inputs, outputs):
        for output in node.outputs:
            numbers[output] = len(numbers)
        types = [str(output.type) for output in node.outputs]
        digest.update(_plain((_describe(node.op), [numbers[one] for one in node.inputs], types)).encode())
        if inner := getattr(node.op, "fgraph", None):  # of a loop
            _update(digest, list(inner.outputs), list(inner.inputs))
    digest.update(repr([numbers[one] for one in outputs]).encode())


def _describe(op: Any) -> list[Any]:
    """Name an operation with all that it is made with; its own text does not show everything."""
    names = [*(getattr(op, "__props__", None) or ()), *(["info"] if hasattr(op, "info") else [])]
    props = [getattr(op, name, None) for name in names]
    return [str(op), *(_describe(one) if isinstance(one, Op) else str(one) for one in props)]


def _bytes(value: Any) -> bytes:
    is_number = isinstance(value, np.ndarray | np.generic | float | int) and np.asarray(value).dtype != object
    return np.asarray(value).tobytes() if is_number else _plain(value).encode()


def _plain(value: Any) -> str:
    return _ADDRESS.sub("", str(value))
