"""A default call on random discrete and mixed models: what is not flagged as an error is right."""

import os
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from scipy.special import logsumexp
from scipy.stats import norm

import pymc_hais
from pymc_hais import FlatDiscrete
from tests.discrete_truth import build_mixture, log_evidence_mixture
from tests.marks import slow_but
from tests.measured_models import MEASURED, beside_a_constant, log_z_codes
from tests.processes import run_apart
from tests.random_models import models, random_model
from tests.random_models.oracle import EXACT, Axis, UnknownTruth, exact_log_z
from tests.truth import log_evidence_normal

ROOT = Path(__file__).parents[2]
SINGLE = "spike and slab, scale below 300"
#: 4.5 standard errors: 7e-6 a model if errors are Gaussian, and 5e-4 for all of this file.
FAR = 4.5
#: Enough for the oracle, and no multiple of anything.
WIDE = np.array([-60.0, -31.0, -13.0, -4.0, 0.0, 5.0, 14.0, 33.0, 60.0])


def assert_right_or_flagged(model, truth, seed, parts=()):
    idata = pm.sample_hais(model=model, random_seed=seed, progressbar=False)
    found = pymc_hais.log_marginal_likelihood(idata)
    z = (found.value - truth.log_z) / np.hypot(np.hypot(found.se, truth.error), EXACT)
    is_flagged = any(one.severity == "error" for one in found.findings)
    assert is_flagged or abs(z) <= FAR, f"{found.value} ± {found.se}, exact {truth.log_z}: {parts}"
    return idata


# The oracle ---------------------------------------------------------------------------------------------


def test_the_oracle_sums_a_mixture():
    given = [0.2, 1.9, 4.0], [0.2, 0.5, 0.3], [0.0, 2.0, 5.0], [1.0, 0.5, 2.0]
    truth = exact_log_z(build_mixture(*given), {"z": Axis((3,), np.arange(3))})
    assert truth.log_z == pytest.approx(log_evidence_mixture(*given), abs=1e-10)


def test_the_oracle_sums_four_spins():
    """On a ring of four spins, Z = (2 cosh J)^4 + (2 sinh J)^4."""
    with pm.Model() as model:
        spin = 2 * FlatDiscrete("s", shape=(2, 2)) - 1
        bonds = (spin[0] * spin[1]).sum() + (spin[:, 0] * spin[:, 1]).sum()
        pm.Potential("bonds", 0.7 * bonds)
    truth = exact_log_z(model, {"s": Axis((2, 2), np.arange(2))})
    assert truth.log_z == pytest.approx(np.log((2 * np.cosh(0.7)) ** 4 + (2 * np.sinh(0.7)) ** 4), abs=1e-10)


def test_the_oracle_integrates_a_normal_mean_of_each_kind():
    y = np.array([1.2, 0.3, 2.5])
    with pm.Model() as model:
        mu, z = pm.Normal("mu", 0.0, 5.0), pm.Bernoulli("z", 0.3)
        pm.Normal("y", mu, pt.switch(z, 0.2, 2.0), observed=y)
    truth = exact_log_z(model, {"mu": Axis((), edges=WIDE), "z": Axis((), np.arange(2))})
    kinds = [np.log(w) + log_evidence_normal(y, 0.0, 5.0, sd) for w, sd in ((0.3, 0.2), (0.7, 2.0))]
    assert truth.log_z == pytest.approx(logsumexp(kinds), abs=1e-5)


def test_the_oracle_integrates_two_normals_that_share_data():
    """y_i = a + b + noise: the sum of the two has the variance of both."""
    y = np.array([1.2, 0.3, 2.5])
    with pm.Model() as model:
        x, z = pm.Normal("x", 0.0, [5.0, 1.0], shape=2), pm.Bernoulli("z", 0.5)
        pm.Normal("y", x.sum(), 0.7, observed=y)
        pm.Potential("independent", 1.3 * z)
    truth = exact_log_z(model, {"x": Axis((2,), edges=WIDE), "z": Axis((), np.arange(2))})
    exact = log_evidence_normal(y, 0.0, np.sqrt(26.0), 0.7) + np.log((1 + np.exp(1.3)) / 2)
    assert truth.log_z == pytest.approx(exact, abs=1e-4)


def test_the_oracle_cuts_at_a_threshold():
    with pm.Model() as model:
        x, z = pm.Normal("x"), pm.Bernoulli("z", 0.5)
        pm.Potential("beyond", pt.switch((x > 2.5) & pt.eq(z, 1), 6.0, 0.0))
    edges = np.sort(np.append(WIDE / 5.0, 2.5))
    truth = exact_log_z(model, {"x": Axis((), edges=edges), "z": Axis((), np.arange(2))})
    assert truth.log_z == pytest.approx(np.log1p(0.5 * norm.sf(2.5) * np.expm1(6.0)), abs=1e-5)


def test_the_oracle_knows_what_it_cuts_off():
    with pm.Model() as model:
        pm.Poisson("k", 4.0)
    assert exact_log_z(model, {"k": Axis((), np.arange(40), is_cut=True)}).log_z == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(UnknownTruth, match="larger counts"):
        exact_log_z(model, {"k": Axis((), np.arange(6), is_cut=True)})
    with pm.Model() as model:
        pm.Normal("x")
    with pytest.raises(UnknownTruth, match="outside"):
        exact_log_z(model, {"x": Axis((), edges=np.array([-2.0, 0.0, 1.0, 2.0]))})


@pytest.mark.parametrize(("n_values", "penalty"), [(4, -np.inf), (4, -5.0), (5, 2.5)])
def test_the_oracle_sums_codes(n_values, penalty):
    name = {-np.inf: "codes of 4, forbidden pair", -5.0: "codes of 4, unlikely pair", 2.5: "codes of 5, likely pair"}
    truth = exact_log_z(*MEASURED[name[penalty]]())
    assert truth.log_z == pytest.approx(log_z_codes(n_values, penalty), abs=1e-9)


# Default calls ------------------------------------------------------------------------------------------


@pytest.mark.every(8)
@pytest.mark.parametrize("seed", slow_but((), [11, *range(11), 12, 13, *range(14, 60), 713654582], range(14, 60)))
def test_what_is_not_flagged_is_right(seed):
    case = random_model(seed)
    assert_right_or_flagged(case.model, case.truth, seed, case.parts)


@pytest.mark.every(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but({"beside -2e6"}, MEASURED))
def test_models_that_were_wrong(name):
    model, axes = MEASURED[name]()
    assert_right_or_flagged(model, exact_log_z(model, axes), 1, name)


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize("constant", [-2e6, 2e6])
def test_a_constant_moves_no_probability(constant):
    """4000 draws: a share has a standard error below 0.008 x sqrt(2), if half of the draws are independent."""
    model, axes = beside_a_constant(constant)
    truth, first_on = exact_log_z(model, axes), exact_log_z(*beside_a_constant(constant, is_first_on=True))
    idata = assert_right_or_flagged(model, truth, 2)
    share = float(idata["posterior"]["gamma"].values[..., 0].mean())
    assert share == pytest.approx(np.exp(first_on.log_z - truth.log_z), abs=4.5 * 0.0112)


@pytest.mark.exhaustive
def test_a_spike_and_slab_is_right_in_single_precision():
    """In a process of its own, since PyTensor sets JAX's precision for the whole process."""
    script = f"from tests.calls.test_random_models import test_models_that_were_wrong as test; test({SINGLE!r})"
    run_apart(script, env={**os.environ, "PYTENSOR_FLAGS": "floatX=float32"})


@pytest.mark.exhaustive
@settings(max_examples=10)
@given(models())
def test_what_hypothesis_draws_is_right(case):
    """A failure shrinks to few variables and terms."""
    assert_right_or_flagged(case.model, case.truth, 1, case.parts)
