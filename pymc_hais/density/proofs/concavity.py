"""Whether a log density is concave, read from its graph: a proof, or nothing.

The rules are those of disciplined convex programming (Grant, Boyd & Ye 2006): constants, affine, convex and concave
terms, and what sums, products with constants and known functions make of them.  A concave log density has one hill, and
falls at least exponentially beyond where it is known to fall.  A product of constants and exponentials of affine terms
is curved as its sign says (a posynomial's term, as of geometric programs).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import All, Dot, Max, Sum
from pytensor.tensor.shape import Reshape
from pytensor.tensor.special import LogSumExp
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compat import CheckParameterValue
from pymc_hais.density.compiling import quiet_compilation
from pymc_hais.density.containers import freeze_with_inputs
from pymc_hais.density.layout import Layout, build_position, values_at
from pymc_hais.density.markov.markov import find_markov
from pymc_hais.density.proofs.signs import NOT_NEGATIVE, Curvature, Signs, is_even, join
from pymc_hais.density.rewrites.graphs import LAYOUT, axes_of, behind_dims, negated, scalar_op, with_order
from pymc_hais.density.rewrites.simplification import simplify_values

_CONSTANT, _AFFINE, _CONVEX, _CONCAVE, _UNKNOWN = Curvature
#: Functions that rise and are convex, of an argument that is convex as well.
_CONVEX_RISING = (ps.Exp, ps.Expm1, ps.Softplus)
#: What makes products of exponentials of affine terms of such products.
_OF_EXPONENTIALS = (ps.Mul, ps.TrueDiv, ps.Reciprocal, ps.Neg, ps.Sqr, ps.Sqrt, ps.Identity, ps.Second)
#: How conditions are joined.
_AND = (ps.AND, ps.Mul)


def is_log_concave(graph: Any, values: Sequence[Any]) -> bool:
    """Whether the log density at beta = 1 is proven to be concave in the position, with these values of the data.

    The graph is a :class:`pymc_hais.density.DensityGraph`.
    """
    log_density = graph.density[:2]
    known = dict(zip(graph.data, map(np.asarray, values), strict=True))
    return _Reader(graph.position, known).is_concave(log_density)


def is_concave_in(model: pm.Model, layout: Layout, owners: Sequence[str]) -> bool:
    """Whether ``model.logp()`` is proven to be concave in some variables, for all values of the others.

    That of a Gaussian Markov random field is, whatever its mean and its precision, if these depend on none of them.
    """
    frozen, _ = freeze_with_inputs(model, [])
    own = [frozen[owner] for owner in owners]
    normal = [rv for rv in own if find_markov(rv) and not frozen.rvs_to_transforms[rv]]
    normal = [rv for rv in normal if set(ancestors(rv.owner.inputs)).isdisjoint(own)]
    of_priors = frozen.logp([rv for rv in frozen.free_RVs if rv not in normal]) if normal else frozen.varlogp
    position, fixed = build_position(layout), build_position(layout)
    values = values_at(frozen, layout, [position if owner in owners else fixed for owner in layout.owners])
    with quiet_compilation():
        terms = clone_replace([of_priors, frozen.datalogp], values, rebuild_strict=False)
        terms = simplify_values(terms, are_differentiated=False)
    return _Reader(position, {}, fixed).is_concave(terms)


class _Reader:
    """Reads a graph from its inputs to its outputs.

    Parameters
    ----------
    known : dict
        Values of inputs that are data.
    fixed : variable
        Inputs that are constant, of values that are not known.
    """

    def __init__(self, position: TensorVariable, known: Mapping[Any, np.ndarray], *fixed: TensorVariable) -> None:
        self._known = known
        self._found: dict[Any, Curvature] = {position: _AFFINE, **dict.fromkeys((*known, *fixed), _CONSTANT)}
        self._signs = Signs(self._value)
        self._of_exponentials: dict[Any, bool] = {}

    def is_concave(self, terms: list[Any]) -> bool:
        """Whether the sum of some variables is proven to be concave."""
        found = self.read(terms)
        return join(*(found.get(term, _CONSTANT) for term in terms)) in (_CONSTANT, _AFFINE, _CONCAVE)

    def read(self, outputs: list[Any]) -> dict[Any, Curvature]:
        """Return the curvatures of all variables."""
        for node in FunctionGraph(outputs=outputs, clone=False).toposort():
            curvature = _CONSTANT if all(self._of(one) == _CONSTANT for one in node.inputs) else self._of_node(node)
            if curvature == _UNKNOWN and self._is_of_exponentials(node.outputs[0]):
                curvature = {1.0: _CONVEX, -1.0: _CONCAVE, None: _UNKNOWN}[self._sign(node.outputs[0])]
            self._found.update(dict.fromkeys(node.outputs, curvature))
        return self._found

    def _of(self, variable: Variable) -> Curvature:
        return self._found.get(variable, _CONSTANT if isinstance(variable, Constant) else _UNKNOWN)

    def _of_node(self, node: Apply) -> Curvature:
        op, inputs = node.op, node.inputs
        exponents = _argument_of_log_sum_exp(node.outputs[0])
        if exponents is not None:  # a function that is convex, and rises
            return _CONVEX if self._of(exponents) in (_AFFINE, _CONVEX) else _UNKNOWN
        if isinstance(op, Elemwise):
            return self._of_scalar(op.scalar_op, inputs)
        first, *rest = inputs
        is_sum = isinstance(op, (*LAYOUT, Sum)) or (isinstance(op, CumOp) and op.mode == "add")
        if is_sum and all(self._of(one) == _CONSTANT for one in rest):
            return self._of(first)
        if isinstance(op, Join | MakeVector):
            return join(*map(self._of, inputs))
        if isinstance(op, Dot) or (isinstance(op, Blockwise) and isinstance(op.core_op, Dot)):
            return self._of_product(inputs)
        if isinstance(op, CheckParameterValue) and all(self._holds(one) for one in rest):
            return self._of(first)
        return _UNKNOWN

    def _of_scalar(self, op: Op, inputs: list[Any]) -> Curvature:
        """Return the curvature of an elementwise operation."""
        rule: Callable[..., Curvature] | None = _RULES.get(type(op))
        return _UNKNOWN if rule is None else rule(self, op, inputs)

    def _of_sum(self, op: Op, inputs: list[Any]) -> Curvature:
        odds = _log_odds(inputs)
        is_affine = odds is not None and self._of(odds) == _AFFINE
        return _AFFINE if is_affine else join(*map(self._of, inputs))

    def _of_difference(self, op: Op, inputs: list[Any]) -> Curvature:
        return join(self._of(inputs[0]), self._of(inputs[1]).opposite)

    def _of_product(self, inputs: list[Any]) -> Curvature:
        """Return the curvature of a product, elementwise or of matrices, with one factor that is not constant."""
        varying = [one for one in inputs if self._of(one) != _CONSTANT]
        if len(varying) > 1:
            return _UNKNOWN
        curvature = self._of(varying[0])
        signs = [self._sign(one) for one in inputs if one is not varying[0]]
        if None in signs:  # of both signs, or not known: a scaled affine term is still one
            return curvature if curvature == _AFFINE else _UNKNOWN
        return curvature.opposite if signs.count(-1.0) % 2 else curvature

    def _of_rising(self, op: Op, inputs: list[Any]) -> Curvature:
        if isinstance(op, ps.Log) and self._is_of_exponentials(inputs[0]) and self._sign(inputs[0]) == 1.0:
            return _AFFINE
        is_logistic = isinstance(op, ps.Log1p) and self._is_logistic(negated(inputs[0]))
        if is_logistic or self._is_normal_tail(op, inputs[0]):
            return _CONCAVE
        if isinstance(op, ps.Log | ps.Log1p) and self._is_posynomial(inputs[0]):
            return _CONVEX  # the logarithm of a sum of exponentials
        own = _CONVEX if isinstance(op, _CONVEX_RISING) else _CONCAVE
        return own if self._of(inputs[0]) in (_AFFINE, own) else _UNKNOWN

    def _is_logistic(self, variable: Variable | None) -> bool:
        """Whether each element is the logistic function of an affine term."""
        if variable is None or variable.owner is None:
            return False
        if isinstance(variable.owner.op, LAYOUT):
            first, *rest = variable.owner.inputs
            return self._is_logistic(first) and all(self._of(one) == _CONSTANT for one in rest)
        return isinstance(scalar_op(variable), ps.Sigmoid) and self._of(variable.owner.inputs[0]) == _AFFINE

    def _is_normal_tail(self, op: Op, variable: Variable) -> bool:
        """Whether a logarithm is that of a normal distribution function of an affine term, up to a constant factor.

        ``log1p(-erfc(x) / 2)`` is: ``erfc(x) + erfc(-x)`` is 2.
        """
        factor = self._factor_of_tail(variable)
        if factor is None or not isinstance(op, ps.Log | ps.Log1p):
            return False
        return bool(np.all(factor > 0.0)) if isinstance(op, ps.Log) else bool(np.all(factor == -0.5))

    def _factor_of_tail(self, variable: Variable) -> np.ndarray | None:
        """Return the constant that ``erfc`` of an affine term is multiplied by; None for other variables."""
        op = scalar_op(variable)
        if isinstance(op, ps.Erfc):
            return np.ones(()) if self._of(variable.owner.inputs[0]) == _AFFINE else None
        if isinstance(op, ps.Neg):
            factor = self._factor_of_tail(variable.owner.inputs[0])
            return None if factor is None else -factor
        if not isinstance(op, ps.Mul) or len(variable.owner.inputs) != 2:
            return None
        constant, tail = sorted(variable.owner.inputs, key=lambda one: isinstance(scalar_op(one), ps.Erfc))
        is_tail = isinstance(scalar_op(tail), ps.Erfc) and self._factor_of_tail(tail) is not None
        return self._value(constant) if is_tail else None

    def _of_sign(self, op: Op, inputs: list[Any]) -> Curvature:
        """Return that of a sign: products of exponentials are zero for all positions or for none."""
        return _CONSTANT if self._is_of_exponentials(inputs[0]) and self._sign(inputs[0]) is not None else _UNKNOWN

    def _of_distance(self, op: Op, inputs: list[Any]) -> Curvature:
        """Return the curvature of a square or an absolute value: convex, and rising where nothing is negative."""
        curvature = self._of(inputs[0])
        is_convex = curvature == _AFFINE or (curvature == _CONVEX and isinstance(scalar_op(inputs[0]), NOT_NEGATIVE))
        return _CONVEX if is_convex else _UNKNOWN

    def _of_power(self, op: Op, inputs: list[Any]) -> Curvature:
        exponent = self._value(inputs[1])
        is_distance = exponent is not None and is_even(exponent) and np.all(exponent > 0)
        return self._of_distance(op, inputs) if is_distance else _UNKNOWN

    def _of_switch(self, op: Op, inputs: list[Any]) -> Curvature:
        condition, *branches = inputs
        beyond = self._value(branches[1])
        if beyond is not None and np.all(np.isneginf(beyond)) and self._is_box(condition):
            return _CONCAVE if self._of(branches[0]) in (_CONSTANT, _AFFINE, _CONCAVE) else _UNKNOWN
        # Numbers may be part of a condition, so that another branch is taken at some of the elements.
        return join(*map(self._of, branches)) if self._holds(condition) or self._fails(condition) else _UNKNOWN

    def _is_box(self, condition: Variable) -> bool:
        """Whether a condition is that affine terms are within constant bounds, or constant itself."""
        if parts := _conjuncts(condition):
            return all(map(self._is_box, parts))
        if self._of(condition) == _CONSTANT:
            return True
        is_bound = isinstance(scalar_op(condition), ps.GE | ps.GT | ps.LE | ps.LT)
        return is_bound and {self._of(one) for one in condition.owner.inputs} == {_AFFINE, _CONSTANT}

    def _holds(self, condition: Variable) -> bool:
        """Whether a condition is known to hold wherever the position is."""
        if self._of(condition) == _CONSTANT:
            return True  # for all positions or for none: a density of zero everywhere is another check's business
        if parts := _conjuncts(condition):
            return all(map(self._holds, parts))
        owner = condition.owner
        if owner is None or not isinstance(owner.op, Elemwise):
            return False
        if isinstance(owner.op.scalar_op, ps.Invert):
            return self._fails(owner.inputs[0])
        if isinstance(owner.op.scalar_op, ps.EQ):
            return self._is_fixed_equality(*owner.inputs)
        if not isinstance(owner.op.scalar_op, ps.GE | ps.GT | ps.LE | ps.LT):
            return False
        left, right = owner.inputs
        bound = self._value(right)
        if isinstance(owner.op.scalar_op, ps.LT):
            is_infinite = bound is not None and bool(np.all(bound == np.inf))
            return is_infinite and isinstance(scalar_op(left), ps.Abs) and self._is_finite(left.owner.inputs[0])
        if isinstance(owner.op.scalar_op, ps.LE):
            return bound is not None and bool(np.all(bound >= self._most(left)))
        # A product of exponentials is zero for all positions or for none, so that it may be bounded strictly.
        can_be = isinstance(owner.op.scalar_op, ps.GE) or self._is_of_exponentials(left)
        return can_be and bound is not None and bool(np.all(bound <= 0)) and self._sign(left) == 1.0

    def _most(self, variable: Variable) -> float:
        """Return what no element is above: 1 for probabilities; infinity where nothing is known."""
        op, value = scalar_op(variable), self._value(variable)
        if value is not None:
            return float(np.max(value, initial=-np.inf))
        if isinstance(op, ps.Sigmoid):
            return 1.0
        if isinstance(op, ps.Erfc):
            return 2.0
        factors = variable.owner.inputs if isinstance(op, ps.Mul) else []
        is_product = factors and all(self._sign(one) == 1.0 for one in factors)
        return float(np.prod([self._most(one) for one in factors])) if is_product else np.inf

    def _is_fixed_equality(self, left: Variable, right: Variable) -> bool:
        """Whether products of exponentials are compared with zero, or their logarithms with its logarithm."""
        bound = self._value(right)
        if isinstance(scalar_op(left), ps.Log) and bound is not None:
            left, bound = left.owner.inputs[0], np.exp(bound)
        return bound is not None and not np.any(bound) and self._is_of_exponentials(left)

    def _fails(self, condition: TensorVariable) -> bool:
        """Whether a condition is known to fail for all positions: those of numbers that are not finite."""
        owner = condition.owner
        if owner is not None and isinstance(owner.op, LAYOUT):
            return self._fails(owner.inputs[0])
        if owner is None or not isinstance(owner.op, Elemwise):
            return False
        if isinstance(owner.op.scalar_op, _AND):
            return any(map(self._fails, owner.inputs))
        if isinstance(owner.op.scalar_op, ps.IsNan):
            return self._is_finite(owner.inputs[0])
        if not isinstance(owner.op.scalar_op, ps.EQ):
            return False
        left, right = owner.inputs
        bound = self._value(right)
        return bound is not None and bool(np.all(np.isinf(bound))) and self._is_finite(left)

    def _is_finite(self, variable: Variable) -> bool:
        """Whether a variable is finite where the position is: affine, or a log of exponentials of such numbers."""
        if self._of(variable) == _AFFINE:
            return True
        if variable.owner is not None and isinstance(variable.owner.op, LAYOUT):
            return self._is_finite(variable.owner.inputs[0])
        inner = (negated(variable), _argument(variable, ps.Softplus), _argument_of_log_sum_exp(variable))
        return any(one is not None and self._is_finite(one) for one in inner)

    def _value(self, variable: Variable) -> np.ndarray | None:
        """Return the value of a constant; None of what is computed from some."""
        if isinstance(variable, Constant):
            return np.asarray(variable.data)
        if variable.owner and isinstance(variable.owner.op, DimShuffle | Reshape):
            return self._value(variable.owner.inputs[0])
        if isinstance(scalar_op(variable), ps.Cast):
            value = self._value(variable.owner.inputs[0])
            with np.errstate(invalid="ignore"):
                return None if value is None else value.astype(variable.type.dtype)
        return self._known.get(variable)

    def _sign(self, variable: Variable) -> float | None:
        return self._signs(variable)

    def _is_of_exponentials(self, variable: Variable) -> bool:
        """Whether each element is a product of a constant and exponentials of affine terms."""
        if self._of(variable) == _CONSTANT:
            return True
        if variable not in self._of_exponentials:
            self._of_exponentials[variable] = variable.owner is not None and self._is_node_of_exponentials(
                variable.owner
            )
        return self._of_exponentials[variable]

    def _is_posynomial(self, variable: Variable) -> bool:
        """Whether each element is a sum of such products without negative ones."""
        if self._is_of_exponentials(variable):
            return self._sign(variable) == 1.0
        is_sum = variable.owner is not None and isinstance(getattr(variable.owner.op, "scalar_op", None), ps.Add)
        return is_sum and all(map(self._is_posynomial, variable.owner.inputs))

    def _is_node_of_exponentials(self, node: Apply) -> bool:
        op = node.op
        if isinstance(op, LAYOUT):
            return all(map(self._is_of_exponentials, node.inputs))
        if not isinstance(op, Elemwise):
            return False
        if isinstance(op.scalar_op, ps.Exp):
            return self._of(node.inputs[0]) == _AFFINE
        if isinstance(op.scalar_op, ps.Pow):
            return self._is_of_exponentials(node.inputs[0]) and self._of(node.inputs[1]) == _CONSTANT
        return isinstance(op.scalar_op, _OF_EXPONENTIALS) and all(map(self._is_of_exponentials, node.inputs))


def _conjuncts(condition: Variable) -> list[Variable]:
    """Return the conditions that must all hold for this one to hold; none if it is no conjunction."""
    owner = condition.owner
    if owner is None:
        return []
    is_joined = isinstance(owner.op, All | MakeVector | ScalarFromTensor | DimShuffle)
    return owner.inputs if is_joined or isinstance(scalar_op(condition), _AND) else []


def _argument(variable: Variable | None, function: type) -> Any:
    """Return x of f(x), for a function of numbers; None for other variables."""
    return None if variable is None or not isinstance(scalar_op(variable), function) else variable.owner.inputs[0]


def _log_odds(inputs: Sequence[Variable]) -> Any:
    """Return x of log(1 + exp(-x)) - log(1 + exp(x)), which is -x; None for other sums."""
    for one, other in itertools.permutations(inputs, 2) if len(inputs) == 2 else ():
        inner, x = _argument(one, ps.Softplus), _argument(negated(other), ps.Softplus)
        if inner is not None and x is not None and negated(inner) is x:
            return x
    return None


def _argument_of_log_sum_exp(variable: Variable) -> Any:
    """Return x of log(sum(exp(x))), or of log(sum(exp(x - max(x)))) + max(x); None for other variables."""
    owner = variable.owner
    if owner is not None and isinstance(owner.op, LogSumExp):
        return owner.inputs[0]
    terms = owner.inputs if isinstance(scalar_op(variable), ps.Add) else []
    for log, largest in itertools.permutations(terms) if len(terms) == 2 else ():
        inner = _argument(log, ps.Log)
        if inner is None:
            continue
        total, order = with_order(inner)
        if total.owner is None or not isinstance(total.owner.op, Sum):
            continue
        axes, difference = axes_of(total.owner), _argument(total.owner.inputs[0], ps.Exp)
        if difference is None or not isinstance(scalar_op(difference), ps.Sub):
            continue
        x, shift = difference.owner.inputs
        kept = [dim for dim in range(shift.type.ndim) if dim not in axes]
        is_one = all(shift.type.broadcastable[axis] for axis in axes)
        if is_one and _is_maximum(shift, x):
            spread, places = with_order(shift)
            found, own = with_order(largest)
            if found is spread and own == [dim if dim == "x" else places[kept[dim]] for dim in order]:
                return x
    return None


def _is_maximum(shift: Variable, x: Variable) -> bool:
    """Whether a variable is a maximum of x, or zero in its place where that is infinite."""
    largest = behind_dims(shift)
    if isinstance(scalar_op(largest), ps.Switch):
        condition, _, other = largest.owner.inputs
        if not isinstance(scalar_op(condition), ps.IsInf):
            return False
        largest = behind_dims(other)
    is_maximum = largest.owner is not None and isinstance(largest.owner.op, Max)
    return is_maximum and behind_dims(largest.owner.inputs[0]) is behind_dims(x)


_RULES: dict[type, Callable[..., Curvature]] = {
    ps.Add: _Reader._of_sum,
    ps.Sub: _Reader._of_difference,
    ps.Neg: lambda reader, op, inputs: reader._of(inputs[0]).opposite,
    ps.Cast: lambda reader, op, inputs: reader._of(inputs[0]) if op.o_type.dtype.startswith("float") else _UNKNOWN,
    **dict.fromkeys((ps.Identity, ps.Second), lambda reader, op, inputs: reader._of(inputs[-1])),
    ps.Mul: lambda reader, op, inputs: reader._of_product(inputs),
    ps.TrueDiv: lambda reader, op, inputs: (
        reader._of_product(inputs) if reader._of(inputs[1]) == _CONSTANT else _UNKNOWN
    ),
    ps.Sqr: _Reader._of_distance,
    ps.Abs: _Reader._of_distance,
    ps.Pow: _Reader._of_power,
    ps.Sign: _Reader._of_sign,
    ps.Switch: _Reader._of_switch,
    **dict.fromkeys((*_CONVEX_RISING, ps.Log, ps.Log1p, ps.Sqrt), _Reader._of_rising),
}
