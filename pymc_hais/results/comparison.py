"""Several results -> whether they are of the same data, and a table of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from xarray import DataTree

from pymc_hais.estimators import LogZEstimate

__all__ = ["check_quantity", "check_results", "check_same_data", "to_table"]


def check_results(results: Any) -> None:
    """Refuse what is no dictionary of results of sample_hais.

    Raises
    ------
    ValueError
        Saying what to pass.
    """
    if isinstance(results, Sequence) and not isinstance(results, str):
        names = ", ".join(f"{name!r}: ..." for name in "abcdefgh"[: len(results)])
        raise ValueError(
            f"`results` must be a dictionary that names the models, {{{names}}}; got a list without names."
        )
    # A result by itself is a mapping, too.
    if not isinstance(results, Mapping) or len(results) < 2 or isinstance(results, DataTree):
        got = f"{len(results)}" if isinstance(results, dict) else type(results).__name__
        raise ValueError(
            "`results` must be a dictionary of at least two results of sample_hais, such as {'a': idata_a, 'b': "
            f"idata_b}}; got {got}."
        )
    for name, idata in results.items():
        groups = _groups(idata)
        if "posterior" in groups and "log_marginal_likelihood" not in groups:
            raise ValueError(
                f"The result of {name!r} has posterior draws but no log Z, as those of pm.sample: call pm.sample_hais, "
                "or pymc_hais.bridge(model, idata), which estimates log Z from such draws."
            )


def _groups(idata: Any) -> list[str]:
    """Name the groups of a DataTree, or of ArviZ's older InferenceData."""
    found = idata.children if hasattr(idata, "children") else getattr(idata, "groups", ())
    return [str(name).lstrip("/") for name in (found() if callable(found) else found)]


def check_quantity(results: Mapping[str, Any]) -> None:
    """Refuse results whose log Z is no log marginal likelihood.

    Raises
    ------
    ValueError
        Naming the result and what its log Z is.
    """
    for name, idata in results.items():
        quantity = idata["log_marginal_likelihood"].attrs.get("quantity", "")
        if quantity and quantity != "log marginal likelihood":
            raise ValueError(
                f"log Z of {name!r} is a {quantity}: only log marginal likelihoods, of models with proper priors and "
                "without another model as reference, give probabilities of models."
            )


def check_same_data(results: Mapping[str, Any]) -> None:
    """Refuse results whose observed data differ; names do not matter, and a result may have none (a potential).

    Raises
    ------
    ValueError
        Naming the results and their data.
    """
    data = {name: _observed(idata) for name, idata in results.items()}
    known = {name: one for name, one in data.items() if one}
    first = next(iter(known), None)
    for name, one in known.items():
        if first is not None and not _are_equal(known[first], one):
            raise ValueError(
                f"{first!r} and {name!r} have different observed data ({_describe(known[first])}; {_describe(one)}): a "
                "Bayes factor compares models of the same data, on the same scale. If they are the same in another "
                "form, pass check_data=False."
            )


def _observed(idata: Any) -> dict[str, np.ndarray]:
    if "observed_data" not in idata.children:
        return {}
    return {str(name): np.asarray(array) for name, array in idata["observed_data"].data_vars.items()}


def _are_equal(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> bool:
    """Whether each array of one is an array of the other, under whatever name."""
    left = list(second.values())
    for array in first.values():
        same = next((i for i, other in enumerate(left) if np.array_equal(array, other, equal_nan=True)), None)
        if same is None:
            return False
        del left[same]
    return not left


def _describe(data: Mapping[str, np.ndarray]) -> str:
    return ", ".join(f"`{name}` {array.shape} with mean {np.nanmean(array):.4g}" for name, array in data.items())


def to_table(
    estimates: Mapping[str, LogZEstimate], order: np.ndarray, probability: np.ndarray, error: np.ndarray
) -> pd.DataFrame:
    """Build the table of :func:`pymc_hais.compare`, the most probable model first."""
    names = [list(estimates)[i] for i in order]
    factors = [estimates[name] - estimates[names[0]] for name in names]
    return pd.DataFrame(
        {
            "rank": np.arange(len(names)),
            "log_z": [estimates[name].value for name in names],
            "se": [estimates[name].se for name in names],
            "log_bayes_factor": [factor.value for factor in factors],
            "se_bayes_factor": [0.0, *(factor.se for factor in factors[1:])],
            "probability": probability[order],
            "se_probability": error[order],
            "warning": [not estimates[name].is_trustworthy for name in names],
        },
        index=pd.Index(names, name="model"),
    )
