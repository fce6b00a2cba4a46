"""A fit that says it has converged has: whatever the units, the start and the optimiser, or it says what is wrong."""

import json

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.optimize import minimize_scalar

import pymc_hais
from pymc_hais import learning
from tests.learning import densities
from tests.marks import slow_but

N = 2000
STANDARD = np.random.default_rng(0).normal(size=(N, 2)) @ np.array([[1.0, 0.3], [0.0, 1.0]])
METHODS = {
    "score": learning.ScoreMatching(),
    "sliced": learning.ScoreMatching(sliced=True),
    "denoising": learning.DenoisingScoreMatching(),
    "flow": learning.MinimumProbabilityFlow(),
    "contrast": learning.NoiseContrastive(),
}
TWO_BITS = {"s": np.array([[0, 1], [1, 0], [1, 1], [0, 0]] * 5)}


def fit(model, data, parameters, method, **kwargs):
    """Return the attributes of the fit, with the severities of its findings; the values are in the model."""
    settings = {"progressbar": False, "random_seed": 1} | kwargs
    attrs = dict(pymc_hais.fit(model, data, parameters, method, **settings)["learning"].attrs)
    attrs["severities"] = [one["severity"] for one in json.loads(attrs["findings"])]
    assert attrs["converged"] == (attrs["reason"] == "tolerance") == (not attrs["severities"])
    return attrs


def normal(mean, sd):
    """Columns of normal rows, with parameters in their units."""
    with pm.Model() as model:
        mu, sigma = pm.Data("mu", np.array(mean, float)), pm.Data("sigma", np.array(sd, float))
        pm.Normal("y", mu, sigma, observed=np.zeros(len(mean)))
    return model


def held(model, *names):
    return np.concatenate([np.ravel(model[name].get_value()) for name in names])


# units --------------------------------------------------------------------------------------------------------


@pytest.mark.every(12)
@pytest.mark.parametrize(
    ("name", "units"),
    slow_but(
        [("score", (1e5, 1e5))],
        [(name, units) for name in METHODS for units in ((1e5, 1e5), (1e6, 1e-6), (1e-9, 1e9), (1e-3, 1.0))],
    ),
)
def test_a_fit_does_not_depend_on_the_units(name, units):
    """House prices began at (200,000, 200,000) and came to (200,000, 139,468), where (300,000, 100,000) was right."""
    found = []
    for scales in (np.ones(2), np.array(units)):
        model = normal(2.0 * scales, 2.0 * scales)
        attrs = fit(model, {"y": scales * (3.0 + STANDARD)}, ["mu", "sigma"], METHODS[name])
        assert attrs["converged"]
        found.append(held(model, "mu", "sigma") / np.tile(scales, 2))
    np.testing.assert_allclose(*found, atol=1e-3)  # a standard error is 0.02
    if name == "score":  # which is maximum likelihood here
        sample = 3.0 + STANDARD
        np.testing.assert_allclose(found[0], np.r_[sample.mean(axis=0), sample.std(axis=0)], atol=0.002)


@pytest.mark.slow
def test_steps_in_the_units_of_the_parameters_arrive():
    model = normal([2e5], [2e5])
    attrs = fit(
        model, {"y": 1e5 * (3.0 + STANDARD[:, :1])}, ["mu", "sigma"], METHODS["score"],
        optimizer=pm.adam(learning_rate=1000.0), n_steps=3000,
    )  # fmt: skip
    assert attrs["converged"]
    sample = 1e5 * (3.0 + STANDARD[:, 0])
    np.testing.assert_allclose(held(model, "mu", "sigma"), [sample.mean(), sample.std()], atol=0.5 * 1e5 / np.sqrt(N))


def test_steps_that_are_too_short_for_the_units_have_not_converged():
    model = normal([2e5], [2e5])
    data = {"y": 1e5 * (3.0 + STANDARD[:, :1])}
    assert not fit(model, data, ["mu", "sigma"], learning.MaximumLikelihood(), n_steps=500)["converged"]


# what a gradient does not say ---------------------------------------------------------------------------------


def two_components(distance, share=0.3, n=N, seed=2):
    """Rows of two components, and a model of the share of one of them."""
    rng = np.random.default_rng(seed)
    is_right = rng.random(n) < share
    with pm.Model() as model:
        w, x = pm.Data("w", np.array(0.5)), pm.Flat("x", shape=1)
        right, left = pt.log(w) - 0.5 * (x[0] - distance) ** 2, pt.log1p(-w) - 0.5 * (x[0] + distance) ** 2
        pm.Potential("two", pt.logaddexp(right, left))
    return model, {"x": (np.where(is_right, distance, -distance) + rng.normal(size=n))[:, None]}, is_right.mean()


@pytest.mark.every(3)
@pytest.mark.few(4)
@pytest.mark.parametrize("distance", [5.0, 6.0, 8.0, 12.0])
def test_weights_that_score_matching_does_not_see(distance):
    model, data, _ = two_components(distance)
    attrs = fit(model, data, ["w"], METHODS["score"])
    assert (attrs["reason"], attrs["severities"]) == ("unseen", ["error"])
    assert "`w`" in json.loads(attrs["findings"])[0]["message"]


@pytest.mark.every(7)
@pytest.mark.few(8)
@pytest.mark.parametrize("optimizer", [None, pm.adam(learning_rate=0.01)], ids=["lbfgs", "adam"])
@pytest.mark.parametrize(("distance", "seed"), [(5.0, 3), (6.0, 3), (6.0, 4), (12.0, 2)])
def test_weights_that_denoising_does_not_see(distance, seed, optimizer):
    """Few rows lie between the components, and make all of the gradient: Adam ended at 0.95, without a finding."""
    model, data, _ = two_components(distance, seed=seed)
    method = learning.DenoisingScoreMatching(0.3)
    attrs = fit(model, data, ["w"], method, optimizer=optimizer, n_steps=400)
    assert attrs["severities"] == ["error"]


def denoised_share(distance, sigma, share=0.3):
    """The share of unit components that best fits the score of rows with noise, by quadrature."""
    y = np.linspace(-distance - 12.0 * sigma, distance + 12.0 * sigma, 4001)

    def read(one, variance):  # log density and score
        logs = np.log([[one], [1.0 - one]]) - 0.5 * (y - distance * np.array([[1.0], [-1.0]])) ** 2 / variance
        log_p = np.logaddexp(*logs)
        return log_p, (np.exp(logs[0] - log_p) * 2.0 * distance - distance - y) / variance

    log_p, score = read(share, 1.0 + sigma**2)
    return minimize_scalar(lambda w: np.exp(log_p) @ (read(w, 1.0)[1] - score) ** 2, bounds=(0.01, 0.9)).x


@pytest.mark.slow
def test_wide_noise_shifts_the_weights_of_components():
    """From any number of rows: the docstring says so, and a fit that has converged is where the method leads."""
    model, data, _ = two_components(4.0, n=20_000)
    sigma = 0.3 * data["x"].std()
    expected = denoised_share(4.0, sigma)
    assert fit(model, data, ["w"], learning.DenoisingScoreMatching(n_draws=16))["converged"]
    np.testing.assert_allclose(model["w"].get_value(), expected, atol=0.04)  # a standard error is 0.01
    assert expected < 0.25


@pytest.mark.few(2)
@pytest.mark.parametrize(("distance", "name"), [(8.0, "contrast"), (1.5, "score")])
def test_weights_that_a_method_sees(distance, name):
    model, data, share = two_components(distance, n=500)
    assert fit(model, data, ["w"], METHODS[name])["converged"]
    np.testing.assert_allclose(model["w"].get_value(), share, atol=0.1)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "heavy", [np.random.default_rng(3).standard_t(2.1, N), np.exp(2.0 * np.random.default_rng(3).normal(size=N))]
)
def test_heavy_tails_are_not_taken_for_what_is_not_seen(heavy):
    """A few rows rule the gradient of the deviation there, and all the others have theirs, too."""
    model = normal([0.0], [1.0])
    assert fit(model, {"y": heavy[:, None]}, ["mu", "sigma"], METHODS["score"])["converged"]


@pytest.mark.every(8)
@pytest.mark.few(5)
@pytest.mark.parametrize("first", [0.3, 1.0])
@pytest.mark.parametrize("make", [pm.momentum, pm.sgd, pm.adam])
@pytest.mark.parametrize("rate", [3.0, 100.0])
def test_a_scale_that_has_run_away_is_an_error(make, rate, first):
    with pm.Model() as model:
        s, x = pm.Data("s", np.array(first)), pm.Flat("x", shape=1)
        pm.Potential("energy", -0.5 * (x[0] / s) ** 2)
    rows = 1.935 * STANDARD[:, :1]
    attrs = fit(model, {"x": rows}, ["s"], METHODS["score"], optimizer=make(learning_rate=rate), n_steps=400)
    s = abs(model["s"].get_value())
    assert attrs["converged"] == 0 or abs(s - rows.std()) < rows.std() / np.sqrt(2 * N)  # a standard error
    assert attrs["severities"] == ["error"] or s < 50.0


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("name", "optimizer"),
    slow_but([("score", None)], [("score", None), ("contrast", None), ("score", pm.adam(learning_rate=0.05))]),
)
def test_components_with_one_mean_at_the_start_part(name, optimizer):
    rng = np.random.default_rng(4)
    rows = np.where(rng.random(N) < 0.5, 3.0, -3.0) + rng.normal(size=N)
    ends = [rows[rows < 0].mean(), rows[rows > 0].mean()]
    with pm.Model() as model:
        mu, x = pm.Data("mu", np.full(2, 0.5)), pm.Flat("x", shape=1)
        pm.Potential("two", pt.logsumexp(-0.5 * (x[0] - mu) ** 2))
    assert fit(model, {"x": rows[:, None]}, ["mu"], METHODS[name], optimizer=optimizer, n_steps=1000)["converged"]
    np.testing.assert_allclose(np.sort(held(model, "mu")), ends, atol=0.15)


# correlated parameters ----------------------------------------------------------------------------------------

COUPLINGS = np.triu(np.random.default_rng(8).normal(size=(5, 5)), 1)
BIASES = -0.5 * COUPLINGS.sum(axis=0)
UPPER = np.triu_indices(5, 1)
STATES = densities.states(5)
FEATURES = np.hstack([STATES[:, UPPER[0]] * STATES[:, UPPER[1]], STATES])


def shares(at):
    """How often a Boltzmann machine of five bits is in each state."""
    log_p = FEATURES @ at
    return np.exp(log_p - np.logaddexp.reduce(log_p))


def likeliest(rows):
    """Return the maximum of the likelihood by Newton's method, and its standard errors."""
    features = np.hstack([rows[:, UPPER[0]] * rows[:, UPPER[1]], rows])
    at = np.r_[COUPLINGS[UPPER], BIASES]
    for _ in range(50):
        p = shares(at)
        fisher = (FEATURES.T * p) @ FEATURES - np.outer(p @ FEATURES, p @ FEATURES)
        at = at + np.linalg.solve(fisher, features.mean(axis=0) - p @ FEATURES)
    values = np.linalg.eigvalsh(fisher)
    return at, np.sqrt(np.diag(np.linalg.inv(fisher)) / len(rows)), values[-1] / values[0]


def draw(parameters, n, rng):
    at = np.r_[parameters["W"][UPPER], parameters["b"]]
    return STATES[rng.choice(32, size=n, p=shares(at))]


@pytest.mark.slow
@pytest.mark.parametrize("n_steps", slow_but([800, 3200], [400, 800, 1600, 3200], [400, 1600]))
@pytest.mark.parametrize(
    "method",
    [
        learning.SelfContrastive(draw),
        pytest.param(learning.StochasticMaximumLikelihood(), marks=pytest.mark.exhaustive),
        pytest.param(learning.FastPersistentCD(), marks=pytest.mark.exhaustive),
        pytest.param(learning.ContrastiveDivergence(10), marks=pytest.mark.exhaustive),
    ],
    ids=lambda one: one.name,
)
def test_few_steps_of_correlated_parameters_have_not_converged(method, n_steps):
    """With 800 of them 3.5 standard errors are left, of which each element of the gradient shows little."""
    rows = densities.boltzmann_rows(COUPLINGS, BIASES, N, 1)
    at, errors, condition = likeliest(rows)
    assert condition > 50.0
    model = densities.boltzmann(np.zeros((5, 5)), np.zeros(5))
    attrs = fit(model, {"s": rows.astype(int)}, ["W", "b"], method, n_steps=n_steps)
    off = np.abs((np.r_[model["W"].get_value()[UPPER], model["b"].get_value()] - at) / errors).max()
    assert (off > 2.0) == (n_steps < 1000)
    assert not attrs["converged"] or off < 1.0
    assert attrs["converged"] or n_steps < 3000


# closed steps -------------------------------------------------------------------------------------------------


def shifted(a, b):
    """A mean that a hidden bit shifts, and the closed M-step: a regression on the bit."""
    with pm.Model() as model:
        s = pm.Bernoulli("s", p=0.5, shape=1)
        pm.Normal("y", pm.Data("a", np.array([a])) + pm.Data("b", np.array([b])) * s, 1.0, observed=np.zeros(1))
    return model


def regress(sums, parameters):
    design = np.array([[sums.n_rows, sums.unit[0]], [sums.unit[0], sums.unit_unit[0, 0]]])
    a, b = np.linalg.lstsq(design, np.array([sums.row[0], sums.row_unit[0, 0]]), rcond=1e-12)[0]
    return {"a": np.array([a]), "b": np.array([b])}


SHIFTED = np.where(np.random.default_rng(5).random(N) < 0.5, 3.0, -3.0) + np.random.default_rng(6).normal(size=N)


def test_expectation_maximisation_leaves_a_saddle():
    model = shifted(SHIFTED.mean(), 0.0)
    method = learning.ExpectationMaximization(e_step=learning.Enumeration(), m_step=regress)
    assert fit(model, {"y": SHIFTED[:, None]}, ["a", "b"], method)["converged"]
    a, b = held(model, "a", "b")
    np.testing.assert_allclose(
        sorted([a, a + b]), [SHIFTED[SHIFTED < 0].mean(), SHIFTED[SHIFTED > 0].mean()], atol=0.05
    )


@pytest.mark.slow
def test_slow_closed_steps_have_further_to_go_than_the_last():
    """Components that overlap: each step covers a small share of what is left, and many are below the tolerance."""
    rng = np.random.default_rng(7)
    rows = (np.where(rng.random(N) < 0.5, 0.6, -0.6) + rng.normal(size=N))[:, None]
    method = learning.ExpectationMaximization(e_step=learning.Enumeration(), m_step=regress)
    ends = []
    for tolerance in (0.01, 1e-6):
        model = shifted(-0.3, 0.6)
        assert fit(model, {"y": rows}, ["a", "b"], method, n_steps=20_000, tolerance=tolerance)["converged"]
        ends.append(held(model, "b"))
    # The error of the shift is at least that of a difference of two means of a thousand rows each.
    assert abs(ends[0] - ends[1]) < 0.1 * np.sqrt(4.0 / N)


@pytest.mark.every(3)
@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("e_step", "m_step", "steps"),
    [
        (learning.GibbsSampling(beta=lambda step: min(1.0, step / 1000)), regress, 40),
        (learning.Enumeration(beta=0.3), regress, 40),
        (learning.Enumeration(beta=0.3), None, 400),
        (learning.Enumeration(beta=lambda step: min(1.0, step / 400)), None, 400),
    ],
)
def test_an_exponent_below_one_at_the_end_is_an_error(e_step, m_step, steps):
    model = shifted(-1.0, 2.0)
    method = learning.ExpectationMaximization(e_step=e_step, m_step=m_step)
    attrs = fit(model, {"y": SHIFTED[:, None]}, ["a", "b"], method, n_steps=steps)
    assert (attrs["reason"], attrs["severities"]) == ("annealed", ["error"])


# bounds -------------------------------------------------------------------------------------------------------


@pytest.mark.few(2)
@pytest.mark.parametrize("optimizer", [None, pm.adam(learning_rate=0.02)], ids=["lbfgs", "adam"])
def test_a_bound_that_holds_a_parameter_is_where_the_fit_ends(optimizer):
    """A mean above zero, held at zero: the best deviation is then the root mean square."""
    model = normal([-0.5, -0.5], [2.0, 2.0])
    rows = STANDARD + np.array([0.5, -1.0])
    constraints = {"mu": "non_positive", "sigma": "positive"}
    settings = {"optimizer": optimizer, "n_steps": 1500, "batch_size": None if optimizer is None else 500}
    assert fit(model, {"y": rows}, constraints, METHODS["score"], **settings)["converged"]
    expected = [0.0, rows[:, 1].mean(), np.sqrt(np.mean(rows[:, 0] ** 2)), rows[:, 1].std()]
    np.testing.assert_allclose(held(model, "mu", "sigma"), expected, atol=1.0 / np.sqrt(N))
    assert held(model, "mu")[0] == 0.0


def test_a_projection_that_holds_a_parameter_is_where_the_fit_ends():
    model = normal([0.0, 0.0], [2.0, 2.0])
    constraints = {"mu": lambda value: np.clip(value, None, 0.25), "sigma": "positive"}
    attrs = fit(model, {"y": STANDARD + 0.5}, constraints, METHODS["score"], n_steps=1500)
    assert attrs["converged"]
    np.testing.assert_allclose(held(model, "mu"), 0.25, atol=1e-6)


# refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", [*METHODS.values(), learning.StochasticMaximumLikelihood()], ids=lambda one: one.name
)
def test_a_column_without_spread_is_refused(method):
    with pm.Model() as model:
        mu, x = pm.Data("mu", np.zeros(2)), pm.Flat("x", shape=2)
        pm.Potential("energy", -0.5 * ((x - mu) ** 2).sum())
    rows = STANDARD.copy()
    rows[:, 1] = 7.0
    with pytest.raises(ValueError, match=r"Column 1 of `x` is 7 in all 2,000 rows"):
        fit(model, {"x": rows}, ["mu"], method)


def test_a_predictor_without_spread_is_an_intercept():
    with pm.Model() as model:
        slopes, design = pm.Data("slopes", np.zeros(2)), pm.Data("design", np.zeros(2))
        pm.Normal("y", slopes @ design, 1.0, observed=0.0)
    design = np.column_stack([np.ones(N), STANDARD[:, 0]])
    y = design @ np.array([1.0, 2.0]) + STANDARD[:, 1]
    fit(model, {"design": design, "y": y}, ["slopes"], learning.MaximumLikelihood(), n_steps=2000)
    np.testing.assert_allclose(held(model, "slopes"), np.linalg.lstsq(design, y, rcond=None)[0], atol=0.02)


@pytest.mark.parametrize("where", ["data", "held_out"])
def test_masked_values_are_refused(where):
    masked = np.ma.masked_greater(STANDARD + 3.0, 4.0)
    given = {"y": STANDARD} | ({"y": masked} if where == "data" else {})
    n = np.count_nonzero(masked.mask)
    model = normal([0.0, 0.0], [1.0, 1.0])
    if where == "data":
        with pytest.raises(ValueError, match=rf"`y` is a masked array with {n:,} masked values"):
            fit(model, given, ["mu"], METHODS["score"])
        assert fit(model, {"y": np.ma.array(STANDARD)}, ["mu"], METHODS["score"])["converged"]
    else:
        machine = densities.boltzmann(np.zeros((2, 2)), np.zeros(2))
        hidden = np.ma.masked_equal(TWO_BITS["s"], 1)
        with pytest.raises(ValueError, match="masked array"):
            fit(machine, TWO_BITS, ["W"], learning.StochasticMaximumLikelihood(), held_out={"s": hidden})


@pytest.mark.parametrize(
    "method",
    [
        learning.NoiseContrastive(),
        learning.Pseudolikelihood(),
        learning.RatioMatching(),
        learning.MinimumProbabilityFlow(),
        learning.StochasticMaximumLikelihood(),
    ],
    ids=lambda one: one.name,
)
@pytest.mark.parametrize("value", [2, -1])
def test_what_is_no_bit_is_refused(method, value):
    rows = TWO_BITS["s"].copy()
    rows[3, 1] = value
    model = densities.boltzmann(np.zeros((2, 2)), np.zeros(2))
    with pytest.raises(
        ValueError, match=rf"1 rows of `s`.*row 3 has {value}, and the model allows whole numbers from 0 to 1"
    ):
        fit(model, {"s": rows}, ["W", "b"], method)


@pytest.mark.parametrize(
    ("build", "value", "limits"),
    [
        (lambda t: pm.Gamma("y", pt.exp(t), 1.0, observed=1.0), -0.5, "0"),
        (lambda t: pm.Beta("y", pt.exp(t), 1.0, observed=0.5), 1.5, "0"),
        (lambda t: pm.Exponential("y", pt.exp(t), observed=1.0), -2.0, "0"),
        (lambda t: pm.LogNormal("y", t, 1.0, observed=1.0), -2.0, "0"),
    ],
)
def test_rows_outside_of_the_support_are_refused(build, value, limits):
    with pm.Model() as model:
        build(pm.Data("t", np.zeros(())))
    rows = np.random.default_rng(8).uniform(0.1, 0.9, size=50)
    rows[[7, 9]] = value
    with pytest.raises(ValueError, match=rf"2 rows of `y`.*row 7 has {value:g}"):
        fit(model, {"y": rows}, ["t"], learning.NoiseContrastive(pymc_hais.Gaussian(0.5, 1.0)))
