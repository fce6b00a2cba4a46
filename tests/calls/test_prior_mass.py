"""log Z is one number whatever the reference, also where a prior's density does not integrate to one."""

import itertools
from functools import cache

import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import pymc_hais
from pymc_hais import Gaussian, Mixture, StudentT
from pymc_hais.density import facts
from pymc_hais.density.markov import markov
from pymc_hais.planning.mass import measure_prior_mass
from pymc_hais.run import rounds
from pymc_hais.runner.ledger import PILOT
from tests.marks import slow_but
from tests.quick import QUICK
from tests.runs import call_of
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


PAIRS = np.array([[0.5, 1.0], [-1.2, -0.3], [0.8, 1.7]])


def lkj():
    """Three pairs from a normal with an LKJ correlation, which is uniform for two dimensions, by quadrature."""
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=1.0, sd_dist=pm.HalfNormal.dist(1.0))
        pm.MvNormal("y", np.zeros(2), chol=chol, observed=PAIRS)
    node, weight = np.polynomial.legendre.leggauss(120)
    sd = 4.0 * (node + 1.0)  # from 0 to 8
    first, second, rho = np.meshgrid(sd, sd, node, indexing="ij")
    det = first**2 * second**2 * (1.0 - rho**2)
    distance = sum((a * second) ** 2 - 2.0 * a * b * rho * first * second + (b * first) ** 2 for a, b in PAIRS) / det
    log_density = -0.5 * distance - 1.5 * np.log(det) - 3.0 * np.log(2.0 * np.pi) + np.log(0.5)
    log_density += np.log(2.0 / np.pi) - 0.5 * (first**2 + second**2)
    log_weights = np.log(np.einsum("i,j,k->ijk", 4.0 * weight, 4.0 * weight, weight))
    return model, float(logsumexp(log_density + log_weights))


MODELS = {"custom": heavy_prior, "ordered": ordered, "lkj": lkj}
#: That of the LKJ prior is PyMC's own matter, and may change: it is measured.
MASS = {"custom": EXTRA, "ordered": -np.log(6.0)}
REFERENCES = {
    "prior": "prior",
    "fitted": "fitted",
    "auto": "auto",
    "gaussian": Gaussian(0.0, 2.0),
    "mixture": Mixture(["prior", Gaussian(0.0, 2.0)]),
}


#: What the others show, at a minute each.
LEFT_OUT = [("lkj", "auto"), ("lkj", "mixture")]


@cache
def model_and_truth(name):
    return MODELS[name]()


@pytest.mark.every(12)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reference"),
    slow_but(
        [("custom", "prior"), ("custom", "mixture")],
        [pair for pair in itertools.product(MODELS, REFERENCES) if pair not in LEFT_OUT],
    ),
)
def test_every_reference_gives_the_marginal_likelihood(name, reference):
    model, truth = model_and_truth(name)
    idata = pymc_hais.sample_hais(model=model, reference=REFERENCES[reference], **QUICK | {"random_seed": 5})
    estimate = pymc_hais.log_marginal_likelihood(idata)
    assert estimate.se < 0.15
    assert abs(estimate.value - truth) < 4.0 * estimate.se
    assert estimate.lower < truth + 0.05
    if reference in ("fitted", "gaussian", "mixture") and name in MASS:
        np.testing.assert_allclose(estimate.log_prior_mass, MASS[name], atol=0.1)
        (finding,) = [finding for finding in estimate.findings if "integrates to exp(" in finding.message]
        assert (finding.name, finding.severity) == ("prior_density", "info")
    if reference == "prior":
        assert estimate.log_prior_mass == 0.0


def car():
    neighbours = np.array([[0.0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]])
    y = np.array([1.0, 0.5, -0.3, -1.2])
    with pm.Model() as model:
        x = pm.CAR("x", mu=np.zeros(4), W=neighbours, alpha=0.7, tau=1.5)
        pm.Normal("y", x, 1.0, observed=y)
    precision = 1.5 * (np.diag(neighbours.sum(axis=1)) - 0.7 * neighbours)
    return model, float(multivariate_normal(np.zeros(4), np.linalg.inv(precision) + np.eye(4)).logpdf(y))


@pytest.fixture
def as_pymc_draws(monkeypatch):
    """Have pm.CAR drawn as PyMC draws it, with another covariance, and nothing known of its mass."""
    monkeypatch.setattr(markov, "_RIGHT", {})
    monkeypatch.setattr(facts, "find_log_mass", lambda rv: None)


@pytest.mark.every(6)
@pytest.mark.slow
@pytest.mark.parametrize("reference", ["auto", "prior", Gaussian(0.0, 1.5)], ids=str)
def test_a_prior_whose_mass_is_known_is_not_measured(reference):
    model, truth = car()
    estimate = pymc_hais.log_marginal_likelihood(
        pymc_hais.sample_hais(model=model, reference=reference, **QUICK | {"random_seed": 5})
    )
    assert abs(estimate.value - truth) < 4.0 * estimate.se < 0.5
    said = [finding.message for finding in estimate.findings if finding.name == "prior_density"]
    assert not any("do not follow its log density" in one for one in said)
    assert any("integrates to exp(" in one for one in said) == (estimate.log_prior_mass != 0.0)


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.usefixtures("as_pymc_draws")
@pytest.mark.parametrize("reference", [Gaussian(0.0, 1.5), StudentT(5.0)], ids=str)
def test_a_prior_whose_draws_are_wrong_is_measured_by_its_density(reference):
    model, truth = car()
    idata = pymc_hais.sample_hais(model=model, reference=reference, **QUICK | {"random_seed": 5})
    estimate = pymc_hais.log_marginal_likelihood(idata)
    assert abs(estimate.value - truth) < 4.0 * estimate.se < 0.5
    assert estimate.log_z == pytest.approx(estimate.value + estimate.log_prior_mass)


@pytest.mark.usefixtures("as_pymc_draws")
def test_a_prior_whose_draws_are_wrong_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r'draws of `x` do not follow.*reference="gaussian"'):
        pymc_hais.sample_hais(model=car()[0], reference="prior", **QUICK)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("as_pymc_draws")
def test_no_data_are_simulated_from_a_prior_whose_draws_are_wrong():
    with pytest.raises(ValueError, match="no data of the model can be simulated"):
        pymc_hais.validate(car()[0], 2, progressbar=False, draws=100, chains=2)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("as_pymc_draws")
@pytest.mark.parametrize("reference", ["auto", "fitted"])
def test_where_the_draws_are_wrong_the_start_is_found_elsewhere(reference):
    model, truth = car()
    idata = pymc_hais.sample_hais(model=model, reference=reference, **QUICK | {"random_seed": 5})
    estimate = pymc_hais.log_marginal_likelihood(idata)
    assert abs(estimate.value - truth) < 4.0 * estimate.se < 0.5
    assert any("do not follow its log density" in finding.message for finding in estimate.findings)
    assert not idata["posterior"].attrs["reference"].startswith("the prior")
    assert estimate.log_z == pytest.approx(estimate.value + estimate.log_prior_mass)


def test_the_mass_of_a_prior():
    model, _ = model_and_truth("custom")
    runner = call_of(model, draws=500, target_se=0.1)
    mass = measure_prior_mass(model, runner)
    assert abs(mass.estimate.value - EXTRA) < 4.0 * mass.estimate.se
    assert mass.estimate.se < 0.03
    assert runner.ledger.gradients[PILOT] == runner.ledger.gradients.total() > 0


def test_ctrl_c_in_a_later_round_of_the_mass_is_one(monkeypatch):
    numbers, anneal = [], rounds.anneal_rows

    def interrupted(*args):
        numbers.append(args[2].number)
        if len(numbers) == 2:
            raise KeyboardInterrupt
        return anneal(*args)

    monkeypatch.setattr(rounds, "anneal_rows", interrupted)
    monkeypatch.setattr(rounds, "_reason_to_stop", lambda *_: None)  # the first round is never good enough
    model, _ = model_and_truth("custom")
    with pytest.raises(KeyboardInterrupt):
        measure_prior_mass(model, call_of(model, target_se=1.0, max_temperatures=64))
    assert len(numbers) == 2


@pytest.mark.slow
def test_a_prior_that_cannot_be_drawn_leaves_a_warning():
    with pm.Model() as model:
        x = pm.CustomDist("x", logp=lambda value: pm.logp(pm.Normal.dist(), value))
        pm.Normal("y", x, 1.0, observed=0.5)
    idata = pymc_hais.sample_hais(model=model, reference="gaussian", **QUICK)
    findings = pymc_hais.log_marginal_likelihood(idata).findings
    assert ("prior_density", "warning") in [(finding.name, finding.severity) for finding in findings]


@pytest.mark.slow
def test_what_measuring_the_mass_costs_is_counted():
    model, _ = model_and_truth("custom")
    options = QUICK | {"schedule": "linear", "n_temperatures": 8, "kernel": pymc_hais.Hamiltonian(step_size=0.2)}
    attrs = pymc_hais.sample_hais(model=model, reference="gaussian", **options)["posterior"].attrs
    assert attrs["n_gradients_pilot"] > 0  # nothing else is learnt
