"""Docstrings and comments keep out patterns that a reader has to read twice (CONTRIBUTING.md, "Habits")."""

import ast
import io
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXTS = {
    path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
    for folder in ("pymc_hais", "examples", "benchmarks", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
}

#: First words that name no value: a function that returns one says "Return ..." or "Whether ...".
VERB = re.compile(r"\s*(Say|Tell|Ask)s?\b")

#: Clauses in place of a noun, a subject or a verb, with what to write instead.
CLAUSES = re.compile(
    r"(?<!each )(?<!both )\bof (which|whose|whom)\b"  # "X, of which few ...": "few of the X ..." in a new sentence
    r"|\b(is|are|was|were) looked at\b"  # examined, evaluated, compared, tested
    r"|\b[Nn]obody\b|\b[Ww]ho(ever)? (asks|compiles|computes|has|holds|interrupts|makes)\b"  # the thing itself
    r"|\bas ever\b|\b[Ww]hat is (no|neither)\b|\bnext to no(ne|thing)?\b"  # as usual, anything but ..., hardly any
    r"|\bspeaks? (for|against)\b|\bleft to us\b"  # confirms, refutes; chosen by default
)
#: Tests have longer sentences about numbers; messages and code are not read here.
READ = ("pymc_hais/", "examples/", "benchmarks/")


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


def clauses(text):
    """Return the clauses that need two readings in the docstrings and comments of a source text."""
    if not CLAUSES.search(re.sub(r"[\s#:]+", " ", text)):
        return []
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    words = " ".join(token.string for token in tokens if token.type == tokenize.COMMENT)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            words += " " + (ast.get_docstring(node) or "")
    return [found.group() for found in CLAUSES.finditer(re.sub(r"[\s#:]+", " ", words))]


def test_a_sentence_names_what_it_is_about():
    texts = {name: text for name, text in TEXTS.items() if name.startswith(READ)}
    assert {name: found for name, text in texts.items() if (found := clauses(text))} == {}


def test_a_clause_in_place_of_a_noun_is_found():
    assert clauses('"""Return a sum of\nwhich none counts."""\n') == ["of which"]
    assert clauses("#: Draws that are\n#: looked at.\nN = 3\n") == ["are looked at"]
    assert clauses('"""Return rows, each of which counts."""\nraise ValueError("of which")\n') == []
