"""All public names and where they are: for type checkers, and for ``__init__``, which loads each at its first use."""

from . import learning as learning
from . import plots as plots
from .calls.bridge import bridge as bridge
from .calls.bridge import savage_dickey as savage_dickey
from .calls.compare import average as average
from .calls.compare import compare as compare
from .calls.compare import inclusion_probabilities as inclusion_probabilities
from .calls.compile import CompiledModel as CompiledModel
from .calls.compile import compile as compile
from .calls.extend import extend as extend
from .calls.fit import fit as fit
from .calls.heldout import log_likelihood as log_likelihood
from .calls.sample import paper_settings as paper_settings
from .calls.sample import sample_hais as sample_hais
from .calls.sensitivity import prior_sensitivity as prior_sensitivity
from .calls.validate import validate as validate
from .density import FlatDiscrete as FlatDiscrete
from .estimators import BayesFactor as BayesFactor
from .estimators import Finding as Finding
from .estimators import LogBayesFactor as LogBayesFactor
from .estimators import LogZEstimate as LogZEstimate
from .inputs.results import log_marginal_likelihood as log_marginal_likelihood
from .inputs.results import save_plan as save_plan
from .integrations import HAIS as HAIS
from .integrations import PersistentHMC as PersistentHMC
from .kernels import Gibbs as Gibbs
from .kernels import Hamiltonian as Hamiltonian
from .kernels import LinearConstraints as LinearConstraints
from .kernels import RandomWalk as RandomWalk
from .references import Box as Box
from .references import Gaussian as Gaussian
from .references import Mixture as Mixture
from .references import StudentT as StudentT
from .results.comparison.tables import estimates as estimates
from .results.summary import summary as summary

__version__: str
