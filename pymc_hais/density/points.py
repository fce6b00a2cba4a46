"""Models at one point: the density without free variables, and that of the prior where some variables are tested."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.traversal import ancestors

from pymc_hais.core.messages import quoted, shown
from pymc_hais.density.compiling import compile_interpreted
from pymc_hais.density.facts import discrete_names, improper_priors, unnormalised_priors
from pymc_hais.density.layout import Layout, on_position
from pymc_hais.density.outputs import build_unconstrain


def evaluate_fixed(model: pm.Model, var_names: Sequence[str] | None = None) -> tuple[float, dict[str, np.ndarray]]:
    """Return ``model.logp()``, and the Deterministics in ``var_names``, all of them by default.

    Raises ValueError for a log density that is not finite, and for names that the model does not have.
    """
    names = [one.name for one in model.deterministics]
    if unknown := [name for name in var_names or () if name not in names]:
        known = quoted(names) or "none"
        raise ValueError(f"`var_names` contains {quoted(unknown)}; the model's Deterministics are {known}.")
    chosen = [one for one in model.deterministics if var_names is None or one.name in var_names]
    log_density = float(model.compile_logp()({}))
    if not np.isfinite(log_density):
        terms = [name for name, value in model.point_logps({}).items() if not np.isfinite(value)]
        raise ValueError(
            f"log Z of this model, which has no free variables, is {log_density}: see whether the data of "
            f"{quoted(terms)} are possible under it."
        )
    values = model.compile_fn(model.replace_rvs_by_values(chosen))({}) if chosen else []
    return log_density, {one.name: np.asarray(value) for one, value in zip(chosen, values, strict=True)}


def evaluate_data_terms(model: pm.Model, names: Sequence[str] | None) -> dict[str, np.ndarray]:
    """Return the log density of each observation of the named observed variables, all of them by default."""
    chosen = [one for one in model.observed_RVs if names is None or one.name in names]
    values = model.compile_logp(vars=chosen, sum=False)({})
    return {one.name: np.asarray(value) for one, value in zip(chosen, values, strict=True)}


def start_of(frozen: pm.Model, layout: Layout) -> dict[Any, np.ndarray]:
    """Return the values that the free variables of a frozen model have where PyMC starts."""
    variables = [frozen[owner] for owner in layout.owners]
    position, outputs = on_position(frozen, layout, frozen.replace_rvs_by_values(variables))
    values = compile_interpreted([position], outputs)(layout.flatten_point(frozen.initial_point()))
    return dict(zip(variables, values, strict=True))


def read_point(model: pm.Model, point: object, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Return the values of the tested variables, NaN for elements that stay free.

    Raises ValueError for anything that is no point or names no free variable, and for a prior without an exact marginal
    density.
    """
    if not isinstance(point, Mapping) or not point:
        raise ValueError(
            "`point` must be a dictionary, name of a free variable -> the value to test, such as "
            f"{{{next(iter(shapes))!r}: 0.0}}; got {shown(point)}."
        )
    doubtful = {*improper_priors(model), *unnormalised_priors(model)}
    read = {}
    for name, value in point.items():
        if name not in shapes:
            what = "a Deterministic" if name in {one.name for one in model.deterministics} else "no free variable"
            raise ValueError(
                f"`point` names {name!r}, {what} of the model, so that its prior density is not known: write the model "
                f"with a free variable for what is tested. Its free variables are {quoted(shapes)}."
            )
        if name in doubtful or name in discrete_names(model):
            what = "is discrete" if name in discrete_names(model) else "has a prior that does not integrate to one"
            raise ValueError(f"`{name}` {what}: compare log Z of the two models instead.")
        upstream = set(ancestors([model[name]])) - {model[name]}
        if above := [rv.name for rv in model.free_RVs if rv in upstream]:
            raise ValueError(
                f"The prior of `{name}` depends on {quoted(above)}, and the Savage-Dickey ratio needs one that depends "
                "on nothing: compare log Z of the two models instead."
            )
        try:
            read[name] = np.broadcast_to(np.asarray(value, np.float64), shapes[name])
        except (TypeError, ValueError):
            raise ValueError(
                f"`point` must have a number or an array of shape {shapes[name]} for `{name}`; got {shown(value)}."
            ) from None
        if np.isnan(read[name]).all():
            raise ValueError(f"`point` tests no element of `{name}`: NaN leaves an element free.")
    return read


def locate(
    model: pm.Model, layout: Layout, point: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the flat dimensions (k,) that are tested, their values (k,), and the prior's log density there.

    ``others`` are values of all free variables in the support, for what is not tested.
    """
    values = dict(others)
    for name, tested_value in point.items():
        values[name] = np.where(np.isnan(tested_value), others[name], tested_value)
    unconstrain = build_unconstrain(model, layout, {name: value.shape for name, value in values.items()})
    with np.errstate(all="ignore"):
        flat = unconstrain({name: value[None] for name, value in values.items()})[0]
    variables = [model[name] for name in point]
    compiled = model.compile_logp(vars=variables, jacobian=True, sum=False)
    named = layout.unflatten(flat)
    log_priors = compiled({value.name: named[value.name] for value in model.value_vars})
    tested, total = [], 0.0
    for name, log_prior in zip(point, log_priors, strict=True):
        i = layout.owners.index(name)
        dimensions = np.arange(layout.offsets[i], layout.offsets[i + 1])
        is_tested = ~np.isnan(point[name])
        if not is_tested.all():
            if not np.shape(log_prior) == layout.shapes[i] == is_tested.shape:
                raise ValueError(f"The elements of `{name}` are not independent: test all of them, without NaN.")
            dimensions, log_prior = dimensions[is_tested.ravel()], np.asarray(log_prior)[is_tested]
        tested.append(dimensions)
        total += float(np.sum(log_prior))
    chosen = np.concatenate(tested)
    if not (np.isfinite(flat[chosen]).all() and np.isfinite(total)):
        raise ValueError(
            f"`point` is outside of the support of {quoted(point)} or on its boundary, where no density can be "
            "estimated: pass a point inside, or compare log Z of the two models."
        )
    return chosen, flat[chosen], total
