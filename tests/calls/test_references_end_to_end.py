"""Every way to start, through the front door: partition functions, fits, ratios, walls, schedules.

Intervals are held to four of their standard errors: a false alarm in 16,000 a test where the errors are normal.
"""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import gammaln

import pymc_hais
from examples import product_of_experts as experts
from pymc_hais import Gaussian, Hamiltonian, LinearConstraints, Mixture, RandomWalk, StudentT
from tests.front_door import assert_right, estimate

FACTOR = np.array([[1.0, 0.0], [0.9, 0.3]])
PRECISION = np.linalg.inv(FACTOR @ FACTOR.T)
LOG_Z = np.log(2 * np.pi) + np.log(np.diag(FACTOR)).sum()


def flat_gaussian(centre=0.0):
    with pm.Model() as model:
        x = pm.Flat("x", shape=2) - centre
        pm.Potential("energy", -0.5 * x @ PRECISION @ x)
    return model


class Logistic:
    """A reference of a user's own."""

    def sample(self, n, rng):
        return rng.logistic(scale=1.5, size=(n, 2))

    def logp(self, x):
        return (-x / 1.5 - 2 * pt.softplus(-x / 1.5) - np.log(1.5)).sum()


@pytest.mark.every(8)
@pytest.mark.parametrize(
    "reference",
    [
        pytest.param("auto", marks=pytest.mark.slow),
        pytest.param("fitted", marks=pytest.mark.slow),
        pytest.param("gaussian", marks=pytest.mark.exhaustive),
        pytest.param(StudentT(3.0, scale=2.0), marks=pytest.mark.slow),
        pytest.param(Mixture([Gaussian(scale=2.0), StudentT(3.0)]), marks=pytest.mark.slow),
        pytest.param(pm.Normal.dist(0.5, 2.0, shape=2), marks=pytest.mark.exhaustive),
        pytest.param({"x": pm.Laplace.dist(0, 2, shape=2)}, marks=pytest.mark.slow),
        Logistic(),
    ],
    ids=["auto", "fitted", "gaussian", "Student-t", "mixture", "distribution", "dict", "own"],
)
def test_the_partition_function_does_not_depend_on_the_reference(reference):
    found, idata = estimate(flat_gaussian(), reference=reference)
    assert_right(found, LOG_Z)
    attrs = idata["posterior"].attrs
    assert attrs["quantity"] == "log partition function"
    assert attrs["reference_reason"]
    covariance = np.cov(idata["posterior"]["x"].values.reshape(-1, 2).T)
    np.testing.assert_allclose(covariance, FACTOR @ FACTOR.T, atol=0.25)  # 1,000 draws: five standard errors


@pytest.mark.slow
def test_a_fit_defended_by_the_prior_gives_the_marginal_likelihood():
    rng = np.random.default_rng(4)
    design, y = rng.normal(size=(60, 12)), rng.normal(size=60)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 3, shape=12)
        pm.Normal("y", design @ b, 0.5, observed=y)
    covariance = 9 * design @ design.T + 0.25 * np.eye(60)
    truth = -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(covariance)[1] + 60 * np.log(2 * np.pi))
    found, idata = estimate(model, reference="auto")
    assert_right(found, truth)
    attrs = idata["posterior"].attrs
    assert attrs["quantity"] == "log marginal likelihood"
    assert attrs["reference"].startswith("the prior (10%) and a ")
    plain, other = estimate(model, reference="prior")
    assert_right(plain, truth)
    assert other["posterior"].attrs["n_gradients"] > 2 * attrs["n_gradients"]  # what the fit is for


@pytest.mark.exhaustive
def test_auto_keeps_a_prior_that_may_not_integrate_to_one():
    with pm.Model() as model:
        x = pm.Normal("x", 0, 30, shape=5, transform=pm.distributions.transforms.ordered, initval=np.arange(5))
        pm.Normal("y", x, 0.3, observed=np.arange(5.0))
    _, idata = estimate(model, target_se=None)
    assert idata["posterior"].attrs["reference"] == "the prior"
    assert "temperatures are enough from the prior" in idata["posterior"].attrs["reference_reason"]
    found, _ = estimate(model, reference=Gaussian(scale=5.0), target_se=None, n_temperatures=100)
    assert any("integrat" in finding.message for finding in found.findings if finding.name == "prior_density")


def test_an_improper_prior_with_data_is_the_users_decision():
    with pm.Model() as model:
        x = pm.Flat("x")
        pm.Normal("y", x, 1.0, observed=[0.3, 0.5])
    with pytest.raises(ValueError, match=r"`x` is improper \(pm.Flat\).*reference=\"gaussian\""):
        estimate(model)
    found, _ = estimate(model, reference="gaussian")
    assert_right(found, -0.5 * np.log(2 * np.pi) - 0.5 * np.log(2) - 0.5 * 0.02)


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [pytest.param({}, id="tuned"), pytest.param(pymc_hais.paper_settings(100), id="the report's")]
)
def test_a_second_model_gives_the_ratio(options):
    with pm.Model() as wide:
        x = pm.Flat("x", shape=2)
        pm.Potential("energy", -0.25 * (x**2).sum())
    found, idata = estimate(flat_gaussian(1.0), reference=wide, **options)
    assert_right(found, LOG_Z - np.log(4 * np.pi))
    assert found.se < 0.2
    assert idata["posterior"].attrs["quantity"] == "log ratio of partition functions"


def test_a_second_model_has_the_same_variables():
    with pm.Model() as other:
        pm.Flat("z", shape=2)
    with pytest.raises(
        ValueError, match=r"same free variables.*the model has `x` \(2,\); the reference has `z` \(2,\)"
    ):
        estimate(flat_gaussian(), reference=other)


@pytest.mark.parametrize(
    "kernel",
    [
        Hamiltonian(),
        pytest.param(Hamiltonian("drift-kick-drift", 2), marks=pytest.mark.slow),
        pytest.param(RandomWalk(), marks=pytest.mark.exhaustive),
    ],
    ids=str,
)
def test_truncated_gaussians(kernel):
    """The positive orthant of an equicorrelated Gaussian (rho = 1/2) has probability 1 / (d + 1)."""
    d = 4
    precision = np.linalg.inv(0.5 * (np.eye(d) + np.ones((d, d))))
    log_norm = 0.5 * np.linalg.slogdet(precision)[1] - 0.5 * d * np.log(2 * np.pi)
    with pm.Model() as model:
        x = pm.Flat("x", shape=d)
        pm.Potential("density", -0.5 * x @ precision @ x + log_norm)
    found, idata = estimate(model, constraints={"x": (0, None)}, kernel=kernel)
    assert_right(found, -np.log(d + 1.0))
    assert idata["posterior"].attrs["reference"] == "a box"
    assert float(idata["posterior"]["x"].min()) >= -1e-12


@pytest.mark.slow
def test_a_wedge_between_skew_walls():
    """The angle between two walls through the origin, as a share of the circle."""
    angle = np.pi / 5
    walls = LinearConstraints([[0.0, -1.0], [-np.sin(angle), np.cos(angle)]], [0.0, 0.0])
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0, shape=2)
        pm.Potential("none", 0.0 * x.sum())
    found, _ = estimate(model, constraints=walls, reference=Gaussian([1.0, 0.3]))
    assert_right(found, np.log(angle / (2 * np.pi)))


@pytest.mark.few(2)
@pytest.mark.every(2)
@pytest.mark.parametrize("schedule", ["linear", "sigmoid", "geometric", "array"])
def test_fixed_schedules(schedule):
    array = np.linspace(0, 1, 201) ** 2
    options = {"schedule": array} if schedule == "array" else {"schedule": schedule, "n_temperatures": 200}
    found, idata = estimate(flat_gaussian(), reference="gaussian", target_se=None, **options)
    assert_right(found, LOG_Z)
    beta = idata["annealing"]["beta"].values[0]
    steps = np.arange(1, 201) / 200
    logit = np.log(np.maximum(beta, 1e-9) / np.maximum(1 - beta, 1e-9))
    expected = {
        "linear": lambda: np.allclose(beta, steps),
        "sigmoid": lambda: np.allclose(np.diff(logit[90:110]), 8 / 200, rtol=0.06),
        "geometric": lambda: np.allclose(np.diff(np.log(beta)), np.log(1e4) / 199),
        "array": lambda: np.allclose(beta, steps**2),
    }
    assert beta.shape == (200,)
    assert expected[schedule]()


@pytest.mark.exhaustive
def test_plain_importance_sampling_is_no_temperatures():
    found, idata = estimate(flat_gaussian(), reference=StudentT(4.0, scale=FACTOR), n_temperatures=0, target_se=None)
    assert_right(found, LOG_Z)
    assert idata["annealing"].sizes["temperature"] == 1
    df, weights = 4.0, idata["sample_stats"]["log_weight"].values
    # -r^2/2 + (df + 2)/2 log(1 + r^2/df) is largest at r^2 = 2.
    log_t = gammaln(0.5 * (df + 2)) - gammaln(0.5 * df) - np.log(df * np.pi) - np.log(np.diag(FACTOR)).sum()
    bound = -log_t - 1.0 + 3.0 * np.log(1.5)
    assert weights.max() <= bound - np.log(500) - min(found.per_chain)
    assert weights.max() > bound - np.log(500) - max(found.per_chain) - 0.05  # 1,000 draws come near it


@pytest.mark.exhaustive
def test_the_reports_settings():
    settings = pymc_hais.paper_settings(400)
    found, idata = estimate(flat_gaussian(), reference="gaussian", **settings)
    assert_right(found, LOG_Z)
    annealing = idata["annealing"]
    np.testing.assert_allclose(annealing["beta"].values[0], np.arange(1, 401) / 400)
    assert set(annealing["step_size"].values.ravel()) == {0.2}
    assert idata["posterior"].attrs["n_gradients_pilot"] == 0
    assert settings["kernel"].persistence(0.2) ** 2 == pytest.approx(2**-0.2)  # gamma = 1 - 2^-eps
    with pytest.raises(ValueError, match="`n_distributions` must be a whole number of at least 1; got 0"):
        pymc_hais.paper_settings(0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kernel": "hmc"}, "`kernel` must be a pymc_hais.Hamiltonian"),
        ({"kernel": Hamiltonian}, "`kernel` must be"),
        ({"schedule": "cosine"}, "`schedule` must be one of"),
        ({"schedule": [0.0, 0.5]}, "increase strictly from 0 to 1"),
        ({"schedule": [0.0, 1.0], "n_temperatures": 5}, "leave out `n_temperatures`"),
        ({"n_temperatures": -1}, "`n_temperatures` must be a whole number of at least 0"),
        ({"kernel": Hamiltonian(step_size=0.1), "schedule": "linear"}, "pass `n_temperatures` too"),
        ({"constraints": {"y": (0, 1)}}, "names `y`, but the model's free variables are `x`"),
        ({"constraints": {"x": 3}}, "pair \\(lower, upper\\)"),
        ({"constraints": [0, 1]}, "LinearConstraints or a dict"),
        ({"constraints": LinearConstraints([[1.0]], [0.0])}, "1 dimensions, the model's flat vector 2"),
        (
            {
                "constraints": {"x": (0, None)},
                "kernel": Hamiltonian(constraints=LinearConstraints([[1.0, 0.0]], [0.0])),
            },
            "`kernel` has constraints of its own beside `constraints`",
        ),
        ({"constraints": {"x": (5.0, 6.0)}, "reference": Gaussian(scale=0.1)}, "lies inside the constraints"),
    ],
    ids=str,
)
def test_what_cannot_be_is_named_before_any_work(wrong, message):
    with pytest.raises(ValueError, match=message):
        estimate(flat_gaussian(), **wrong)


def test_a_transformed_variable_needs_no_walls():
    with pm.Model() as model:
        pm.HalfNormal("s")
    with pytest.raises(ValueError, match="`s` is sampled as `s_log__`"):
        estimate(model, constraints={"s": (0, None)})


def test_draws_that_do_not_follow_their_density_are_refused():
    class Narrow(Logistic):
        def sample(self, n, rng):
            return rng.logistic(scale=0.5, size=(n, 2))

    with pytest.raises(ValueError, match="do not follow its own log density"):
        estimate(flat_gaussian(), reference=Narrow())


def moving_gaussian():
    with pm.Model() as model:
        precision = pm.Data("precision", PRECISION)
        x = pm.Flat("x", shape=2)
        pm.Potential("energy", -0.5 * x @ precision @ x)
    return model


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow, id="tuned"),
        pytest.param({"schedule": "linear", "n_temperatures": 100, "target_se": None}, id="linear"),
    ],
)
def test_a_parameter_may_move_instead_of_the_energy(options):
    found, idata = estimate(moving_gaussian(), path={"precision": (2 * np.eye(2), PRECISION)}, **options, **FROM_TWO)
    assert_right(found, LOG_Z)
    # A step evaluates the density where it arrives and where it moves to; so do the 8 moves of the draws.
    lengths = idata["log_marginal_likelihood"]["round_n_temperatures"].values
    assert idata["posterior"].attrs["n_gradients"] == 2 * 500 * (np.sum(1 + 2 * lengths) + 2 * 8)
    # log Z(beta) of the Gaussian whose precision is the mean of both ends: not that of the geometric path's constants.
    annealing = idata["annealing"].isel(temperature=slice(0, None, 10))
    beta = annealing["beta"].values[0]
    between = [np.linalg.slogdet((1 - b) * 2 * np.eye(2) + b * PRECISION)[1] for b in beta]
    exact = np.log(2 * np.pi) - 0.5 * np.array(between)
    np.testing.assert_allclose(annealing["log_z"].values.mean(axis=0), exact, atol=6 * found.se)


FROM_TWO = {"reference": Gaussian(scale=2**-0.5)}


@pytest.mark.slow
def test_a_parameter_path_starts_at_its_reference():
    ends = {"precision": (np.eye(2), PRECISION)}
    # "auto" is the standard normal here.
    assert_right(estimate(moving_gaussian(), path=ends, n_temperatures=50, target_se=None)[0], LOG_Z)
    with pytest.raises(ValueError, match=r"log density differs from that of a Student-t.*pass as `reference`"):
        estimate(moving_gaussian(), path=ends, reference=StudentT(3.0))
    with pytest.raises(ValueError, match=r"data containers are \['precision'\]; got \['Phi'\]"):
        estimate(moving_gaussian(), path={"Phi": (0.0, 1.0)})
    with pytest.raises(ValueError, match=r"path of `precision` must be a pair of arrays .*; got 3\."):
        estimate(moving_gaussian(), path={"precision": 3})
    with pytest.raises(ValueError, match=r"pair of arrays of its shape \(2, 2\)"):
        estimate(moving_gaussian(), path={"precision": (np.eye(3), PRECISION)})
    with pytest.raises(ValueError, match="`precision` must be a pair of arrays of numbers; got a tuple"):
        estimate(moving_gaussian(), path={"precision": (np.full((2, 2), "a"), PRECISION)})


@pytest.mark.slow
@pytest.mark.parametrize(("weight", "is_heavy"), [(1.0, True), (2.5, False)])
def test_tails_heavier_than_the_reference_raise_a_finding(weight, is_heavy):
    """Experts with lambda = 1 are Cauchy distributions, with lambda = 5/2 t distributions of 4 degrees of freedom."""
    phi = experts.build_filters(10)
    found, _ = estimate(experts.build_model(phi, "student", weight), draws=1000, max_temperatures=1000)
    assert ("heavy_tail" in [finding.name for finding in found.findings]) == is_heavy
    if not is_heavy:
        assert_right(found, experts.exact_log_z(phi, "student", weight))
