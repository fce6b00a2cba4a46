"""An estimate as a value: its error, its findings and its data, its differences, and how it is shown."""

from __future__ import annotations

import hashlib
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from numbers import Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np

#: Standard errors from the centre of a 95% interval to its end.
NORMAL_REACH = 1.96
#: A format specification: fill and alignment, sign, width, and the rest.
_SPEC = re.compile(r"(?:(.)?([<>=^]))?([-+ ]?)0?(\d*)(.*)", re.DOTALL)


@dataclass(frozen=True)
class Finding:
    """A property of the run that its numbers show, and advice.

    Attributes
    ----------
    name : str
        A short stable identifier, such as ``"weight_degeneracy"``.
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


class Ordered:
    """A value with an error and findings; ``float``, ``round``, ``<`` and ``max`` use the value alone."""

    value: float
    findings: tuple[Finding, ...]

    def __float__(self) -> float:
        """Return the value alone."""
        return float(self.value)

    def __round__(self, n_digits: int | None = None) -> float:
        """Return the value alone, rounded."""
        return round(float(self), n_digits)

    def __lt__(self, other: Any) -> bool:
        """Compare the values alone."""
        return self._compare(operator.lt, other)

    def __le__(self, other: Any) -> bool:
        """Compare the values alone."""
        return self._compare(operator.le, other)

    def __gt__(self, other: Any) -> bool:
        """Compare the values alone."""
        return self._compare(operator.gt, other)

    def __ge__(self, other: Any) -> bool:
        """Compare the values alone."""
        return self._compare(operator.ge, other)

    def _compare(self, compare: Callable[[float, float], bool], other: Any) -> bool:
        is_alike = isinstance(other, Real | type(self))
        return compare(float(self), float(other)) if is_alike else NotImplemented

    def _headline(self) -> str:
        """Return the value and its interval as text."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """Show the headline and the findings, one a line."""
        return to_text(self._headline(), self.findings)

    def _repr_html_(self) -> str:
        """Show in a notebook what ``repr`` shows, with a list of the findings."""
        return to_html(self._headline(), self.findings)


class Value(Ordered):
    """A number of nats with its error: converted, formatted and shown alike, whatever it estimates."""

    lower: float
    upper: float
    #: What it is called on the screen.
    _title: str

    if TYPE_CHECKING:

        @property
        def se(self) -> float:
            """The error."""
            ...

    @property
    def is_trustworthy(self) -> bool:
        """Whether no finding is of severity ``"error"`` and the error is finite."""
        return math.isfinite(self.se) and all(finding.severity != "error" for finding in self.findings)

    @property
    def log10(self) -> Log10:
        """The same to base 10, with its error, interval and findings."""
        value, se, lower, upper = (nats / math.log(10.0) for nats in (self.value, self.se, self.lower, self.upper))
        return Log10(value, se, lower, upper, self.findings, f"log10 {self._title.removeprefix('log ')}")

    def __format__(self, spec: str) -> str:
        """Format value and error alike: ``f"{estimate:.2f}"`` is ``"-31.33 ± 0.01"``; a width is that of both."""
        return format_parts(self, spec, lambda own: f"{self.value:{own}} ± {self.se:{own.lstrip('+')}}")

    def _headline(self) -> str:
        return f"{self._title} = {self:.3f} (95% interval {self.lower:.3f} to {self.upper:.3f})"


@dataclass(frozen=True, repr=False)
class Log10(Value):
    """An estimate to base 10: ``value``, ``se``, the 95% interval ``lower`` to ``upper``, and ``findings``."""

    value: float
    se: float
    lower: float
    upper: float
    findings: tuple[Finding, ...] = ()
    _title: str = "log10"


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
    def findings(self) -> tuple[Finding, ...]:  # type: ignore[override]
        """The findings of the logarithm."""
        return self.log.findings

    def __format__(self, spec: str) -> str:
        """Format value and interval alike: ``f"{factor:.1f}"`` is ``"17.3 (17.1 to 17.6)"``."""
        return format_parts(self, spec, lambda own: f"{self.value:{own}} ({self.lower:{own}} to {self.upper:{own}})")

    def _headline(self) -> str:
        value, lower, upper = map(_power, (self.log.value, self.log.lower, self.log.upper))
        return f"{self.log._title.removeprefix('log ')} = {value} (95% interval {lower} to {upper})"


@dataclass(frozen=True, repr=False)
class BayesFactor(Exponential):
    """How many times likelier the data are under one model than under another, with an interval.

    Attributes
    ----------
    log : LogBayesFactor
        The same in nats, with its error and findings.
    """

    log: LogBayesFactor


@dataclass(frozen=True)
class ObservedData:
    """A description of observed data that identifies them whatever their names."""

    digests: tuple[str, ...]  # one of each observed array, in order; none where a model has no observed variable
    description: str

    def differs(self, other: Self | None) -> bool:
        """Whether these are other data than another estimate's, as far as both are known."""
        return other is not None and bool(self.digests and other.digests) and self.digests != other.digests


def describe_data(arrays: Mapping[str, Any]) -> ObservedData:
    """Describe observed arrays by name; missing values are NaN."""
    named = {name: np.asarray(array) for name, array in arrays.items()}
    texts = ", ".join(f"`{name}` {array.shape}{_mean(array)}" for name, array in named.items())
    return ObservedData(tuple(sorted(map(_digest, named.values()))), texts)


def _mean(array: np.ndarray) -> str:
    known = array[~np.isnan(array)] if array.dtype.kind in "biuf" else array[:0]
    return f" with mean {known.mean():.4g}" if known.size else ""


def _digest(array: np.ndarray) -> str:
    """Digest shape and numbers of an array: equal arrays of any type have the same digest."""
    if array.dtype.kind in "biuf":
        numbers = array.astype(np.float64)
        # One NaN, and no negative zeros.
        content = np.where(np.isnan(numbers), np.nan, numbers + 0.0).tobytes()
    else:
        content = repr(array.tolist()).encode()
    return hashlib.sha256(f"{array.shape}".encode() + content).hexdigest()


@dataclass(frozen=True, repr=False)
class LogZEstimate(Value):
    """A log marginal likelihood (in nats) with its error.

    ``first - second`` is a :class:`LogBayesFactor`, ``first.bayes_factor(second)`` the same on its natural scale; one
    of the two may be a number, such as an exact value.  Estimates of different data have no Bayes factor.
    ``float(estimate)``, ``round(estimate, 2)`` and ``<`` use the value alone.  ``f"{estimate:.2f}"`` is the value with
    its error, ``estimate.log10`` the same to base 10, and ``np.exp(estimate)`` is Z with its interval.

    Attributes
    ----------
    value : float
        log of the mean of the populations' estimates of Z.
    mc_se : float
        Monte Carlo standard error of ``value``: the spread that another seed would show.
    shortfall : float
        How far below log Z the value may lie because particles missed regions that are hard to reach: a one-sided
        allowance by rules of thumb, 0 if nothing indicates it.
    lower, upper : float
        95% interval for log Z.
    estimator : str
    log_prior_mass : float
        The number that was subtracted from the log of the integral of ``exp(model.logp())``, because the prior's
        density does not integrate to one in PyMC; 0 if it does.
    findings : tuple of Finding
    per_chain : tuple of float
        Each population's own estimate.
    quantity : str
        "log marginal likelihood", or the name of ``value`` for an unnormalised model.
    data : ObservedData or None
        Description of the observed data, without the numbers themselves; None if it is not known.
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
    quantity: str = field(default="log marginal likelihood", compare=False)
    data: ObservedData | None = field(default=None, compare=False)

    _title = "log Z"

    @property
    def se(self) -> float:
        """The whole error, ``mc_se + shortfall``."""
        return self.mc_se + self.shortfall

    @property
    def log_z(self) -> float:
        """Log of the integral of ``exp(model.logp())``: ``value + log_prior_mass``."""
        return self.value + self.log_prior_mass

    def exp(self) -> Exponential:
        """Return Z on its natural scale, as ``np.exp`` does."""
        return Exponential(self)

    def __sub__(self, other: Any) -> LogBayesFactor:
        """Compare with another model's estimate of the same data, or with an exact log Z."""
        if isinstance(other, Real | LogZEstimate):
            return self.bayes_factor(_exact(other) if isinstance(other, Real) else other).log
        if hasattr(other, "coords"):  # of a result, which would subtract its draws from the estimate
            raise TypeError(
                f"A log Bayes factor is of two estimates of log Z; got {type(other).__name__}. Pass "
                "pymc_hais.log_marginal_likelihood(idata)."
            )
        return NotImplemented

    def __rsub__(self, other: Any) -> LogBayesFactor:
        """Compare an exact log Z with this."""
        return _exact(other) - self if isinstance(other, Real) else NotImplemented

    def bayes_factor(self, other: Self | float, *, check_data: bool = True) -> BayesFactor:
        """Compare with another model's estimate: how many times likelier the data are under this model.

        Parameters
        ----------
        other : LogZEstimate or float
            Of the second model; a number is an exact log Z.
        check_data : bool, default True
            Whether the data of both, where they are known, must be the same; False as in :func:`compare`.

        Returns
        -------
        BayesFactor
            ``value`` with its 95% interval ``lower`` to ``upper``; ``log`` is the same in nats.

        Raises
        ------
        ValueError
            If the two estimates are of different data.
        """
        second = _exact(other) if isinstance(other, Real) else other
        if not isinstance(second, LogZEstimate):
            raise ValueError(
                f"A Bayes factor is of two estimates of log Z; got {type(other).__name__}. Pass "
                "pymc_hais.log_marginal_likelihood(idata), or a number."
            )
        if check_data and self.data is not None and second.data is not None and self.data.differs(second.data):
            raise ValueError(
                f"These are estimates of different data ({self.data.description}; {second.data.description}): a Bayes "
                "factor compares models of the same data, on the same scale. If they are the same in another form, "
                "call first.bayes_factor(second, check_data=False)."
            )
        value = self.value - second.value
        below = math.hypot(self.value - self.lower, second.upper - second.value)
        above = math.hypot(self.upper - self.value, second.value - second.lower)
        findings = (*self.findings, *second.findings)
        se = math.hypot(self.se, second.se)
        return BayesFactor(LogBayesFactor(value, se, value - below, value + above, findings))


def _exact(value: Real) -> LogZEstimate:
    return LogZEstimate(float(value), 0.0, float(value), float(value))


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


def format_parts(shown: Any, spec: str, write: Callable[[str], str]) -> str:
    """Format several numbers alike, ``write`` given the specification of each, and pad the whole to the width."""
    if not spec:
        return str(shown)
    fill, align, sign, width, own = _SPEC.fullmatch(spec).groups()  # type: ignore[union-attr]
    side = (align or ">").replace("=", ">")
    return f"{write(sign + own if own else f'{sign}.3f'):{fill or ' '}{side}{width}}"


def to_text(headline: str, findings: tuple[Finding, ...]) -> str:
    """Write a headline and below it the findings, one a line."""
    return "\n".join([headline, *(f"  {one.severity}: {one}" for one in findings)])


def to_html(headline: str, findings: tuple[Finding, ...]) -> str:
    """Write a headline and a list of findings for a notebook."""
    texts = (re.sub("`([^`]+)`", r"<code>\1</code>", escape(str(one))) for one in findings)
    lines = (f"<b>{escape(one.severity)}</b>: {text}" for one, text in zip(findings, texts, strict=True))
    items = "".join(f"<li>{line}</li>" for line in lines)
    return f"<div>{escape(headline).replace('\n', '<br>')}{items and f'<ul>{items}</ul>'}</div>"
