"""Sandwiches of simulated data sets -> findings and a DataTree."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import kstest
from xarray import DataTree

from pymc_hais.core.messages import quoted
from pymc_hais.estimators import Finding
from pymc_hais.opinions.sandwich import Sandwich
from pymc_hais.results.datatree import as_dataset, findings_as_json
from pymc_hais.results.findings import say

#: Standard errors by which a lower bound may lie above the upper one, in the mean over the data sets.
_CROSSED = 4.0
#: Data sets that such a verdict takes.
_FEWEST = 5
#: Nats between the bounds that are worth a warning, in the mean.
_WIDE = 0.5
#: Data sets in a table for the screen.
_ROWS = 10
#: How often right posteriors are said to be off, over all parameters together.
_FALSE_ALARM = 1e-3


def rank(draws: Mapping[str, np.ndarray], truth: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the share of posterior draws (R, n, ...) below the true values (R, ...).

    Ties count half; of whole numbers, which have many, a random share of them counts, so that ranks are uniform.
    """
    rng = np.random.default_rng(0)
    ranks = {}
    for name, values in draws.items():
        true = truth[name][:, None]
        share = 0.5 if values.dtype.kind == "f" else rng.uniform(size=truth[name].shape)
        ranks[name] = np.mean(values < true, axis=1) + share * np.mean(values == true, axis=1)
    return ranks


def check_validation(sandwiches: Sequence[Sandwich], ranks: Mapping[str, np.ndarray]) -> Iterator[Finding]:
    """Say what the bounds and the ranks of simulated data sets show of the sampler on this model."""
    lower, lower_se, upper, upper_se = _bounds(sandwiches).values()
    gap = upper - lower
    # Each upper bound rests on one draw of the true values, which its own error does not count.
    error = float(np.std(gap, ddof=1) / np.sqrt(len(gap))) if len(gap) >= _FEWEST else np.inf
    error = max(error, float(np.sqrt(np.sum(upper_se**2 + lower_se**2))) / len(gap))
    if gap.mean() < -_CROSSED * error:
        yield say("bounds_crossed", gap=-gap.mean(), errors=-gap.mean() / error)
    if gap.mean() > _WIDE:
        yield say("wide_gap", gap=gap.mean(), widest=gap.max(), which=int(gap.argmax()))
    columns = [(name, column) for name, values in ranks.items() for column in values.reshape(len(values), -1).T]
    off = {name for name, column in columns if kstest(column, "uniform").pvalue < _FALSE_ALARM / len(columns)}
    if off:
        yield say("ranks", names=quoted(sorted(off)))


def to_text(tree: DataTree) -> str:
    """Write the bounds of each data set as a table, of many those whose bounds are widest."""
    table = tree["bounds"].to_dataset().to_dataframe()[["lower", "upper", "gap", "n_temperatures"]]
    shown = table if len(table) <= _ROWS else table.nlargest(_ROWS, "gap")
    which = "" if len(shown) == len(table) else f" (the widest {_ROWS} of {len(table)} data sets)"
    return f"Bounds of log Z in nats{which}:\n{shown.round(3).to_string()}"


def _bounds(sandwiches: Sequence[Sandwich]) -> dict[str, np.ndarray]:
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
    bounds = _bounds(sandwiches)
    gap = bounds["upper"] - bounds["lower"]
    n_temperatures = np.array([one.lower.rounds[-1].n_steps for one in sandwiches])
    groups = {"bounds": {**bounds, "gap": gap, "n_temperatures": n_temperatures}, "ranks": ranks, "prior": truth}
    sets = {"data_set": np.arange(len(gap))}
    tree = DataTree.from_dict(
        {
            f"/{name}": as_dataset(
                values, sample_dims=["data_set"], coords={**labels["coords"], **sets}, dims=labels["dims"]
            )
            for name, values in groups.items()
        }
    )
    tree.attrs.update(attrs)
    tree.attrs["mean_gap"] = f"{gap.mean():.3f} nats over {len(gap)} data sets"
    tree.attrs["findings"] = findings_as_json(findings)
    return tree
