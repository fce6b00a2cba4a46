"""Imports point downward only, each outside library has one home (CONTRIBUTING.md), and importing is quick."""

import ast
import functools
import graphlib
import sys
from collections import Counter
from pathlib import Path

import pymc  # noqa: F401
import pytest

import pymc_hais
from tests.processes import run_apart

ROOT = Path(pymc_hais.__file__).parent

#: Top-level modules and folders, from the ground up; a module imports from its own level or below.
LEVELS = [
    {"core"},
    {"density", "latent"},
    {"kernels", "estimators", "goodness_of_fit"},
    {"engines"},
    {"references"},
    {"tuning"},
    {"problem"},
    {"runner"},
    {"run"},
    {"planning", "opinions"},
    {"inputs"},
    {"results"},
    {"plots"},
    {"calls", "integrations", "learning"},
    {"__init__"},
]
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}

#: Outside library -> the modules and folders that may import it.
PYMC_HOMES = {"density", "latent", "references", "integrations", "learning"}
LABEL_HOMES = {"results"}
#: Signatures name the types of models and results.
SIGNATURES = {"calls", "results"}
HOMES = {
    "pymc": PYMC_HOMES | SIGNATURES,
    "pytensor": PYMC_HOMES,
    "jax": {"engines/jax", "engines/programs", "density/jax_forms"},
    "numba": {"engines/numba"},
    "threadpoolctl": {"core/process"},
    "xarray": LABEL_HOMES | {"inputs"} | SIGNATURES,
    "arviz": LABEL_HOMES,
    "arviz_base": LABEL_HOMES | {"inputs/labels"},
    "arviz_plots": LABEL_HOMES,
    "arviz_stats": LABEL_HOMES | {"estimators"},
    "matplotlib": {"results/plots"},
    "rich": {"runner/progress"},
}

#: Deviations that exist, each with its reason; a line that is no longer needed fails the suite.
TOLERATED = {
    ("__init__", "pymc"): "the line that makes pm.sample_hais work",
    ("inputs/labels", "pymc"): "the library that labelled arrays name as their source",
}


def name_of(path):
    return path.relative_to(ROOT).with_suffix("").as_posix()


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def find(dotted):
    """Return the package's module of a dotted name, if it is one."""
    path = dotted.removeprefix("pymc_hais").lstrip(".").replace(".", "/")
    candidates = (path, f"{path}/__init__".lstrip("/"))
    inside = dotted.partition(".")[0] == "pymc_hais"
    return next((candidate for candidate in candidates if inside and candidate in MODULES), None)


@functools.cache
def parsed(name):
    return ast.parse(MODULES[name].read_text(encoding="utf-8"))


@functools.cache
def imports(name):
    """Return the dotted names that a module imports anywhere, also inside functions."""
    found = set()
    for node in ast.walk(parsed(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively; the package's imports are absolute"
            members = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {member if find(member) else node.module for member in members}
    return found


def inner_imports(name):
    """Return the package's modules that a module imports."""
    return {find(imported) for imported in imports(name)} - {None, name}


def is_home(name, homes):
    return any(name == home or name.startswith(f"{home}/") for home in homes)


def outside(name):
    return {imported.partition(".")[0] for imported in imports(name)} & set(HOMES)


def test_imports_point_downward_only():
    tops = {name: name.partition("/")[0] for name in MODULES}
    assert set(tops.values()) <= set(LEVEL), "a folder has no level yet: say in LEVELS where it belongs"
    upward = [
        (name, other) for name in MODULES for other in inner_imports(name) if LEVEL[tops[other]] > LEVEL[tops[name]]
    ]
    assert not upward


def test_the_density_knows_no_sampler_and_few_folders_know_the_latent_fields():
    """A place of their own: `CONTRIBUTING.md` describes both rooms.

    The coordinates have the fields; the planning of a call and its result have the rows that are integrated out.
    """
    known = {name: {other.partition("/")[0] for other in inner_imports(name)} for name in MODULES}
    assert all(
        known[name] <= {"core", "density", "latent"} for name in MODULES if name.startswith(("density/", "latent/"))
    )
    users = {name.rpartition("/")[0] for name in MODULES if "latent" in known[name]}
    assert users == {"density/coordinates", "latent", "latent/rows", "planning", "problem", "results"}


def test_no_import_cycles():
    graph = {name: inner_imports(name) for name in MODULES}
    assert set(graphlib.TopologicalSorter(graph).static_order()) >= set(MODULES)  # an error if there is a cycle


@pytest.mark.slow
def test_each_file_of_the_latent_fields_can_be_imported_first():
    """The coordinates of the density import the fields, which stand on its graphs."""
    names = [f"pymc_hais.{name.replace('/', '.')}" for name in MODULES if name.startswith("latent/")]
    program = """
import importlib, os, sys
import pymc
for name in sys.argv[1:]:
    if os.fork() == 0:
        importlib.import_module(name)
        os._exit(0)
    assert os.wait()[1] == 0, name
"""
    run_apart(program, *names)


def test_the_learning_package_reaches_the_sampler_in_one_file():
    sampler = {
        "kernels",
        "estimators",
        "goodness_of_fit",
        "tuning",
        "problem",
        "run",
        "planning",
        "opinions",
        "results",
        "calls",
    }
    inside = [name for name in MODULES if name.startswith("learning/")]
    reaching = [name for name in inside if {one.partition("/")[0] for one in inner_imports(name)} & sampler]
    assert reaching == ["learning/likelihood/chains"]


def test_each_outside_library_has_one_home():
    strays = {(name, one) for name in MODULES for one in outside(name) if not is_home(name, HOMES[one])}
    assert strays == set(TOLERATED)


#: Modules of PyMC whose names are documented; those of others go through ``density/compat``.
DOCUMENTED = ("pymc.dims", "pymc.distributions", "pymc.model", "pymc.stats")
#: Step methods and kernels of PyMC have no other base than these.
BASES_OF = {
    "integrations/persistent_hmc": (
        "pymc.step_methods",
        "pymc.blocking",
        "pymc.exceptions",
        "pymc.util",
        "pymc.vartypes",
    ),
    "integrations/smc_kernel": ("pymc.smc",),
}


#: Modules that reach private attributes of others, each with its reason.
REACHING = {
    "density/compat": "the home of what is private in PyMC and PyTensor",
    "density/identity/walk": "the name of a library that ctypes has loaded, for a message",
    "integrations/persistent_hmc": "the density of PyMC's own base class of step methods",
    "engines/programs": "JAX's cache on disk; without these names it serves unchecked",
    "runner/executors": "the settings of the user's executor, for another one like it",
}


def members(name):
    """Return the names that a module imports from modules of PyMC and PyTensor, and what it calls them."""
    return {
        f"{node.module}.{alias.name}": alias.asname
        for node in ast.walk(parsed(name))
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] in {"pymc", "pytensor"}
        for alias in node.names
    }


#: Names that `density/compat` has for the others, as their form there says: `import X as X`.
PASSED_ON = {one for one, asname in members("density/compat").items() if asname == one.rpartition(".")[2]}


def test_private_and_moving_names_of_pymc_are_taken_through_compat():
    for name in set(MODULES) - {"density/compat"}:
        taken = set(members(name))
        assert not taken & PASSED_ON, name
        assert not [one for one in taken if any(part.startswith("_") for part in one.split("."))], name
        known = (*DOCUMENTED, *BASES_OF.get(name, ()))
        assert not [one for one in taken if one.startswith("pymc.") and not one.startswith(known)], name


def test_private_attributes_are_those_of_the_package():
    defined, used = set(), {}
    for name in MODULES:
        for node in ast.walk(parsed(name)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                defined.add(node.name)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                defined.add(node.id if isinstance(node, ast.Name) else node.attr)
            elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                used.setdefault(node.attr, set()).add(name)
    assert set().union(*(names for attribute, names in used.items() if attribute not in defined)) == set(REACHING)


def test_a_folder_holds_twelve_files_at_most():
    n_files = Counter(path.parent for path in MODULES.values())
    assert n_files.pop(ROOT) == 1
    assert not [folder for folder, n in n_files.items() if n > 12]


def test_names_are_told_in_the_public_faces_alone():
    def tells(name):
        body = parsed(name).body
        return any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__" for node in body)

    public = {"learning/__init__", "plots/__init__"}  # those of the package itself are in a stub
    assert {name for name in MODULES if tells(name)} == public


def test_importing_the_package_is_quick_and_loads_what_a_call_needs_later():
    """JAX comes with arviz-stats where NumPyro is installed: seconds, for whoever only wants to see the version."""
    program = """
import sys, time
import pymc as pm
before, begin = set(sys.modules), time.process_time()
import pymc_hais
seconds, loaded = time.process_time() - begin, {name.partition(".")[0] for name in set(sys.modules) - before}
print(seconds, *(loaded & {"jax", "numba", "scipy", "arviz_stats", "arviz_base", "matplotlib"}))
assert {"sample_hais"} <= set(dir(pm)) and {*pymc_hais.__all__, "plots"} <= set(dir(pymc_hais))
assert pm.sample_hais is pymc_hais.sample_hais
for name in pymc_hais.__all__:
    getattr(pymc_hais, name)
"""
    seconds, *loaded = run_apart(program).split()
    assert not loaded
    assert float(seconds) < 0.3


def test_sampling_loads_no_tests_of_scipy_and_no_learning():
    """Half a second of a short call; they load where they are needed."""
    program = "import pymc as pm, pymc_hais, sys; pm.sample_hais; print(*sys.modules)"
    loaded = set(run_apart(program).split())
    assert "pymc_hais.calls.sample" in loaded
    assert not loaded & {"scipy.stats", "arviz_stats", "arviz_plots", "pymc_hais.learning", "pymc_hais.calls.bridge"}


@pytest.mark.parametrize("module", ["pymc", "pymc_hais"])
def test_an_unknown_name_is_an_attribute_error(module):
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'nothing'"):
        _ = sys.modules[module].nothing


def test_a_name_that_went_says_what_takes_its_place():
    with pytest.raises(AttributeError, match=r"LocallyBalanced was removed: pass `kernel=pymc_hais.Gibbs\(\)`"):
        _ = sys.modules["pymc_hais"].LocallyBalanced
