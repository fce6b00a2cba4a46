"""Tasks of a first month are found from the start page, and links of the documentation are well formed."""

import re
from urllib.parse import urlparse

import pytest

from tests.test_docs import DOCS, PAGES

#: What a user looks for, the page that has it, and a word of its title.
TASKS = {
    "install the package": ("install", "Install"),
    "compute a first log Z": ("getting_started", "first log Z"),
    "compare two models": ("comparing", "Compare"),
    "get the Bayes factor of a point null": ("hypothesis_tests", "hypothesis"),
    "save a result": ("saving_and_loading", "Save"),
    "go on with a run": ("resume", "Resume"),
    "use a likelihood that is a black box": ("black_boxes", "black boxes"),
    "model a time series": ("time_series", "Time series"),
    "model a Gaussian process": ("gallery/gaussian_process", "Gaussian process"),
    "model a mixture": ("mixtures", "Mixture"),
    "use a discrete variable": ("discrete", "Discrete"),
    "score held-out data": ("held_out", "held-out"),
    "report a result in a paper": ("reporting", "Report"),
    "read what a finding means": ("reading_the_result", "read the result"),
    "use a GPU": ("which_pymc", "GPU"),
    "limit the time": ("time_limit", "Limit the time"),
    "run on a cluster": ("cluster", "cluster"),
    "handle missing data": ("gallery/missing_data", "Missing"),
    "see how much the prior matters": ("gallery/prior_sensitivity", "prior"),
    "learn an energy-based model": ("learning", "Learn"),
}
#: Hosts that the pages may link to; a new one is added once somebody has opened the link.
HOSTS = {
    *("arxiv.org", "doi.org", "keepachangelog.com", "semver.org"),
    *("bambinos.github.io", "jupytext.readthedocs.io", "mpi4py.readthedocs.io", "python.arviz.org"),
    *("distributed.dask.org", "jobqueue.dask.org", "kubernetes.dask.org"),
}
TEXTS = {path.relative_to(DOCS).with_suffix("").as_posix(): path.read_text("utf-8") for path in PAGES}


def visible_links(page):
    """Return the pages that a page shows a link to: in cards, in its text, and in the menu of the start page."""
    text = TEXTS[page]
    names = re.findall(r"^:link: (\S+)$", text, re.MULTILINE)
    names += [name.removesuffix(".md") for name in re.findall(r"\]\(([^)#:\s]+\.md)(?:#[^)]*)?\)", text)]
    if page == "index":
        menu = re.search(r"```\{toctree\}(.*?)```", text, re.DOTALL)[1]
        names += [name for name in menu.split() if not name.startswith(":")]
    return {(DOCS / page).parent.joinpath(name).resolve().relative_to(DOCS.resolve()).as_posix() for name in names}


def clicks():
    """Return how many clicks each page is away from the start page."""
    found, edge = {"index": 0}, ["index"]
    while edge:
        page = edge.pop(0)
        for other in visible_links(page) - set(found):
            found[other] = found[page] + 1
            edge.append(other)
    return found


@pytest.mark.parametrize("task", TASKS)
def test_a_task_is_three_clicks_from_the_start_page_at_most(task):
    page, word = TASKS[task]
    title = re.search(r"^# (.*)$", TEXTS[page], re.MULTILINE)[1]
    assert word.lower() in title.lower()
    assert clicks()[page] <= 3


def test_each_page_is_three_clicks_from_the_start_page_at_most():
    found = clicks()
    assert set(TEXTS) <= set(found), set(TEXTS) - set(found)
    assert max(found.values()) <= 3


def external_links():
    """Return the addresses in README and pages, by page."""
    readme = (DOCS.parent / "README.md").read_text("utf-8")
    texts = {**TEXTS, "README": readme, "CHANGELOG": (DOCS.parent / "CHANGELOG.md").read_text("utf-8")}
    return {(page, url) for page, text in texts.items() for url in re.findall(r"https?://[^\s)>\"'`]+", text)}


def test_links_to_other_sites_are_well_formed_and_lead_to_known_hosts():
    for page, url in external_links():
        address = urlparse(url)
        assert address.scheme == "https", (page, url)
        assert address.netloc in HOSTS, (page, url)
        assert url[-1] not in ".,;:", (page, url)


if __name__ == "__main__":  # the addresses, for somebody with a network to open
    for where, link in sorted(external_links()):
        print(f"{where}: {link}")
