"""The tables of docs/reading_the_result.md list what the code returns."""

import itertools
from pathlib import Path

from pymc_hais.results.findings import FINDINGS
from tests.front_door import estimate
from tests.quick import one_mean

PAGE = (Path(__file__).parents[1] / "docs" / "reading_the_result.md").read_text("utf-8")
GROUPS = ("sample_stats", "annealing", "log_marginal_likelihood", "estimates")


def table(header):
    """Return the cells of the rows of a table, without code marks."""
    lines = PAGE[PAGE.index(header) :].replace("`", "").splitlines()[2:]
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]


def test_the_table_of_contents_is_what_comes_back():
    _, idata = estimate(one_mean(), draws=200)
    listed, group = {}, ""
    for name, variable, dims, _ in table("| group |"):
        group = name or group
        listed.setdefault(group, {})[variable] = tuple(dims.split(", ")) if dims else ()
    found = {name: {key: value.dims for key, value in idata[name].data_vars.items()} for name in GROUPS}
    assert {name: listed[name] for name in GROUPS} == found


def test_the_table_of_findings_has_all_of_them():
    listed = {name: set(severity.split(", or ")) for name, severity, _ in table("| name |")}
    made = {}
    for key, row in FINDINGS.items():
        made.setdefault(key.partition(":")[0], set()).update(row.severity.split(", or "))
    assert listed == made
