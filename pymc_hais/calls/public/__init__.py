"""All public names; ``pymc_hais`` loads them from here at the first use of one of them."""

# First, and near the top of the stack: its import looks at every frame, which takes longer deep within a call.
import arviz_base

from pymc_hais import learning
from pymc_hais.calls.bridge import bridge, savage_dickey
from pymc_hais.calls.compare import average, compare, inclusion_probabilities
from pymc_hais.calls.compile import CompiledModel, compile
from pymc_hais.calls.extend import extend
from pymc_hais.calls.fit import fit
from pymc_hais.calls.heldout import log_likelihood
from pymc_hais.calls.sample import paper_settings, sample_hais
from pymc_hais.calls.sensitivity import prior_sensitivity
from pymc_hais.calls.validate import validate
from pymc_hais.density import FlatDiscrete
from pymc_hais.estimators import BayesFactor, Finding, LogBayesFactor, LogZEstimate
from pymc_hais.inputs.results import log_marginal_likelihood, save_plan
from pymc_hais.integrations import HAIS, PersistentHMC
from pymc_hais.kernels import Gibbs, Hamiltonian, LinearConstraints, RandomWalk
from pymc_hais.references import Box, Gaussian, Mixture, StudentT
from pymc_hais.results.comparison.tables import estimates
from pymc_hais.results.summary import summary
