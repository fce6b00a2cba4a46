"""Real models with known log Z, at default settings: right within the error bar, or the user is warned."""

import numpy as np
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
