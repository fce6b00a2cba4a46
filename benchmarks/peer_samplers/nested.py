"""Nested sampling, on the unit cube of the prior."""

import numpy as np
import pymc as pm

from peer_samplers.density import on_unit_cube
from peer_samplers.estimate import Estimate


def nautilus(model: pm.Model, seed: int) -> Estimate:
    """Call nautilus as it is: importance nested sampling with neural networks."""
    from nautilus import Sampler

    log_likelihood, n_dims = on_unit_cube(model)
    sampler = Sampler(lambda u: u, log_likelihood, n_dim=n_dims, seed=seed)
    sampler.run()
    # It states no error; its effective sample size is that of the weights whose mean is Z.
    return Estimate(float(sampler.log_z), float(sampler.n_eff**-0.5), int(sampler.n_like), False)


def dynesty(model: pm.Model, seed: int) -> Estimate:
    """Call dynesty as it is, until 0.1 nats remain at most."""
    from dynesty import NestedSampler

    log_likelihood, n_dims = on_unit_cube(model)
    sampler = NestedSampler(log_likelihood, lambda u: u, n_dims, rstate=np.random.default_rng(seed))
    sampler.run_nested(dlogz=0.1, print_progress=False)
    found = sampler.results
    return Estimate(float(found.logz[-1]), float(found.logzerr[-1]), int(np.sum(found.ncall)), False)
