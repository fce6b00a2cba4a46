"""A distribution for each variable, on the variable's own space: normalised, drawn as it computes, or refused."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.distributions import transforms
from scipy import stats

from pymc_hais.density import build_layout
from pymc_hais.problem.audit import check_draws
from pymc_hais.references import bind
from pymc_hais.references.density import build_reference_density
from tests.density.catalogue import MODELS

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


def bound(model, spec):
    return bind(spec, build_layout(model), None, model)


def modelled(build):
    with pm.Model() as model:
        build()
    return model


def density(model, start):
    """Compile ``positions (n, D) -> log densities (n,)``."""
    return build_reference_density(model, start.layout, start, np.zeros((1, start.layout.n_dims))).values


def mass(logp, n_dims):
    """Integrate by the trapezoidal rule, which is very accurate for smooth densities that fall off at both ends."""
    axis = np.arange(-30.0, 30.0, 0.02 if n_dims == 1 else 0.2)
    grid = np.stack(np.meshgrid(*[axis] * n_dims), axis=-1).reshape(-1, n_dims)
    return np.exp(logp(grid)).sum() * (axis[1] - axis[0]) ** n_dims


ONE = {
    "positive": (lambda: pm.HalfNormal("x"), pm.Exponential.dist(0.7)),
    "probability": (lambda: pm.Beta("x", 2, 2), pm.Beta.dist(0.8, 3.0)),
    "interval": (lambda: pm.Uniform("x", -1, 3), pm.Triangular.dist(-1, 3, 0)),
    "lower bound": (lambda: pm.Pareto("x", 3.0, 0.5), pm.Pareto.dist(2.0, 0.5)),
    "unbounded": (lambda: pm.Normal("x"), pm.Logistic.dist(1.0, 2.0)),
    "restricted": (lambda: pm.Normal("x", transform=transforms.log), pm.Gamma.dist(2.0, 1.0)),
    "data as bounds": (lambda: pm.Uniform("x", pm.Data("low", 2.0), 5.0), pm.Uniform.dist(2.0, 5.0)),
}


@pytest.mark.few(4)
@pytest.mark.every(3)
@pytest.mark.parametrize("name", ONE)
def test_one_dimension_integrates_to_one_and_is_drawn(name):
    build, dist = ONE[name]
    model = modelled(build)
    start = bound(model, {"x": dist})
    np.testing.assert_allclose(mass(density(model, start), 1), 1.0, atol=1e-4)
    check_draws(model, start.layout, start, np.random.SeedSequence(1))  # false alarm: 1e-6
    positions, clipped, families, _ = start.draw(500, np.random.SeedSequence(3))
    np.testing.assert_array_equal(positions, start.draw(500, np.random.SeedSequence(3)).positions)
    np.testing.assert_array_equal(families, np.arange(500))
    assert not clipped.any()
    own = pm.draw(dist, 2000, random_seed=5)
    value = model.rvs_to_values[model["x"]]
    back = model.rvs_to_transforms[model["x"]]
    ours = (
        positions[:, 0]
        if back is None
        else back.backward(pt.as_tensor(positions[:, 0]), *model["x"].owner.inputs).eval(mode="FAST_COMPILE")
    )
    assert value.ndim == 0
    assert stats.ks_2samp(ours, own).pvalue > 1e-6


TWO = {
    "simplex": (lambda: pm.Dirichlet("x", np.ones(3)), pm.Dirichlet.dist([1.0, 2.0, 3.0])),
    "zero sum": (lambda: pm.ZeroSumNormal("x", shape=3), pm.ZeroSumNormal.dist(sigma=2.0, shape=3)),
    "vector": (lambda: pm.HalfNormal("x", shape=2), pm.Gamma.dist(2.0, [1.0, 3.0])),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TWO)
def test_transforms_that_change_the_dimension(name):
    build, dist = TWO[name]
    model = modelled(build)
    start = bound(model, {"x": dist})
    assert start.layout.n_dims == 2
    np.testing.assert_allclose(mass(density(model, start), 2), 1.0, atol=1e-4)
    check_draws(model, start.layout, start, np.random.SeedSequence(1))


def test_every_variable_of_a_model_and_the_order_of_a_dict_does_not_matter():
    model = MODELS["hierarchical"]()
    spec = {
        "effect": pm.StudentT.dist(4.0, mu=0.0, sigma=1.0, shape=2),
        "mu": pm.Normal.dist(0.0, 5.0),
        "tau": pm.HalfNormal.dist(1.0),
    }
    start = bound(model, spec)
    x = np.array([[0.3, -1.0, 0.5, 0.2]])
    tau_mu = dict(zip(start.layout.owners, np.split(x[0], start.layout.offsets[1:-1]), strict=True))
    tau = np.exp(tau_mu["tau"][0])
    expected = (
        stats.halfnorm.logpdf(tau)
        + np.log(tau)
        + stats.norm(0, 5).logpdf(tau_mu["mu"][0])
        + stats.t(4).logpdf(tau_mu["effect"]).sum()
    )
    np.testing.assert_allclose(density(model, start)(x), expected, rtol=1e-6)
    assert sorted(start.label.split(" x ")) == ["HalfNormal", "Normal", "StudentT"]
    assert model["mu"].name == "mu"
    with model:  # a model that is open stays as it is
        bound(model, spec)
    assert len(model.free_RVs) == 3


@pytest.mark.slow
def test_labelled_variables_of_dims():
    model = MODELS["dims_model"]()
    spec = {
        "mu": pm.Normal.dist(0.0, 2.0),
        "tau": pm.Exponential.dist(1.0),
        "effect": pm.Normal.dist(0.0, 1.0, shape=(3, 2)),
        "p": pm.Beta.dist(1.0, 1.0, shape=2),
    }
    check_draws(model, build_layout(model), bound(model, spec), np.random.SeedSequence(1))


def ordered():
    pm.Normal("x", shape=2, transform=transforms.ordered, initval=[0.0, 1.0])


REFUSED = {
    "negative": (lambda: pm.HalfNormal("x"), pm.Normal.dist(), r"draws of the reference of `x` are outside.*`log`"),
    "beyond": (lambda: pm.Uniform("x", 0, 1), pm.Uniform.dist(0, 2), r"reference of `x` are outside.*`interval`"),
    "unordered": (ordered, pm.Normal.dist(shape=2), r"reference of `x` are outside.*`ordered`"),
    "no simplex": (lambda: pm.Dirichlet("x", np.ones(3)), pm.Gamma.dist(1.0, 1.0, shape=3), "outside.*`simplex`"),
    "no zero sum": (lambda: pm.ZeroSumNormal("x", shape=3), pm.Normal.dist(shape=3), "outside.*`zerosum`"),
    "shape": (lambda: pm.Dirichlet("x", np.ones(3)), pm.Normal.dist(shape=2), r"has shape \(2,\).*shape \(3,\)"),
    "discrete": (lambda: pm.HalfNormal("x"), pm.Poisson.dist(3.0), "`x` must be a continuous PyMC distribution"),
    "number": (lambda: pm.HalfNormal("x"), 3.0, "`x` must be a continuous PyMC distribution"),
    "random": (
        lambda: pm.Normal("x"),
        pm.Normal.dist(pm.Normal.dist()),
        "reference of `x` has no log density of its own.*[Rr]andom variables",
    ),
    "improper": (lambda: pm.Normal("x"), pm.Flat.dist(), "reference of `x` may not integrate to one"),
    "cannot be drawn": (
        lambda: pm.Normal("x"),
        pm.CustomDist.dist(logp=lambda v: -(v**2)),
        "cannot be drawn.*`random=`",
    ),
    "not normalised": (
        lambda: pm.Normal("x", shape=3),
        pm.CAR.dist(mu=np.zeros(3), W=np.eye(3)[::-1] * [1, 0, 1], alpha=0.5, tau=1.0),
        "reference of `x` may not integrate to one",
    ),
    "names": (lambda: (pm.Normal("x"), pm.Normal("y")), pm.Normal.dist(), r"names the variables \['x'\]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_wrong_is_refused_by_name(name):
    build, dist, message = REFUSED[name]
    model = modelled(build)
    with pytest.raises(ValueError, match=message):
        bound(model, {"x": dist})


def test_bounds_that_depend_on_another_variable_are_refused():
    model = MODELS["interval_with_random_bounds"]()
    spec = {"low": pm.Normal.dist(), "u": pm.Uniform.dist(0.0, 1.0, shape=2)}
    with pytest.raises(ValueError, match=r"bounds of `u` depend on `low`.*reference=\"prior\""):
        bound(model, spec)


def test_one_distribution_for_two_variables_is_refused():
    model = modelled(lambda: (pm.Normal("x"), pm.Normal("y")))
    same = pm.Normal.dist()
    with pytest.raises(ValueError, match="one distribution for several variables"):
        bound(model, {"x": same, "y": same})


def test_draws_that_are_ordered_are_taken():
    """x_0 ~ N(0, 1), and x_1 - x_0 ~ Exponential(1)."""

    def logp(value, _):
        step = value[..., 1] - value[..., 0]
        return -0.5 * value[..., 0] ** 2 - 0.5 * np.log(2 * np.pi) + pt.switch(step > 0, -step, -np.inf)

    def random(_, rng=None, size=None):
        first = rng.normal()
        return np.array([first, first + rng.exponential()])

    pair = pm.CustomDist.dist(np.zeros(2), logp=logp, random=random, signature="(n)->(n)")
    model = modelled(ordered)
    start = bound(model, {"x": pair})
    expected = stats.norm.logpdf(0.3) + stats.expon.logpdf(np.exp(-0.4)) - 0.4
    np.testing.assert_allclose(density(model, start)(np.array([[0.3, -0.4]])), expected)
    check_draws(model, start.layout, start, np.random.SeedSequence(1))


def test_a_custom_distribution_that_contradicts_itself_is_named():
    model = modelled(lambda: pm.HalfNormal("x"))
    wrong = pm.CustomDist.dist(
        logp=lambda value: -value, random=lambda rng=None, size=None: rng.exponential(1.3, size=size), class_name="E"
    )
    layout = build_layout(model)
    with pytest.raises(ValueError, match=r"draws of the reference of `x` do not follow its log density.*`random`"):
        check_draws(model, layout, bind({"x": wrong}, layout, None, model), np.random.SeedSequence(1))
