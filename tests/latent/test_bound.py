"""Effects that sum to zero (`pm.ZeroSumNormal`) are integrated out exactly, and drawn again with sums of zero."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.stats import multivariate_normal

from pymc_hais.latent.integrated import integrate
from pymc_hais.latent.rows import axes
from tests.front_door import estimate
from tests.latent.integrals import assert_exact
from tests.statistical import assert_mean

GROUPS = 15
RNG = np.random.default_rng(4)
GROUP = RNG.permutation(np.arange(90) % (GROUPS - 1))  # the last one has no data
X = RNG.normal(size=90)
Y = 1.0 + RNG.normal(size=GROUPS)[GROUP] + 0.5 * X + 0.7 * RNG.normal(size=90)


def likelihood(predictor, y=Y):
    pm.Normal("y", pm.Normal("mu", 0.0, 3.0) + predictor, pm.HalfNormal("noise"), observed=y)


def bound(name="a", sigma=1.0, shape=GROUPS, **kwargs):
    return pm.ZeroSumNormal(name, sigma, shape=shape, **kwargs)


def scale(name="scale"):
    return pm.HalfNormal(name)


def slopes_beside():
    s = scale()
    likelihood(bound("a", s)[GROUP] + pm.Normal("b", 0.3, s, shape=GROUPS)[GROUP] * X)


def two():
    likelihood((scale() * bound())[GROUP] + (scale("other") * bound("b"))[GROUP] * X)


def of_rows():
    a = bound("a", np.array([[1.0], [0.3]]) * scale(), (2, GROUPS))
    likelihood(a[0, GROUP] + a[1, GROUP] * X)


#: Name -> the variables of a model, and which of them are integrated out.
MODELS = {
    "one": (lambda: likelihood(bound("a", scale())[GROUP]), {"a"}),
    "not centred": (lambda: likelihood((scale() * bound())[GROUP]), {"a"}),
    "of known scale": (lambda: likelihood(bound("a", 2.5)[GROUP]), {"a"}),
    "far from zero": (lambda: likelihood(bound("a", scale())[GROUP], Y + 1e4), {"a"}),
    "slopes beside it": (slopes_beside, {"a", "b"}),
    "two": (two, {"a", "b"}),
    "a row of sums": (of_rows, {"a"}),
}


def build(fill):
    with pm.Model() as model:
        fill()
    return model


@pytest.mark.every(4)
@pytest.mark.few(4)
@pytest.mark.parametrize("name", MODELS)
def test_the_integral_is_the_density_over_that_of_the_effects(name):
    fill, owners = MODELS[name]
    found = assert_exact(build(fill), owners)
    drawn = found.complete(np.zeros(found.layout.n_dims), np.random.default_rng(0))
    values = found.whole.unflatten(drawn)["a_zerosum__"]
    assert values.shape[-1] == GROUPS - 1


#: Sums that are not those of the rows' elements.
OTHERS = {
    "along two axes": lambda: likelihood(bound(shape=(GROUPS, GROUPS), n_zerosum_axes=2)[GROUP, 3]),
    "within a row": lambda: likelihood(bound(shape=(GROUPS, 2))[GROUP, 0]),
    "coupled with the next row": lambda: likelihood(pt.diff(bound())[GROUP % (GROUPS - 1)]),
    "of few groups": lambda: likelihood(bound(shape=5)[GROUP % 5]),
    "of other data": lambda: pm.Poisson("y", pm.math.exp(bound()[GROUP]), observed=np.arange(90) % 4),
}


@pytest.mark.every(2)
@pytest.mark.few(2)
@pytest.mark.parametrize("name", OTHERS)
def test_other_sums_stay(name):
    assert integrate(build(OTHERS[name])) is None


@pytest.mark.parametrize("shape", [(12,), (3, 20)])
def test_elements_and_their_values_are_those_of_pymc(shape):
    values = RNG.normal(size=(*shape[:-1], shape[-1] - 1))
    with pm.Model() as model:
        rv = pm.ZeroSumNormal("a", shape=shape)
    x = model.rvs_to_transforms[rv].backward(pt.constant(values)).eval(mode="FAST_COMPILE")
    np.testing.assert_allclose(x.sum(axis=-1), 0.0, atol=1e-12)
    found = axes.to_values(x)
    np.testing.assert_allclose(found[..., :-1], values, atol=1e-13)
    np.testing.assert_allclose(axes.from_values(found), x, atol=1e-13)


@pytest.mark.slow
def test_a_chain_beside_it_is_integrated_out_alone():
    def walk():
        level = pm.GaussianRandomWalk("level", sigma=scale(), init_dist=pm.Normal.dist(), shape=GROUPS)
        likelihood((level + bound())[GROUP])

    assert_exact(build(walk), {"level"})


def known_scales(y):
    with pm.Model() as model:
        mu, a = pm.Normal("mu", 0.0, 3.0), bound("a", 1.5)
        pm.Normal("y", mu + a[GROUP], 0.7, observed=y)
    return model


def moments():
    """Return the prior covariance of the effects, what observes them, and the covariance of the data."""
    prior = 1.5**2 * (np.eye(GROUPS) - 1.0 / GROUPS)
    observed = np.eye(GROUPS)[GROUP]
    return prior, observed, 9.0 + observed @ prior @ observed.T + 0.49 * np.eye(90)


def test_log_z_and_draws_are_those_of_the_linear_model():
    prior, observed, of_data = moments()
    value, idata = estimate(known_scales(Y), random_seed=3)
    exact = multivariate_normal(np.zeros(90), of_data).logpdf(Y)
    np.testing.assert_allclose(value.value, exact, rtol=0.0, atol=5.0 * value.se + 1e-6)
    drawn = idata["posterior"]["a"].to_numpy().reshape(-1, GROUPS)
    np.testing.assert_allclose(drawn.sum(axis=1), 0.0, atol=1e-10)
    gain = prior @ observed.T @ np.linalg.inv(of_data)
    mean, covariance = gain @ Y, prior - gain @ observed @ prior
    chains = idata["posterior"]["a"].to_numpy()[:, ::4].reshape(-1, GROUPS)  # nearly independent
    assert_mean(chains, mean)
    assert_mean((chains - mean) ** 2, np.diag(covariance))
