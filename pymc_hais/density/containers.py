"""Data containers (``pm.Data``) of a model: which may vary while shapes stay, and what is computed of them alone."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors, walk
from pytensor.scan.op import Scan
from pytensor.tensor.basic import Alloc, ARange, Eye
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape, Shape, Shape_i
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compiling import compile_interpreted, freeze_dims_and_data
from pymc_hais.density.rewrites.graphs import held_value
from pymc_hais.density.sites.variables import is_discrete, support_parameters


@dataclass(frozen=True, eq=False)
class Preparation:
    """What a density takes that depends on data containers alone, computed once for each data set."""

    names: tuple[str, ...]  # of the containers
    shapes: tuple[tuple[int, ...], ...]  # of what is computed
    function: Callable[..., list[np.ndarray]]  # of the containers' values

    def __call__(self, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Compute the arguments of a density; refuse values that lead to other shapes than it was compiled for."""
        found = [np.asarray(one) for one in self.function(*(values[name] for name in self.names))]
        if (shapes := tuple(one.shape for one in found)) != self.shapes:
            raise ValueError(
                f"The model computes arrays of the shapes {shapes} from its data, and was compiled for {self.shapes}: "
                "call pymc_hais.compile again."
            )
        return found


def freeze_with_inputs(model: pm.Model, names: Sequence[str]) -> tuple[Any, list[Any]]:
    """Freeze a model but for some observed variables or data containers; return it and what stands for these."""
    kept = [variable.name for variable in model.data_vars if variable.name not in names]
    frozen = freeze_dims_and_data(model, data=kept)
    return frozen, [frozen.rvs_to_values.get(frozen[name], frozen[name]) for name in names]


def read_containers(model: pm.Model) -> dict[str, np.ndarray]:
    """Return the present values of the data containers of a model."""
    refuse_gaps(model)
    return {container.name: np.asarray(container.get_value()) for container in _containers(model)}


def _containers(model: pm.Model) -> list[Any]:
    """Return the data containers that can take other values; those of a frozen model are constants."""
    return [variable for variable in model.data_vars if isinstance(variable, SharedVariable)]


def refuse_frozen(model: pm.Model, names: Collection[str]) -> None:
    """Refuse names of data containers that are constants, as freezing a model's data makes them."""
    for variable in model.data_vars:
        if variable.name in names and not isinstance(variable, SharedVariable):
            raise ValueError(
                f"The data container `{variable.name}` is frozen, and cannot take other values: pass the model as it "
                "was before freeze_dims_and_data."
            )


def refuse_gaps(model: pm.Model) -> None:
    """Refuse missing values that came into a container by ``pm.set_data``: PyMC imputes those of constants alone."""
    for variable in model.data_vars:
        value = held_value(variable)  # in a model whose data are frozen, containers are constants
        if np.ma.is_masked(value):
            first = tuple(int(i) for i in np.argwhere(np.ma.getmaskarray(value))[0])
            raise ValueError(
                f"The data container `{variable.name}` has missing values (the first is element {first}), of which "
                "PyMC makes no variables: leave them out, or give the values to `observed=` without pm.Data."
            )


def arguments_for(values: Mapping[str, np.ndarray]) -> list[Any]:
    """Return symbolic arguments for data containers, with the shapes of their values."""
    return [pt.tensor(name, dtype=value.dtype, shape=value.shape) for name, value in values.items()]


def varying_containers(model: pm.Model) -> tuple[str, ...]:
    """Name the containers that may hold other numbers in the same machine code.

    Neither a shape nor the values that a discrete variable has follow from their numbers.
    """
    found = _containers(model)
    terms = [*model.basic_RVs, *model.potentials, *model.rvs_to_values.values()]
    steered = _by_value([shape for one in terms for shape in _shapes_above(one)])
    steered |= _by_value([length for length in model.dim_lengths.values() if length not in found])
    steered |= _by_value([one for rv in model.free_RVs if is_discrete(rv) for one in support_parameters(rv)])
    return tuple(variable.name for variable in found if variable not in steered)


def _shapes_above(term: TensorVariable) -> Iterator[Any]:
    """Yield what must be known of a graph when it is compiled: shapes, lengths, and which elements are selected."""
    for variable in ancestors([term]):
        node = variable.owner
        if node is None:
            continue
        if hasattr(node.op, "size_param"):
            # An op that PyMC builds of others may not say which of its inputs is the size.
            is_told = getattr(node.op, "extended_signature", "") is not None
            yield from [node.op.size_param(node)] if is_told else node.inputs
        elif isinstance(node.op, Alloc | Reshape):
            yield from node.inputs[1:]
        elif isinstance(node.op, ARange | Eye):
            yield from node.inputs
        elif isinstance(node.op, Scan):
            yield node.inputs[0]
        elif isinstance(node.op, Subtensor | IncSubtensor) and any(isinstance(i, slice) for i in node.op.idx_list):
            yield from node.inputs[1:]
        elif isinstance(node.op, AdvancedSubtensor | AdvancedIncSubtensor):
            yield from (one for one in node.inputs[1:] if getattr(one.type, "dtype", "") == "bool")


def _by_value(variables: list[Any]) -> set[Any]:
    """Return everything whose numbers, and not only whose shape, some variables depend on."""

    def sources(one: Any) -> list[Any]:
        return one.owner.inputs if one.owner and not isinstance(one.owner.op, Shape | Shape_i) else []

    return set(walk([one for one in variables if one is not None], sources))


def cut_prepared(
    graph: FunctionGraph, containers: list[Any], values: Mapping[str, np.ndarray]
) -> tuple[list[Any], list[np.ndarray], Preparation]:
    """Make arguments of whatever a graph computes from data containers alone, in place.

    Of the containers, inputs of the graph in the order of the values, nothing is left in it.  Returns what takes their
    place, its values, and what computes these.
    """
    constant, known = set(), set(containers)  # of it all that depends on containers and constants alone
    for node in graph.toposort():
        others = [one for one in node.inputs if one not in constant and not isinstance(one, Constant)]
        if not others:
            constant.update(node.outputs)
        elif all(one in known for one in others):
            known.update(node.outputs)

    def sources(one: Any) -> list[Any]:  # repeating and turning round is left to what comes after, which holds less
        is_passed = one.owner and isinstance(one.owner.op, DimShuffle | Alloc)
        if is_passed or (one.owner and not isinstance(one.type, TensorType)):
            return [other for other in one.owner.inputs if other in known]
        return []

    taken = [one for node in graph.toposort() if node.outputs[0] not in known for one in node.inputs if one in known]
    taken += [one for one in graph.outputs if one in known]
    frontier = [one for one in walk(taken, sources) if not sources(one)]
    function = compile_interpreted(containers, frontier)
    arrays = [np.asarray(value) for value in function(*values.values())]
    arguments: list[Any] = []
    for i, (variable, value) in enumerate(zip(frontier, arrays, strict=True)):
        arguments.append(pt.tensor(f"prepared_{i}", dtype=variable.type.dtype, shape=value.shape))
        graph.add_input(arguments[-1])
        graph.replace(variable, arguments[-1], reason="cut_prepared")
    return arguments, arrays, Preparation(tuple(values), tuple(one.shape for one in arrays), function)
