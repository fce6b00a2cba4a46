"""Real models with known log Z, at default settings: right within the error bar, or the user is warned."""

import numpy as np
import pymc as pm
import pytest

import pymc_hais
from benchmarks.cases import CASES, VARIANTS, build

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CASES.exists(), reason="the folder of shared cases is not beside the repository"),
]

#: Minutes each on two cores; `benchmarks/cases.py` runs them.
LONG = {
    "coal_mining:marginal",
    "gbs_funnel16",
    "gbs_cauchy48",
    "many_well32:flat",
    "co2_local_level:noncentred",
    "co2_local_level:centred",
}


@pytest.mark.every(10)
@pytest.mark.filterwarnings("ignore")  # the cases' own code
@pytest.mark.parametrize("case", [case for case in VARIANTS if case not in LONG])
def test_no_case_is_confidently_wrong(case):
    model, truth, sd = build(case)
    idata = pymc_hais.sample_hais(model=model, random_seed=2, progressbar=False)
    estimate = pymc_hais.log_marginal_likelihood(idata)
    if estimate.is_trustworthy:
        # Four standard errors: 6e-5 a case for an error bar that is right.
        assert abs(estimate.value - truth) <= 4.0 * np.hypot(estimate.se, sd) + 1e-12, str(estimate)
    if not estimate.findings:
        assert estimate.se <= 0.1


#: The published examples of R's bridgesampling, and others that NUTS samples well.
BRIDGED = ["hier_normal:H0", "hier_normal:H1", "sleep_ttest:jeffreys_H1", "sleep_ttest:jeffreys_H0", "radiata_pine:m1"]


@pytest.mark.every(6)
@pytest.mark.filterwarnings("ignore")  # the cases' own code, and NUTS
@pytest.mark.parametrize("case", BRIDGED)
def test_a_bridge_from_the_draws_of_nuts_finds_the_truth(case):
    model, truth, _ = build(case)
    idata = pm.sample(1000, tune=1000, chains=4, cores=1, random_seed=1, progressbar=False, model=model)
    estimate = pymc_hais.bridge(model, idata, random_seed=2)
    assert abs(estimate.value - truth) <= 4.0 * estimate.se, str(estimate)
    assert estimate.se < 0.03
