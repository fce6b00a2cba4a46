"""Settings that every test shares."""

import atexit
import gc
import importlib.util
import os
import sys
import tempfile
from collections import Counter

import pytest

from tests.level import N_ASSERTIONS, spent

#: Statistical assertions of all processes.
_spent = [0]
#: The C compiler that PyTensor found.
_cxx = [""]
#: Files of tests that are named with their seconds at the end.
_SLOWEST_FILES = 15

# Each module is compiled once, not in each process: two thirds of the time that an import takes.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Tests build the same small programs again and again: JAX compiles each of them once a session, of all its processes.
if "PYTEST_XDIST_WORKER" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="hais-tests-")
    atexit.register(_cache.cleanup)
    os.environ |= {
        "JAX_COMPILATION_CACHE_DIR": _cache.name,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        # Noting where each variable was made takes a tenth of the suite.
        "PYTENSOR_FLAGS": f"{os.environ.get('PYTENSOR_FLAGS', '')},traceback__limit=0".lstrip(","),
    }


@pytest.fixture
def c_compiler():
    """Let PyTensor compile C code, for tests of the backend "c"."""
    import pytensor

    with pytensor.config.change_flags(cxx=_cxx[0]):
        yield


def pytest_configure(config):
    """Let XLA optimise nothing in the fast suite, which mostly compiles; the slow suite has what users run."""
    if config.getoption("markexpr") == "not slow" and "PYTEST_XDIST_WORKER" not in os.environ:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        prepare()  # the process that shares out the tests spares the imports


def prepare():
    """Set up JAX, and Hypothesis with the same examples on every machine: a red suite means a changed package.

    PyTensor has no C compiler: each operation on constants that it computes beforehand would be a program of its own,
    hundreds of them, that runs once.  (It has one while it is imported, or its backend "c" would never use it.)
    """
    import pytensor
    from hypothesis import settings

    _cxx[0], pytensor.config.cxx = pytensor.config.cxx, ""

    if importlib.util.find_spec("jax") is not None:
        import jax

        jax.config.update("jax_enable_x64", True)
    settings.register_profile("suite", deadline=None, derandomize=True, max_examples=100)
    settings.load_profile("suite")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leave out what is exhaustive unless it is asked for, and share out the tests that say ``few`` or ``every``."""
    counts = Counter()
    for item in items:
        few, every = item.get_closest_marker("few"), item.get_closest_marker("every")
        if few and not item.get_closest_marker("slow") and is_left(item, few, counts):
            item.add_marker("slow")
        if every and item.get_closest_marker("slow") and is_left(item, every, counts):
            item.add_marker("exhaustive")
    if "exhaustive" not in config.getoption("markexpr"):
        left = [item for item in items if item.get_closest_marker("exhaustive")]
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]
        config.hook.pytest_deselected(items=left)


def is_left(item, mark, counts):
    """Count the parameters of each test that have a mark; all but each k-th are left to the next suite."""
    key = mark.name, item.nodeid.partition("[")[0]
    counts[key] += 1
    return (counts[key] - 1 - mark.kwargs.get("start", 0)) % mark.args[0] > 0


def pytest_collection_finish():
    """Spare Python the search for garbage among all that is imported, and most of the others."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_sessionfinish(session):
    """Count the statistical assertions of all processes: more than share the suite's level fail it."""
    here = spent()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["spent"] = here
        return
    _spent[0] += here
    if _spent[0] > N_ASSERTIONS:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Take over the count of a process of the suite."""
    _spent[0] += getattr(node, "workeroutput", {}).get("spent", 0)


def pytest_terminal_summary(terminalreporter):
    """Show which files take the time."""
    seconds = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration") and hasattr(report, "nodeid"):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    if _spent[0]:
        terminalreporter.write_line(f"{_spent[0]} of {N_ASSERTIONS} statistical assertions")
    terminalreporter.section(f"seconds of the slowest {_SLOWEST_FILES} files, of {sum(seconds.values()):.0f}")
    for name, taken in seconds.most_common(_SLOWEST_FILES):
        terminalreporter.write_line(f"{taken:7.1f}  {name}")
