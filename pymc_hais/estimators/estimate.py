"""An estimate of log Z as a value: its error and findings, its differences, and how it is shown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from numbers import Real
from typing import TYPE_CHECKING, Any

#: Standard errors from the centre of a 95% interval to its end.
NORMAL_REACH = 1.96


@dataclass(frozen=True)
class Finding:
    """Something the numbers say about the run, and what to do about it.

    Attributes
    ----------
    name : str
        A short stable identifier, such as ``"pareto_k"``.
    severity : {"info", "warning", "error"}
        ``"error"``: the estimate or its error bar should not be trusted.
    message : str
        What was seen, with its number.
    advice : str
        What to change.
    """

    name: str
    severity: str
    message: str
    advice: str

    def __str__(self) -> str:
        """Read as one line."""
        return f"{self.message} {self.advice}"


class _Value:
    """A number of nats with its error: converted, formatted and shown alike, whatever it estimates."""

    value: float
    lower: float
    upper: float
    findings: tuple[Finding, ...]
    #: What it is called on the screen.
    _title: str

    if TYPE_CHECKING:

        @property
        def se(self) -> float: ...

    @property
    def is_trustworthy(self) -> bool:
        """Whether no finding is of severity ``"error"`` and the error is finite."""
        return math.isfinite(self.se) and all(finding.severity != "error" for finding in self.findings)

    def __float__(self) -> float:
        """Return the value alone."""
        return self.value

    def __format__(self, spec: str) -> str:
        """Format value and error alike: ``f"{estimate:.2f}"`` is ``"-31.33 ± 0.01"``."""
        return f"{self.value:{spec}} ± {self.se:{spec.lstrip('+')}}" if spec else str(self)

    def __repr__(self) -> str:
        """Show value, error, interval and findings, one a line."""
        return "\n".join([self._headline(), *(f"  {one.severity}: {one}" for one in self.findings)])

    def _headline(self) -> str:
        return f"{self._title} = {self:.3f} (95% interval {self.lower:.3f} to {self.upper:.3f})"

    def _repr_html_(self) -> str:
        """Show in a notebook what ``repr`` shows, with a list of the findings."""
        lines = (f"<b>{escape(one.severity)}</b>: {escape(str(one))}" for one in self.findings)
        items = "".join(f"<li>{line}</li>" for line in lines)
        return f"<div>{escape(self._headline())}{items and f'<ul>{items}</ul>'}</div>"


@dataclass(frozen=True, repr=False)
class LogBayesFactor(_Value):
    """The difference of two log marginal likelihoods, in nats, with its error.

    Attributes
    ----------
    value : float
        Above 0 if the data are likelier under the first model: by a factor of ``exp(value)``.
    se : float
        The root of the sum of the two squared errors, as is right for runs with different seeds.
    lower, upper : float
        95% interval.  Its lower end is the first one's lower end against the second one's upper end: the distance from
        the value is the root of the sum of the two squared distances.
    findings : tuple of Finding
        Those of both estimates.
    """

    value: float
    se: float
    lower: float
    upper: float
    findings: tuple[Finding, ...] = ()

    _title = "log Bayes factor"

    def __neg__(self) -> LogBayesFactor:
        """Compare the other way round."""
        return LogBayesFactor(-self.value, self.se, -self.upper, -self.lower, self.findings)


@dataclass(frozen=True, repr=False)
class LogZEstimate(_Value):
    """A log marginal likelihood (in nats) with its error.

    ``first - second`` is a :class:`LogBayesFactor`; one of the two may be a number, such as an exact value.
    ``float(estimate)`` is the value alone, and ``f"{estimate:.2f}"`` value and error.

    Attributes
    ----------
    value : float
        log of the mean of the populations' estimates of Z.
    mc_se : float
        Monte Carlo standard error of ``value``: the spread that another seed would show.
    shortfall : float
        How far below log Z the value may lie because particles missed what is hard to reach: a one-sided allowance by
        rules of thumb, 0 where nothing points to it.
    lower, upper : float
        95% interval for log Z.
    estimator : str
    log_prior_mass : float
        What was subtracted from log of the integral of ``exp(model.logp())``, because the prior's density does not
        integrate to one in PyMC; 0 if nothing had to be.
    findings : tuple of Finding
    per_chain : tuple of float
        Each population's own estimate.
    """

    value: float
    mc_se: float
    lower: float
    upper: float
    shortfall: float = 0.0
    estimator: str = "annealed"
    log_prior_mass: float = 0.0
    findings: tuple[Finding, ...] = ()
    per_chain: tuple[float, ...] = ()

    _title = "log Z"

    @property
    def se(self) -> float:
        """The whole error, ``mc_se + shortfall``."""
        return self.mc_se + self.shortfall

    @property
    def log_z(self) -> float:
        """Log of the integral of ``exp(model.logp())``: ``value + log_prior_mass``."""
        return self.value + self.log_prior_mass

    def __sub__(self, other: Any) -> LogBayesFactor:
        """Compare with another model's estimate, or with an exact log Z."""
        if isinstance(other, Real):
            other = _exact(other)
        if not isinstance(other, LogZEstimate):
            return NotImplemented
        value = self.value - other.value
        below = math.hypot(self.value - self.lower, other.upper - other.value)
        above = math.hypot(self.upper - self.value, other.value - other.lower)
        findings = (*self.findings, *other.findings)
        return LogBayesFactor(value, math.hypot(self.se, other.se), value - below, value + above, findings)

    def __rsub__(self, other: Any) -> LogBayesFactor:
        """Compare an exact log Z with this."""
        return _exact(other) - self if isinstance(other, Real) else NotImplemented


def _exact(value: Real) -> LogZEstimate:
    return LogZEstimate(float(value), 0.0, float(value), float(value))
