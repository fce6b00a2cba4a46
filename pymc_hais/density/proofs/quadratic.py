"""Whether a log density of one row is quadratic in a vector, read from its graph: a proof, or nothing."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compat import CheckParameterValue
from pymc_hais.density.rewrites.graphs import LAYOUT, LINEAR
from pymc_hais.density.sites.operations import keeps_numbers

#: Coefficients of degree 0, 1 and 2: absent, the same for all rows, or not; None for other functions.
type _Form = tuple[int, int, int] | None
_ABSENT, _SAME, _OF_ROW = range(3)
_FIXED: _Form = (_SAME, _ABSENT, _ABSENT)


def is_quadratic(
    output: TensorVariable,
    position: TensorVariable,
    rows: Sequence[Any],
    interpolated: Mapping[Any, tuple[Any, Any, Any]],
) -> bool:
    """Whether a graph is a polynomial of degree two in a vector, whose quadratic part is the same for all rows.

    The vector is the position, and ``rows`` are what differs from row to row.  ``interpolated`` maps variables known to
    be ``zero + sites * (one - zero)`` by element to ``(sites, zero, one)``.
    """
    found: dict[Any, _Form] = {position: (_ABSENT, _SAME, _ABSENT), **dict.fromkeys(rows, (_OF_ROW, _ABSENT, _ABSENT))}

    def read(variable: Variable) -> _Form:
        return found.get(variable, _FIXED)

    for node in toposort([output], blockers=[position, *rows]):
        found.update(dict.fromkeys(node.outputs, _of_node(node, [read(one) for one in node.inputs])))
        for one in set(node.outputs) & set(interpolated):
            sites, zero, end = map(read, interpolated[one])
            found[one] = _add([zero, _multiply([sites, _add([zero, end])])])
    form = read(output)
    return form is not None and form[2] != _OF_ROW


def _of_node(node: Apply, forms: list[_Form]) -> _Form:
    """Return what an operation makes of polynomials; of those of degree zero anything makes one."""
    if all(map(_is_flat, forms)):
        return _add(forms)
    op, first = node.op, forms[0]
    op = op.core_op if isinstance(op, Blockwise) else op
    if isinstance(op, Dot):
        return _multiply(forms)
    if isinstance(op, Elemwise):
        return _of_scalar(op.scalar_op, node, forms)
    if isinstance(op, Join | MakeVector):
        return _add(forms)
    is_place = isinstance(op, (*LAYOUT, Alloc, Sum, CheckParameterValue))
    return first if is_place and all(form == _FIXED for form in forms[1:]) else None


def _of_scalar(op: Op, node: Apply, forms: list[_Form]) -> _Form:
    if isinstance(op, LINEAR) or (isinstance(op, ps.Cast) and keeps_numbers(node)):
        return _add(forms)
    if isinstance(op, ps.Mul) or (isinstance(op, ps.TrueDiv) and _is_flat(forms[1])):
        return _multiply(forms)
    if isinstance(op, ps.Switch) and _is_flat(forms[0]):
        # Which of two polynomials it is may depend on the row.
        return _multiply([forms[0], _add(forms[1:])])
    exponent = node.inputs[1] if isinstance(op, ps.Pow) else None
    if isinstance(op, ps.Sqr) or (isinstance(exponent, Constant) and (exponent.data == 2).all()):
        return _multiply([forms[0]] * 2)
    return forms[1] if isinstance(op, ps.Second) else None


def _is_flat(form: _Form) -> bool:
    return form is not None and form[1:] == (_ABSENT, _ABSENT)


def _add(forms: Sequence[_Form]) -> _Form:
    if any(form is None for form in forms):
        return None
    a, b, c = (max(part) for part in zip(*(form for form in forms if form), strict=True))
    return a, b, c


def _multiply(forms: Sequence[_Form]) -> _Form:
    whole = _FIXED
    for form in forms:
        if whole is None or form is None:
            return None
        coefficients = [_ABSENT] * 5
        for (i, one), (j, other) in product(enumerate(whole), enumerate(form)):
            if one and other:
                coefficients[i + j] = max(coefficients[i + j], one, other)
        whole = None if any(coefficients[3:]) else (coefficients[0], coefficients[1], coefficients[2])
    return whole
