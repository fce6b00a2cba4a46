"""Docstrings and comments keep out patterns that a reader has to read twice (CONTRIBUTING.md, "Habits")."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXTS = {
    path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
    for folder in ("pymc_hais", "examples", "benchmarks", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
}

#: First words that name no value: a function that returns one says "Return ..." or "Whether ...".
VERB = re.compile(r"\s*(Say|Tell|Ask)s?\b")


def returns_a_value(function):
    """Whether a function is annotated with a value, or returns one in its body."""
    if function.returns is not None:
        return ast.unparse(function.returns) not in {"None", "NoReturn"}
    return any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(function))


def misnamed(text):
    """Return the functions of a source text that return a value, and whose docstring begins with such a verb."""
    if not re.search(r'"""' + VERB.pattern, text):
        return []
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    return [one.name for one in functions if returns_a_value(one) and VERB.match(ast.get_docstring(one) or "")]


def test_a_docstring_says_what_a_function_returns():
    assert {name: found for name, text in TEXTS.items() if (found := misnamed(text))} == {}


def test_a_verb_that_names_no_value_is_found():
    docstring, body = '"""Say how many."""', "return 1"
    assert misnamed(f"def f() -> int:\n    {docstring}\n    {body}\n") == ["f"]
    assert misnamed(f"def f():\n    {docstring}\n    {body}\n") == ["f"]
    assert misnamed(f"def f() -> None:\n    {docstring}\n") == []
