"""Models of several modes: log Z is right, or the result says that it is not."""

import numpy as np
import pymc as pm
import pytest

import pymc_hais
from tests.hills import hilly_model
from tests.marks import slow_but

#: Standard errors beyond which a result must carry an error finding.
ALLOWED = 4.5


def check(seed):
    drawn = hilly_model(seed)
    idata = pm.sample_hais(model=drawn.model, random_seed=seed, progressbar=False)
    estimate = pymc_hais.log_marginal_likelihood(idata)
    errors = [finding.name for finding in estimate.findings if finding.severity == "error"]
    assert errors or abs(estimate.value - drawn.log_z) < ALLOWED * estimate.se, (drawn.parts, estimate, drawn.log_z)


@pytest.mark.parametrize("seed", slow_but((), [0, 7], [7]))
def test_few_models_of_several_modes(seed):
    check(seed)


@pytest.mark.every(10)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 8, 9, 11, 12, 15, 20, 25, 1208, 1225])
def test_some_models_of_several_modes(seed):
    check(seed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_models_of_several_modes(seed):
    check(seed)


def test_the_models_differ_and_their_truths_are_finite():
    drawn = [hilly_model(seed) for seed in (0, 1, 2, 7)]
    assert len({one.parts for one in drawn}) == 4
    assert np.isfinite([one.log_z for one in drawn]).all()
