"""A number of nats with its error and findings: converted, formatted and shown alike, whatever it estimates."""

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from numbers import Real
from typing import TYPE_CHECKING, Any

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
    """A value with an error; ``float``, ``round``, ``<`` and ``max`` use the value alone."""

    value: float

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


class Value(Ordered):
    """A number of nats with its error: converted, formatted and shown alike, whatever it estimates."""

    lower: float
    upper: float
    findings: tuple[Finding, ...]
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
    def log10(self) -> "Log10":
        """The same to base 10, with its error, interval and findings."""
        value, se, lower, upper = (nats / math.log(10.0) for nats in (self.value, self.se, self.lower, self.upper))
        return Log10(value, se, lower, upper, self.findings, f"log10 {self._title.removeprefix('log ')}")

    def __format__(self, spec: str) -> str:
        """Format value and error alike: ``f"{estimate:.2f}"`` is ``"-31.33 ± 0.01"``; a width is that of both."""
        return format_parts(self, spec, lambda own: f"{self.value:{own}} ± {self.se:{own.lstrip('+')}}")

    def __repr__(self) -> str:
        """Show value, error, interval and findings, one a line."""
        return to_text(self._headline(), self.findings)

    def _headline(self) -> str:
        return f"{self._title} = {self:.3f} (95% interval {self.lower:.3f} to {self.upper:.3f})"

    def _repr_html_(self) -> str:
        """Show in a notebook what ``repr`` shows, with a list of the findings."""
        return to_html(self._headline(), self.findings)


@dataclass(frozen=True, repr=False)
class Log10(Value):
    """An estimate to base 10: ``value``, ``se``, the 95% interval ``lower`` to ``upper``, and ``findings``."""

    value: float
    se: float
    lower: float
    upper: float
    findings: tuple[Finding, ...] = ()
    _title: str = "log10"


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
