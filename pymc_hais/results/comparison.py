"""Several results -> whether they are of the same data, and a table of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from pymc_hais.estimators import LogZEstimate

__all__ = ["check_quantity", "check_same_data", "to_table"]


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
                "Bayes factor compares models of the same data, on the same scale."
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
