"""Coefficients that are integrated out around their mode: right by quadrature over the scales, or left as they are."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp
from scipy.stats import halfnorm, norm

from pymc_hais import extend, log_marginal_likelihood, sample_hais, save_plan
from pymc_hais.density import has_normal_fields
from tests.front_door import assert_right, estimate
from tests.marks import slow_but
from tests.toys import HAS_JAX

pytestmark = pytest.mark.skipif(not HAS_JAX, reason="minutes without JAX")


def smooth(seed, n_rows=60, n_basis=20, sd_of_level=None):
    """A Gaussian process by its basis functions under normal data: its log Z by a grid of length, scale and noise.

    With a level, it is a normal variable of its own.
    """
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-1.0, 1.0, n_rows))
    rates = 0.5 * np.pi * np.arange(1, n_basis + 1)
    basis = np.sin(rates * (x[:, None] + 1.0))
    y = np.sin(3.0 * x) + 0.3 * rng.normal(size=n_rows) + (2.0 if sd_of_level else 0.0)
    with pm.Model() as model:
        length, scale = pm.LogNormal("length", -1.0, 0.5), pm.HalfNormal("scale", 1.0)
        z = pm.Normal("z", shape=n_basis)
        mean = pm.math.dot(basis, z * scale * pm.math.exp(-0.25 * (length * rates) ** 2))
        if sd_of_level:
            mean = pm.Normal("level", 0.0, sd_of_level) + mean
        pm.Normal("y", mean, pm.HalfNormal("noise", 1.0), observed=y)
    lengths = np.linspace(-4.0, 2.0, 41)
    scales, noises = np.linspace(-5.0, 2.5, 51), np.linspace(-3.0, 1.0, 41)
    scale, noise = np.exp(scales)[:, None, None], np.exp(noises)[:, None]
    prior = halfnorm.logpdf(scale[..., 0]) + halfnorm.logpdf(noise[:, 0]) + scales[:, None] + noises
    logs = []
    for log_length in lengths:
        covariance = (basis * np.exp(-0.5 * (np.exp(log_length) * rates) ** 2)) @ basis.T
        if sd_of_level:  # each scale has eigenvectors of its own
            values, vectors = np.linalg.eigh(scale**2 * covariance + sd_of_level**2)
        else:
            values, vectors = np.linalg.eigh(covariance)
            values = scale[:, 0] ** 2 * values
        sd = np.sqrt(noise**2 + np.maximum(values, 0.0)[:, None])
        turned = np.broadcast_to(y @ vectors, values.shape)[:, None]
        of_data = -0.5 * ((turned / sd) ** 2).sum(axis=2) - np.log(sd * np.sqrt(2.0 * np.pi)).sum(axis=2)
        logs.append(of_data + prior + norm.logpdf(log_length, -1.0, 0.5))
    widths = [one[1] - one[0] for one in (lengths, scales, noises)]
    return model, logsumexp(logs) + np.log(widths).sum()


@pytest.mark.slow
def test_basis_functions_and_a_level_are_one_field_and_go_on_from_a_plan(tmp_path):
    model, truth = smooth(0, sd_of_level=3.0)
    found, idata = estimate(model)
    assert_right(found, truth)
    attrs = idata["posterior"].attrs
    assert "`z`, `level` integrated out" in attrs["reference_reason"]
    assert not found.findings
    assert attrs["n_temperatures"] <= 16
    assert found.se <= 0.1  # as asked for: most of it is the mass of a tail
    save_plan(idata, tmp_path / "plan")
    other, other_truth = smooth(9, sd_of_level=3.0)
    planned, again = estimate(other, plan=tmp_path / "plan", random_seed=2)
    assert_right(planned, other_truth)
    assert again["posterior"].attrs["n_temperatures"] <= 16
    longer = extend(idata, draws=500, model=model, progressbar=False, random_seed=3)
    assert longer["posterior"].sizes["draw"] == 1000
    assert_right(log_marginal_likelihood(longer), truth)


@pytest.mark.exhaustive
def test_basis_functions_alone_are_integrated_out():
    model, truth = smooth(0)
    found, idata = estimate(model)
    assert_right(found, truth)
    assert "`z` integrated out" in idata["posterior"].attrs["reference_reason"]
    assert idata["posterior"].attrs["n_temperatures"] <= 16
    assert found.se <= 0.1


@pytest.mark.exhaustive
def test_coefficients_whose_density_may_have_several_hills_keep_their_coordinates():
    """Under heavy tails each coefficient may go along with some of the data or with others."""
    rng = np.random.default_rng(5)
    design = rng.normal(size=(40, 16))
    y = design @ rng.normal(size=16) + rng.standard_t(2.0, size=40)
    with pm.Model() as model:
        z, scale = pm.Normal("z", shape=16), pm.HalfNormal("scale", 1.0)
        pm.StudentT("y", nu=3.0, mu=pm.math.dot(design, z * scale), sigma=1.0, observed=y)
    assert not has_normal_fields(model)
    found, idata = estimate(model)
    assert "integrated out" not in idata["posterior"].attrs["reference_reason"]
    other, _ = estimate(model, reference="prior", random_seed=2)
    assert abs(found.value - other.value) < 4.0 * np.hypot(found.se, other.se)


@pytest.mark.exhaustive
def test_a_level_is_one_field_with_basis_functions_over_seeds():
    scores = []
    for seed in range(1, 5):
        model, truth = smooth(seed, sd_of_level=3.0)
        idata = sample_hais(model=model, random_seed=seed, progressbar=False)
        assert "`z`, `level` integrated out" in idata["posterior"].attrs["reference_reason"]
        found = log_marginal_likelihood(idata)
        assert not found.findings
        scores.append((found.value - truth) / found.se)
    assert np.abs(scores).max() < 4.0
    assert np.sqrt(np.mean(np.square(scores))) < 2.0


@pytest.mark.parametrize("seeds", slow_but((), [range(1, 4), range(4, 8)], [range(1, 4), range(4, 8)]))
def test_basis_functions_are_right_over_seeds(seeds):
    scores = []
    for seed in seeds:
        model, truth = smooth(seed)
        found = log_marginal_likelihood(sample_hais(model=model, random_seed=seed, progressbar=False))
        assert not found.findings
        scores.append((found.value - truth) / found.se)
    assert np.abs(scores).max() < 4.0
    assert np.sqrt(np.mean(np.square(scores))) < 2.0
