"""One version, in every file that has to say it; what a release needs is there."""

import re
import tomllib
from pathlib import Path

import pymc_hais

ROOT = Path(__file__).parents[1]


def read(name):
    return (ROOT / name).read_text("utf-8")


def test_every_file_says_the_same_version():
    version = re.escape(pymc_hais.__version__)
    assert re.search(rf"^version: {version}$", read("CITATION.cff"), re.M)
    assert re.search(rf'^  version: "{version}"$', read("conda/recipe.yaml"), re.M)
    # The date of the release stands beside it.
    (date,) = re.findall(rf"^## \[{version}\] - (\d{{4}}-\d\d-\d\d)$", read("CHANGELOG.md"), re.M)
    assert f"date-released: {date}" in read("CITATION.cff")


def test_the_recipe_asks_for_what_the_package_depends_on():
    project = tomllib.loads(read("pyproject.toml"))["project"]
    needed = {re.split(r"[\[><=]", one)[0] for one in project["dependencies"]}
    run = read("conda/recipe.yaml").partition("  run:")[2].partition("tests:")[0]
    listed = {line.split()[1] for line in run.splitlines() if line.strip().startswith("- ")}
    assert listed == needed | {"python", "h5netcdf"}  # arviz[h5netcdf] has no form in conda
    least = dict(re.findall(r"- (\S+) >=(\S+)", run))
    assert least["python"] == project["requires-python"].removeprefix(">=")
    assert all(f"{name}>={least[name]}" in " ".join(project["dependencies"]) for name in ("pymc",))
