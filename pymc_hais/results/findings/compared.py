"""Findings of comparisons of models, and of validation with simulated data sets."""

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np

from pymc_hais.core.messages import quoted
from pymc_hais.estimators import Finding, LogZEstimate


def check_comparison(
    estimates: Mapping[str, LogZEstimate], seeds: Mapping[str, str], check_data: bool
) -> Iterator[Finding]:
    """Yield which data a comparison could not check, and which of its results are not independent."""
    unknown = [name for name, one in estimates.items() if one.data is None or not one.data.digests]
    if unknown and check_data:
        yield Finding(
            "no_data",
            "warning",
            f"{quoted(unknown)} {'has' if len(unknown) == 1 else 'have'} no observed data, as with a pm.Potential, or "
            "none that is known: nothing has checked that the models are of the same data.",
            "Make sure that they are; check_data=False says so.",
        )
    copies = set()
    for first, second in combinations(estimates, 2):
        one, other = estimates[first], estimates[second]
        # Exact values that are equal to the bit do not count, because they are no runs.
        if one is other or (one == other and one.mc_se > 0.0):
            copies.add(second)
            yield Finding(
                "dependent_results",
                "warning",
                f"{first!r} and {second!r} are one result: their difference is 0 and its error says nothing.",
                "Pass the result of each model.",
            )
    same_seed: dict[str, list[str]] = {}
    for name in (name for name in estimates if name not in copies):
        same_seed.setdefault(seeds[name], []).append(name)
    for seed, names in same_seed.items():
        if seed and len(names) > 1:
            yield Finding(
                "dependent_results",
                "info",
                f"The results {quoted(names)} have the same random seed, so their errors may be correlated; the errors "
                "of the Bayes factors assume that they are independent.",
                "Pass another `random_seed` for each model.",
            )


def check_validation(bounds: Mapping[str, np.ndarray], ranks: Mapping[str, np.ndarray]) -> Iterator[Finding]:
    """Yield findings of the bounds (R,) and the ranks of simulated data sets about the sampler on this model."""
    gap = bounds["upper"] - bounds["lower"]
    # Each upper bound rests on one draw of the true values, which its own error does not count.  The spread of fewer
    # than five data sets says too little.
    error = float(np.std(gap, ddof=1) / np.sqrt(len(gap))) if len(gap) >= 5 else np.inf
    error = max(error, float(np.sqrt(np.sum(bounds["upper_se"] ** 2 + bounds["lower_se"] ** 2))) / len(gap))
    if gap.mean() < -4.0 * error:  # one false alarm in 30,000 calls
        yield Finding(
            "calibration",
            "error",
            f"The lower bounds lie {-gap.mean():.3f} nats above the upper ones in the mean, "
            f"{-gap.mean() / error:.1f} standard errors: draws, density and simulated data do not belong together.",
            "Look for a distribution whose `random` and `logp` differ (pm.CustomDist), or report it.",
        )
    if gap.mean() > 0.5:  # nats that are worth a warning
        yield Finding(
            "standard_error",
            "warning",
            f"The bounds of log Z are {gap.mean():.2f} nats apart in the mean, and {gap.max():.2f} for data set "
            f"{int(gap.argmax())}.",
            "Pass a larger `n_temperatures`, or more `draws`.",
        )
    from scipy.stats import kstest  # half a second, which other calls need not take

    columns = [(name, column) for name, values in ranks.items() for column in values.reshape(len(values), -1).T]
    # One false alarm in a thousand calls, over all parameters together.
    off = {name for name, column in columns if len(columns) * kstest(column, "uniform").pvalue < 1e-3}
    if off:
        yield Finding(
            "calibration",
            "error",
            f"The posteriors of {quoted(sorted(off))} are not calibrated: the ranks of the true values are not uniform "
            "(simulation-based calibration).",
            "See pymc_hais.plots.plot_calibration; pass a larger `n_temperatures`, or reparametrise.",
        )
