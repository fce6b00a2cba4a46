"""The map between a model's flat vector and the coordinates of its particles: in numbers, and as graphs."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compat import rewrite_pregrad
from pymc_hais.density.compiling import compile_interpreted, untraced
from pymc_hais.density.containers import arguments_for, freeze_with_inputs
from pymc_hais.density.coordinates.centring import find_conditionals, longest_line, times_site
from pymc_hais.density.coordinates.tails import Tails, find_tails
from pymc_hais.density.layout import Layout, build_layout, build_position, on_position, values_at
from pymc_hais.density.proofs.concavity import is_concave_in
from pymc_hais.latent.fields import Field, at_points, expand, find_fields, open_sums, split, value_vars
from pymc_hais.latent.precisions import Factor

_log = logging.getLogger("pymc.hais")
#: Flat vectors (n, D) and further arguments -> arrays (n, ...).
type Compiled = Callable[..., list[np.ndarray]]
#: A width must exceed this, as a share of one plus the size of the point: a smaller one changes no curvature.
_LEAST_WIDTH = 1e-3
#: Flat vectors that tell whether averages over widths are finite.
_TRIED = 100
#: Graphs of one flat vector and of further arguments; that vector, and the arguments.
type Written = tuple[list[Any], Any, list[Any]]


@dataclass(frozen=True)
class Sites:
    """What stands for the data: natural parameters of a normal for every coordinate, both 0 for none.

    Of the elements of a field they are the point around which the density is expanded, and the precision of a normal
    around it over which the likelihood's slopes and curvatures are averaged, of running sums where these are the chain:
    infinite for the point alone, and 0 where the data have no share.  Of the point elements that are neither of one nor
    moved have a part as well: beside a field these are a matrix times their coordinates.
    """

    precision: np.ndarray  # (D,) p
    shift: np.ndarray  # (D,) h, p times the mean
    mix: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))  # (K, K) unit lower triangular

    @property
    def arrays(self) -> list[np.ndarray]:
        """Return all, in the order of a density's tuned data; the matrix where there is one."""
        return [self.precision, self.shift, *([self.mix] if self.mix.size else [])]


@dataclass(frozen=True)
class Chart:
    """The map from the coordinates z to a model's flat vector x, and back."""

    is_moved: np.ndarray  # of bool (D,): which elements have parents; the others stay as they are, but for the fields
    depth: int  # the longest line of parents
    fields: tuple[Field, ...]  # each given the elements before, moved or not
    tails: Tails  # of elements that are neither moved nor of a field; none beside fields
    data: Mapping[str, np.ndarray]  # of the containers that may vary; the functions below take them last
    compute_moments: Compiled
    compute_expansions: tuple[Compiled, ...]  # of the fields, each given the sites as well

    def with_data(self, values: Mapping[str, np.ndarray]) -> Chart:
        """Return the chart for other data."""
        return replace(self, data={name: values[name] for name in self.data})

    def moments(self, x: np.ndarray) -> list[np.ndarray]:
        """Return location and log scale (n, D) of each element's prior given its parents; zeros where it has none."""
        return self.compute_moments(x, *self.data.values())

    def expansion(self, i: int, x: np.ndarray, sites: Sites) -> list[np.ndarray]:
        """Return the arrays (n, ...) of a field's precision, given all that is before it."""
        return self.compute_expansions[i](x, sites.precision, sites.shift, *self.data.values())

    def without_sites(self) -> Sites:
        """Return the sites of no data: all that can be is non-centred."""
        return Sites(np.zeros(self.is_moved.size), np.zeros(self.is_moved.size), np.eye(len(self.mixed)))

    @property
    def fixes_predictors(self) -> bool:
        """Whether independent normal variables, or areas with neighbours, are a field."""
        return any(one.fixes_predictor for one in self.fields)

    @property
    def field_owners(self) -> list[str]:
        """Names of the variables that are fields."""
        return [owner for one in self.fields for owner in one.owners]

    @functools.cached_property
    def is_field(self) -> np.ndarray:
        """Which elements are of a field, of bool (D,)."""
        found = np.zeros(self.is_moved.size, bool)
        for one in self.fields:
            found[one.part] = True
        return found

    @functools.cached_property
    def mixed(self) -> np.ndarray:
        """Which elements the matrix mixes; none where there is no field."""
        return np.flatnonzero(~self.is_moved & ~self.is_field) if self.fields else np.zeros(0, int)

    def to_model(self, z: np.ndarray, sites: Sites, with_fields: bool = True) -> np.ndarray:
        """Return the flat vectors x (n, D) of coordinates z; without ``with_fields``, fields are at their points."""
        x = first = self.tails.to_values(self._mix(z, sites.mix))
        for _ in range(self.depth):
            mean, log_sd = self._normal(x, sites)
            x = np.where(self.is_moved, mean + np.exp(log_sd) * z, first)
        for i, chain in enumerate(self.fields if with_fields else ()):
            displacement = chain.precision.compute_displacement(self._factor(i, x, sites), z[:, chain.part])
            x = np.array(x)
            x[:, chain.part] = sites.shift[chain.part] + chain.differences(np, displacement)
        return x if with_fields else np.where(self.is_field, sites.shift, x)

    def to_coordinates(self, x: np.ndarray, sites: Sites, with_fields: bool = True) -> np.ndarray:
        """Return the coordinates z (n, D) of flat vectors x; without ``with_fields``, zero in those of fields."""
        mean, log_sd = self._normal(x, sites)
        z = np.where(self.is_moved, (x - mean) * np.exp(-log_sd), self._mix(x, np.linalg.inv(sites.mix)))
        for i, chain in enumerate(self.fields if with_fields else ()):
            displacement = chain.sums(x[:, chain.part] - sites.shift[chain.part])
            z[:, chain.part] = chain.precision.compute_coordinates(self._factor(i, x, sites), displacement)
        return self.tails.to_coordinates(z if with_fields else np.where(self.is_field, 0.0, z))

    @np.errstate(all="ignore")  # of points beyond the range of floating point
    def with_widths(self, sites: Sites, x: np.ndarray) -> Sites:
        """Average the likelihood of fields over the widths of flat vectors (n, D) around their points.

        Not where a width is hardly a distance in single precision, nor for a field whose likelihood is not finite
        that far from the point.  A field with a dense matrix averages nothing.
        """
        for i, one in enumerate(self.fields):
            if one.is_dense:
                continue
            point = one.sums(sites.shift[one.part])
            width = np.sqrt(np.mean((one.sums(x[:, one.part]) - point) ** 2, axis=0))
            precision = sites.precision.copy()
            precision[one.part] = np.where(width > _LEAST_WIDTH * (1.0 + np.abs(point)), width**-2.0, np.inf)
            tried = replace(sites, precision=precision)
            if all(np.isfinite(array).all() for array in self.expansion(i, x[:_TRIED], tried)):
                sites = tried
        return sites

    def log_jacobian(self, x: np.ndarray, sites: Sites) -> np.ndarray:
        """Return log of dx / dz (n,) at flat vectors x."""
        total = np.sum(np.where(self.is_moved, self._normal(x, sites)[1], 0.0), axis=1) + self.tails.log_slope(x)
        for i in range(len(self.fields)):
            total = total - np.log(self._factor(i, x, sites).diagonal).sum(axis=1)
        return total

    def _mix(self, x: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        mixed = np.array(x)
        mixed[:, self.mixed] = x[:, self.mixed] @ matrix.T
        return mixed

    def _normal(self, x: np.ndarray, sites: Sites) -> tuple[np.ndarray, np.ndarray]:
        location, log_scale = self.moments(x)
        own = (np.where(self.is_moved, one, 0.0) for one in (sites.precision, sites.shift))
        return times_site(np, location, log_scale, *own)

    def _factor(self, i: int, x: np.ndarray, sites: Sites) -> Factor:
        return self.fields[i].precision.compute_factor(self.expansion(i, x, sites))


@untraced
def build_chart(
    model: pm.Model,
    layout: Layout,
    containers: Mapping[str, np.ndarray] | None = None,
    normals: bool = False,
    with_tails: bool = True,
) -> Chart | None:
    """Find elements whose prior has parents, fields and long tails, given data that may vary; None if there are none.

    ``normals`` is as :func:`pymc_hais.latent.fields.find_fields` takes it.  ``with_tails`` says whether long tails are
    looked for.
    """
    containers = containers or {}
    frozen, targets = freeze_with_inputs(model, list(containers))
    fields = _find_fields(model, frozen, layout, normals)
    expansions = _write_expansions(frozen, layout, fields)
    if normals and len(expansions) < len(fields):  # the chains may be differentiated twice nevertheless
        return build_chart(model, layout, containers, with_tails=with_tails)
    fields = fields[: len(expansions)]
    found = find_conditionals(frozen, layout, fields)
    has_own = with_tails and not fields
    tails = find_tails(frozen, layout, [owner for owner in layout.owners if has_own and owner not in found])
    if not found and not fields and not tails:
        return None
    given = dict(zip(targets, arguments_for(containers), strict=True))
    return Chart(
        is_moved=np.repeat([owner in found for owner in layout.owners], layout.sizes),
        depth=longest_line(frozen, found),
        fields=tuple(fields),
        tails=tails,
        data=containers,
        compute_moments=_compile(_write_moments(frozen, layout, found), layout, given),
        compute_expansions=tuple(_compile(one, layout, given) for one in expansions),
    )


def has_normal_fields(model: pm.Model) -> bool:
    """Whether independent normal variables of a model, or areas with neighbours, can be a field, if asked for."""
    frozen, _ = freeze_with_inputs(model, [])
    return any(one.fixes_predictor for one in _find_fields(model, frozen, build_layout(model), normals=True))


def _find_fields(model: pm.Model, frozen: pm.Model, layout: Layout, normals: bool) -> list[Field]:
    """Find the fields whose coordinates pay: those of innovations, short chains and predictors with one hill only."""
    return [
        one
        for one in find_fields(frozen, layout, normals)
        if (one.is_long and not one.is_summed and not one.fixes_predictor) or is_concave_in(model, layout, one.owners)
    ]


def _compile(written: Written, layout: Layout, given: Mapping[Any, Any]) -> Compiled:
    """Compile vectors for flat vectors (n, D), the arguments, and what is given in place of data containers."""
    outputs, position, arguments = written
    n_axes = [one.ndim for one in outputs]
    positions = pt.matrix("positions", dtype=position.dtype, shape=(None, layout.n_dims))
    replaced: Any = clone_replace(outputs, given, rebuild_strict=False) if given else outputs
    batched: Any = vectorize_graph(replaced, {position: positions})
    rest = [*arguments, *given.values()]
    function = compile_interpreted([positions, *rest], list(batched))

    def compute(x: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
        # Sites, and parameters of a fit, are of double precision: a model of single precision rounds them.  A container
        # of integers refuses real numbers, whose fractions would be lost.
        pairs = ((np.asarray(value), one.dtype) for value, one in zip(values, rest, strict=True))
        own = (value.astype(dtype, casting="same_kind", copy=False) for value, dtype in pairs)
        arrays = function(np.ascontiguousarray(x, dtype=position.dtype), *own)
        # What depends on no element has no axis of particles.
        return [
            np.broadcast_to(one, (len(x), *one.shape[one.ndim - n :])) for one, n in zip(arrays, n_axes, strict=True)
        ]

    return compute


def _write_expansions(frozen: pm.Model, layout: Layout, fields: Sequence[Field]) -> list[Written]:
    """Write the arrays of each field as graphs of the flat vector and the sites; fields after it are at their points.

    Returns none where an operation of the model cannot be differentiated twice.
    """
    written: list[Written] = []
    try:
        for i, one in enumerate(fields):
            position = build_position(layout)
            sites = [position.type(name) for name in ("precision", "shift")]  # nothing here is mixed
            later = {owner for chain in fields[i:] for owner in chain.owners}
            values = values_at(frozen, layout, [sites[1] if owner in later else position for owner in layout.owners])
            terms, chains, values = open_sums(frozen, fields, [frozen.varlogp, frozen.datalogp], values)
            points = at_points(frozen, layout, fields, sites[1])
            arrays = expand(frozen, one, terms, values, points, chains[one], sites[0][one.part])
            written.append((arrays, position, sites))
    except Exception as error:  # whatever an operation raises that has no gradient
        _log.debug("Fields keep the coordinates of the model", exc_info=error)
        return []
    return written


def _write_moments(frozen: pm.Model, layout: Layout, found: dict[str, Any]) -> Written:
    """Write location and log scale of all elements as graphs of the flat vector."""
    zeros = [(pt.zeros(shape), pt.zeros(shape)) for shape in layout.shapes]
    pairs = [found.get(owner, zero) for owner, zero in zip(layout.owners, zeros, strict=True)]
    flat = [
        pt.concatenate([pt.broadcast_to(m, shape).ravel() for m, shape in zip(moments, layout.shapes, strict=True)])
        for moments in zip(*pairs, strict=True)
    ]
    position, outputs = on_position(frozen, layout, flat)
    return outputs, position, []


# As graphs -------------------------------------------------------------------------------------------------


def recentre(
    frozen: pm.Model, layout: Layout, chart: Chart | None, coordinates: TensorVariable, terms: list[Any]
) -> tuple[list[Any], dict[Any, Any], Any, list[Any], list[np.ndarray]]:
    """Write a model's value variables as graphs of the coordinates (D,); without a chart they are the same.

    The terms are log prior and the rest, as graphs of the value variables.  Returns the terms as graphs of the
    coordinates, such graphs by value variable, log of dx / dz, the symbolic sites, and their values without data.
    """
    if chart is None:
        values = values_at(frozen, layout, [coordinates] * len(layout.owners))
        return clone_replace(terms, values, rebuild_strict=False), values, pt.zeros((), dtype=coordinates.dtype), [], []
    no_sites = [one.astype(coordinates.dtype) for one in chart.without_sites().arrays]
    sites = [pt.tensor(f"site_{i}", dtype=one.dtype, shape=one.shape) for i, one in enumerate(no_sites)]
    values, of_normals = _recentre_normals(frozen, layout, chart, coordinates, sites)
    terms, chains, written = open_sums(frozen, chart.fields, terms, values)
    if chart.fixes_predictors:  # so that what their expansions take from the rest is one with it
        terms = list(rewrite_pregrad(terms))
    points = at_points(frozen, layout, chart.fields, sites[1])
    of_fields: Any = pt.zeros((), dtype=coordinates.dtype)
    for one in chart.fields:  # in place of its point
        arrays = expand(frozen, one, terms, written, points, chains[one], sites[0][one.part])
        root, displacement = one.precision.write_displacement(arrays, coordinates[one.part])
        moves = split(displacement, [written[chain] for chain in chains[one]])
        for chain, moved in zip(chains[one], moves, strict=True):
            written[chain] = chain.type.filter_variable(written[chain] + moved)
        if one.is_summed:
            (value_var,), whole = value_vars(frozen, one), written[chains[one][0]]
            parts = one.differences(pt, whole.ravel()).reshape(whole.type.shape)
            written[value_var] = value_var.type.filter_variable(parts)
        of_fields = of_fields - pt.log(root).sum()
    values = {value_var: written[value_var] for value_var in values}
    log_jacobian = (of_normals + of_fields).astype(coordinates.dtype)
    return clone_replace(terms, written, rebuild_strict=False), values, log_jacobian, sites, no_sites


def _recentre_normals(
    frozen: pm.Model, layout: Layout, chart: Chart, coordinates: TensorVariable, sites: list[Any]
) -> tuple[dict[Any, Any], Any]:
    """Write what is mixed or has parents, and the fields as their points; return the Jacobian's share, too."""
    found = find_conditionals(frozen, layout, chart.fields)
    points = chart.field_owners
    position, log_jacobian = chart.tails.write(coordinates)
    if len(mixed := chart.mixed):
        position = pt.set_subtensor(coordinates[mixed], (sites[2] * coordinates[mixed]).sum(axis=1))
    values: dict[Any, Any] = {}
    for i, (owner, shape) in enumerate(zip(layout.owners, layout.shapes, strict=True)):
        value_var = frozen.rvs_to_values[frozen[owner]]
        part = slice(layout.offsets[i], layout.offsets[i + 1])
        value = (sites[1] if owner in points else position)[part].reshape(shape)
        if owner in found:
            moments = clone_replace(list(found[owner]), values, rebuild_strict=False)
            mean, log_sd = times_site(pt, *moments, *(one[part].reshape(shape) for one in sites[:2]))
            log_sd = pt.broadcast_to(log_sd, shape)
            value, log_jacobian = mean + pt.exp(log_sd) * value, log_jacobian + log_sd.sum()
        values[value_var] = value_var.type.filter_variable(value.astype(value_var.dtype))
    return values, log_jacobian
