"""A quick run through the front door, and what its interval is held to."""

import pymc_hais

QUICK = {"draws": 500, "chains": 2, "progressbar": False, "random_seed": 1}


def estimate(model, **options):
    idata = pymc_hais.sample_hais(model=model, **{**QUICK, **options})
    return pymc_hais.log_marginal_likelihood(idata), idata


def assert_right(found, truth):
    assert abs(found.value - truth) <= 4 * found.se, f"{found} against {truth:.4f}"
