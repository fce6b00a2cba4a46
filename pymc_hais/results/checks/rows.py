"""What rows of data show together, and one by one."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from pymc_hais.estimators import Finding
from pymc_hais.estimators.symptoms import PARETO_K_LIMIT
from pymc_hais.results.findings import say
from pymc_hais.run.row_results import RowResult

#: Standard errors, and nats of rounding, that the mean over the rows may move by without a finding.
_DISAGREEMENT = 4.0
_ROUNDING = 1e-9
#: Rows named in a message.
_SHOWN = 5


def check_mean(results: Sequence[RowResult]) -> Iterator[Finding]:
    """Say that the mean over the rows moved from one round to the next by more than its error, if it did.

    Row by row a short round has too few particles in its tail to know its own error; in the mean that evens out.
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
    if np.isfinite(moved) and not abs(moved) <= _DISAGREEMENT * error + bias + _ROUNDING:
        yield say("rounds_disagree: rows", n=len(pairs), moved=moved, error=error)


def check_predictive(k: float) -> Iterator[Finding]:
    """Say that a few posterior draws decide the predictive density of a row, if they do."""
    if not k <= PARETO_K_LIMIT:
        yield say("pareto_k: predictive", k=k, limit=PARETO_K_LIMIT)


def summarise(per_row: Sequence[Sequence[Finding]]) -> tuple[Finding, ...]:
    """Merge the findings of the rows: one of each name, with how many rows have it."""
    counts = Counter(finding.name for findings in per_row for finding in findings)
    merged = []
    for name in counts:
        rows = [row for row, findings in enumerate(per_row) if any(finding.name == name for finding in findings)]
        first = next(finding for finding in per_row[rows[0]] if finding.name == name)
        shown = ", ".join(map(str, rows[:_SHOWN])) + (", ..." if len(rows) > _SHOWN else "")
        message = f"{len(rows)} of {len(per_row)} rows (row {shown}); the first: {first.message}"
        merged.append(replace(first, message=message))
    return tuple(merged)
