"""Values per row -> a labelled result with its two errors kept apart."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pymc
from arviz_base import dict_to_dataset
from xarray import DataTree

from pymc_hais.types import Finding

__all__ = ["HeldOut", "summarise", "to_heldout_tree"]

#: Rows named in a message.
_SHOWN = 5


@dataclass(frozen=True)
class HeldOut:
    """Log-likelihoods of R rows, in nats.

    Attributes
    ----------
    value, se, ess, pareto_k : ndarray (R,)
        Of each row; the Monte Carlo errors of the rows are independent.
    common : dict
        Numbers common to all rows, such as ``log_z``.
    common_se : float
        The part of the error that all rows share.
    findings : tuple of Finding
    """

    value: np.ndarray
    se: np.ndarray
    ess: np.ndarray
    pareto_k: np.ndarray
    common: dict[str, float] = field(default_factory=dict)
    common_se: float = 0.0
    findings: tuple[Finding, ...] = ()

    @property
    def mcse(self) -> float:
        """Monte Carlo error of the mean: the rows' independent errors, the common one, and the bias of a logarithm.

        The log of an unbiased estimate errs low by half its variance, for every row alike.
        """
        n = len(self.value)
        return float(np.sqrt(np.sum(self.se**2) / n**2 + self.common_se**2 + (0.5 * np.mean(self.se**2)) ** 2))

    @property
    def sem(self) -> float:
        """What another set of as many rows would change: the rows' standard deviation over the root of R."""
        n = len(self.value)
        return float(np.std(self.value, ddof=1) / np.sqrt(n)) if n > 1 else float("nan")


def summarise(per_row: Sequence[Sequence[Finding]]) -> tuple[Finding, ...]:
    """Merge the findings of the rows: one of each name, with how many rows have it."""
    counts = Counter(finding.name for findings in per_row for finding in findings)
    merged = []
    for name in counts:
        rows = [row for row, findings in enumerate(per_row) if any(finding.name == name for finding in findings)]
        first = next(finding for finding in per_row[rows[0]] if finding.name == name)
        shown = ", ".join(map(str, rows[:_SHOWN])) + (", ..." if len(rows) > _SHOWN else "")
        message = f"{len(rows)} of {len(per_row)} rows (row {shown}); the first: {first.message}"
        merged.append(Finding(name, first.severity, message, first.advice))
    return tuple(merged)


def to_heldout_tree(result: HeldOut, attrs: Mapping[str, Any]) -> DataTree:
    """Label a result: group ``held_out``, per ``row`` and with the mean."""
    per_row = {name: getattr(result, name) for name in ("value", "se", "ess", "pareto_k")}
    findings = [
        {"name": f.name, "severity": f.severity, "message": f.message, "advice": f.advice} for f in result.findings
    ]
    dataset = dict_to_dataset(
        per_row,
        sample_dims=["row"],
        coords={"row": np.arange(len(result.value))},
        inference_library=pymc,
        attrs={**attrs, "findings": json.dumps(findings, ensure_ascii=False)},
    )
    scalars = {"mean": float(np.mean(result.value)), "mcse": result.mcse, "sem": result.sem, **result.common}
    for name, number in scalars.items():
        dataset[name] = ((), np.asarray(number))
    return DataTree.from_dict({"/held_out": dataset})
