"""The tables of the documentation list what the code returns, and pages with code can become notebooks."""

import inspect
import itertools
import re
from pathlib import Path

import pytest

from pymc_hais import sample_hais
from tests.front_door import estimate
from tests.quick import one_mean

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
NOTEBOOKS = [path for path in PAGES if "\n```{code-cell}" in path.read_text("utf-8")]
GROUPS = ("sample_stats", "annealing", "log_marginal_likelihood", "estimates")


def table(header, page="reading_the_result"):
    """Return the cells of the rows of a table, without code marks."""
    text = (DOCS / f"{page}.md").read_text("utf-8")
    lines = text[text.index(header) :].replace("`", "").splitlines()[2:]
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]


def test_the_table_of_contents_is_what_comes_back():
    _, idata = estimate(one_mean(), draws=200)
    listed, group = {}, ""
    for name, variable, dims, _ in table("| group |", "result_contents"):
        group = name or group
        listed.setdefault(group, {})[variable] = tuple(dims.split(", ")) if dims else ()
    found = {name: {key: value.dims for key, value in idata[name].data_vars.items()} for name in GROUPS}
    assert {name: listed[name] for name in GROUPS} == found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_pages_with_code_can_become_notebooks(path):
    text = path.read_text("utf-8")
    # Jupytext takes the format of a page from its head only where the extension is there too.
    head = "---\njupytext:\n  text_representation:\n    extension: .md\n    format_name: myst\n"
    assert text.startswith(head)
    # Sphinx writes the title of the page into an empty link; a notebook shows nothing.
    assert not re.findall(r"\[\]\([^)]*\)", text)


def test_the_table_of_settings_has_every_argument():
    cells = re.findall(r"^\| (`[^|]+`) \|", (DOCS / "settings.md").read_text("utf-8"), re.MULTILINE)
    listed = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(listed) == sorted(inspect.signature(sample_hais).parameters)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_is_short(path):
    """A page has at most 1,200 words beside code and tables."""
    text = re.sub(r"\A---\n.*?\n---\n", "", path.read_text("utf-8"), flags=re.DOTALL)
    words = re.sub(r"^```.*?^```|^\|[^\n]*", "", text, flags=re.DOTALL | re.MULTILINE).split()
    assert len(words) <= 1200
