"""How checks are registered, and how findings are written to files and read from them."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from pymc_hais.estimators import Finding

type Check = Callable[..., Iterator[Finding]]


class Registered(NamedTuple):
    """A check of a finished run."""

    function: Check
    is_of_first_run: bool  # an extension is not checked again


#: Name of a check, as the finding ``unfinished`` shows it where the check fails -> the check.
CHECKS: dict[str, Registered] = {}

#: Names in files of versions before 0.3 -> names today.
_RENAMED = {
    "pareto_k": "weight_degeneracy",
    "few_ancestors": "weight_degeneracy",
    "no_weight": "weight_degeneracy",
    "chains_disagree": "estimates_disagree",
    "rounds_disagree": "estimates_disagree",
    "reverse_disagrees": "estimates_disagree",
    "interrupted": "standard_error",
    "wide_gap": "standard_error",
    "low_acceptance": "rejected_moves",
    "divergences": "rejected_moves",
    "flat": "unreached",
    "nan": "not_finite",
    "prior_range": "not_finite",
    "memory": "underdispersion",
    "short_pilot": "unfinished",
    "fewer_particles": "unfinished",
    "prior_draws": "prior_density",
    "prior_mass": "prior_density",
    "wrong_odds": "calibration",  # no run checks it today
    "bounds_crossed": "calibration",
    "ranks": "calibration",
    "few_draws": "poor_draws",
    "poor_overlap": "poor_draws",
    "not_posterior": "poor_draws",
    "data_unknown": "no_data",
    "one_result": "dependent_results",
    "shared_seed": "dependent_results",
}


def check(what: str, *, is_of_first_run: bool = False) -> Callable[[Check], Check]:
    """Register a check of a finished run, called ``what`` where it fails.

    The parameters of the check are attributes of :class:`pymc_hais.run.evidence.Evidence` by name,
    ``evidence`` itself, or ``runner``.
    """

    def register(function: Check) -> Check:
        CHECKS[what] = Registered(function, is_of_first_run)
        return function

    return register


def findings_as_json(findings: Sequence[Finding]) -> str:
    """Write findings as one string, which every file format takes."""
    return json.dumps([asdict(finding) for finding in findings], ensure_ascii=False)


def findings_from_json(text: str) -> tuple[Finding, ...]:
    """Read findings; those of an older version get the names of today."""
    return tuple(_named_today(**fields) for fields in json.loads(text))


def _named_today(name: str, **fields: Any) -> Finding:
    return Finding(_RENAMED.get(name, name), **fields)
