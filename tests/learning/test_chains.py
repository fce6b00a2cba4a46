"""Methods that follow chains: one step of each has the mean that enumeration gives, and wrong ones are seen."""

import itertools

import numpy as np
import pymc as pm
import pytest

import pymc_hais
from pymc_hais import FlatDiscrete, learning
from pymc_hais.learning.family import build_family
from pymc_hais.learning.likelihood import phases, tracking
from pymc_hais.learning.protocol import Batch
from tests.mutants import mutate

N_VISIBLE, N_HIDDEN, N_REPEATS = 4, 2, 150
RNG = np.random.default_rng(3)
PARAMETERS = {
    "W": RNG.normal(size=(N_VISIBLE, N_HIDDEN)),
    "b": RNG.normal(size=N_VISIBLE) * 0.5,
    "c": RNG.normal(size=N_HIDDEN) * 0.5,
}
STATES = np.array(list(itertools.product([0, 1], repeat=N_VISIBLE)), dtype=float)
#: Half the rows have one visible unit on at most: not what the model says by itself.
ROWS = np.concatenate([np.eye(4), np.zeros((4, 4)), RNG.integers(0, 2, size=(8, 4))]).repeat(16, axis=0)


def machine():
    """A restricted Boltzmann machine."""
    with pm.Model() as model:
        weights, b, c = (pm.Data(name, value) for name, value in PARAMETERS.items())
        v = FlatDiscrete("v", 0, 1, shape=N_VISIBLE)
        h = FlatDiscrete("h", 0, 1, shape=N_HIDDEN)
        pm.Potential("E", v @ weights @ h + v @ b + h @ c)
    return model


def hidden_means(visible, at=PARAMETERS):
    return 1.0 / (1.0 + np.exp(-(visible @ at["W"] + at["c"])))


def model_shares(at=PARAMETERS):
    field = STATES @ at["W"] + at["c"]
    log_p = STATES @ at["b"] + np.logaddexp(0.0, field).sum(axis=1)
    return np.exp(log_p - np.logaddexp.reduce(log_p))


def shares_after(n_moves):
    """How often each visible state stands at the end of so many sweeps from the data, by enumeration."""
    hidden = np.array(list(itertools.product([0, 1], repeat=N_HIDDEN)), dtype=float)
    p_hidden = np.prod(np.where(hidden[None] == 1, hidden_means(STATES)[:, None], 1 - hidden_means(STATES)[:, None]), 2)
    p_on = 1.0 / (1.0 + np.exp(-(hidden @ PARAMETERS["W"].T + PARAMETERS["b"])))
    p_visible = np.prod(np.where(STATES[None] == 1, p_on[:, None], 1 - p_on[:, None]), 2)
    shares = np.array([(state == ROWS).all(axis=1).mean() for state in STATES])
    for _ in range(n_moves):
        shares = shares @ p_hidden @ p_visible
    return shares


def products(visible, weights=None, at=PARAMETERS):
    """Mean of v h' over visible states, hidden ones averaged over."""
    weights = np.full(len(visible), 1.0 / len(visible)) if weights is None else weights
    return np.einsum("n,ni,nj->ij", weights, visible, hidden_means(visible, at))


@pytest.fixture(scope="module")
def family():
    return build_family(machine(), {"v": ROWS}, list(PARAMETERS))[0]


def sample_gradients(method, family, gradient=None):
    """Sample the gradient in W; return the means of ten blocks, nearly independent."""
    rng = np.random.default_rng(1)
    state = method.begin(family, ROWS, rng)
    batch = Batch(ROWS, np.arange(len(ROWS)), PARAMETERS, 1, gradient)
    found = []
    for _ in range(N_REPEATS):
        (hidden, shares, visible, others), state = method.prepare(state, batch, rng)
        found.append(ROWS.T @ hidden / len(ROWS) - visible.T @ (shares[:, None] * others))
    return np.array(found).reshape(10, -1, N_VISIBLE, N_HIDDEN).mean(axis=1)


def z_scores(found, expected):
    """How far the mean of what was found is from what it should be, in its standard errors."""
    return (found.mean(axis=0) - expected) / (found.std(axis=0, ddof=1) / np.sqrt(10))


def assert_right(z):
    # Student's t with 9 degrees of freedom: 1e-5 for each of 8 elements.
    assert np.abs(z).max() < 8.0


LIKELIHOOD = products(ROWS) - products(STATES, model_shares())


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        learning.StochasticMaximumLikelihood(n_moves=3, n_chains=400),
        learning.MaximumLikelihood(n_moves=2, n_chains=400),
    ],
    ids=["persistent", "from scratch"],
)
def test_the_gradient_is_that_of_the_log_likelihood(method, family):
    assert_right(z_scores(sample_gradients(method, family), LIKELIHOOD))


@pytest.mark.slow
@pytest.mark.parametrize("n_moves", [1, 3])
def test_contrastive_divergence_is_what_so_many_sweeps_from_the_data_say(n_moves, family):
    after = shares_after(n_moves)
    found = sample_gradients(learning.ContrastiveDivergence(n_moves), family)
    assert_right(z_scores(found, products(ROWS) - products(STATES, after)))
    if n_moves == 1:  # and not the gradient of the likelihood
        assert np.abs(z_scores(found, LIKELIHOOD)).max() > 20.0


@pytest.mark.slow
def test_chains_that_start_anew_at_the_data_are_not_persistent(family, monkeypatch):
    wrong = mutate(phases, ("move(self.points,", "move(self.join(ROWS, self.hidden),"), ROWS=ROWS)
    monkeypatch.setattr(phases.Phases, "move", wrong.Phases.move)
    method = learning.FastPersistentCD(n_moves=1, n_chains=len(ROWS))
    assert np.abs(z_scores(sample_gradients(method, family), LIKELIHOOD)).max() > 20.0


@pytest.mark.slow
def test_fast_parameters_drive_the_chains(family):
    gradient = {"W": np.full((N_VISIBLE, N_HIDDEN), 2.0), "b": np.zeros(N_VISIBLE), "c": np.ones(N_HIDDEN)}
    method = learning.FastPersistentCD(n_moves=3, n_chains=400, fast_rate=0.3, decay=0.0)
    shifted = {name: value - 0.3 * gradient[name] for name, value in PARAMETERS.items()}
    found = sample_gradients(method, family, gradient)
    assert_right(z_scores(found, products(ROWS) - products(STATES, model_shares(shifted), shifted)))
    assert np.abs(z_scores(found, LIKELIHOOD)).max() > 20.0
    # They forget: minus the rate times what decays by a half.
    state, rng = method.begin(family, ROWS, np.random.default_rng(1)), np.random.default_rng(2)
    method = learning.FastPersistentCD(n_chains=400, fast_rate=0.1, decay=0.5)
    batch = Batch(ROWS, np.arange(len(ROWS)), PARAMETERS, 1, gradient)
    for _ in range(3):
        _, state = method.prepare(state, batch, rng)
    np.testing.assert_allclose(state.fast["W"], -0.1 * 2.0 * 1.75)


@pytest.mark.exhaustive
def test_chains_of_rows_and_model_run_on_the_backend_of_the_fit():
    backends = set()

    class Watched(learning.ContrastiveDivergence):
        def monitors(self, state):
            backends.update(chains.problem.engine.backend for chains in (state.of_rows, state.of_model))
            return {}

    pymc_hais.fit(machine(), {"v": ROWS[::16]}, ["W"], Watched(), n_steps=1, backend="c", progressbar=False)
    assert backends == {"c"}


# log Z while the parameters move ------------------------------------------------------------------------------


def exact_log_z(at):
    return float(np.logaddexp.reduce(STATES @ at["b"] + np.logaddexp(0.0, STATES @ at["W"] + at["c"]).sum(axis=1)))


def away():
    """From the parameters to some times as large ones and to their opposite, up and down."""
    shares = np.concatenate([np.linspace(*ends, 8) for ends in ((1.0, 3.0), (3.0, -1.0), (-1.0, 2.0), (2.0, 0.2))])
    return [{name: share * value for name, value in PARAMETERS.items()} for share in shares]


def log_z_errors(module, family):
    """Standard errors by which the tracked log Z is off, at several places on the way, and the largest error bar."""
    rng = np.random.default_rng(2)
    method = learning.StochasticMaximumLikelihood(n_chains=2000)
    tracked = method.begin(family, ROWS, rng).tracked
    tracked = module.Tracked(**{name: getattr(tracked, name) for name in tracked.__dataclass_fields__})
    z, bars = [], []
    for step, parameters in enumerate(away()):
        tracked = tracked.to(parameters, 1, rng)
        if step % 5 == 4:
            told = tracked.estimate()
            z.append((told["log_z"] - exact_log_z(parameters)) / told["log_z_se"])
            bars.append(told["log_z_se"])
    told = tracked.finish(PARAMETERS, 1, rng)
    return np.array([*z, (told["log_z"] - exact_log_z(PARAMETERS)) / told["log_z_se"]]), max(bars)


@pytest.mark.slow
def test_log_z_is_tracked_however_fast_the_parameters_move(family):
    z, bar = log_z_errors(tracking, family)
    assert np.abs(z).max() < 8.0  # Student's t with 9 degrees of freedom, six of them: 1e-4
    assert bar < 0.15


@pytest.mark.slow
@pytest.mark.parametrize(
    "replacement",
    [
        ("log_density - self.log_density", "0.5 * (log_density - self.log_density)"),
        ("log_weights = np.where(is_low[:, None], -np.log(log_weights.shape[1]), log_weights)", "pass"),
    ],
    ids=["half of each step", "weights kept after resampling"],
)
def test_wrong_weights_are_seen(family, replacement):
    z, bar = log_z_errors(mutate(tracking, replacement), family)
    assert np.abs(z).max() > 10.0 or bar > 0.3


def fitted_with_few_points():
    """Whose gradients are noisy: log Z by enumeration minus the tracked one, and the error bar, at the end."""
    model, method = machine(), learning.StochasticMaximumLikelihood(n_moves=1, n_chains=100)
    result = pymc_hais.fit(
        model, {"v": ROWS.astype(int)}, list(PARAMETERS), method, n_steps=400, random_seed=1, progressbar=False,
        optimizer=pm.adam(learning_rate=0.03),
    )  # fmt: skip
    fitted = result["fitted"]
    exact = exact_log_z({name: fitted[name].values for name in PARAMETERS})
    return exact - float(fitted["log_z"]), float(fitted["log_z_se"]), result


@pytest.mark.slow
def test_a_fit_says_log_z_of_what_it_found():
    error, bar, result = fitted_with_few_points()
    assert abs(error) < 8.0 * bar
    assert bar < 0.1
    assert set(result["learning"].data_vars) >= {"objective", "log_z", "log_z_se"}


@pytest.mark.slow
def test_the_points_that_lead_have_it_too_low(monkeypatch):
    leaders = mutate(tracking, ("log_mean_exp(self.log_z[N_POPULATIONS:])", "log_mean_exp(self.log_z[:N_POPULATIONS])"))
    monkeypatch.setattr(tracking.Tracked, "estimate", leaders.Tracked.estimate)
    error, bar, _ = fitted_with_few_points()
    assert error > 3.0 * bar


# Hidden variables of each row --------------------------------------------------------------------------------

FILTERS, NOISE = np.array([[1.0, 0.4], [-0.3, 0.9], [0.5, 0.5]]), 0.6
SEEN = np.random.default_rng(6).normal(size=(200, 3)) * [1.5, 0.7, 1.0]


def factors():
    """Two causes, three columns: everything is normal."""
    with pm.Model() as model:
        filters = pm.Data("A", FILTERS)
        causes = pm.Normal("causes", 0.0, 1.0, shape=2)
        pm.Normal("x", filters @ causes, NOISE, observed=np.zeros(3))
    return model


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize("method", [learning.ExpectationMaximization(), learning.MaximumLikelihood(n_moves=100)])
def test_the_causes_of_each_row_follow_their_posterior(method):
    family, rows = build_family(factors(), {"x": SEEN}, ["A"])
    method.check(family)
    rng = np.random.default_rng(1)
    state, batch = method.begin(family, rows, rng), Batch(rows, np.arange(len(rows)), {"A": FILTERS}, 1)
    found = []
    for _ in range(100):
        (causes,), state = method.prepare(state, batch, rng)
        found.append((rows - causes @ FILTERS.T).T @ causes / len(rows) / NOISE**2)
    found = np.array(found).reshape(10, 10, 3, 2).mean(axis=1)
    covariance = FILTERS @ FILTERS.T + NOISE**2 * np.eye(3)
    inverse = np.linalg.inv(covariance)
    exact = (inverse @ (rows.T @ rows / len(rows)) @ inverse - inverse) @ FILTERS  # of the log-likelihood
    assert_right((found.mean(axis=0) - exact) / (found.std(axis=0, ddof=1) / np.sqrt(10)))


@pytest.mark.exhaustive
def test_rows_start_near_their_posteriors_where_walks_from_the_prior_get_stuck():
    """Products of causes leave narrow, curved posteriors: the log densities are those of the points behind the rows."""
    rng = np.random.default_rng(3)
    filters, causes, scales = rng.normal(size=(8, 6)) / 2.0, rng.laplace(size=(200, 6)), rng.exponential(size=(200, 6))
    with pm.Model() as model:
        a = pm.Data("A", filters)
        c, d = pm.Laplace("c", 0.0, 1.0, shape=6), pm.Exponential("d", 1.0, shape=6)
        pm.Normal("x", pm.math.dot(a, c * d), 0.1, observed=np.zeros(8))
    seen = (causes * scales) @ filters.T + 0.1 * rng.normal(size=(200, 8))
    family, rows = build_family(model, {"x": seen}, ["A"])
    state = learning.ExpectationMaximization(n_settle=1000).begin(family, rows, rng)

    def log_density(hidden):
        return state.of_rows.move(hidden, 1, {"A": filters}, rng, np.arange(200), weigh=lambda *_: None).log_density

    # (hidden, row) has the same distribution either way; the median of 200 has a standard error of about 0.4.
    truth, found = (log_density(one).ravel() for one in (np.hstack([causes, np.log(scales)]), state.hidden))
    assert abs(np.median(found) - np.median(truth)) < 3.0
    assert np.mean(found < truth.min() - 50.0) < 0.2


@pytest.mark.slow
def test_an_e_step_of_ones_own_is_used_and_checked():
    """With exact draws of the posterior the filters go to the maximum of the likelihood."""

    def draw(rows, hidden, parameters, rng):
        a = parameters["A"]
        covariance = np.linalg.inv(np.eye(2) + a.T @ a / NOISE**2)
        noise = rng.normal(size=hidden.shape) @ np.linalg.cholesky(covariance).T
        return rows @ a @ covariance / NOISE**2 + noise

    model = factors()
    method = learning.ExpectationMaximization(e_step=draw, n_settle=1)
    result = pymc_hais.fit(model, {"x": SEEN}, ["A"], method, n_steps=1500, random_seed=1, progressbar=False)
    fitted = model["A"].get_value()
    values, vectors = np.linalg.eigh(SEEN.T @ SEEN / len(SEEN))  # Tipping & Bishop (1999): principal components
    best = vectors[:, 1:] * np.maximum(values[1:] - NOISE**2, 0.0) @ vectors[:, 1:].T
    np.testing.assert_allclose(fitted @ fitted.T, best, atol=0.05)
    assert result["learning"].attrs["method"].startswith("ExpectationMaximization(")
    wrong = learning.ExpectationMaximization(e_step=lambda rows, hidden, *_: hidden[:, :1])
    with pytest.raises(ValueError, match=r"`e_step` must return finite hidden variables of shape \(200, 2\)"):
        pymc_hais.fit(model, {"x": SEEN}, ["A"], wrong, n_steps=3, progressbar=False)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_settle": -1}, "`n_settle` must be a whole number of at least 1; got -1"),
        ({"e_step": 3}, "`e_step` must be a function .* got 3"),
    ],
    ids=str,
)
def test_an_e_step_that_cannot_be_is_refused_at_once(wrong, message):
    with pytest.raises(ValueError, match=message):
        learning.ExpectationMaximization(**wrong)


@pytest.mark.slow
def test_a_few_rows_are_learnt_from():
    """Of few enough rows the engine returns its own memory, which nobody may write to."""
    model = factors()
    method = learning.ExpectationMaximization(n_settle=5)
    pymc_hais.fit(model, {"x": SEEN[:20]}, ["A"], method, n_steps=3, random_seed=1, progressbar=False)
    assert np.any(model["A"].get_value() != FILTERS)


def test_what_a_method_is_not_for_is_refused_by_name(family):
    with pytest.raises(ValueError, match=r"`x` is observed: its density is normalised\. Pass learning.Expectation"):
        learning.ContrastiveDivergence().check(build_family(factors(), {"x": SEEN}, ["A"])[0])
    with pytest.raises(ValueError, match=r"log Z depends on the parameters\. Pass learning\.Stochastic"):
        learning.ExpectationMaximization().check(family)
    for wrong in ({"n_moves": 0}, {"n_chains": 0}, {"fast_rate": -1.0}, {"decay": 1.0}):
        with pytest.raises(ValueError, match=f"`{next(iter(wrong))}` must be"):
            learning.FastPersistentCD(**wrong)
