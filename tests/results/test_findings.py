"""The table of findings: every row is whole, and said by some check under its own name."""

import re
from pathlib import Path

import pytest

import pymc_hais
from pymc_hais.learning.optimisers.trace import REASONS
from pymc_hais.results.findings import FINDINGS, Row, say

RESULTS = Path(pymc_hais.__file__).parent / "results"
SAID = {
    literal
    for path in RESULTS.rglob("*.py")
    if path.name != "findings.py"
    for literal in re.findall(r'"(\w+(?:: [^"{]+)?)"', path.read_text("utf-8"))
}
#: Filled in by what ended the rounds.
SAID |= {f"standard_error: {reason}" for reason in ("failure", "shortfall", "extended", "max_temperatures")}
#: And by what ended a fit.
SAID |= {f"not_converged: {reason}" for reason in REASONS[1:]}


@pytest.mark.parametrize(("key", "row"), FINDINGS.items())
def test_a_row_is_whole_and_in_use(key, row):
    assert set(row.severity.split(", or ")) <= {"error", "warning", "info"}
    assert row.message.endswith((".", "{above}"))
    assert row.advice.endswith(".")
    assert key in SAID


def test_numbers_are_filled_in_and_the_case_is_no_part_of_the_name(monkeypatch):
    monkeypatch.setitem(FINDINGS, "odd: very", Row("error, or warning", "{n:.1f} of {names}.", "Take {n:g}."))
    found = say("odd: very", "error", n=2.0, names="`a`")
    assert (found.name, found.severity) == ("odd", "error")
    assert (found.message, found.advice) == ("2.0 of `a`.", "Take 2.")
