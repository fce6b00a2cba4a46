"""One version, in every file that has to say it; what a release needs is there."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pymc_hais

ROOT = Path(__file__).parents[1]


def read(name):
    return (ROOT / name).read_text("utf-8")


def test_every_file_says_the_same_version():
    """Of a version that is being developed these files say which one was released last."""
    released, date = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)$", read("CHANGELOG.md"), re.M)[0]
    version, _, is_developed = pymc_hais.__version__.partition(".dev")
    numbers, last = (tuple(map(int, one.split("."))) for one in (version, released))
    assert numbers > last if is_developed else numbers == last
    assert re.search(rf"^version: {re.escape(released)}$", read("CITATION.cff"), re.M)
    assert re.search(rf'^  version: "{re.escape(released)}"$', read("conda/recipe.yaml"), re.M)
    assert f"date-released: {date}" in read("CITATION.cff")


def test_an_entry_of_the_changelog_is_one_line():
    entries = read("CHANGELOG.md").partition("## [Unreleased]")[2].splitlines()
    assert all(line.startswith(("- ", "##", "First release.")) or not line for line in entries)
    assert max(map(len, entries)) <= 160


def test_what_is_imported_is_declared():
    needed = {re.split(r"[\[><=]", one)[0] for one in tomllib.loads(read("pyproject.toml"))["project"]["dependencies"]}
    optional = {"jax", "matplotlib"}  # imported where they are asked for
    imported = set()
    for path in (ROOT / "pymc_hais").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            imported |= {name.partition(".")[0] for name in names}
    others = {one.replace("_", "-") for one in imported - set(sys.stdlib_module_names)}
    missing = others - needed - optional - {"pymc-hais"}
    assert not missing


def test_the_recipe_asks_for_what_the_package_depends_on():
    project = tomllib.loads(read("pyproject.toml"))["project"]
    needed = {re.split(r"[\[><=]", one)[0] for one in project["dependencies"]}
    run = read("conda/recipe.yaml").partition("  run:")[2].partition("tests:")[0]
    listed = {line.split()[1] for line in run.splitlines() if line.strip().startswith("- ")}
    assert listed == needed | {"python", "h5netcdf"}  # arviz[h5netcdf] has no form in conda
    least = dict(re.findall(r"- (\S+) >=(\S+)", run))
    assert least["python"] == project["requires-python"].removeprefix(">=")
    assert all(f"{name}>={least[name]}" in " ".join(project["dependencies"]) for name in ("pymc",))
