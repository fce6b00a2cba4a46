"""Models with gaps in their data: PyMC makes them free variables, which may depend on what was observed."""

import numpy as np
import pymc as pm
import pytest
from scipy.stats import norm

from tests.front_door import assert_right, estimate

X = np.ma.masked_invalid([0.5, np.nan, -1.2, 2.0])
Z = np.ma.masked_invalid([np.nan, 0.3, 1.1, -0.4])
#: The normaliser that the prior of the slope lacks, where it does.
LACKING = 0.7

pytestmark = pytest.mark.filterwarnings("ignore:Data in .* contains missing values")


def build(is_normalised=True):
    """A regression of z on x, both with gaps: a missing z depends on an observed x."""
    with pm.Model() as model:
        if is_normalised:
            slope = pm.Normal("slope", 0.0, 1.0)
        else:
            slope = pm.CustomDist(
                "slope",
                logp=lambda value: LACKING + pm.logp(pm.Normal.dist(0.0, 1.0), value),
                random=lambda rng, size: rng.normal(size=size),
            )
        x = pm.Normal("x", 0.0, 1.0, observed=X)
        pm.Normal("z", slope * x, 0.5, observed=Z)
    return model


def log_z():
    """Integrate over the slope; the missing x makes the second z wider, the missing z counts for nothing."""
    slope = np.linspace(-12.0, 12.0, 40001)
    log_p = norm(0.0, 1.0).logpdf(slope) + norm(0.0, np.hypot(0.5, slope)).logpdf(Z[1])
    log_p += norm(slope * X[2], 0.5).logpdf(Z[2]) + norm(slope * X[3], 0.5).logpdf(Z[3])
    return float(np.log(np.trapezoid(np.exp(log_p), slope)) + norm.logpdf(X.compressed()).sum())


@pytest.mark.every(3)
@pytest.mark.slow
@pytest.mark.parametrize("reference", ["prior", "fitted", "gaussian"])
def test_missing_values_that_depend_on_observed_ones(reference):
    found, idata = estimate(build(), reference=reference)
    assert_right(found, log_z())
    assert found.se < 0.1
    # The missing z is drawn about its own mean, with the observed x and not with another draw of it.
    posterior = idata["posterior"]
    residual = posterior["z_unobserved"].values[..., 0] - posterior["slope"].values * X[0]
    assert residual.std() == pytest.approx(0.5, rel=0.15)


@pytest.mark.exhaustive
def test_the_mass_of_a_prior_beside_missing_values():
    found, _ = estimate(build(is_normalised=False), reference="gaussian")
    assert found.log_prior_mass == pytest.approx(LACKING, abs=0.1)
    assert_right(found, log_z())
