"""A model without free variables -> its log density and the values of its Deterministics."""

from collections.abc import Sequence

import numpy as np
import pymc as pm

from pymc_hais.core.messages import quoted


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
