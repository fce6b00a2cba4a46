"""PyMC's own entry points: a step method for ``pm.sample`` and a kernel for ``pm.sample_smc``."""

from pymc_hais.integrations.persistent_hmc import PersistentHMC
from pymc_hais.integrations.smc_kernel import HAIS
