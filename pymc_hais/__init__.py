"""How likely are the data under a PyMC model: log Z with an honest error bar.

Importing this package makes ``pm.sample_hais`` available.
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING

import pymc as _pymc

if _TYPE_CHECKING:
    from pymc_hais.calls.public import *  # noqa: F403

__all__ = [  # noqa: F405
    "HAIS",
    "BayesFactor",
    "Box",
    "CompiledModel",
    "Finding",
    "FlatDiscrete",
    "Gaussian",
    "Gibbs",
    "Hamiltonian",
    "LinearConstraints",
    "LogBayesFactor",
    "LogZEstimate",
    "Mixture",
    "PersistentHMC",
    "RandomWalk",
    "StudentT",
    "average",
    "bridge",
    "compare",
    "compile",
    "estimates",
    "extend",
    "fit",
    "inclusion_probabilities",
    "learning",
    "log_likelihood",
    "log_marginal_likelihood",
    "paper_settings",
    "prior_sensitivity",
    "sample_hais",
    "savage_dickey",
    "save_plan",
    "summary",
    "validate",
]

__version__ = "0.3.0"


#: Names of earlier versions, and what takes their place.
_REMOVED = {"LocallyBalanced": "pass `kernel=pymc_hais.Gibbs()`, or leave `kernel` out"}


def __getattr__(name: str) -> object:
    """Load public names where they are asked for: what they need takes seconds, and the plots more of them."""
    if name == "plots":
        return _importlib.import_module("pymc_hais.plots")
    if name in _REMOVED:
        raise AttributeError(f"pymc_hais.{name} was removed: {_REMOVED[name]}.")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(_importlib.import_module("pymc_hais.calls.public"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "plots"})


def _of_pymc(name: str) -> object:
    """Find ``pm.sample_hais``, and what PyMC itself loads where it is asked for."""
    if name != "sample_hais":
        return _found_by_pymc(name)
    setattr(_pymc, name, value := __getattr__(name))
    return value


def _missing(name: str) -> object:
    raise AttributeError(f"module 'pymc' has no attribute {name!r}")


# PyMC has no entry points for samplers.
_found_by_pymc = vars(_pymc).get("__getattr__", _missing)
_pymc.__getattr__ = _of_pymc
_pymc.__dir__ = lambda: sorted({*vars(_pymc), "sample_hais"})
