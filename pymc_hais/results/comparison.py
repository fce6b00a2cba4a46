"""Several results: whether they are of the same data, tables of them, and draws of all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from xarray import DataArray, Dataset, DataTree

from pymc_hais.estimators import LogZEstimate
from pymc_hais.results.datatree import log_marginal_likelihood, opinions_group

_SAMPLE = ("chain", "draw")


def check_results(results: Any) -> None:
    """Refuse what is no dictionary of results of sample_hais."""
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
    """Refuse results whose log Z is no log marginal likelihood."""
    for name, idata in results.items():
        quantity = idata["log_marginal_likelihood"].attrs.get("quantity", "")
        if quantity and quantity != "log marginal likelihood":
            raise ValueError(
                f"log Z of {name!r} is a {quantity}: only log marginal likelihoods, of models with proper priors and "
                "without another model as reference, give probabilities of models."
            )


def check_same_data(results: Mapping[str, Any]) -> None:
    """Refuse results whose observed data differ; names do not matter, and a result may have none (a potential)."""
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


def check_variables(results: Mapping[str, Any]) -> None:
    """Refuse models that share no variable, and variables that differ between the models that share them."""
    groups = {name: idata["posterior"].to_dataset() for name, idata in results.items()}
    if any("model" in group.data_vars for group in groups.values()):
        raise ValueError(
            "The result of average says in `model` which model a draw is from: give your `model` another name."
        )
    if not _shared(groups):
        has = "; ".join(f"{name!r} has {', '.join(map(str, group.data_vars))}" for name, group in groups.items())
        raise ValueError(f"The models share no variable, so that there is nothing to average: {has}.")
    for variable in _shared(groups):
        _check_shape(variable, groups)


def _check_shape(variable: str, groups: Mapping[str, Dataset]) -> None:
    (first, one), *others = ((name, group[variable].isel(chain=0, draw=0, drop=True)) for name, group in groups.items())
    for name, other in others:
        same = one.dims == other.dims and one.shape == other.shape
        if same and all(one[dim].equals(other[dim]) for dim in one.dims):
            continue
        what = "coordinates" if same else "shape"
        sizes = [_sizes(array) for array in (one, other)]
        raise ValueError(
            f"`{variable}` has another {what} in {first!r} ({sizes[0]}) than in {name!r} ({sizes[1]}), so that it "
            "cannot be averaged: give it another name in one of the models, or leave it out of a result by `var_names`."
        )


def _sizes(array: DataArray) -> str:
    return " x ".join(f"{size} ({dim})" for dim, size in array.sizes.items()) or "a number"


def mix(
    results: Mapping[str, DataTree], chosen: np.ndarray, probability: np.ndarray, rng: np.random.Generator
) -> DataTree:
    """Take draws of the chosen models (C, P), none of a model twice before all have been taken.

    The probabilities (M,) of the models are written down with the result.
    """
    rows = {}
    for i, (name, idata) in enumerate(results.items()):
        sizes = idata["posterior"].sizes
        available, needed = sizes["chain"] * sizes["draw"], int(np.sum(chosen == i))
        rounds = [rng.permutation(available) for _ in range(-(-needed // available))]
        rows[name] = np.concatenate([np.zeros(0, dtype=int), *rounds])[:needed]
    shares = [None if np.isnan(one) else float(one) for one in probability]
    attrs = {"model_probabilities": json.dumps(dict(zip(results, shares, strict=True)))}
    groups = ["posterior"]
    if all(_fits(idata) for idata in results.values()):
        groups.append("posterior_predictive")
    tree = DataTree.from_dict(
        {
            f"/{group}": _mix_group({name: idata[group].to_dataset() for name, idata in results.items()}, rows, chosen)
            for group in groups
        }
    )
    for node in tree.subtree:
        node.attrs = attrs
    return tree


def _fits(idata: DataTree) -> bool:
    """Whether there are predictive draws, one for each draw of the posterior."""
    if "posterior_predictive" not in idata.children:
        return False
    return all(idata["posterior_predictive"].sizes.get(dim) == idata["posterior"].sizes[dim] for dim in _SAMPLE)


def _mix_group(groups: Mapping[str, Dataset], rows: Mapping[str, np.ndarray], chosen: np.ndarray) -> Dataset:
    """Put rows of the models' draws where their model was chosen."""
    first = next(iter(groups.values()))
    variables = {}
    for name in _shared(groups):
        arrays = [group[name].transpose(*_SAMPLE, ...) for group in groups.values()]
        if any(array.dims != arrays[0].dims or array.shape[2:] != arrays[0].shape[2:] for array in arrays):
            continue  # of predictive draws; those of the posterior have been checked
        values = np.empty((chosen.size, *arrays[0].shape[2:]), dtype=np.result_type(*arrays))
        for i, (array, taken) in enumerate(zip(arrays, rows.values(), strict=True)):
            values[chosen.ravel() == i] = array.values.reshape(-1, *array.shape[2:])[taken]
        variables[name] = (arrays[0].dims, values.reshape(*chosen.shape, *values.shape[1:]))
    names = np.array(list(groups), dtype=str)
    kept = {dim for dims, _ in variables.values() for dim in dims} - set(_SAMPLE)
    coords = {dim: first.coords[dim] for dim in kept if dim in first.coords}
    samples = {dim: np.arange(size) for dim, size in zip(_SAMPLE, chosen.shape, strict=True)}
    return Dataset({**variables, "model": (_SAMPLE, names[chosen])}, {**coords, **samples})


def _shared(groups: Mapping[str, Dataset]) -> list[str]:
    """Name the variables of all groups."""
    first, *others = groups.values()
    return [str(name) for name in first.data_vars if all(name in other.data_vars for other in others)]


def estimates(idata: DataTree) -> pd.DataFrame:
    """Tabulate log Z by every method that a run has: a second method that fails differently, and agrees, earns trust.

    Thermodynamic integration and stepping stones come with every run; ``sample_hais(estimators="all")`` asks for a
    bridge from a fit to the draws, linked importance sampling, and annealing back from the final particles as well.

    The last one is no bound on real data: its particles are only as good as the run that they come from.  On data that
    are simulated :func:`validate` has exact draws, and bounds.

    Parameters
    ----------
    idata : DataTree
        Result of :func:`sample_hais`.

    Returns
    -------
    DataFrame
        A row for each ``method``, the reported estimate first: ``value``, ``se``, ``lower`` and ``upper`` (95%) in
        nats, and ``agrees``, whether it differs from the first row by no more than the two 95% intervals allow.

    Raises
    ------
    ValueError
        If ``idata`` holds no estimate of log Z.

    References
    ----------
    .. [1] Gelman, A. and Meng, X.-L. (1998). Simulating normalizing constants: from importance sampling to bridge
       sampling to path sampling. Statistical Science 13, 163-185.
    .. [2] Xie, W., Lewis, P. O., Fan, Y., Kuo, L. and Chen, M.-H. (2011). Improving marginal likelihood estimation for
       Bayesian phylogenetic model selection. Systematic Biology 60, 150-160.
    .. [3] Meng, X.-L. and Wong, W. H. (1996). Simulating ratios of normalizing constants via a simple identity.
       Statistica Sinica 6, 831-860.
    .. [4] Neal, R. M. (2005). Estimating ratios of normalizing constants using linked importance sampling.
       arXiv:math/0511216.
    .. [5] Bennett, C. H. (1976). Efficient estimation of free energy differences from Monte Carlo data. Journal of
       Computational Physics 22, 245-268.
    """
    first = log_marginal_likelihood(idata)
    has_others = "estimates" in idata.children
    rows = idata["estimates"].to_dataset() if has_others else opinions_group(first, ())
    table = pd.DataFrame(
        {name: rows[name].values for name in ("value", "se", "lower", "upper")},
        index=pd.Index([str(name) for name in rows["method"].values], name="method"),
    )
    below, above = table["value"] - table["lower"], table["upper"] - table["value"]
    difference = table["value"] - first.value
    allowed = np.where(
        difference > 0, np.hypot(below, first.upper - first.value), np.hypot(above, first.value - first.lower)
    )
    table["agrees"] = np.abs(difference) <= allowed
    return table
