"""States that no move of one site leads to are found after a run, and a run that has them all has no such finding."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import logsumexp
from scipy.stats import binom, multivariate_normal

import pymc_hais
from tests import discrete_truth as truth
from tests.marks import slow_but
from tests.planning import test_enumeration as small

QUICK = {"draws": 500, "chains": 2, "progressbar": False, "random_seed": 2}


def findings(model, **options):
    idata = pymc_hais.sample_hais(model=model, **QUICK | options)
    found = pymc_hais.log_marginal_likelihood(idata)
    return [one for one in found.findings if one.name == "unreached"], found


def gate_beside_a_mean():
    with pm.Model() as model:
        s, mu = pm.Bernoulli("s", 0.01, shape=4), pm.Normal("mu")
        pm.Normal("y", mu + s.prod(), 0.1, observed=1.0)
        pm.Normal("w", mu, 0.01, observed=0.0)
    return model


def labels_beside_a_scale():
    """Five labels of 1% each, which must all be 2."""
    with pm.Model() as model:
        z, sd = pm.Categorical("z", [0.98, 0.01, 0.01], shape=5), pm.HalfNormal("sd", 0.1)
        pm.Normal("y", pt.eq(z, 2).all() * 1.0, 0.05 + sd, observed=[1.0] * 20)
    return model


def gate_of_two_variables():
    with pm.Model() as model:
        s, t, mu = pm.Bernoulli("s", 0.01, shape=2), pm.Bernoulli("t", 0.01, shape=2), pm.Normal("mu")
        pm.Normal("y", mu + 8.0 * (s * t[::-1]).prod(), 0.1, observed=8.0)
        pm.Normal("w", mu, 0.01, observed=0.0)
    return model


def needle_of_twenty():
    """More states than are all tried: 1e-40 of the prior, and e^140 times as likely."""
    with pm.Model() as model:
        s = pm.Bernoulli("s", 0.01, shape=20)
        pm.Potential("e", 140.0 * s.prod() + 0.1 * s.sum() ** 2)
    return model


MISSED = [gate_beside_a_mean, labels_beside_a_scale, gate_of_two_variables, needle_of_twenty]


@pytest.mark.every(2)
@pytest.mark.parametrize("build", slow_but({gate_beside_a_mean}, MISSED))
def test_joint_states_that_were_missed_are_an_error(build):
    found, estimate = findings(build())
    (finding,) = (one for one in found if "joint values" in one.message)
    assert finding.severity == "error"
    assert not estimate.is_trustworthy


@pytest.mark.parametrize("build", slow_but({small.and_gate}, [small.and_gate, small.rare_bits]))
def test_the_finding_says_how_much_is_missing(build):
    model, exact = build()
    found, estimate = findings(model, reference="prior")
    joint, never = sorted(found, key=lambda one: "joint values" not in one.message)
    gain = float(joint.message.split(" at least ")[1].split()[0])
    assert gain == pytest.approx(min(exact - estimate.value, -np.log(1e-12)), abs=0.01)
    assert "wherever a particle was" in never.message
    assert never.severity == "error"


def test_a_log_ratio_that_never_varied_is_an_error():
    """Thirty bits of one in a thousand that count where all are on: too many states for any of them to be tried."""
    with pm.Model() as model:
        s = pm.Bernoulli("s", 0.001, shape=30)
        pm.Potential("e", pt.switch(pt.eq(s.sum(), 30), 300.0, 0.0))
    found, _ = findings(model)
    (finding,) = (one for one in found if "wherever a particle was" in one.message)
    assert finding.severity == "error"


def mixture():
    y, given = [0.2, 1.9, 4.0, -1.0], ([0.2, 0.5, 0.3], [0.0, 2.0, 5.0], [1.0, 0.5, 2.0])
    return truth.build_mixture(y, *given), truth.log_evidence_mixture(y, *given)


def spins_in_a_field():
    n = 24
    with pm.Model() as model:
        s = pymc_hais.FlatDiscrete("s", shape=n)
        x = 2 * s - 1
        pm.Potential("e", 0.9 * (x * pt.roll(x, 1)).sum() + 0.02 * x.sum())
    step = np.exp([[0.9 + 0.02, -0.9], [-0.9, 0.9 - 0.02]])
    return model, np.log(np.sum(np.linalg.eigvals(step) ** n).real)


def switches_beside_a_mean():
    """Two of three switches are on in most of the posterior, and no mean is without a switch."""
    with pm.Model() as model:
        s, mu = pm.Bernoulli("s", 0.2, shape=3), pm.Normal("mu", 0.0, 3.0)
        pm.Normal("y", mu + s.sum(), 1.0, observed=np.full(3, 2.0))
    k, y = np.arange(4), np.full(3, 2.0)
    covariance = np.eye(3) + 9.0
    each = [multivariate_normal(np.full(3, one), covariance).logpdf(y) for one in k]
    return model, logsumexp(binom.logpmf(k, 3, 0.2) + each)


def hard_constraint():
    """A log ratio of 0, or -inf: its one finite value says nothing against it."""
    with pm.Model() as model:
        s = pm.Bernoulli("s", 0.4, shape=5)
        pm.Potential("some", pt.switch(pt.ge(s.sum(), 1), 0.0, -np.inf))
    return model, np.log1p(-(0.6**5))


FOUND = [hard_constraint, mixture, spins_in_a_field, switches_beside_a_mean, small.hidden_chain, small.many_groups]


@pytest.mark.every(4)
@pytest.mark.parametrize("build", slow_but({hard_constraint}, FOUND))
def test_a_run_that_missed_nothing_has_no_such_finding(build):
    """From the prior, so that nothing is summed; 4.5 standard errors a model: 4e-5 in all."""
    model, exact = build()
    found, estimate = findings(model, reference="prior")
    assert not found
    assert abs(estimate.value - exact) < 4.5 * estimate.se < 1.0
