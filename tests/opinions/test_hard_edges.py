"""Second opinions where a density ends abruptly, or a variable is an angle."""

import numpy as np
import pymc as pm
import pytest

import pymc_hais
from pymc_hais.opinions import opinions
from tests.quick import QUICK, one_mean, shared

OPTIONS = QUICK | {"draws": 500, "chains": 4, "random_seed": 3}


def half():
    """Half of the prior's mass is left, with log likelihood -1: log Z = -1 - log 2."""
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("edge", pm.math.switch(x > 0.0, -1.0, -np.inf))
    return model, -1.0 - np.log(2.0)


def test_every_method_counts_draws_where_the_target_has_no_density():
    model, truth = half()
    options = OPTIONS | {"reference": "prior", "n_temperatures": 8, "estimators": "all"}
    table = pymc_hais.estimates(pm.sample_hais(**options, model=model))
    assert {"linked", "reverse", "forward and reverse"} <= set(table.index)
    half_width = (table["upper"] - table["lower"]) / 2
    assert (np.abs(table["value"] - truth) < 2.5 * half_width + 1e-6).all(), table


@pytest.mark.slow
def test_bounds_of_simulated_data_count_the_support():
    with pm.Model() as model:
        theta = pm.Exponential("theta", 1.0)
        pm.Uniform("y", 0.0, theta, observed=np.zeros(3))
    options = {"draws": 300, "n_temperatures": 16, "target_se": None, "random_seed": 1, "progressbar": False}
    bounds = pymc_hais.validate(model, 20, reference="prior", **options)["bounds"].to_dataset()
    assert abs(float(bounds["gap"].mean())) < 0.1


def test_draws_outside_walls_count_in_every_method():
    with pm.Model() as model:
        x = pm.Flat("x")
        pm.Potential("normal", -0.5 * x**2)
    options = OPTIONS | {"reference": "gaussian", "constraints": {"x": (0.0, None)}, "n_temperatures": 8}
    table = pymc_hais.estimates(pm.sample_hais(**options, model=model))
    np.testing.assert_allclose(table["value"], 0.5 * np.log(2.0 * np.pi) - np.log(2.0), atol=0.1)


def angle():
    with pm.Model() as model:
        x = pm.VonMises("x", 0.5, 2.0)
        pm.Normal("y", pm.math.cos(x), 0.5, observed=[0.2, 0.6])
    return model


def test_an_angle_keeps_to_the_prior():
    grid = np.linspace(-np.pi, np.pi, 20_001)
    density = np.exp(2.0 * np.cos(grid - 0.5) - 2.0 * np.sum((np.cos(grid)[:, None] - [0.2, 0.6]) ** 2, axis=1))
    truth = np.log(np.trapezoid(density, grid)) - np.log(2.0 * np.pi * np.i0(2.0)) - np.log(2.0 * np.pi * 0.25)
    idata = pm.sample_hais(**(OPTIONS | {"estimators": ["bidirectional"]}), model=angle())
    table = pymc_hais.estimates(idata)
    assert idata["posterior"].attrs["reference"] == "the prior"
    assert (np.abs(table["value"] - truth) < 4.5 * table["se"] + 1e-6).all(), table


def test_a_fit_to_an_angle_is_refused():
    model = angle()
    idata = pm.sample_hais(**QUICK, model=model)
    for reference in ("fitted", idata):
        with pytest.raises(ValueError, match="`x` is periodic"):
            pm.sample_hais(reference=reference, model=model)
    with pytest.raises(ValueError, match="`x` is periodic"):
        pymc_hais.bridge(model, idata)


# What a finished run does not lose, and what is refused ---------------------------------------------------------


def test_a_method_that_fails_is_left_out_with_a_warning(monkeypatch, caplog):
    def fail(*args):
        raise FloatingPointError("nothing to bridge")

    monkeypatch.setattr(opinions, "bridge_particles", fail)
    idata = pm.sample_hais(**OPTIONS, estimators="bridge", model=shared(one_mean))
    assert "bridge" not in pymc_hais.estimates(idata).index
    assert "the estimate of log Z by bridge (FloatingPointError: nothing to bridge)" in caplog.text


@pytest.mark.slow
def test_an_ordered_prior_has_no_bridge_beside_a_mean_over_its_draws(caplog):
    with pm.Model() as model:
        ordered = pm.distributions.transforms.ordered
        x = pm.Normal("x", 0.0, 1.0, shape=3, transform=ordered, initval=[-1.0, 0.0, 1.0])
        pm.Normal("y", x.sum(), 1.0, observed=1.5)
    idata = pm.sample_hais(**OPTIONS, reference="prior", estimators=["bridge", "linked"], model=model)
    assert "bridge" not in pymc_hais.estimates(idata).index
    assert "does not integrate the density that a bridge would" in caplog.text
    assert pymc_hais.log_marginal_likelihood(idata).is_trustworthy


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": pymc_hais.Hamiltonian(constraints=pymc_hais.LinearConstraints([[1.0]], [5.0]))}, "no constraints"),
        ({"chains": 1}, "at least 2 chains"),
        ({"reference": one_mean()}, "takes no other model as reference"),
        ({"path": {"s": (2.0, 1.0)}}, "takes no `estimators`"),
    ],
)
def test_what_other_methods_cannot_take_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        pm.sample_hais(**(OPTIONS | {"estimators": "bridge"} | options), model=shared(one_mean))


def test_modes_beside_given_draws_are_refused():
    model = one_mean()
    idata = pm.sample_hais(**OPTIONS, model=model)
    with pytest.raises(ValueError, match="`modes` adds Gaussians"):
        pm.sample_hais(modes=idata, reference=idata, model=model)


def test_draws_that_were_rounded_to_an_edge_are_refused_by_name():
    with pm.Model() as model:
        p = pm.Beta("p", 1.0, 1.0)
        pm.Bernoulli("y", p, observed=1)
    idata = pm.sample_hais(**OPTIONS, model=model)
    idata["posterior"]["p"][0, 0] = 1.0
    with pytest.raises(ValueError, match="draws of `p` on the boundary of their support"):
        pymc_hais.bridge(model, idata)


@pytest.mark.parametrize("reference", [one_mean(), "idata"])
def test_validate_takes_no_reference_of_one_data_set(reference):
    model = one_mean()
    given = pm.sample_hais(**OPTIONS, model=model) if isinstance(reference, str) else reference
    with pytest.raises(ValueError, match="`reference` of validate cannot be another model or draws"):
        pymc_hais.validate(model, 2, reference=given)


def test_a_variable_that_is_called_model_is_not_averaged():
    with pm.Model() as one:
        x = pm.Normal("model")
        pm.Normal("y", x, 1.0, observed=0.3)
    results = {name: pm.sample_hais(**(OPTIONS | {"random_seed": i}), model=one) for i, name in enumerate("ab")}
    with pytest.raises(ValueError, match="as `model`: give your variable `model` another name"):
        pymc_hais.average(results)
