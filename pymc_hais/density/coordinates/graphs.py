"""A density's value variables as graphs of the coordinates of a chart: what :class:`Chart` computes in numbers."""

from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compat import rewrite_pregrad
from pymc_hais.density.coordinates.centring import find_conditionals, times_site
from pymc_hais.density.coordinates.chart import Chart
from pymc_hais.density.layout import Layout, values_at
from pymc_hais.latent.fields import at_points, expand, open_sums


class Recentred(NamedTuple):
    """A model in other coordinates."""

    terms: list[Any]  # log prior and the rest, as graphs of the coordinates
    values: dict[Any, Any]  # value variables -> graphs of the coordinates
    log_jacobian: Any  # of dx / dz
    sites: list[Any]  # symbolic arguments
    no_sites: list[np.ndarray]  # their values where there are no data


def recentre(
    frozen: pm.Model, layout: Layout, chart: Chart | None, coordinates: TensorVariable, terms: list[Any]
) -> Recentred:
    """Write a model's value variables as graphs of the coordinates (D,); without a chart they are the same.

    Parameters
    ----------
    terms : list of variable
        Log prior and the rest, as graphs of the value variables.
    """
    if chart is None:
        values = values_at(frozen, layout, [coordinates] * len(layout.owners))
        return Recentred(_put_in(terms, values), values, pt.zeros((), dtype=coordinates.dtype), [], [])
    no_sites = [one.astype(coordinates.dtype) for one in chart.without_sites().arrays]
    sites = [pt.tensor(f"site_{i}", dtype=one.dtype, shape=one.shape) for i, one in enumerate(no_sites)]
    values, of_normals = _recentre_normals(frozen, layout, chart, coordinates, sites)
    terms, chains, with_chains = open_sums(frozen, chart.fields, terms, values)
    if chart.fixes_predictors:  # so that what their expansions take from the rest is one with it
        terms = list(rewrite_pregrad(terms))
    points = at_points(frozen, layout, chart.fields, sites[1])
    of_fields = _recentre_fields(frozen, chart, coordinates, sites, terms, chains, with_chains, points)
    values = {value_var: with_chains[value_var] for value_var in values}
    log_jacobian = (of_normals + of_fields).astype(coordinates.dtype)
    return Recentred(_put_in(terms, with_chains), values, log_jacobian, sites, no_sites)


def _put_in(terms: list[Any], values: dict[Any, Any]) -> list[Any]:
    replaced: Any = clone_replace(terms, values, rebuild_strict=False)
    return list(replaced)


def _recentre_normals(
    frozen: pm.Model, layout: Layout, chart: Chart, coordinates: TensorVariable, sites: list[Any]
) -> tuple[dict[Any, Any], Any]:
    """Write what is mixed or has parents, and the fields as their points; return the Jacobian's share, too."""
    found = find_conditionals(frozen, layout, chart.fields)
    points = {field.owner for field in chart.fields}
    position = coordinates
    if len(mixed := chart.mixed):
        position = pt.set_subtensor(coordinates[mixed], (sites[2] * coordinates[mixed]).sum(axis=1))
    values: dict[Any, Any] = {}
    log_jacobian: Any = pt.zeros((), dtype=position.dtype)
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


def _recentre_fields(
    frozen: pm.Model,
    chart: Chart,
    coordinates: TensorVariable,
    sites: list[Any],
    terms: list[Any],
    chains: dict[str, Any],
    values: dict[Any, Any],
    points: dict[Any, Any],
) -> Any:
    """Write each field, one after another, in place of its point; return the Jacobian's share."""
    own = {field.owner: frozen.rvs_to_values[frozen[field.owner]] for field in chart.fields}
    log_jacobian: Any = pt.zeros((), dtype=coordinates.dtype)
    for field in chart.fields:
        chain = chains[field.owner]
        point = values[chain]
        arrays = expand(field, terms, values, points, own[field.owner], chain, sites[0][field.part])
        root, step = field.precision.write_way(arrays, coordinates[field.part])
        whole = point + step.reshape(point.type.shape).astype(point.dtype)
        values[chain] = chain.type.filter_variable(whole)
        if field.is_summed:
            parts = field.differences(pt, whole.ravel()).reshape(point.type.shape)
            values[own[field.owner]] = own[field.owner].type.filter_variable(parts)
        log_jacobian = log_jacobian - pt.log(root).sum()
    return log_jacobian
