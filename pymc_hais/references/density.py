"""The log density of a reference as a function of many positions, compiled for PyTensor's NumPy interpreter."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.exceptions import AxisError
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.scan.op import Scan
from pytensor.tensor.blockwise import Blockwise

from pymc_hais.density.compat import rewrite_pregrad
from pymc_hais.density.compiling import compile_interpreted, freeze_dims_and_data, lower_xtensor
from pymc_hais.density.layout import Layout, on_position
from pymc_hais.density.sites.lookups import ANY, confine_lookups
from pymc_hais.references.base import BoundReference

type Rows = Callable[[np.ndarray], np.ndarray]

#: What a graph that is called for every position costs, in operations that are repeated for every position.
_CALL = 20


@dataclass(frozen=True)
class Density:
    """Functions of many positions (P, D)."""

    values: Rows
    gradients: Rows | None  # None if an operation has no gradient, or none was asked for
    n_loops: int  # how many operations are repeated for every position; the others are done once for all


def build_reference_density(
    model: pm.Model, layout: Layout, reference: BoundReference, sample: np.ndarray, with_gradients: bool = False
) -> Density:
    """Compile a reference's log density.

    At the positions of a sample (n, D), many at once and one at a time must agree.
    """
    frozen = freeze_dims_and_data(model)
    # The draws may be moved to where the prior looks past a table.
    (log_prior,), outside = confine_lookups([frozen.varlogp], dict.fromkeys(frozen.discrete_value_vars, ANY))
    position, (log_prior,) = on_position(frozen, layout, [log_prior if outside is None else log_prior + outside])
    value = pt.as_tensor_variable(reference.logp(position, log_prior))
    values, n_loops = _for_rows(position, value, sample)
    gradients = None
    if with_gradients:
        with contextlib.suppress(Exception):  # an Op of the user's own may have no gradient
            gradient = pytensor.grad(rewrite_pregrad(value), position, disconnected_inputs="ignore")
            gradients, _ = _for_rows(position, gradient, sample)
    return Density(values, gradients, n_loops)


def _for_rows(position: Any, output: Any, sample: np.ndarray) -> tuple[Rows, int]:
    """Compile a function of one position for many; and count the operations that are repeated."""
    (output,) = lower_xtensor([output])
    single = compile_interpreted([position], [output])
    rows = pt.tensor("positions", dtype=position.dtype, shape=(None, position.type.shape[0]))

    def one_by_one(positions: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.array([single(row)[0] for row in positions.astype(position.dtype)], dtype=np.float64)

    try:
        try:
            batched = vectorize_graph(output, {position: rows})
        except AxisError:  # pm.CAR sums a number along an axis that it does not have
            batched = vectorize_graph(rewrite_pregrad(output), {position: rows})
        function = compile_interpreted([rows], [batched])

        def at_once(positions: np.ndarray) -> np.ndarray:
            with np.errstate(all="ignore"):
                return np.asarray(function(positions.astype(position.dtype))[0], dtype=np.float64)

        if np.allclose(at_once(sample), one_by_one(sample), rtol=1e-4, atol=1e-4, equal_nan=True):
            nodes = {variable.owner for variable in ancestors([batched])} - {None}
            loops = [node.op.core_op for node in nodes if isinstance(node.op, Blockwise)]
            return at_once, sum(_CALL if isinstance(one, Scan) else 1 for one in loops)
    except Exception:  # an Op without a rule for many positions: one at a time is always right
        pass
    return one_by_one, _CALL
