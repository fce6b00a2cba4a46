"""Variables of several kinds, integrated out one kind after the other."""

import numpy as np
import pymc as pm
import pytest

import pymc_hais
from pymc_hais.latent.integrated import integrate
from pymc_hais.problem import kept
from tests.latent.integrals import assert_exact

RNG = np.random.default_rng(3)
Y = RNG.normal(size=30)
COUNTS = RNG.integers(0, 9, size=30)


def rates_and_effects():
    """Conjugate rates and normal effects, of data of their own that share a scale."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale")
        rate = pm.Gamma("rate", 2.0, scale, shape=12)
        pm.Poisson("n", 2.0 * rate, observed=COUNTS[:12])
        effect = pm.Normal("effect", pm.Normal("mean"), scale, shape=15)
        pm.Normal("y", effect, 0.7, observed=Y[:15])
        pm.Deterministic("total", rate.sum() + effect.sum())
    return model


def two_lengths():
    """Normal variables that have different numbers of rows."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", shape=2)
        short, long = pm.Normal("short", 0.0, scale[0], shape=12), pm.Normal("long", 0.0, scale[1], shape=30)
        pm.Normal("y", long, 0.5, observed=Y)
        pm.Normal("z", short, 0.5, observed=Y[:12])
    return model


def three():
    """Of three kinds, each with data of its own."""
    with pm.Model() as model:
        p, x = pm.Beta("p", pm.HalfNormal("a"), 2.0, shape=30), pm.Uniform("x", shape=14)
        pm.Binomial("n", 9, p, observed=COUNTS)
        slope = pm.Normal("slope")
        pm.Normal("y", slope * x, 1.0, observed=Y[:14])
        pm.Normal("z", pm.Normal("effect", slope, shape=12), 0.5, observed=Y[:12])
    return model


MODELS = {
    "rates and effects": (rates_and_effects, ("effect", "rate")),
    "two lengths": (two_lengths, ("long", "short")),
    "three": (three, ("p", "x", "effect")),
}


@pytest.mark.every(3)
@pytest.mark.few(2)
@pytest.mark.parametrize("name", MODELS)
def test_the_density_that_is_left_is_exact(name):
    build, owners = MODELS[name]
    found = assert_exact(build(), set(owners))
    assert set(found.whole.owners) == {rv.name for rv in build().free_RVs}


def test_variables_with_the_same_data_stay_after_the_first():
    """Of what depends on the variables of an integral no form is proven."""
    with pm.Model() as model:
        large, small = pm.Normal("large", shape=30), pm.Normal("small", shape=15)
        pm.Normal("y", large + small[np.arange(30) % 15], pm.HalfNormal("noise"), observed=Y)
    found = integrate(model)
    assert found.owners == ("large",)
    assert found.before is None


def test_a_call_draws_each_variable_from_its_own_distribution():
    """Given the others, effects are normal, and rates have a gamma distribution: compared by their means."""
    model = rates_and_effects()
    idata = pm.sample_hais(model=model, random_seed=2, quiet=True)
    posterior = idata["posterior"]
    assert posterior.attrs["integrated_out"] == "effect, rate"
    scale, mean = posterior["scale"].to_numpy()[..., None], posterior["mean"].to_numpy()[..., None]
    precision = scale**-2.0 + 0.7**-2.0
    z = (posterior["effect"] - (mean * scale**-2.0 + Y[:15] * 0.7**-2.0) / precision) * np.sqrt(precision)
    assert abs(float(z.mean())) < 4.5 / np.sqrt(z.size)
    assert abs(float((z**2).mean()) - 1.0) < 4.5 * np.sqrt(2.0 / z.size)
    shape, rate = 2.0 + COUNTS[:12], scale + 2.0
    z = (posterior["rate"] * rate - shape) / np.sqrt(shape)
    assert abs(float(z.mean())) < 4.5 / np.sqrt(z.size)
    total = posterior["rate"].sum("rate_dim_0") + posterior["effect"].sum("effect_dim_0")
    np.testing.assert_allclose(posterior["total"], total)


def test_a_result_that_integrated_out_fewer_is_a_plan(monkeypatch):
    """As one that was made when no second kind was integrated out."""
    with monkeypatch.context() as patch:
        patch.setattr(kept, "integrate", lambda *of: integrate(*of).before)
        idata = pm.sample_hais(model=rates_and_effects(), random_seed=1, quiet=True)
    assert idata["posterior"].attrs["integrated_out"] == "effect"
    again = pm.sample_hais(model=rates_and_effects(), plan=idata, random_seed=2, quiet=True)
    assert again["posterior"].attrs["integrated_out"] == "effect"
    first, second = map(pymc_hais.log_marginal_likelihood, (idata, again))
    assert abs(first.value - second.value) < 4.5 * np.hypot(first.se, second.se)


def test_most_elements_are_integrated_out_first():
    """Of whatever kind: conjugate probabilities, and not fewer covariates."""
    with pm.Model() as model:
        p, x = pm.Beta("p", pm.HalfNormal("a"), 2.0, shape=30), pm.Uniform("x", shape=12)
        pm.Binomial("n", 9, p, observed=np.arange(30) % 10)
        pm.Normal("y", pm.Normal("slope") * x, 1.0, observed=Y[:12])
    assert integrate(model).owners == ("p", "x")
