"""Results of several models -> the probability of each model, after checks that they may be compared."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_hais.core.weights import normalise
from pymc_hais.estimators import LogZEstimate
from pymc_hais.inputs.arguments import check_flag
from pymc_hais.results.comparison.reading import read_results
from pymc_hais.results.findings.compared import check_comparison
from pymc_hais.results.report import log_findings

#: Simulated sets of log Z, from which the Monte Carlo error of the probabilities is taken.
_N_SIMULATED = 4000


def _check_quantity(estimates: Mapping[str, LogZEstimate]) -> None:
    """Refuse results whose log Z is no log marginal likelihood."""
    for name, estimate in estimates.items():
        if estimate.quantity != LogZEstimate.quantity:
            raise ValueError(
                f"log Z of {name!r} is a {estimate.quantity}: only log marginal likelihoods, of models with proper "
                "priors and without another model as reference, give probabilities of models."
            )


def _check_same_data(estimates: Mapping[str, LogZEstimate]) -> None:
    """Refuse estimates of different data, as far as these are known; names do not matter."""
    known = {name: one.data for name, one in estimates.items() if one.data is not None and one.data.digests}
    first = next(iter(known), None)
    for name, data in known.items():
        if first is not None and known[first].differs(data):
            raise ValueError(
                f"{first!r} and {name!r} have different observed data ({known[first].description}; "
                f"{data.description}): a Bayes factor compares models of the same data, on the same scale. If they are "
                "the same in another form, pass check_data=False."
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
    estimates, trees = read_results(results)
    _check_quantity(estimates)
    if check_data:
        _check_same_data(estimates)
    if not allow_errors:
        _refuse_errors(estimates)
    log_prior = _log_prior(prior, list(estimates))
    groups = {name: getattr(tree, "children", {}) for name, tree in trees.items()}
    drawn = {name: one["posterior"].attrs for name, one in groups.items() if "posterior" in one}
    seeds = {name: str(drawn.get(name, {}).get("random_seed", "")) for name in trees}
    log_findings(check_comparison(estimates, seeds, check_data))
    log_z = np.array([estimate.value for estimate in estimates.values()])
    se = np.array([estimate.se for estimate in estimates.values()])
    probability, error = np.full((2, len(se)), np.nan)
    simulated = np.full((_N_SIMULATED, len(se)), np.nan)
    known = np.isfinite(se) & np.isfinite(log_z)
    if known.sum() > 1:
        log_mass = (log_z + log_prior)[known]
        noise = np.random.default_rng(0).standard_normal((_N_SIMULATED, int(known.sum())))
        simulated[:, known] = np.exp(normalise(log_mass + se[known] * noise))
        probability[known], error[known] = np.exp(normalise(log_mass)), simulated[:, known].std(axis=0)
    order = np.lexsort((-(log_z + log_prior), ~known))
    return Weighed(estimates, trees, order, probability, error, np.exp(normalise(log_prior)), simulated)


def _refuse_errors(estimates: Mapping[str, LogZEstimate]) -> None:
    wrong = {
        name: ", ".join(one.name for one in estimate.findings if one.severity == "error") or "an infinite error"
        for name, estimate in estimates.items()
        if not estimate.is_trustworthy
    }
    if wrong:
        named = "; ".join(f"{name!r}: {findings}" for name, findings in wrong.items())
        raise ValueError(
            f"Some results should not be trusted ({named}): follow the advice of their findings, or pass "
            "allow_errors=True."
        )


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


def refuse_unknown(weighed: Weighed) -> None:
    """Refuse a comparison in which no model has a probability."""
    if np.isnan(weighed.probability).all():
        raise ValueError("No model has a probability: the errors of log Z are infinite for all, or all but one.")
