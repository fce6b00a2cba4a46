"""Priors that a transform cuts off: log Z is that of the prior given that it lies in the transform's range."""

import numpy as np
import pymc as pm
import pytest
from pymc.distributions import transforms
from scipy import stats
from scipy.integrate import quad

import pymc_hais
from pymc_hais.density import build_layout, unnormalised_priors
from pymc_hais.planning.mass import measure_prior_mass
from pymc_hais.references import Prior, UnusablePriorError, build_prior
from tests.marks import slow_but
from tests.quick import QUICK
from tests.runs import call_of

Y = np.array([0.3, -0.2, 0.4])
#: Build of the variable, its density, and the range of its transform.
CUT = {
    "normal, log": (lambda: pm.Normal("x", transform=transforms.log), stats.norm(), 0.0, 9.0),
    "normal, interval": (
        lambda: pm.Normal("x", transform=transforms.Interval(-0.5, 1.0)),
        stats.norm(),
        -0.5,
        1.0,
    ),
    "normal, half": (lambda: pm.Normal("x", 1.0, transform=transforms.Interval(1.0, None)), stats.norm(1.0), 1.0, 9.0),
    "normal, little": (lambda: pm.Normal("x", -6.0, transform=transforms.log), stats.norm(-6.0), 0.0, 5.0),
    "student, log": (lambda: pm.StudentT("x", 3.0, transform=transforms.log), stats.t(3.0), 0.0, np.inf),
    "half-normal, interval": (
        lambda: pm.HalfNormal("x", default_transform=transforms.Interval(0.0, 1.0)),
        stats.halfnorm(),
        0.0,
        1.0,
    ),
    "half-normal, interval of the logarithm": (
        lambda: pm.HalfNormal("x", transform=transforms.Interval(-1.0, 1.0)),
        stats.halfnorm(),
        np.exp(-1.0),
        np.exp(1.0),
    ),
    "gamma, logodds": (
        lambda: pm.Gamma("x", 2.0, 1.0, default_transform=transforms.logodds),
        stats.gamma(2.0),
        0.0,
        1.0,
    ),
}
#: PyMC's own transforms, those that can stand for them, and none.
WHOLE = {
    "beta": lambda: pm.Beta("x", 2.0, 3.0),
    "uniform": lambda: pm.Uniform("x", -1.0, 2.0),
    "truncated": lambda: pm.Truncated("x", pm.Normal.dist(), lower=0.0),
    "zero-sum": lambda: pm.ZeroSumNormal("x", shape=3),
    "simplex": lambda: pm.Dirichlet("x", np.ones(3)),
    "mixture": lambda: pm.Mixture("x", [0.5, 0.5], [pm.HalfNormal.dist(), pm.Exponential.dist(1.0)]),
    "softplus": lambda: pm.HalfNormal("x", default_transform=transforms.log_exp_m1),
    "none": lambda: pm.HalfNormal("x", default_transform=None),
}
#: Transforms onto a set of no volume in the variable's own space: no draw of the prior lies there.
FLAT = {
    "zero-sum": lambda: pm.Normal("x", 0.0, [1.0, 1.0, 1.1], transform=transforms.ZeroSumTransform([-1])),
    "simplex": lambda: pm.Beta("x", 2.0, 2.0, shape=3, default_transform=transforms.simplex),
}


def modelled(build):
    with pm.Model() as model:
        x = build()
        if not x.type.ndim:
            pm.Normal("y", x, 1.0, observed=Y)
    return model


def truth(name):
    """Log marginal likelihood, and log of the mass that is kept, by quadrature."""
    _, prior, lower, upper = CUT[name]
    mass = quad(prior.pdf, lower, upper)[0]
    integral = quad(lambda x: prior.pdf(x) * np.prod(stats.norm.pdf(Y, x, 1.0)), lower, upper)[0]
    return np.log(integral / mass), np.log(mass)


@pytest.mark.parametrize("name", CUT)
def test_transforms_that_may_cut_are_suspect(name):
    assert unnormalised_priors(modelled(CUT[name][0])) == ["x"]


@pytest.mark.parametrize("name", WHOLE)
def test_transforms_that_keep_everything_are_not(name):
    assert unnormalised_priors(modelled(WHOLE[name])) == []


@pytest.mark.every(12)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reference"),
    slow_but(
        [("normal, log", "fitted"), ("normal, little", "auto"), ("gamma, logodds", "prior")],
        [(name, reference) for name in CUT for reference in ("auto", "prior", "fitted")],
        [(name, "prior") for name in CUT if name not in ("gamma, logodds", "normal, little")],
    ),
)
def test_the_marginal_likelihood_is_that_of_what_is_kept(name, reference):
    model, (value, log_mass) = modelled(CUT[name][0]), truth(name)
    options = QUICK | {"draws": 500, "random_seed": 3}
    if (name, reference) == ("normal, little", "prior"):
        with pytest.raises(UnusablePriorError, match="joint prior draws only 0 are inside"):
            pymc_hais.sample_hais(model=model, reference=reference, **options)
        return
    found = pymc_hais.log_marginal_likelihood(pymc_hais.sample_hais(model=model, reference=reference, **options))
    # 24 of these: 4.5 standard errors are exceeded by one of them with a probability of 2e-4.
    assert abs(found.value - value) < 4.5 * found.se
    assert found.se < 0.05
    if reference == "fitted":
        assert abs(found.log_prior_mass - log_mass) < 0.1


@pytest.mark.exhaustive
def test_a_fit_that_pays_is_divided_by_the_mass():
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 30.0, shape=4, transform=transforms.log, initval=np.ones(4))
        pm.Normal("y", x, 0.01, observed=np.arange(1.0, 5.0))
    # Half of each prior is kept, and the data are far from where it is cut.
    value = stats.norm(0.0, np.hypot(30.0, 0.01)).logpdf(np.arange(1.0, 5.0)).sum() + 4.0 * np.log(2.0)
    options = {"draws": 500, "chains": 2, "progressbar": False, "random_seed": 3}
    for reference in ("auto", "fitted"):
        found = pymc_hais.log_marginal_likelihood(pymc_hais.sample_hais(model=model, reference=reference, **options))
        assert abs(found.value - value) < 4.5 * found.se < 0.7


def test_draws_of_a_cut_prior_are_those_that_it_keeps():
    model = modelled(CUT["normal, interval"][0])
    layout = build_layout(model)
    positions = Prior(layout, build_prior(model)).draw(4000, np.random.SeedSequence(1)).positions
    kept = stats.truncnorm(-0.5, 1.0)
    assert stats.kstest(-0.5 + 1.5 / (1.0 + np.exp(-positions[:, 0])), kept.cdf).pvalue > 1e-5


@pytest.mark.slow
@pytest.mark.every(2)
@pytest.mark.parametrize("name", FLAT)
def test_a_draw_that_does_not_come_back_is_no_draw(name):
    with pytest.raises(UnusablePriorError, match="most draws of `x` are NaN or outside"):
        build_prior(modelled(FLAT[name])).sample(1, 1)


@pytest.mark.slow
def test_a_mass_is_measured_without_prior_draws():
    """Independent normals on the plane where they sum to zero: the density there is that of one normal of the sum."""
    mass = measure_prior_mass(modelled(FLAT["zero-sum"]), call_of(modelled(FLAT["zero-sum"]), target_se=0.1))
    variances = np.array([1.0, 1.0, 1.1]) ** 2
    # The plane is parametrised by lengths in it, and the sum is sqrt(3) times the distance from it.
    expected = stats.norm(0.0, np.sqrt(variances.sum())).logpdf(0.0) + 0.5 * np.log(3.0)
    assert abs(mass.estimate.value - expected) < 4.5 * mass.estimate.se < 0.3
