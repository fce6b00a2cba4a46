"""A quick run through the front door, and what its interval is held to."""

import pymc_hais

QUICK = {"draws": 500, "chains": 2, "progressbar": False, "random_seed": 1}


def estimate(model, **options):
    idata = pymc_hais.sample_hais(model=model, **{**QUICK, **options})
    return pymc_hais.log_marginal_likelihood(idata), idata


def assert_right(found, truth):
    rounding = 1e-12 * (1.0 + abs(truth))  # a reference that is the target has no other error
    assert abs(found.value - truth) <= 4 * found.se + rounding, f"{found} against {truth:.4f}"
