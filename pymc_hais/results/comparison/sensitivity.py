"""Estimates under several priors -> a table of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pymc_hais.estimators import LogZEstimate


def to_sensitivity(
    values: Mapping[str, Sequence[Any]], estimates: Sequence[LogZEstimate], against: LogZEstimate
) -> pd.DataFrame:
    """Build the table of :func:`pymc_hais.prior_sensitivity`: a row for each value of the containers."""
    factors = [estimate.bayes_factor(against).log for estimate in estimates]
    labels = [[_label(one) for one in column] for column in values.values()]
    names = list(values)
    table = pd.DataFrame(
        {
            "log_z": [estimate.value for estimate in estimates],
            "se": [estimate.se for estimate in estimates],
            "log_bayes_factor": [factor.value for factor in factors],
            "lower": [factor.lower for factor in factors],
            "upper": [factor.upper for factor in factors],
            "warning": [not estimate.is_trustworthy for estimate in estimates],
        },
        index=pd.MultiIndex.from_arrays(labels, names=names) if len(names) > 1 else pd.Index(labels[0], name=names[0]),
    )
    same = [i for i, estimate in enumerate(estimates) if estimate is against]
    table.iloc[same, table.columns.get_indexer(["log_bayes_factor", "lower", "upper"])] = 0.0
    return table


def _label(value: Any) -> Any:
    """Write a value of a container as a label of a row: a number as it is, an array in words."""
    return np.asarray(value).item() if np.size(value) == 1 else np.array2string(np.asarray(value), threshold=6)
