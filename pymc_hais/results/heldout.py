"""Values per row -> a labelled result with its two errors kept apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pymc as pm
from xarray import DataTree

from pymc_hais.core.messages import quoted, shown
from pymc_hais.density import build_pointwise, evaluate_tables
from pymc_hais.density.rows import check_table, declared_value
from pymc_hais.estimators import Finding, LogZEstimate
from pymc_hais.estimators.predictive import average_likelihood
from pymc_hais.inputs.labels import as_dataset
from pymc_hais.inputs.results import findings_as_json
from pymc_hais.results.findings.rows import check_predictive, summarise
from pymc_hais.run.row_evidence import RowEvidence


@dataclass(frozen=True)
class HeldOut:
    """Log-likelihoods of R rows, in nats."""

    value: np.ndarray  # (R,)
    se: np.ndarray  # (R,)
    ess: np.ndarray  # (R,)
    pareto_k: np.ndarray  # (R,)
    se_of_mean: float  # Monte Carlo standard error of the mean over the rows, without shortfall and common error
    shortfall: np.ndarray | float = 0.0  # (R,) how far each value may lie too low; it does not average out
    common: dict[str, float] = field(default_factory=dict)  # numbers common to all rows, such as ``log_z``
    common_se: float = 0.0  # standard error of the number that was subtracted from all rows
    findings: tuple[Finding, ...] = ()

    @classmethod
    def exact(cls, value: np.ndarray) -> Self:
        """Gather exact values (R,), which needed no annealing."""
        return cls(value, np.zeros_like(value), np.full_like(value, np.nan), np.full_like(value, -np.inf), 0.0)

    def minus(self, name: str, log_z: LogZEstimate) -> Self:
        """Divide all rows by one Z, whose log and error the result keeps under a name."""
        return replace(
            self,
            value=self.value - log_z.value,
            common={**self.common, name: log_z.value, f"{name}_se": log_z.se},
            common_se=float(np.hypot(self.common_se, log_z.se)),
            findings=(*log_z.findings, *self.findings),
        )

    @property
    def mcse(self) -> float:
        """Monte Carlo error of the mean over the rows, with what all rows share.

        The log of an unbiased estimate errs low by half its variance, for every row alike.
        """
        if not np.isfinite(self.shortfall).all():  # a row without weight: nothing is known of the mean from above
            return float("inf")
        bias = 0.5 * np.mean(np.square(self.se - self.shortfall)) + np.mean(self.shortfall)
        return float(np.sqrt(self.se_of_mean**2 + self.common_se**2 + bias**2))

    @property
    def sem(self) -> float:
        """Standard error over sets of as many rows: the rows' standard deviation over the root of R."""
        n = len(self.value)
        if not np.isfinite(self.value).all():
            return float("inf")
        return float(np.std(self.value, ddof=1) / np.sqrt(n)) if n > 1 else float("nan")


def of_rows(results: Sequence[RowEvidence], findings: tuple[Finding, ...], mass: LogZEstimate | None = None) -> HeldOut:
    """Gather the estimates of R rows, which are independent except for one mass that divides all of them."""
    estimates = [result.estimate for result in results]
    of_mass = mass.mc_se if mass else 0.0
    value, se, mc_se, shortfall = (
        np.array([getattr(one, name) for one in estimates]) for name in ("value", "se", "mc_se", "shortfall")
    )
    return HeldOut(
        value,
        se,
        np.array([result.symptoms.n_families for result in results]),
        np.array([result.symptoms.pareto_k for result in results]),
        float(np.sqrt(np.sum(np.maximum(mc_se**2 - of_mass**2, 0.0))) / len(value)),
        shortfall,
        common_se=of_mass,
        findings=findings,
    )


def predict(model: pm.Model, data: Mapping[str, Any], posterior: Any, n_draws: int) -> tuple[HeldOut, dict[str, Any]]:
    """Average the likelihood of each row over posterior draws, at most so many, evenly spaced in every chain."""
    table, names = check_table(model, data), [rv.name for rv in model.free_RVs]
    if not (isinstance(posterior, Mapping) and "posterior" in posterior):
        raise ValueError(
            "`posterior` must be a whole result, as of sample_hais or pm.sample, with a group `posterior`; got "
            f"{shown(posterior)}."
        )
    group = posterior["posterior"]
    missing = [name for name in names if name not in group]
    if missing:
        raise ValueError(
            f"`posterior` has no draws of {quoted(missing)}. Variables that belong to a row cannot be integrated out "
            "together with posterior draws of the others: fix the parameters with pm.do."
        )
    n_chains, longest = group.sizes["chain"], group.sizes["draw"]
    kept = np.unique(np.linspace(0, longest - 1, max(1, min(longest, n_draws // n_chains))).round().astype(int))
    ordered = group.to_dataset().transpose("chain", "draw", ...)
    draws = {name: ordered[name].values[:, kept] for name in names}
    length = len(declared_value(model, next(iter(table))))
    values = evaluate_tables(build_pointwise(model, tuple(table)), draws, list(table.values()), length)
    predictive = average_likelihood(values)
    findings = summarise([tuple(check_predictive(k)) for k in predictive.pareto_k])
    attrs = {"quantity": "log predictive density of each row", "n_draws": int(np.prod(values.shape[:2]))}
    return HeldOut(*predictive, findings=findings), attrs


def to_heldout_tree(result: HeldOut, attrs: Mapping[str, Any]) -> DataTree:
    """Label a result: group ``held_out``, per ``row`` and with the mean."""
    per_row = {name: getattr(result, name) for name in ("value", "se", "ess", "pareto_k")}
    coords, found = {"row": np.arange(len(result.value))}, findings_as_json(result.findings)
    dataset = as_dataset(per_row, sample_dims=["row"], coords=coords, attrs={**attrs, "findings": found})
    scalars = {"mean": float(np.mean(result.value)), "mcse": result.mcse, "sem": result.sem, **result.common}
    for name, number in scalars.items():
        dataset[name] = ((), np.asarray(number))
    return DataTree.from_dict({"/held_out": dataset})
