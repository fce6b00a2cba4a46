"""A number of nats with its error and findings: converted, formatted and shown alike, whatever it estimates."""

import math
import re
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

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


class Value:
    """A number of nats with its error: converted, formatted and shown alike, whatever it estimates."""

    value: float
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

    def __float__(self) -> float:
        """Return the value alone."""
        return self.value

    def __format__(self, spec: str) -> str:
        """Format value and error alike: ``f"{estimate:.2f}"`` is ``"-31.33 ± 0.01"``."""
        return f"{self.value:{spec}} ± {self.se:{spec.lstrip('+')}}" if spec else str(self)

    def __repr__(self) -> str:
        """Show value, error, interval and findings, one a line."""
        return to_text(self._headline(), self.findings)

    def _headline(self) -> str:
        return f"{self._title} = {self:.3f} (95% interval {self.lower:.3f} to {self.upper:.3f})"

    def _repr_html_(self) -> str:
        """Show in a notebook what ``repr`` shows, with a list of the findings."""
        return to_html(self._headline(), self.findings)


def to_text(headline: str, findings: tuple[Finding, ...]) -> str:
    """Write a headline and below it the findings, one a line."""
    return "\n".join([headline, *(f"  {one.severity}: {one}" for one in findings)])


def to_html(headline: str, findings: tuple[Finding, ...]) -> str:
    """Write a headline and a list of findings for a notebook."""
    lines = (f"<b>{escape(one.severity)}</b>: {_with_code(escape(str(one)))}" for one in findings)
    items = "".join(f"<li>{line}</li>" for line in lines)
    return f"<div>{escape(headline)}{items and f'<ul>{items}</ul>'}</div>"


def _with_code(text: str) -> str:
    """Show as code what stands between backticks."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", text)
