"""Sandwiches of simulated data sets -> a DataTree."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from xarray import DataTree

from pymc_hais.estimators import Finding
from pymc_hais.inputs.labels import as_dataset
from pymc_hais.inputs.results import findings_as_json
from pymc_hais.opinions.sandwich import Sandwich

#: Data sets in a table for the screen.
_ROWS = 10


def rank(draws: Mapping[str, np.ndarray], truth: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the share of posterior draws (R, n, ...) below the true values (R, ...).

    Ties count half; for whole numbers, which have many ties, a random share counts, so that ranks are uniform.
    """
    rng = np.random.default_rng(0)
    ranks = {}
    for name, values in draws.items():
        true = truth[name][:, None]
        share = 0.5 if values.dtype.kind == "f" else rng.uniform(size=truth[name].shape)
        ranks[name] = np.mean(values < true, axis=1) + share * np.mean(values == true, axis=1)
    return ranks


def to_text(tree: DataTree) -> str:
    """Write the bounds of each data set as a table; of many data sets only those with the widest bounds."""
    table = tree["bounds"].to_dataset().to_dataframe()[["lower", "upper", "gap", "n_temperatures"]]
    shown = table if len(table) <= _ROWS else table.nlargest(_ROWS, "gap")
    which = "" if len(shown) == len(table) else f" (the widest {_ROWS} of {len(table)} data sets)"
    return f"Bounds of log Z in nats{which}:\n{shown.round(3).to_string()}"


def bounds_of(sandwiches: Sequence[Sandwich]) -> dict[str, np.ndarray]:
    """Return the bounds of log Z of R data sets, with their errors, each (R,)."""
    sides = {"lower": [one.lower.estimate for one in sandwiches], "upper": [one.upper for one in sandwiches]}
    return {
        f"{side}{suffix}": np.array([getattr(one, name) for one in estimates])
        for side, estimates in sides.items()
        for suffix, name in (("", "value"), ("_se", "mc_se"))
    }


def to_validation_tree(
    sandwiches: Sequence[Sandwich],
    ranks: Mapping[str, np.ndarray],
    truth: Mapping[str, np.ndarray],
    labels: Mapping[str, Any],
    findings: Sequence[Finding],
    attrs: Mapping[str, Any],
) -> DataTree:
    """Label bounds, ranks and true values, one of each for every ``data_set``."""
    bounds = bounds_of(sandwiches)
    gap = bounds["upper"] - bounds["lower"]
    n_temperatures = np.array([one.lower.rounds[-1].n_steps for one in sandwiches])
    groups = {"bounds": {**bounds, "gap": gap, "n_temperatures": n_temperatures}, "ranks": ranks, "prior": truth}
    coords = {**labels["coords"], "data_set": np.arange(len(gap))}
    settings = {"sample_dims": ["data_set"], "coords": coords, "dims": labels["dims"]}
    tree = DataTree.from_dict({f"/{name}": as_dataset(values, **settings) for name, values in groups.items()})
    tree.attrs.update(attrs)
    tree.attrs["mean_gap"] = f"{gap.mean():.3f} nats over {len(gap)} data sets"
    tree.attrs["findings"] = findings_as_json(findings)
    return tree
