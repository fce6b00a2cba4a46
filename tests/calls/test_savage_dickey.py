"""savage_dickey: exact Bayes factors of conjugate models, elements of arrays, and what has no ratio."""

import numpy as np
import pymc as pm
import pytest
from arviz_base import from_dict
from scipy.stats import multivariate_normal, norm

import pymc_hais

Y = np.array([0.9, -0.2, 1.4, 0.7])
X = np.array([[1.0, 0.5, -0.3], [1.0, -1.0, 0.2], [1.0, 0.3, 0.8], [1.0, 1.2, -0.5]])


def regression():
    with pm.Model() as model:
        slopes = pm.Normal("slopes", [0.0, 0.5, -0.5], [1.0, 2.0, 0.5], shape=3)
        sigma = pm.Gamma("sigma", 3.0, 1.0)
        pm.Deterministic("difference", slopes[0] - slopes[1])
        below = pm.Normal("below", slopes[0], 1.0)
        pm.Normal("zero", below, 1.0, observed=0.0)
        pm.Dirichlet("shares", np.ones(3))
        pm.Uniform("rate", 0.0, 1.0)
        pm.Normal("y", pm.math.dot(X, slopes) + 0.0 * sigma, 1.0, observed=Y)
    return model


MODEL = regression()


def posterior(rng, shape=(4, 500)):
    """Draw from the exact posterior: normal slopes given a normal `below`, whose factors are normal; and the priors."""
    # slopes, below: precision of the prior, of `below` around the first slope, of `zero`, and of the data.
    precision = np.diag([1.0, 0.25, 4.0, 0.0])
    precision[:3, :3] += X.T @ X
    precision += np.outer([1.0, 0.0, 0.0, -1.0], [1.0, 0.0, 0.0, -1.0]) + np.diag([0.0, 0.0, 0.0, 1.0])
    shift = np.array([0.0, 0.125, -2.0, 0.0])
    shift[:3] += X.T @ Y
    covariance = np.linalg.inv(precision)
    normal = multivariate_normal(covariance @ shift, covariance)
    both = normal.rvs(shape, random_state=rng)
    draws = {
        "slopes": both[..., :3],
        "below": both[..., 3],
        "sigma": rng.gamma(3.0, size=shape),
        "shares": rng.dirichlet(np.ones(3), shape),
        "rate": rng.uniform(size=shape),
    }
    return normal, from_dict({"posterior": draws})


NORMAL, IDATA = posterior(np.random.default_rng(1))


@pytest.mark.parametrize("point", [[np.nan, 0.0, np.nan], pytest.param([2.0, 3.0, 3.0], marks=pytest.mark.slow)])
def test_the_ratio_of_slopes_is_exact(point):
    point = np.array(point)
    tested = np.flatnonzero(~np.isnan(point))
    after = multivariate_normal(NORMAL.mean[tested], NORMAL.cov[np.ix_(tested, tested)]).logpdf(point[tested])
    before = norm([0.0, 0.5, -0.5], [1.0, 2.0, 0.5]).logpdf(point)[tested].sum()
    factor = pymc_hais.savage_dickey(MODEL, IDATA, {"slopes": point})
    assert abs(factor.value - (after - before)) < 4.0 * factor.se
    assert factor.se < 0.05
    assert str(factor).startswith("log Bayes factor = ")


@pytest.mark.parametrize("point", [{"sigma": 2.0}, pytest.param({"shares": [0.2, 0.2, 0.6]}, marks=pytest.mark.slow)])
def test_a_variable_that_the_data_do_not_inform_has_the_ratio_one(point):
    """`sigma`, `rate` and `shares` keep their priors, so that Jacobians that are forgotten would be seen."""
    factor = pymc_hais.savage_dickey(MODEL, IDATA, point)
    assert abs(factor.value) < 4.0 * factor.se
    assert factor.se < 0.2


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({}, r"`point` must be a dictionary, .* such as \{'slopes': 0.0\}; got \{\}"),
        (0.0, "`point` must be a dictionary"),
        ({"difference": 0.0}, "names 'difference', a Deterministic of the model"),
        ({"gamma": 0.0}, "names 'gamma', no free variable of the model"),
        ({"below": 0.0}, "The prior of `below` depends on `slopes`"),
        ({"slopes": [0.0, 1.0]}, r"a number or an array of shape \(3,\) for `slopes`"),
        ({"slopes": np.nan}, "tests no element of `slopes`"),
        ({"shares": [0.2, np.nan, 0.6]}, "elements of `shares` are not independent"),
        ({"sigma": 0.0}, "outside of the support of `sigma` or on its boundary"),
        ({"rate": 2.0}, "outside of the support of `rate` or on its boundary"),
    ],
)
def test_what_has_no_ratio(point, message):
    with pytest.raises(ValueError, match=message):
        pymc_hais.savage_dickey(MODEL, IDATA, point)


@pytest.mark.exhaustive
def test_draws_that_carry_no_estimate_are_refused():
    apart = IDATA.copy(deep=True)
    apart["posterior"]["slopes"][:2] += 3.0
    with pytest.raises(ValueError, match=r"The draws of `slopes` are worth .* with R-hat = .*compare log Z"):
        pymc_hais.savage_dickey(MODEL, apart, {"slopes": 0.0})
    # Its terms vary by many nats, as the draws of the others do not follow this density.
    wrong = IDATA.copy(deep=True)
    wrong["posterior"]["slopes"] = 5.0 * wrong["posterior"]["slopes"]
    with pytest.raises(ValueError, match=r"density of `slopes` at the point cannot be estimated .* compare log Z"):
        pymc_hais.savage_dickey(MODEL, wrong, {"slopes": 0.0})


def test_discrete_variables_are_refused():
    with pm.Model() as model:
        pm.Bernoulli("k", 0.5)
        pm.Normal("x")
    with pytest.raises(NotImplementedError, match="`k` is discrete: compare log Z of the two models"):
        pymc_hais.savage_dickey(model, IDATA, {"x": 0.0})
