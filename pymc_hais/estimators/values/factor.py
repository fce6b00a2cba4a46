"""Two estimates: how many times likelier the data are under one model than under another."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pymc_hais.estimators.values.shown import Finding, Ordered, Value, format_parts, to_html, to_text


@dataclass(frozen=True, repr=False)
class LogBayesFactor(Value):
    """The difference of two log marginal likelihoods, in nats, with its error.

    Attributes
    ----------
    value : float
        Above 0 if the data are likelier under the first model: by a factor of ``exp(value)``.
    se : float
        The root of the sum of the two squared errors, as is right for runs with different seeds.
    lower, upper : float
        95% interval.  The distance from the value to the lower end is the root of the sum of two squared distances: of
        the first estimate to its lower end, and of the second estimate to its upper end.
    findings : tuple of Finding
        The findings of both estimates.
    """

    value: float
    se: float
    lower: float
    upper: float
    findings: tuple[Finding, ...] = ()

    _title = "log Bayes factor"

    def __neg__(self) -> LogBayesFactor:
        """Return the factor with the two models exchanged."""
        return LogBayesFactor(-self.value, self.se, -self.upper, -self.lower, self.findings)

    def exp(self) -> BayesFactor:
        """Return the Bayes factor on its natural scale, as ``np.exp`` does."""
        return BayesFactor(self)


@dataclass(frozen=True, repr=False)
class Exponential(Ordered):
    """A number whose logarithm was estimated, with an interval.

    Attributes
    ----------
    log : LogZEstimate or LogBayesFactor
        The same in nats, with its error and findings.
    """

    log: Value

    @property
    def value(self) -> float:  # type: ignore[override]
        """The number; 0 or infinite where it is beyond floating point."""
        return _exp(self.log.value)

    @property
    def lower(self) -> float:
        """Lower end of the 95% interval."""
        return _exp(self.log.lower)

    @property
    def upper(self) -> float:
        """Upper end of the 95% interval."""
        return _exp(self.log.upper)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the logarithm."""
        return self.log.findings

    def __format__(self, spec: str) -> str:
        """Format value and interval alike: ``f"{factor:.1f}"`` is ``"17.3 (17.1 to 17.6)"``."""
        return format_parts(self, spec, lambda own: f"{self.value:{own}} ({self.lower:{own}} to {self.upper:{own}})")

    def __repr__(self) -> str:
        """Show value, interval and findings, one a line."""
        return to_text(self._headline(), self.findings)

    def _headline(self) -> str:
        value, lower, upper = map(_power, (self.log.value, self.log.lower, self.log.upper))
        return f"{self.log._title.removeprefix('log ')} = {value} (95% interval {lower} to {upper})"

    def _repr_html_(self) -> str:
        """Show in a notebook what ``repr`` shows."""
        return to_html(self._headline(), self.findings)


@dataclass(frozen=True, repr=False)
class BayesFactor(Exponential):
    """How many times likelier the data are under one model than under another, with an interval.

    Attributes
    ----------
    log : LogBayesFactor
        The same in nats, with its error and findings.
    """

    log: LogBayesFactor


def _exp(nats: float) -> float:
    with np.errstate(over="ignore", under="ignore"):
        return float(np.exp(nats))


def _power(nats: float) -> str:
    """Write exp of a number with three digits, also beyond floating point."""
    if not math.isfinite(nats) or abs(nats) < 600.0:
        return f"{_exp(nats):.3g}"
    tens = nats / math.log(10.0)
    whole = math.floor(tens)
    return f"{10.0 ** (tens - whole):.3g}e{whole:+d}"
