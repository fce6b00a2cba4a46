"""How likely are the data under a PyMC model: log Z with an honest error bar.

Importing this package makes ``pm.sample_hais`` available.
"""

import importlib as _importlib

import pymc as _pymc

from pymc_hais import learning
from pymc_hais.calls.bridge import bridge
from pymc_hais.calls.compare import average, compare, inclusion_probabilities
from pymc_hais.calls.compile import CompiledModel, compile
from pymc_hais.calls.extend import extend
from pymc_hais.calls.fit import fit
from pymc_hais.calls.heldout import log_likelihood
from pymc_hais.calls.paper import paper_settings
from pymc_hais.calls.sample import sample_hais
from pymc_hais.calls.sensitivity import prior_sensitivity
from pymc_hais.calls.validate import validate
from pymc_hais.estimators import BayesFactor, Finding, LogBayesFactor, LogZEstimate
from pymc_hais.integrations import HAIS, PersistentHMC
from pymc_hais.kernels import Gibbs, Hamiltonian, LinearConstraints, LocallyBalanced, RandomWalk
from pymc_hais.model import FlatDiscrete
from pymc_hais.references import Box, Gaussian, Mixture, StudentT
from pymc_hais.results.comparison.tables import estimates
from pymc_hais.results.datatree import log_marginal_likelihood
from pymc_hais.results.plans import save_plan

__all__ = [
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
    "LocallyBalanced",
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
    "save_plan",
    "validate",
]

__version__ = "0.2.0"

# PyMC has no entry points for samplers; setting the name again is harmless.
_pymc.sample_hais = sample_hais


def __getattr__(name: str) -> object:
    """Load the plots where they are asked for: arviz-plots takes seconds."""
    if name != "plots":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _importlib.import_module("pymc_hais.plots")


def __dir__() -> list[str]:
    return sorted([*globals(), "plots"])
