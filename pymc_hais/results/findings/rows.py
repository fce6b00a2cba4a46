"""Findings of rows of data, together and one by one."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from pymc_hais.estimators import Finding
from pymc_hais.estimators.symptoms import PARETO_K_LIMIT
from pymc_hais.run.row_evidence import RowEvidence


def check_mean(results: Sequence[RowEvidence]) -> Iterator[Finding]:
    """Yield an error if the mean over the rows moved from one round to the next by more than its error.

    A short round of one row has too few particles in its tail to know its own error; the mean averages this out.
    """
    pairs = [result.rounds[-2:] for result in results if len(result.rounds) > 1]
    if not pairs:
        return
    before, after = (np.array([[pair[i].log_z, pair[i].se] for pair in pairs]) for i in (0, 1))
    with np.errstate(invalid="ignore"):  # of a row without weight in both rounds, which has a finding of its own
        moved = float(np.mean(after[:, 0] - before[:, 0]))
    # The log of an unbiased estimate errs low by about half its variance.
    error = float(np.sqrt(np.sum(before[:, 1] ** 2 + after[:, 1] ** 2))) / len(pairs)
    bias = float(np.mean(before[:, 1] ** 2))
    if np.isfinite(moved) and not abs(moved) <= 4.0 * error + bias + 1e-9:  # nats of rounding
        yield Finding(
            "estimates_disagree",
            "error",
            f"The mean over {len(pairs)} rows moved by {moved:+.3f} nats from one round to the next, beyond its error "
            f"of {error:.3f}: the particles do not keep up with the annealing.",
            "Raise `draws`, or reparametrise (for example non-centred).",
        )


def check_predictive(k: float) -> Iterator[Finding]:
    """Yield a warning if a few posterior draws decide the predictive density of a row."""
    if not k <= PARETO_K_LIMIT:
        yield Finding(
            "weight_degeneracy",
            "warning",
            f"The likelihood varies over the posterior draws with a heavy tail (Pareto k = {k:.2f} > "
            f"{PARETO_K_LIMIT}): a few draws decide the predictive density.",
            "Use more posterior draws (`n_draws`).",
        )


def summarise(per_row: Sequence[Sequence[Finding]]) -> tuple[Finding, ...]:
    """Merge the findings of the rows: one for each advice, with how many rows have it."""
    rows: dict[Finding, list[int]] = {}
    firsts: dict[tuple[str, str, str], Finding] = {}
    for row, findings in enumerate(per_row):
        for finding in findings:
            first = firsts.setdefault((finding.name, finding.severity, finding.advice), finding)
            rows.setdefault(first, []).append(row)
    merged = []
    for first, found in rows.items():
        shown = ", ".join(map(str, found[:5])) + (", ..." if len(found) > 5 else "")
        message = f"{len(found)} of {len(per_row)} rows (row {shown}); the first: {first.message}"
        merged.append(replace(first, message=message))
    return tuple(merged)
