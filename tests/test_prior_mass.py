"""log Z is one number whatever the reference, also where a prior's density does not integrate to one."""

import itertools
from functools import cache

import numpy as np
import pymc as pm
import pytest

import pymc_hais
from pymc_hais import Gaussian, Mixture
from pymc_hais.run.prior_mass import measure_prior_mass
from tests.marks import slow_but
from tests.quick import QUICK
from tests.runs import settings_of
from tests.truth import log_evidence_normal

EXTRA = 2.0


def heavy_prior():
    """N(0, 1) with two nats too many, one datum: the integral is 2 nats above the marginal likelihood."""

    def logp(value):
        return pm.logp(pm.Normal.dist(), value) + EXTRA

    with pm.Model() as model:
        x = pm.CustomDist("x", logp=logp, random=lambda rng=None, size=None: rng.normal(size=size))
        pm.Normal("y", x, 1.0, observed=0.5)
    return model, log_evidence_normal([0.5], 0.0, 1.0, 1.0)


def ordered():
    """Three ordered standard normals keep a sixth of their mass; all data are far from telling them apart."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0, shape=3, transform=pm.distributions.transforms.ordered, initval=[-1.0, 0.0, 1.0])
        pm.Normal("y", x.sum(), 1.0, observed=1.5)
    # The sum does not know the order: it is N(0, 3) under the ordered prior as well.
    return model, float(-0.5 * 1.5**2 / 4.0 - 0.5 * np.log(2.0 * np.pi * 4.0))


MODELS = {"custom": heavy_prior, "ordered": ordered}
MASS = {"custom": EXTRA, "ordered": -np.log(6.0)}
REFERENCES = {
    "prior": "prior",
    "fitted": "fitted",
    "auto": "auto",
    "gaussian": Gaussian(0.0, 2.0),
    "mixture": Mixture(["prior", Gaussian(0.0, 2.0)]),
}


@cache
def model_and_truth(name):
    return MODELS[name]()


@pytest.mark.parametrize(
    ("name", "reference"),
    slow_but(
        [("custom", "prior"), ("custom", "mixture"), ("ordered", "fitted")], list(itertools.product(MODELS, REFERENCES))
    ),
)
def test_every_reference_gives_the_marginal_likelihood(name, reference):
    model, truth = model_and_truth(name)
    idata = pymc_hais.sample_hais(model=model, reference=REFERENCES[reference], **QUICK | {"random_seed": 5})
    estimate = pymc_hais.log_marginal_likelihood(idata)
    assert estimate.se < 0.1
    assert abs(estimate.value - truth) < 4.0 * estimate.se
    assert estimate.lower < truth + 0.05
    if reference in ("fitted", "gaussian", "mixture"):
        np.testing.assert_allclose(estimate.log_prior_mass, MASS[name], atol=0.1)
        (finding,) = [finding for finding in estimate.findings if finding.name == "prior_mass"]
        assert finding.severity == "info"
    if reference == "prior":
        assert estimate.log_prior_mass == 0.0


def test_the_mass_of_a_prior():
    model, _ = model_and_truth("custom")
    mass = measure_prior_mass(model, settings_of(model, draws=500, target_se=0.1))
    assert abs(mass.estimate.value - EXTRA) < 4.0 * mass.estimate.se
    assert mass.estimate.se < 0.03
    assert mass.n_gradients > 0


def test_a_prior_that_cannot_be_drawn_leaves_a_warning():
    with pm.Model() as model:
        x = pm.CustomDist("x", logp=lambda value: pm.logp(pm.Normal.dist(), value))
        pm.Normal("y", x, 1.0, observed=0.5)
    idata = pymc_hais.sample_hais(model=model, reference="gaussian", **QUICK)
    found = {finding.name: finding.severity for finding in pymc_hais.log_marginal_likelihood(idata).findings}
    assert found["prior_mass"] == "warning"


def test_what_measuring_the_mass_costs_is_counted():
    model, _ = model_and_truth("custom")
    options = QUICK | {"schedule": "linear", "n_temperatures": 8, "kernel": pymc_hais.Hamiltonian(step_size=0.2)}
    attrs = pymc_hais.sample_hais(model=model, reference="gaussian", **options)["posterior"].attrs
    assert attrs["n_gradients_pilot"] > 0  # nothing else is learnt
