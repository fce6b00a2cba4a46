"""Widths over which the likelihood of a series is averaged: slopes, curvatures, and where nothing is averaged."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

from pymc_hais.density import build_chart, build_layout
from pymc_hais.latent import fields
from pymc_hais.tuning import fit_sites
from tests.density.coordinates.charted import charted
from tests.latent.test_fields import summed, walk

RNG = np.random.default_rng(5)


@pytest.fixture(scope="module", autouse=True)
def short():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fields, "_LONG", 8)
        yield


def test_slopes_and_curvatures_of_counts_are_averaged_over_the_width():
    """A normal's mean of exp(x) is exp(m + w^2 / 2): three nodes give a curvature with an error of w^4 / 20."""
    y, width = np.arange(12) % 4, np.linspace(0.05, 0.4, 12)
    with pm.Model() as model:
        level = pm.GaussianRandomWalk("level", sigma=pm.HalfNormal("step"), init_dist=pm.Normal.dist(), shape=12)
        pm.Poisson("y", pm.math.exp(level), observed=y)
    layout = build_layout(model)
    chart = build_chart(model, layout)
    (field,), x = chart.fields, np.zeros((1, layout.n_dims))
    m = RNG.normal(0.0, 0.5, 12)
    shift = np.zeros(layout.n_dims)
    shift[field.part] = m

    def expand(precision):
        sites = replace(chart.without_sites(), precision=np.where(chart.is_field, precision, 0.0), shift=shift)
        diagonal, _, gradient = chart.expansion(0, x, sites)
        return np.array([diagonal[0], gradient[0]])

    precision = np.zeros(layout.n_dims)
    precision[field.part] = width**-2.0
    curvature, slope = expand(precision) - expand(0.0)
    rate = np.exp(m + 0.5 * width**2)
    assert np.all(np.abs(curvature / rate - 1.0) < 1e-6 + width**4 / 19.0)
    np.testing.assert_allclose(slope, y - rate, atol=3e-3)


def test_laplace_noise_has_a_curvature_within_the_width_alone():
    """Its slope falls by 2 / b at each observation; minus the second derivative is zero everywhere else."""
    x, width, noise = np.zeros(12), np.repeat([0.2, 0.5], 6), 0.3
    y = np.tile([0.0, 0.3, -0.3, 0.5, -0.8, 2.0], 2)
    with pm.Model() as model:
        level = pm.GaussianRandomWalk("level", sigma=pm.HalfNormal("step"), init_dist=pm.Normal.dist(), shape=12)
        pm.Laplace("y", level, noise, observed=y)
    layout = build_layout(model)
    chart = build_chart(model, layout)
    sites = chart.without_sites()

    def curvature(precision):
        expansion = chart.expansion(0, np.zeros((1, layout.n_dims)), replace(sites, precision=precision))
        return expansion[0][0]

    precision = np.zeros(layout.n_dims)
    precision[chart.fields[0].part] = width**-2.0
    half = np.sqrt(3.0) * width
    expected = np.where(np.abs(y - x) < half, 1.0 / (half * noise), 0.0)
    np.testing.assert_allclose(curvature(precision) - curvature(0.0 * precision), expected, rtol=1e-9, atol=1e-9)


def test_data_that_couple_neighbours_keep_a_precision_without_negative_eigenvalues():
    """Concave data of the means of neighbours, peaked within the width: off the diagonal is averaged, too."""
    width, model = 0.3, midpoints()
    layout = build_layout(model)
    chart = build_chart(model, layout)
    (field,) = chart.fields
    x, sites = np.zeros((1, layout.n_dims)), chart.without_sites()

    def bands(precision):
        expansion = chart.expansion(0, x, replace(sites, precision=np.where(chart.is_field, precision, 0.0)))
        return [np.broadcast_to(one[0], field.length) for one in expansion[:2]]

    diagonal, off = (wide - none for wide, none in zip(bands(width**-2.0), bands(0.0), strict=True))
    matrix = np.diag(diagonal) + np.diag(off[:-1], 1) + np.diag(off[:-1], -1)
    assert off[0] > 1.0
    assert np.linalg.eigvalsh(matrix).min() > -1e-9


def midpoints():
    with pm.Model() as model:
        level = pm.GaussianRandomWalk("level", sigma=pm.HalfNormal("step"), init_dist=pm.Normal.dist(), shape=12)
        pm.Logistic("y", 0.5 * (level[1:] + level[:-1]), 0.1, observed=np.zeros(11))
    return model


def test_a_likelihood_that_is_not_finite_that_far_is_not_averaged():
    with pm.Model() as model:
        level = pm.GaussianRandomWalk("level", sigma=pm.HalfNormal("step"), init_dist=pm.Normal.dist(), shape=12)
        pm.Normal("y", pm.math.sqrt(level + 0.5), 1.0, observed=np.ones(12))
    layout = build_layout(model)
    chart = build_chart(model, layout)
    x = np.maximum(0.8 + RNG.normal(size=(300, layout.n_dims)), -0.45)
    sites = fit_sites(chart, x)
    assert np.isinf(sites.precision[chart.is_field]).all()
    assert np.isfinite(chart.to_coordinates(x, sites)).all()


def test_elements_without_width_have_the_curvature_at_their_point():
    _, _, chart, x = charted(walk(), 400)
    x[:, chart.is_field] = 0.3 + np.array([1.0, 1e-9, 0.0] * 4) * x[:, chart.is_field]
    is_wide = np.isfinite(fit_sites(chart, x).precision[chart.is_field])
    np.testing.assert_array_equal(is_wide, [True, False, False] * 4)


def test_a_fit_averages_over_the_width_of_the_chain_itself():
    """Of innovations too: their running sums are what the likelihood looks at."""
    _, _, chart, x = charted(summed(), 400)
    (field,) = chart.fields
    chains = np.cumsum(x[:, field.part], axis=1)
    np.testing.assert_allclose(fit_sites(chart, x).precision[field.part], 1.0 / chains.var(axis=0), rtol=1e-9)
