"""LKJ priors, with any PyMC that is allowed: 6.3 draws them wrongly from three dimensions on, and misses a constant."""

import numpy as np
import pymc as pm
import pytest
from scipy.linalg import solve_triangular

import pymc_hais
from pymc_hais.model import check_model, compat
from tests.marks import slow_but
from tests.quick import QUICK

IS_OLD = tuple(int(part) for part in pm.__version__.split(".")[:2]) < (6, 4)
Y = np.random.default_rng(0).normal(size=(5, 3))


def covariance():
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0, shape=3))
        pm.MvNormal("y", np.zeros(3), chol=chol, observed=Y)
    return model


def truth(n=40_000):
    """Average the likelihood over prior draws by the onion method (Lewandowski et al. 2009); with its error."""
    rng, eta = np.random.default_rng(1), 2.0
    first, share = 2.0 * rng.beta(eta + 0.5, eta + 0.5, size=n) - 1.0, rng.beta(1.0, eta, size=n)
    angle, scale = rng.uniform(0.0, 2.0 * np.pi, size=n), np.abs(rng.normal(size=(n, 3)))
    factor = np.zeros((n, 3, 3))
    factor[:, 0, 0], factor[:, 1, 0], factor[:, 1, 1] = 1.0, first, np.sqrt(1.0 - first**2)
    factor[:, 2, 0], factor[:, 2, 1] = np.sqrt(share) * np.cos(angle), np.sqrt(share) * np.sin(angle)
    factor[:, 2, 2] = np.sqrt(1.0 - share)
    factor *= scale[:, :, None]
    z = np.stack([solve_triangular(one, Y.T, lower=True) for one in factor])
    log_det = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
    log_likelihood = -0.5 * (z**2).sum(axis=(1, 2)) - 5.0 * log_det - 7.5 * np.log(2.0 * np.pi)
    weights = np.exp(log_likelihood - log_likelihood.max())
    mean = weights.mean()
    return np.log(mean) + log_likelihood.max(), weights.std() / mean / np.sqrt(n)


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize("reference", slow_but(["fitted"], ["auto", "fitted"]))
def test_a_covariance_matrix_is_answered(reference):
    value, error = truth()
    options = QUICK | {"random_seed": 5}
    idata = pymc_hais.sample_hais(model=covariance(), reference=reference, **options)
    found = pymc_hais.log_marginal_likelihood(idata)
    assert abs(found.value - value) < 4.0 * np.hypot(found.se, error) < 0.7
    assert ("prior_draws" in [finding.name for finding in found.findings]) == IS_OLD


@pytest.mark.skipif(not IS_OLD, reason="this PyMC draws LKJ distributions as their density says")
def test_what_is_left_to_refuse_names_the_release_that_mends_it():
    with pytest.raises(ValueError, match=r"draws of `chol` do not follow.*PyMC 6\.4 mends them"):
        pymc_hais.sample_hais(model=covariance(), reference="prior", **QUICK)


@pytest.mark.parametrize(("version", "n", "is_right"), [("6.3.2", 3, False), ("6.3.2", 2, True), ("6.4.0", 3, True)])
def test_a_wrong_density_is_refused_by_name(monkeypatch, version, n, is_right):
    monkeypatch.setattr(compat.pm, "__version__", version)
    with pm.Model() as model:
        pm.LKJCorr("corr", n=n, eta=2.0)
    if is_right:
        check_model(model)
        return
    with pytest.raises(NotImplementedError, match=r"In PyMC 6\.3\.2 the density of `corr`.*PyMC 6\.4 mends"):
        check_model(model)
