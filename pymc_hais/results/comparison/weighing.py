"""Results, files, estimates and numbers that a user compares -> the probability of each model."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from xarray import DataTree

from pymc_hais.core.messages import shown
from pymc_hais.core.weights import normalise
from pymc_hais.estimators import LogZEstimate, to_estimate
from pymc_hais.inputs.arguments import check_flag
from pymc_hais.inputs.results import EVIDENCE, data_of, log_marginal_likelihood, open_result
from pymc_hais.results.findings.compared import check_comparison
from pymc_hais.results.report import log_findings


def _check_mapping(results: Any) -> None:
    """Refuse anything but a dictionary of at least two results."""
    if isinstance(results, Sequence) and not isinstance(results, str):
        names = ", ".join(f"{name!r}: ..." for name in "abcdefgh"[: len(results)])
        raise ValueError(
            f"`results` must be a dictionary that names the models, {{{names}}}; got a list without names."
        )
    # A result by itself is a mapping, too.
    if not isinstance(results, Mapping) or len(results) < 2 or isinstance(results, DataTree):
        got = f"{len(results)}" if isinstance(results, dict) else type(results).__name__
        raise ValueError(
            "`results` must be a dictionary of at least two results of sample_hais, or estimates of log Z, such as "
            f"{{'a': idata_a, 'b': idata_b}}; got {got}."
        )


def _read(name: Any, given: Any) -> tuple[LogZEstimate, Any]:
    """Return the estimate and the DataTree of one model's entry."""
    if isinstance(given, str | os.PathLike):
        given = open_result(given)
    if isinstance(given, tuple) and len(given) == 2:
        return _read_pair(name, *given)
    if isinstance(given, LogZEstimate):
        return given, None
    if is_number(given):
        return _from_number(name, given), None
    groups = _groups(given)
    if "posterior" in groups and EVIDENCE not in groups:
        raise ValueError(
            f"The result of {name!r} has posterior draws but no log Z, as those of pm.sample: call pm.sample_hais, or "
            f"estimate log Z from the draws, {{{name!r}: (idata, pymc_hais.bridge(model, idata))}}."
        )
    if EVIDENCE not in groups:
        raise ValueError(
            f"The result of {name!r} must be the whole DataTree that sample_hais returns, the name of its file, an "
            f"estimate of log Z, a number, or (log Z, its standard error); got {shown(given)}."
        )
    return log_marginal_likelihood(given), given


def _read_pair(name: Any, first: Any, second: Any) -> tuple[LogZEstimate, Any]:
    """Read (log Z, its standard error), or (draws, their log Z)."""
    if is_number(first):
        return _from_number(name, first, second), None
    tree = open_result(first)
    if "posterior" not in _groups(tree):
        raise ValueError(
            f"The pair of {name!r} must be (log Z, its standard error) or (posterior draws, log Z); got "
            f"({shown(first)}, {shown(second)})."
        )
    estimate, _ = _read(name, second)
    return (replace(estimate, data=data_of(tree)) if estimate.data is None else estimate), tree


def is_number(thing: Any) -> bool:
    """Whether something is a real number, of Python, NumPy or xarray."""
    is_array = getattr(thing, "ndim", None) == 0 and getattr(thing, "dtype", np.dtype(object)).kind in "fiu"
    return is_array or (isinstance(thing, Real) and not isinstance(thing, bool))


def _from_number(name: Any, value: Any, se: Any = 0.0) -> LogZEstimate:
    """Take a log Z as exact, or with a standard error."""
    if math.isnan(value) or value == math.inf:
        raise ValueError(f"log Z of {name!r} must be a number; got {float(value)}.")
    if not is_number(se) or not 0.0 <= se < math.inf:
        raise ValueError(f"The standard error of log Z of {name!r} must be a number of at least 0; got {shown(se)}.")
    return to_estimate(float(value), float(se), "given")


def _groups(idata: Any) -> list[str]:
    """Name the groups of a DataTree, or of ArviZ's older InferenceData."""
    found = idata.children if hasattr(idata, "children") else getattr(idata, "groups", ())
    return [str(name).lstrip("/") for name in (found() if callable(found) else found)]


def _check_estimates(estimates: Mapping[str, LogZEstimate], allow_errors: bool, check_data: bool) -> None:
    """Refuse estimates of other quantities, of data that differ (in more than names), and with errors."""
    for name, estimate in estimates.items():
        if estimate.quantity != LogZEstimate.quantity:
            raise ValueError(
                f"log Z of {name!r} is a {estimate.quantity}: only log marginal likelihoods, of models with proper "
                "priors and without another model as reference, give probabilities of models."
            )
    known = {name: one.data for name, one in estimates.items() if one.data is not None and one.data.digests}
    first = next(iter(known), "")
    for name, data in known.items() if check_data else ():
        if known[first].differs(data):
            raise ValueError(
                f"{first!r} and {name!r} have different observed data ({known[first].description}; "
                f"{data.description}): a Bayes factor compares models of the same data, on the same scale. If they are "
                "the same in another form, pass check_data=False."
            )
    wrong = {
        name: ", ".join(one.name for one in estimate.findings if one.severity == "error") or "an infinite error"
        for name, estimate in estimates.items()
        if not estimate.is_trustworthy
    }
    if wrong and not allow_errors:
        named = "; ".join(f"{name!r}: {findings}" for name, findings in wrong.items())
        raise ValueError(
            f"Some results should not be trusted ({named}): follow the advice of their findings, or pass "
            "allow_errors=True."
        )


@dataclass(frozen=True)
class Weighed:
    """M models with their posterior probabilities, in the order they were given."""

    estimates: dict[str, LogZEstimate]
    trees: dict[str, Any]  # their draws; None where only log Z was given
    order: np.ndarray  # (M,) the most probable first, models without an estimate last
    probability: np.ndarray  # (M,)
    error: np.ndarray  # (M,)
    prior: np.ndarray  # (M,)
    simulated: np.ndarray  # (4000, M) probabilities, had log Z been estimated with other errors


def weigh(results: Any, prior: Any, allow_errors: bool, check_data: bool) -> Weighed:
    """Weigh models by their estimates of log Z and their prior probabilities, and log remarks on the comparison.

    Raises ValueError for results that cannot be compared, for results that should not be trusted (unless allowed), or
    for a ``prior`` that does not fit.
    """
    check_flag("allow_errors", allow_errors)
    check_flag("check_data", check_data)
    _check_mapping(results)
    pairs = {name: _read(name, given) for name, given in results.items()}
    estimates, trees = ({name: pair[i] for name, pair in pairs.items()} for i in (0, 1))
    _check_estimates(estimates, allow_errors, check_data)
    log_prior = _log_prior(prior, list(estimates))
    groups = {name: getattr(tree, "children", {}) for name, tree in trees.items()}
    drawn = {name: one["posterior"].attrs for name, one in groups.items() if "posterior" in one}
    seeds = {name: str(drawn.get(name, {}).get("random_seed", "")) for name in trees}
    log_findings(check_comparison(estimates, seeds, check_data))
    log_z = np.array([estimate.value for estimate in estimates.values()])
    se = np.array([estimate.se for estimate in estimates.values()])
    probability, error = np.full((2, len(se)), np.nan)
    # Simulated sets of log Z, from which the Monte Carlo error of the probabilities is taken.
    simulated = np.full((4000, len(se)), np.nan)
    known = np.isfinite(se) & np.isfinite(log_z)
    if known.sum() > 1:
        log_mass = (log_z + log_prior)[known]
        noise = np.random.default_rng(0).standard_normal((len(simulated), int(known.sum())))
        simulated[:, known] = np.exp(normalise(log_mass + se[known] * noise))
        probability[known], error[known] = np.exp(normalise(log_mass)), simulated[:, known].std(axis=0)
    order = np.lexsort((-(log_z + log_prior), ~known))
    return Weighed(estimates, trees, order, probability, error, np.exp(normalise(log_prior)), simulated)


def _log_prior(prior: Any, names: list[str]) -> np.ndarray:
    if prior is None:
        return np.zeros(len(names))
    if not isinstance(prior, Mapping) or set(prior) != set(names):
        raise ValueError(f"`prior` must be a dictionary with a probability for each of {names}; got {prior!r}.")
    given = [prior[name] for name in names]
    are_numbers = all(isinstance(one, int | float | np.integer | np.floating) for one in given)
    values = np.array(given if are_numbers else [np.nan], dtype=float)
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError(f"The probabilities of `prior` must be positive numbers; got {prior!r}.")
    return np.log(values)


def refuse_without_probability(weighed: Weighed) -> None:
    """Refuse a comparison in which no model has a probability."""
    if np.isnan(weighed.probability).all():
        raise ValueError("No model has a probability: the errors of log Z are infinite for all, or all but one.")
