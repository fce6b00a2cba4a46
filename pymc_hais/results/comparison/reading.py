"""Results of several models -> their estimates, once it is sure that these may be compared."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from xarray import DataTree

from pymc_hais.core.messages import quoted, shown
from pymc_hais.estimators import Finding, LogZEstimate
from pymc_hais.results.datatree import EVIDENCE, log_marginal_likelihood
from pymc_hais.results.findings import say


def read_estimates(results: Any, check_data: bool = True) -> dict[str, LogZEstimate]:
    """Read the estimates of several results, which are DataTrees or estimates themselves.

    Raises ValueError for fewer than two results, what holds no estimate, what is no log marginal likelihood, or other
    data (if they are checked).
    """
    _check_results(results)
    estimates = {
        name: one if isinstance(one, LogZEstimate) else log_marginal_likelihood(one) for name, one in results.items()
    }
    _check_quantity(estimates)
    if check_data:
        _check_same_data(estimates)
    return estimates


def _check_results(results: Any) -> None:
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
            "`results` must be a dictionary of at least two results of sample_hais, or estimates of log Z, such as "
            f"{{'a': idata_a, 'b': idata_b}}; got {got}."
        )
    for name, idata in results.items():
        groups = _groups(idata)
        if "posterior" in groups and EVIDENCE not in groups:
            raise ValueError(
                f"The result of {name!r} has posterior draws but no log Z, as those of pm.sample: call pm.sample_hais, "
                "or pymc_hais.bridge(model, idata), which estimates log Z from such draws."
            )
        if EVIDENCE not in groups and not isinstance(idata, LogZEstimate):
            raise ValueError(
                f"The result of {name!r} must be the whole DataTree that sample_hais returns, or an estimate of log Z; "
                f"got {shown(idata)}."
            )


def _groups(idata: Any) -> list[str]:
    """Name the groups of a DataTree, or of ArviZ's older InferenceData."""
    found = idata.children if hasattr(idata, "children") else getattr(idata, "groups", ())
    return [str(name).lstrip("/") for name in (found() if callable(found) else found)]


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


def check_comparison(
    results: Mapping[str, Any], estimates: Mapping[str, LogZEstimate], check_data: bool
) -> Iterator[Finding]:
    """Say what a comparison rests on that nothing has checked, and which of its results are not independent."""
    unknown = [name for name, one in estimates.items() if one.data is None or not one.data.digests]
    if unknown and check_data:
        yield say("data_unknown", names=quoted(unknown), have="has" if len(unknown) == 1 else "have")
    seeds = {name: _seed_of(result) for name, result in results.items()}
    for first, second in combinations(estimates, 2):
        if _are_one(estimates[first], estimates[second]):
            yield say("one_result", first=first, second=second)
        elif seeds[first] and seeds[first] == seeds[second]:
            yield say("shared_seed", first=first, second=second)


def _are_one(first: LogZEstimate, second: LogZEstimate) -> bool:
    """Whether two estimates are one, to the bit: an exact one is no run."""
    return first is second or (first == second and first.mc_se > 0.0)


def _seed_of(result: Any) -> str:
    return "" if isinstance(result, LogZEstimate) else str(result[EVIDENCE].attrs.get("random_seed", ""))
