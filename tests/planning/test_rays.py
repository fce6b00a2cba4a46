"""Densities without a prior: the reference is as heavy as they are along rays, or an error says what it is."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import gammaln

from pymc_hais.planning.building import compile_first
from pymc_hais.planning.rays import Rays, measure_rays, student_t_of, widened
from pymc_hais.references import StudentT
from tests.front_door import assert_right, estimate
from tests.marks import slow_but
from tests.runs import call_of


def power_law(power, n_dims=1, is_round=False):
    """Let a density fall as a power of the distance, or of each coordinate."""
    with pm.Model() as model:
        x = pm.Flat("x", shape=n_dims)
        distance = pt.sqrt((x**2).sum()) if is_round else pt.abs(x)
        pm.Potential("energy", (-power * pt.log1p(distance)).sum())
    return model, n_dims * np.log(2.0 / (power - 1.0))


@pytest.mark.every(5)
@pytest.mark.slow
@pytest.mark.parametrize("power", slow_but({1.3, 2.0}, [1.2, 1.3, 1.5, 2.0, 3.0]))
def test_log_z_of_a_power_law_is_right(power):
    model, truth = power_law(power)
    found, _ = estimate(model)
    assert_right(found, truth)
    assert found.is_trustworthy


@pytest.mark.slow
def test_a_reference_with_modes_is_as_heavy():
    with pm.Model() as model:
        x = pm.Flat("x", shape=1)
        pm.Potential("energy", -0.65 * pt.log1p(x**2).sum())
    found, idata = estimate(model, modes={"x": [0.1]})
    assert "0.3 degrees" in idata["posterior"].attrs["reference"]
    assert_right(found, 0.5 * np.log(np.pi) + gammaln(0.15) - gammaln(0.65))


@pytest.mark.every(3)
@pytest.mark.slow
@pytest.mark.parametrize("n_dims", [1, 3])
@pytest.mark.parametrize("tail", [0.3, 1.0, 4.0])
def test_powers_are_those_of_a_student_t(n_dims, tail):
    law = StudentT(tail).for_dimensions(n_dims)
    with pm.Model() as model:
        x = pm.Flat("x", shape=n_dims)
        pm.Potential("energy", law.logp(x))
    call = call_of(model, backend="jax")
    problem = compile_first(model, "auto", call).problem
    rays = measure_rays(problem, call)
    np.testing.assert_allclose(rays.tail, tail, atol=1e-6)
    np.testing.assert_allclose(rays.along, n_dims + tail, atol=1e-6)
    assert problem.reference.reference.df == pytest.approx(min(tail, 2.0))
    assert widened(problem, call) is None


def test_a_vague_gamma_beside_a_flat_variable_keeps_the_coordinates_that_rays_are_compared_in():
    with pm.Model() as model:
        tau = pm.Gamma("tau", 0.001, 0.001)
        pm.Potential("energy", -0.5 * tau * pm.Flat("x") ** 2)
    problem = compile_first(model, "auto", call_of(model)).problem
    assert isinstance(student_t_of(problem), StudentT)


def test_the_heaviest_axis_is_found_beside_a_light_one():
    with pm.Model() as model:
        x, y = pm.Flat("x"), pm.HalfFlat("y")
        pm.Potential("energy", -0.5 * x**2 - pt.log(y) - 3.0 * pt.log1p(pt.log(y) ** 2))
    call = call_of(model, backend="jax")
    problem, before = compile_first(model, "auto", call).problem, call.ledger.n_gradients
    rays = measure_rays(problem, call)
    assert call.ledger.n_gradients - before >= 2 * 18 * 5  # five distances along 16 random rays, two axes and back
    # Of log y the density falls as its sixth power; across, the normal one of x decides.
    assert rays.across > 1e3
    np.testing.assert_allclose(rays.along, 6.0, atol=1e-6)
    assert rays.axis == 1


@pytest.mark.slow
def test_what_falls_more_slowly_than_any_student_t_along_axes_is_an_error():
    # log Z is mostly too low, and far too high where one of the rarest draws comes: weights have no variance.
    model, _ = power_law(1.5, n_dims=5)
    found, _ = estimate(model, target_se=None)
    (finding,) = [one for one in found.findings if one.severity == "error" and one.name == "heavy_tail"]
    assert "Along `x[" in finding.message
    assert not found.is_trustworthy


@pytest.mark.parametrize(("n_dims", "power", "df"), [(1, 1.4, 2.0), (1, 1.4, 0.4), (3, 2.5, 2.0)])
def test_the_shape_is_that_of_the_weights(n_dims, power, df):
    # Weights of exact draws beyond a distance, where power laws have set in; a Hill estimate of 5,000 largest has an
    # error of 0.014 times k.
    rng = np.random.default_rng(1)
    x = StudentT(df).for_dimensions(n_dims).sample(1_000_000, rng)
    z = 0.5 * (df + n_dims) * np.log1p((x**2).sum(axis=1) / df)
    log_weights = np.sort(z - power * np.log1p(np.abs(x)).sum(axis=1))
    hill = np.mean(log_weights[-5000:] - log_weights[-5001])
    rays = Rays(n_dims * power, power, 0, n_dims)
    shape = max(rays.shape(df), rays.shape_along(df))
    np.testing.assert_allclose(hill, shape, atol=0.08)
