"""References integrate to one, draw from their own density, and say what does not fit."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.integrate import quad

from pymc_hais.density import build_layout
from pymc_hais.goodness_of_fit.draws import blocks_of
from pymc_hais.goodness_of_fit.stein import find_suspects
from pymc_hais.references import (
    Box,
    Fitted,
    Gaussian,
    Mixture,
    Prior,
    StudentT,
    bind,
    build_prior,
    check_same_variables,
    uses_prior,
)
from tests.statistical import assert_distribution, assert_mean

FACTOR = np.array([[1.0, 0.0, 0.0], [0.5, 2.0, 0.0], [-0.3, 0.7, 0.4]])
LOC = np.array([1.0, -2.0, 0.5])


def flat_model(shape=3):
    with pm.Model() as model:
        x = pm.Flat("x", shape=shape)
        pm.Potential("energy", -0.5 * (x**2).sum())
    return model


def draw(bound, n, seed):
    """Draw positions (n, D) and which of them are clipped."""
    drawn = bound.draw(n, np.random.SeedSequence(seed))
    np.testing.assert_array_equal(drawn.families, np.arange(n))
    assert bound.cost(n) == 0
    return drawn.positions, drawn.clipped


def compiled(start, n_dims):
    """Return ``positions (n, D) -> log densities (n,), gradients (n, D)``."""
    x = pt.vector("x", shape=(n_dims,))
    log_prior = -0.5 * (x**2).sum() - 0.5 * n_dims * np.log(2 * np.pi)
    value = start.logp(x, log_prior)
    function = pytensor.function([x], [value, pytensor.grad(value, x)], mode="FAST_COMPILE")

    def evaluate(positions):
        rows = [function(row) for row in positions]
        return np.array([row[0] for row in rows]), np.array([row[1] for row in rows])

    return evaluate


SPECS = {
    "gaussian": ("gaussian", stats.multivariate_normal(np.zeros(3), np.eye(3))),
    "dense Gaussian": (Gaussian(LOC, FACTOR), stats.multivariate_normal(LOC, FACTOR @ FACTOR.T)),
    "diagonal Gaussian": (Gaussian(LOC, [1, 2, 3]), stats.multivariate_normal(LOC, np.diag([1.0, 4.0, 9.0]))),
    "Student-t": (StudentT(3.0, LOC, FACTOR), stats.multivariate_t(LOC, FACTOR @ FACTOR.T, df=3.0)),
    "PyMC distribution": (pm.Normal.dist(1.0, 2.0, shape=3), stats.multivariate_normal(np.ones(3), 4.0 * np.eye(3))),
    "dict": ({"x": pm.Logistic.dist(0.5, 1.5, shape=3)}, None),
    "mixture": (Mixture([Gaussian(), StudentT(4.0, LOC)], [0.25, 0.75]), None),
}


@pytest.mark.every(3)
@pytest.mark.few(3)
@pytest.mark.parametrize("name", SPECS)
def test_a_reference_draws_from_its_own_density(name):
    spec, known = SPECS[name]
    layout = build_layout(flat_model())
    start = bind(spec, layout, None, flat_model())
    positions, clipped = draw(start, 500, 3)
    evaluate = compiled(start, 3)
    density, gradient = evaluate(positions)
    assert not clipped.any()
    assert find_suspects(positions, gradient, blocks_of(layout), 1e-5) == []
    wrong = 1.6 * positions + 1.0
    assert find_suspects(wrong, evaluate(wrong)[1], blocks_of(layout), 1e-5)  # and it does notice
    if known is not None:
        # PyMC folds small constants in single precision.
        np.testing.assert_allclose(density, known.logpdf(positions), rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(positions, draw(start, 500, 3)[0])
    assert not np.array_equal(positions, draw(start, 500, 4)[0])


@pytest.mark.every(3)
@pytest.mark.few(3)
@pytest.mark.parametrize(
    "spec",
    [
        Box([-1.0], [2.0]),
        Box([0.5], [np.inf], 2.0),
        Box([-np.inf], [0.5], 0.7),
        Box([-np.inf], [np.inf], 0.3),
        Mixture([Box([0.0], [np.inf]), StudentT(2.0)], [0.4, 0.6]),
        StudentT(2.0, 1.0, 0.5),
    ],
    ids=str,
)
def test_a_reference_integrates_to_one(spec):
    start = bind(spec, build_layout(flat_model(1)), None, None)
    evaluate = compiled(start, 1)
    mass, _ = quad(lambda x: np.exp(evaluate([[x]])[0][0]), -np.inf, np.inf, points=None, limit=400)
    np.testing.assert_allclose(mass, 1.0, atol=1e-5)
    # The mean of a bounded function of the draws, against quadrature.
    mean, _ = quad(lambda x: np.tanh(x) * np.exp(evaluate([[x]])[0][0]), -np.inf, np.inf, limit=400)
    draws = np.tanh(draw(start, 20_000, 1)[0][:, 0])
    assert_mean(draws, mean)


def test_a_mixture_may_contain_the_prior():
    with pm.Model() as model:
        pm.Normal("x", 0.0, 1.0, shape=2)
    layout = build_layout(model)
    prior = Prior(layout, build_prior(model))
    spec = Mixture(["prior", Gaussian(50.0, 0.1)], [0.25, 0.75])
    assert uses_prior(spec)
    assert not uses_prior(Gaussian())
    start = bind(spec, layout, prior, model)
    positions, clipped = draw(start, 4000, 2)
    near = positions[:, 0] > 25
    assert clipped.shape == (4000,)
    assert near.sum() == 3000
    value, _ = compiled(start, 2)(np.zeros((1, 2)))
    np.testing.assert_allclose(value, np.log(0.25) - np.log(2 * np.pi))
    assert start.label == "the prior (25%) and a Gaussian (75%)"


def test_a_prior_of_another_mass_is_normalised_by_it():
    layout = build_layout(flat_model())
    assert bind("prior", layout, Prior(layout, None), None).is_prior
    x = np.array([[0.3, -1.0, 2.0]])
    (whole,), (half,) = (compiled(Prior(layout, None, mass), 3)(x)[0] for mass in (0.0, np.log(0.5)))
    np.testing.assert_allclose(half, whole + np.log(2.0))


CENTRES = np.array([[0.0, 0.0, 0.0], [5.0, -3.0, 1.0]])


@pytest.mark.parametrize("row", [0, 1])
def test_a_fit_draws_around_the_centre_of_each_row(row):
    """Whether a path starts from the density of these draws stands in kernels/test_defended.py."""
    fit = Fitted(StudentT(5.0, np.zeros(3), FACTOR), CENTRES, 0.1)
    positions = fit.draw(row, 5000, np.random.default_rng(3))
    z = np.linalg.solve(FACTOR, (positions - CENTRES[row]).T).T
    # The squared distance of a t over its dimensions follows an F distribution.
    assert_distribution(np.sum(z**2, axis=1) / 3, stats.f(3, 5).cdf)
    assert_mean(np.tanh(z), np.zeros(3))
    assert_mean(np.tanh(z[:, [0, 0, 1]]) * np.tanh(z[:, [1, 2, 2]]), np.zeros(3))


def test_a_fit_says_what_it_is_mixed_with():
    shape = Gaussian(np.zeros(3), np.ones(3))
    assert (
        Fitted(shape, CENTRES, 0.1).label("the prior")
        == "the prior (10%) and a Gaussian fitted to the pilot around each row (90%)"
    )
    assert (
        Fitted(shape, CENTRES[:1], 0.1).label("the prior") == "the prior (10%) and a Gaussian fitted to the pilot (90%)"
    )
    for is_dense in (False, True):
        none = Fitted.none(2, 3, is_dense)
        assert none.label("the prior") == "the prior"
        assert none.is_dense == is_dense
        assert none.centres.shape == (2, 3)


class Wrong:
    def __init__(self, sample=None, logp=None):
        self._sample, self._logp = sample, logp

    def sample(self, n, rng):
        return self._sample(n, rng)

    def logp(self, x):
        return self._logp(x)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("posterior", "`reference` must be"),
        (3, "`reference` must be"),
        (Gaussian, "`reference` must be"),
        (Gaussian(np.zeros(4)), "`loc` must be a number or have the model's 3 dimensions"),
        (Gaussian("a"), "`loc` of a reference must be numbers; got 'a'"),
        (Gaussian(np.nan), "`loc` of a reference must be numbers; got nan"),
        (Gaussian(scale=[1.0, -1.0, 1.0]), "`scale` must be positive"),
        (Gaussian(scale=np.ones((3, 3))), "lower Cholesky factor"),
        (Box(1.0, 0.0), "lower bound must be below"),
        (Box(0.0, np.inf, 0.0), "`scale` must be positive"),
        (pm.Normal.dist(shape=2), r"has shape \(2,\), but the model has 3"),
        ({"y": pm.Normal.dist(shape=3)}, r"names the variables \['y'\]"),
        ({"x": pm.Normal.dist(shape=2)}, r"reference of `x` has shape \(2,\)"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        bind(spec, build_layout(flat_model()), None, flat_model())


def test_a_users_reference_is_checked_where_it_is_used():
    layout = build_layout(flat_model())
    for sample, message in (
        (lambda n, rng: rng.normal(size=(n, 2)), r"must return \(5, 3\)"),
        (lambda n, rng: np.full((n, 3), np.nan), "NaN or infinite"),
    ):
        with pytest.raises(ValueError, match=message):
            draw(bind(Wrong(sample, None), layout, None, None), 5, 1)
    with pytest.raises(ValueError, match="must return a PyTensor scalar"):
        bind(Wrong(None, lambda x: x), layout, None, None).logp(pt.vector("x"), None)


def test_mixtures_and_degrees_of_freedom_are_checked_at_once():
    with pytest.raises(ValueError, match="at least one part"):
        Mixture([])
    with pytest.raises(ValueError, match=r"`parts` must be a list, such as .*; got 'prior'"):
        Mixture("prior")
    with pytest.raises(ValueError, match="2 positive numbers"):
        Mixture([Gaussian(), "prior"], [1.0, 0.0])
    for weights in ([1, -1], "ab"):
        with pytest.raises(ValueError, match="`weights` must be 2 positive numbers, one a part; got "):
            Mixture([Gaussian(), "prior"], weights)
    with pytest.raises(ValueError, match=r"sum to one; got \[1, 3\], whose sum is 4: pass \[0.25, 0.75\]"):
        Mixture([Gaussian(), "prior"], [1, 3])
    assert Mixture([Gaussian()] * 3, [0.33, 0.33, 0.33]).shares.sum() == pytest.approx(1.0, abs=1e-15)
    with pytest.raises(ValueError, match="`df` must be a positive number"):
        StudentT(np.inf)
    with pytest.raises(ValueError, match="`df` must be a positive number; got 'x'"):
        StudentT("x")


def normal_model(y=None, improper=False, **options):
    with pm.Model() as model:
        x = pm.Flat("x") if improper else pm.Normal("x", 0.0, 2.0)
        if y is not None:
            pm.Normal("y", x, 1.0, observed=y, **options)
    return model


def test_models_may_differ_in_their_data():
    for other in (None, [0.3], np.zeros(5)):
        assert check_same_variables(normal_model([0.1, 0.2]), normal_model(other)).names == ("x",)


@pytest.mark.parametrize(
    ("model", "reference", "message"),
    [
        (normal_model([0.1]), normal_model([0.1], improper=True), "model that is the reference.*`x` is improper.*data"),
        (normal_model([0.1]), normal_model(improper=True), "model that is the reference.*`x` is improper.*not finite"),
        (normal_model([0.1], total_size=10), normal_model(), "`y` was given `total_size`"),
        (normal_model([0.1]), pm.Model(), "same free variables.*the model has `x`.*the reference has none"),
    ],
    ids=["improper with data", "improper without any", "minibatch", "no variables"],
)
def test_a_second_model_that_gives_no_ratio_is_refused(model, reference, message):
    with pytest.raises(ValueError, match=message):
        check_same_variables(model, reference)
