"""The checks of a problem, made with its engine in the coordinates of its particles."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.distributions import transforms

from pymc_hais.core.seeds import Seeds
from pymc_hais.problem import audit, building
from pymc_hais.problem.building import build_problem
from pymc_hais.problem.problem import Compiler

C = Compiler(backend="c")


def schools():
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0.0, 5.0), pm.HalfCauchy("tau", 5.0)
        theta = pm.Normal("theta", mu, tau, shape=4)
        pm.Normal("y", theta, 10.0, observed=[28.0, 8.0, -3.0, 7.0])
    return model


def one_row():
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 2.0, shape=2)
        pm.Normal("x", a, 0.5, observed=np.zeros(2))
    return model


def jumping():
    with pm.Model() as model:
        x = pm.Exponential("x", 1.0, default_transform=None)
        pm.Normal("y", x, 1.0, observed=0.3)
    return model


def custom_scale(drawn):
    """A positive CustomDist whose density is that of a half-normal, and a charted child."""
    with pm.Model() as model:
        tau = pm.CustomDist(
            "tau",
            logp=lambda value: pt.switch(value > 0, -0.5 * value**2, -np.inf),
            random=lambda rng=None, size=None: np.abs(rng.normal(0.0, drawn, size=size)),
            transform=transforms.log,
        )
        pm.Normal("theta", 0.0, tau, shape=3)
    return model


def custom_child(drawn):
    """A child of a scale beside another one that is charted."""
    with pm.Model() as model:
        tau = pm.HalfNormal("tau")
        pm.CustomDist(
            "x",
            tau,
            logp=lambda value, scale: -0.5 * (value / scale) ** 2 - pt.log(scale),
            random=lambda scale, rng=None, size=None: rng.normal(0.0, drawn * scale, size=size),
            shape=3,
        )
        pm.Normal("theta", 0.0, tau, shape=3)
    return model


@pytest.fixture
def compiled(monkeypatch):
    """Count the graphs that the audit compiles itself, where every density is cheap: no matter of a busy machine."""
    calls = []
    monkeypatch.setattr(building, "_CHEAP", np.inf)

    def build(*args, **kwargs):
        calls.append(args[2].label)
        return build_reference_density(*args, **kwargs)

    build_reference_density = audit.build_reference_density
    monkeypatch.setattr(audit, "build_reference_density", build)
    return calls


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize("takes_fit", [False, True])
@pytest.mark.parametrize(("build", "rows"), [(schools, None), (one_row, {"x": np.ones((3, 2))})])
def test_ordinary_priors_are_checked_without_a_graph_of_their_own(build, rows, takes_fit, compiled):
    problem = build_problem(build(), "prior", C, Seeds((1,)), rows, takes_fit)
    assert (problem.chart is not None) == (build is schools)
    assert compiled == []


def test_what_ends_abruptly_is_looked_at_again(compiled):
    build_problem(jumping(), "prior", C, Seeds((1,)))
    assert compiled == ["the prior"]


@pytest.mark.parametrize(
    ("build", "name", "takes_fit"),
    [
        pytest.param(custom_scale, "tau", False, marks=pytest.mark.slow),
        pytest.param(custom_scale, "tau", True, marks=pytest.mark.slow),
        (custom_child, "x", False),
        pytest.param(custom_child, "x", True, marks=pytest.mark.slow),
    ],
)
def test_wrong_draws_are_named_beside_recentred_variables(build, name, takes_fit):
    problem = build_problem(build(1.0), "prior", C, Seeds((1,)), takes_fit=takes_fit)
    assert problem.chart is not None
    with pytest.raises(ValueError, match=rf"forward draws of `{name}`.*do not follow its log density"):
        build_problem(build(1.2), "prior", C, Seeds((1,)), takes_fit=takes_fit)


@pytest.mark.slow
def test_what_a_reference_misses_is_seen_in_the_models_own_vector():
    scale, narrow = {"mu": pm.Normal.dist(0.0, 5.0), "tau": pm.HalfCauchy.dist(5.0)}, pm.Uniform.dist(-2, 2, shape=4)
    with pytest.raises(ValueError, match=r"is zero at \d+ of \d+ probed positions.*when `theta` moves"):
        build_problem(schools(), {**scale, "theta": narrow}, C, Seeds((1,)))
    wide = pm.Cauchy.dist(0.0, 5.0, shape=4)
    assert build_problem(schools(), {**scale, "theta": wide}, C, Seeds((1,))).chart is not None


def test_a_state_is_that_of_the_models_density_whatever_the_coordinates():
    problem = build_problem(schools(), "prior", C, Seeds((1,)))
    x = problem.reference.draw(5, np.random.SeedSequence(2)).positions
    state = problem.evaluate(x)
    np.testing.assert_allclose(problem.to_model(state.position), x, rtol=1e-10)
    logp = problem.model.compile_logp(mode="FAST_COMPILE")
    expected = [logp({name: value[i] for name, value in problem.layout.unflatten(x).items()}) for i in range(5)]
    joint = state.log_reference + state.log_ratio - problem.log_jacobian(x)
    np.testing.assert_allclose(joint, expected, rtol=1e-10)
