"""Weighed models -> tables of them, and of the terms that they have."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from xarray import DataTree

from pymc_hais.core.messages import quoted
from pymc_hais.results.comparison.weighing import Weighed


def to_table(weighed: Weighed) -> pd.DataFrame:
    """Build the table of :func:`pymc_hais.compare`, the most probable model first."""
    estimates, order = weighed.estimates, weighed.order
    names = [list(estimates)[i] for i in order]
    factors = [estimates[name].bayes_factor(estimates[names[0]], check_data=False).log for name in names]
    return pd.DataFrame(
        {
            "rank": np.arange(len(names)),
            "log_z": [estimates[name].value for name in names],
            "se": [estimates[name].se for name in names],
            "log_bayes_factor": [factor.value for factor in factors],
            "se_bayes_factor": [0.0, *(factor.se for factor in factors[1:])],
            "probability": weighed.probability[order],
            "se_probability": weighed.error[order],
            "warning": [not estimates[name].is_trustworthy for name in names],
        },
        index=pd.Index(names, name="model"),
    )


def to_inclusion(weighed: Weighed, terms: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Build the table of :func:`pymc_hais.inclusion_probabilities`, given the models that have each term."""
    names, known = list(weighed.estimates), np.isfinite(weighed.probability)
    rows = []
    for members in terms.values():
        has = np.isin(names, list(members)) & known
        shares = [share[has].sum() / share[known].sum() for share in (weighed.prior, weighed.probability)]
        prior_odds, odds = (share / (1.0 - share) if share < 1.0 else np.inf for share in shares)
        error = weighed.simulated[:, has].sum(axis=1).std()
        rows.append((*shares, error, odds / prior_odds if prior_odds else np.nan))
    columns = ["prior", "probability", "se_probability", "bayes_factor"]
    return pd.DataFrame(rows, index=pd.Index(list(terms), name="term"), columns=columns)


def read_terms(results: Mapping[str, Any], terms: Any) -> dict[str, list[str]]:
    """Say which models have each term: as given, or by the variables that some of them have and others have not.

    Raises ValueError for terms of unknown models, of all models or of none; or no variable that tells the models apart.
    """
    if terms is None:
        terms = _terms_by_variable(results)
    if not isinstance(terms, Mapping) or not terms:
        raise ValueError(
            "`terms` must be a dictionary, name of a term -> names of the models that have it, such as "
            f"{{'slope': {list(results)[:1]}}}; got {terms!r}."
        )
    read = {str(term): [members] if isinstance(members, str) else list(members) for term, members in terms.items()}
    for term, members in read.items():
        unknown = [name for name in members if name not in results]
        if unknown or not 0 < len(set(members)) < len(results):
            what = (
                f"names {quoted(unknown)}, which `results` does not have"
                if unknown
                else "must name some of the models, and not all of them"
            )
            raise ValueError(f"Term {term!r} of `terms` {what}: the models are {list(results)}.")
    return read


def _terms_by_variable(results: Mapping[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, idata in results.items():
        if not isinstance(idata, DataTree) or "posterior" not in idata.children:
            raise ValueError(f"{name!r} has no posterior that would tell its variables: pass `terms`.")
        for variable in idata["posterior"].data_vars:
            found.setdefault(str(variable), []).append(name)
    terms = {variable: members for variable, members in found.items() if len(members) < len(results)}
    if not terms:
        raise ValueError(
            f"All models have the same variables ({quoted(found)}), which do not tell them apart: pass `terms`, the "
            "names of the models that have each term."
        )
    return terms
