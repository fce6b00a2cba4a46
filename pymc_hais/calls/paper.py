"""The recipe of the HAIS report as arguments."""

from typing import Any

import numpy as np

from pymc_hais.inputs.arguments import check_integer
from pymc_hais.kernels import Hamiltonian


def paper_settings(n_distributions: int) -> dict[str, Any]:
    """Return the arguments of :func:`sample_hais` that run the recipe of the HAIS report.

    Linear betas, one drift-kick-drift leapfrog step of 0.2 a distribution, half of the momentum's power renewed per
    unit of simulation time, no resampling, no tuning, one round, as in
    ``pm.sample_hais(200, chains=1, **paper_settings(1000))``.
    The report anneals from a standard normal (analysis models: add ``reference="gaussian"``) or from the prior of the
    latent variables (generative models: add ``reference="prior"``).

    Parameters
    ----------
    n_distributions : int
        N, the intermediate distributions.

    References
    ----------
    Sohl-Dickstein & Culpepper (2012), arXiv:1205.1925, sections 3 and 5.
    """
    check_integer("n_distributions", n_distributions, 1)
    return {
        "kernel": Hamiltonian(integrator="drift-kick-drift", step_size=0.2, damping=float(np.log(2.0))),
        "schedule": "linear",
        "n_temperatures": int(n_distributions),
        "resample": False,
        "target_se": None,
    }
