"""PyMC's own doors: a step method for ``pm.sample`` and a kernel for ``pm.sample_smc``."""

from pymc_hais.integrations.persistent_hmc import PersistentHMC

__all__ = ["PersistentHMC"]
