"""All findings: few names, each written beside its test, in the table of the documentation, and read from old files."""

import ast
import re
from pathlib import Path

import pytest

import pymc_hais
from pymc_hais.inputs.results import _RENAMED, findings_from_json
from pymc_hais.learning.optimisers.descent import REASONS
from pymc_hais.results.findings.fit import check_convergence
from tests.test_docs import table

RESULTS = Path(pymc_hais.__file__).parent / "results"
SEVERITIES = {"error", "warning", "info"}


def last(node):
    """Return the end of a text, also of one with numbers; None for a variable."""
    node = node.values[-1] if isinstance(node, ast.JoinedStr) else node
    return node.value if isinstance(node, ast.Constant) else None


def texts(node):
    return [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def made():
    """Return the severities of each name, and the messages and advices, as the code has them."""
    severities, sentences = {}, []
    for path in RESULTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Finding" and len(node.args) == 4:
                name, severity, *rest = node.args
                said = set(texts(severity)) or SEVERITIES - {"info"}  # a variable
                severities.setdefault(name.value, set()).update(said)
                sentences += filter(None, map(last, rest))
    return severities, sentences


def test_at_most_twenty_names_each_in_the_table_of_the_documentation():
    severities, _ = made()
    assert len(severities) <= 20
    assert {name: set(severity.split(", or ")) for name, severity, *_ in table("| name |")} == severities


def test_messages_and_advices_are_sentences():
    _, sentences = made()
    assert len(sentences) > 60
    assert all(one.endswith(".") for one in sentences)


def test_old_names_are_read_as_names_of_today():
    severities, _ = made()
    assert set(_RENAMED.values()) <= set(severities)
    assert not set(_RENAMED) & set(severities)
    fields = '"severity": "error", "message": "m.", "advice": "a."'
    found = findings_from_json(f'[{{"name": "pareto_k", {fields}}}, {{"name": "rounding", {fields}}}]')
    assert [one.name for one in found] == ["weight_degeneracy", "rounding"]
    assert found[0].message == "m."


@pytest.mark.parametrize("reason", REASONS)
def test_a_fit_says_why_it_ended(reason):
    found = [str(one) for one in check_convergence(reason, "w", 0.5, 0.1, 1200)]
    assert len(found) == (reason != "tolerance")
    assert all(re.search(r"1,200|`w`", one) for one in found)
