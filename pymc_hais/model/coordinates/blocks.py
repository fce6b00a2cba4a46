"""Coordinates in which effects of unknown scale are standard normal: coefficients, varying effects, Gaussian processes.

Standard normals that a model multiplies by scales (non-centred effects, the coefficients of a Gaussian process) have,
given everything else, a conditional density whose Hessian falls into blocks: of single elements where every observation
looks at one of them, or one block of all.  As for a chain, one Newton step and the Cholesky factor of each block make
coordinates that are standard normal where the data are normal, whatever the scales.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.subtensor import AdvancedSubtensor, IncSubtensor, Subtensor
from scipy.sparse.csgraph import connected_components

from pymc_hais.model.compiling import compile_interpreted, quiet_compilation
from pymc_hais.model.layout import Layout, build_position, values_at
from pymc_hais.model.proofs.concavity import is_frozen_concave_in
from pymc_hais.model.rewrites.gradients import InverseRoots
from pymc_hais.model.rewrites.simplification import simplify_values

_log = logging.getLogger("pymc.hais")
#: Elements from which on coordinates of their own are worth second derivatives, and up to which these are looked at.
_FEWEST, _MOST = 20, 2000
#: Elements up to which the whole Hessian is looked at; of more it must be diagonal.  What rounding explains.
_MOST_PARTED, _SAME = 400, 1e-4
#: Elements of a block, at most: beyond, evaluations cost more than what is saved of them.
_LARGEST = 8
#: What is added to diagonals, in units of the rounding error of a block: no factor fails.
_MARGIN = 64.0


@dataclass(frozen=True, eq=False)
class Blocks:
    """Effects whose Hessian falls into blocks of one size; see :class:`pymc_hais.model.coordinates.fields.Field`."""

    owners: tuple[str, ...]
    part: slice | np.ndarray
    order: np.ndarray  # (J, b) of the K elements: those of each block

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of blocks and gradient."""
        return (*self.order.shape, self.order.shape[1]), self.order.shape

    def expand(self, terms: list[Any], values: Mapping[Any, Any], own: Sequence[Any], share: Any) -> list[Any]:
        """Write blocks and gradient."""
        point = pt.tensor("point", dtype=pytensor.config.floatX, shape=(self.order.size,))
        inside = {**values, **_split(point, own)}
        log_prior, log_rest = simplify_values(clone_replace(terms, inside, rebuild_strict=False))
        of_prior, of_rest = self._derive(log_prior, point), self._derive(log_rest, point)
        both = [prior + share * rest for prior, rest in zip(of_prior, of_rest, strict=True)]
        margin = np.eye(self.order.shape[1]) * _MARGIN * self.order.shape[1] * np.finfo(point.dtype).eps
        both[0] = both[0] * (1.0 + margin).astype(point.dtype)
        with quiet_compilation():
            # Without what has no gradients, such as powers written out.
            simple: Any = rewrite_graph(both, include=("canonicalize",))
        where = pt.concatenate([values[one].ravel() for one in own])
        replaced: dict[Any, Any] = {point: where.astype(point.dtype)}
        return list(clone_replace(list(simple), replaced, rebuild_strict=False))

    def build(self, expansion: list[Any], z: Any) -> tuple[Any, Any]:
        """Write the Newton step and the factors' inverse."""
        blocks, gradient = expansion
        (n_blocks, size), z = self.order.shape, z[self.order]
        root: Any
        if size == 1:
            root = pt.reciprocal(pt.sqrt(blocks[:, :, 0]))
            step, log_jacobian = root * (z + root * gradient), pt.log(root).sum()
        elif n_blocks == 1:
            root = InverseRoots()(blocks[0])
            step, log_jacobian = root.T @ (z[0] + root @ gradient[0]), pt.log(pt.diagonal(root)).sum()
        else:
            root = InverseRoots()(blocks)
            right = z + (root * gradient[:, None, :]).sum(axis=2)
            step = (root * right[:, :, None]).sum(axis=1)
            log_jacobian = pt.log(pt.diagonal(root, axis1=1, axis2=2)).sum()
        return step.ravel()[np.argsort(self.order.ravel())], log_jacobian

    def compute_step(self, expansion: list[np.ndarray], z: np.ndarray) -> np.ndarray:
        """Compute the ways from the point to x (n, K) of coordinates."""
        factor, newton = _compute_factor(*expansion)
        right = z[:, self.order] + newton
        step = np.empty_like(z)
        step[:, self.order] = _solve(factor.swapaxes(-1, -2), right)
        return step

    def compute_coordinates(self, expansion: list[np.ndarray], step: np.ndarray) -> np.ndarray:
        """Compute the coordinates (n, K) of ways from the point to x."""
        factor, newton = _compute_factor(*expansion)
        z = np.empty_like(step)
        z[:, self.order] = (factor.swapaxes(-1, -2) @ step[:, self.order][..., None])[..., 0] - newton
        return z

    def compute_log_jacobian(self, expansion: list[np.ndarray]) -> np.ndarray:
        """Compute log of dx / dz (n,)."""
        factor, _ = _compute_factor(*expansion)
        return -np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=(1, 2))

    def _derive(self, term: Any, point: Any) -> list[Any]:
        """Return blocks (J, b, b) of the negative Hessian, and the gradient (J, b), at a point."""
        chosen = np.zeros((self.order.shape[1], self.order.size), dtype=point.dtype)
        for i, column in enumerate(self.order.T):
            chosen[i, column] = 1.0
        gradient, product, direction = _differentiate(term, point)
        products: Any = vectorize_graph(product, {direction: pt.constant(chosen)})
        return [products[:, self.order].transpose(1, 2, 0), gradient[self.order]]


def find_blocks(frozen: Any, layout: Layout) -> list[Blocks]:
    """Find standard normals that the model multiplies by other variables, as one field; none if that is not for it.

    They are as many variables as the log density is proven to be concave in, together, as far as the blocks are small;
    and more elements than all other variables have.
    """
    try:
        found = _find(frozen, layout)
    except Exception as error:  # whatever an operation raises that has no gradient
        _log.debug("Effects keep the coordinates of the model", exc_info=error)
        return []
    n_elements = found.order.size if found else 0
    return [found] if found and n_elements >= max(_FEWEST, layout.n_dims - n_elements + 1) else []


def _find(frozen: Any, layout: Layout) -> Blocks | None:
    """Take one variable after another, the largest first."""
    sizes = dict(zip(layout.owners, layout.sizes.tolist(), strict=True))
    found: Blocks | None = None
    for owner in sorted(layout.owners, key=lambda one: -sizes[one]):
        if not _is_scaled(frozen, frozen[owner]):
            continue
        tried = tuple(one for one in layout.owners if one == owner or (found and one in found.owners))
        if sum(sizes[one] for one in tried) <= _MOST and is_frozen_concave_in(frozen, layout, tried):
            found = _part(frozen, layout, tried) or found
    return found


def _is_scaled(frozen: Any, rv: Any) -> bool:
    """Whether a variable is normal with known parameters, and multiplied by what depends on others."""
    if type(rv.owner.op).__name__ != "NormalRV" or frozen.rvs_to_transforms[rv] is not None:
        return False
    free = set(frozen.free_RVs)
    if not free.isdisjoint(ancestors(rv.owner.inputs)):
        return False
    of_own, of_others = {rv}, free - {rv}
    is_scaled = False
    for node in toposort([*frozen.observed_RVs, *frozen.potentials]):
        if of_own.isdisjoint(node.inputs) or isinstance(node.op, RandomVariable):
            if not of_others.isdisjoint(node.inputs):
                of_others.update(node.outputs)
            continue
        others = [one for one in node.inputs if one not in of_own]
        is_scaled |= not of_others.isdisjoint(others) and not _adds(node)
        of_own.update(node.outputs)
        if not of_others.isdisjoint(node.inputs):
            of_others.update(node.outputs)
    return is_scaled


def _adds(node: Any) -> bool:
    """Whether a node adds its inputs up, or lays them out."""
    if isinstance(node.op, Elemwise):
        return node.op.scalar_op.__class__.__name__ in ("Add", "Sub", "Second")
    return isinstance(node.op, Join | MakeVector | Subtensor | AdvancedSubtensor | IncSubtensor)


def _part(frozen: Any, layout: Layout, owners: tuple[str, ...]) -> Blocks | None:
    """Part variables by the Hessian at a point; None where the blocks are too large, or of several sizes."""
    spans = zip(layout.owners, layout.offsets[:-1], layout.offsets[1:], strict=True)
    part = np.concatenate([np.arange(begin, end) for one, begin, end in spans if one in owners])
    n_blocks, labels = connected_components(_find_pattern(frozen, layout, owners, part), directed=False)
    sizes = np.bincount(labels)
    if sizes.min() < sizes.max() or sizes[0] > _LARGEST:
        return None
    order = np.argsort(labels, kind="stable").reshape(n_blocks, -1)
    is_whole = part[-1] - part[0] + 1 == part.size
    return Blocks(owners, slice(int(part[0]), int(part[-1]) + 1) if is_whole else part, order)


def _find_pattern(frozen: Any, layout: Layout, owners: tuple[str, ...], part: np.ndarray) -> np.ndarray:
    """Return which elements of the Hessian (K, K) are not zero, or any others that make one block of many variables."""
    position = build_position(layout)
    values = values_at(frozen, layout, [position] * len(layout.owners))
    point = pt.tensor("point", dtype=position.dtype, shape=(part.size,))
    own = [frozen.rvs_to_values[frozen[owner]] for owner in owners]
    terms = clone_replace([frozen.varlogp, frozen.datalogp], {**values, **_split(point, own)}, rebuild_strict=False)
    _, product, direction = _differentiate(sum(simplify_values(terms)), point)
    function = compile_interpreted([position, point, direction], [product])
    rng = np.random.default_rng(0)
    x = rng.normal(0.0, 0.3, layout.n_dims).astype(layout.dtype)
    ones, some = np.ones(part.size, layout.dtype), rng.normal(size=part.size).astype(layout.dtype)
    of_ones, of_some = (function(x, x[part], one)[0] for one in (ones, some))
    if np.allclose(of_some, of_ones * some, rtol=_SAME, atol=0.0):
        return np.eye(part.size)
    if part.size > _MOST_PARTED:
        return np.ones((part.size, part.size))
    return np.array([function(x, x[part], column)[0] for column in np.eye(part.size, dtype=layout.dtype)]) != 0.0


def _differentiate(term: Any, point: Any) -> tuple[Any, Any, Any]:
    """Return the gradient, the product of the negative Hessian with a direction, and the direction."""
    gradient: Any = pytensor.grad(term, point, disconnected_inputs="ignore")
    direction = point.type("direction")
    product: Any = pytensor.grad(pt.sum(gradient * direction), point, disconnected_inputs="ignore")
    return gradient, -product, direction


def _split(point: Any, own: Sequence[Any]) -> dict[Any, Any]:
    """Return the value variables of a field as parts of its point."""
    ends = np.cumsum([int(np.prod(one.type.shape)) for one in own]).tolist()
    begins = [0, *ends[:-1]]
    return {
        one: one.type.filter_variable(point[begin:end].reshape(one.type.shape).astype(one.dtype))
        for one, begin, end in zip(own, begins, ends, strict=True)
    }


@np.errstate(all="ignore")  # of values beyond the range of floating point
def _compute_factor(blocks: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the factors L (n, J, b, b) of blocks, and L^-1 g (n, J, b); NaN where there are none."""
    factor = np.full_like(blocks, np.nan)
    try:
        factor = np.sqrt(blocks) if blocks.shape[-1] == 1 else np.linalg.cholesky(blocks)
    except np.linalg.LinAlgError:  # of one of them
        for place in np.ndindex(blocks.shape[:2]):
            with contextlib.suppress(np.linalg.LinAlgError):
                factor[place] = np.linalg.cholesky(blocks[place])
    return factor, _solve(factor, gradient)


@np.errstate(all="ignore")  # of values beyond the range of floating point
def _solve(matrices: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve for vectors (n, J, b)."""
    if right.shape[-1] == 1:
        return right / matrices[..., 0]
    return np.linalg.solve(matrices, right[..., None])[..., 0]
