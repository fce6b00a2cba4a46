"""E-steps over binary states against sums over all states in NumPy, and closed M-steps."""

import functools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import expit, gammaln, logsumexp

import pymc_hais
from examples.binary_sparse_coding.model import PARAMETERS, build_model, first_parameters, m_step, score
from pymc_hais import learning
from pymc_hais.density.proofs.quadratic import is_quadratic
from pymc_hais.learning.binary.density import build_binary
from pymc_hais.learning.binary.strategies import total
from pymc_hais.learning.family import build_family
from pymc_hais.learning.likelihood import expectation_maximization
from pymc_hais.learning.likelihood.expectation_maximization import N_GROUPS, begin
from pymc_hais.learning.protocol import Batch
from tests.learning.densities import states

N_UNITS, N_DIMS = 5, 4
RNG = np.random.default_rng(11)
W = RNG.normal(size=(N_DIMS, N_UNITS))
RATES = RNG.uniform(0.2, 0.6, size=N_UNITS)
ROWS = RNG.normal(size=(7, N_DIMS))
BITS = RNG.integers(0, 2, size=(7, N_DIMS))
COUNTS = RNG.poisson(2.0, size=(7, N_DIMS))
ALL = states(N_UNITS)
PRIOR = ALL @ np.log(RATES) + (1.0 - ALL) @ np.log1p(-RATES)


def normal(y, mean, sd):
    return (-0.5 * ((y - mean) / sd) ** 2 - np.log(sd * np.sqrt(2.0 * np.pi))).sum(axis=-1)


def sparse_coding():
    with pm.Model() as model:
        w = pm.Data("W", W)
        s = pm.Bernoulli("s", p=RATES, shape=N_UNITS)
        pm.Normal("y", w @ s, 0.8, observed=np.zeros(N_DIMS))
    return model, ROWS, PRIOR + normal(ROWS[:, None], ALL @ W.T, 0.8)


def coupled():
    """A lateral coupling, a prior on the logit scale, and two variables."""
    with pm.Model() as model:
        w = pm.Data("W", W)
        s = pm.Bernoulli("s", logit_p=np.full(2, 0.3), shape=2)
        t = pm.Bernoulli("t", p=RATES[2:], shape=3)
        pm.Potential("coupling", 0.7 * s[0] * t[1] - 0.4 * t[0] * t[2])
        pm.Normal("y", w[:, :2] @ s + w[:, 2:] @ t, 0.8, observed=np.zeros(N_DIMS))
    prior = ALL[:, :2] @ np.full(2, np.log(expit(0.3))) + (1 - ALL[:, :2]) @ np.full(2, np.log(expit(-0.3)))
    prior = prior + ALL[:, 2:] @ np.log(RATES[2:]) + (1 - ALL[:, 2:]) @ np.log1p(-RATES[2:])
    prior = prior + 0.7 * ALL[:, 0] * ALL[:, 3] - 0.4 * ALL[:, 2] * ALL[:, 4]
    return model, ROWS, prior + normal(ROWS[:, None], ALL @ W.T, 0.8)


def noise_of_row():
    """The precision follows the units: of degree three."""
    with pm.Model() as model:
        w = pm.Data("W", W)
        s = pm.Bernoulli("s", p=RATES, shape=N_UNITS)
        pm.Normal("y", w @ s, pt.exp(0.3 * s[0]), observed=np.zeros(N_DIMS))
    return model, ROWS, PRIOR + normal(ROWS[:, None], ALL @ W.T, np.exp(0.3 * ALL[:, :1]))


def noisy_or():
    strengths = np.abs(W)
    with pm.Model() as model:
        w = pm.Data("W", strengths)
        s = pm.Bernoulli("s", p=RATES, shape=N_UNITS)
        pm.Bernoulli("y", p=1.0 - pt.exp(-0.1 - w @ s), observed=np.zeros(N_DIMS, dtype=int))
    p = 1.0 - np.exp(-0.1 - ALL @ strengths.T)
    return model, BITS, PRIOR + (BITS[:, None] * np.log(p) + (1 - BITS[:, None]) * np.log1p(-p)).sum(axis=-1)


def largest():
    """Only the strongest active unit counts (maximal causes analysis)."""
    with pm.Model() as model:
        w = pm.Data("W", W)
        s = pm.Bernoulli("s", p=RATES, shape=N_UNITS)
        pm.Normal("y", (w * s).max(axis=1), 0.8, observed=np.zeros(N_DIMS))
    return model, ROWS, PRIOR + normal(ROWS[:, None], (W * ALL[:, None]).max(axis=-1), 0.8)


def thresholded():
    """A jump: its slope is zero wherever it has one."""
    with pm.Model() as model:
        w = pm.Data("W", W)
        s = pm.Bernoulli("s", p=RATES, shape=N_UNITS)
        pm.Normal("y", pt.switch(pt.gt(s.sum(), 2), w[:, 0], w[:, 1]), 0.8, observed=np.zeros(N_DIMS))
    means = np.where(ALL.sum(axis=1)[:, None] > 2, W[:, 0], W[:, 1])
    return model, ROWS, PRIOR + normal(ROWS[:, None], means, 0.8)


def counted():
    """The logarithm of the rate is linear in the units."""
    with pm.Model() as model:
        w = pm.Data("W", W)
        s = pm.Bernoulli("s", p=RATES, shape=N_UNITS)
        pm.Poisson("y", pt.exp(0.3 * (w @ s)), observed=np.zeros(N_DIMS, dtype=int))
    log_rate = 0.3 * ALL @ W.T
    terms = COUNTS[:, None] * log_rate - np.exp(log_rate) - gammaln(COUNTS[:, None] + 1.0)
    return model, COUNTS, PRIOR + terms.sum(axis=-1)


MODELS = {
    sparse_coding: True, coupled: True, noise_of_row: False, noisy_or: False, largest: False, thresholded: False,
    counted: False,
}  # fmt: skip
BY_MODEL = pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)


#: Compiles the density of each model once.
build_once = functools.cache(build_binary)


@pytest.fixture(autouse=True)
def shared(monkeypatch):
    monkeypatch.setattr(expectation_maximization, "build_binary", build_once)


@functools.cache
def prepared(build):
    model, rows, table = build()
    family, rows = build_family(model, {"y": rows}, ["W"])
    return family, rows, {"W": np.asarray(model["W"].get_value())}, table


def posterior(table, beta=1.0):
    return np.exp(beta * table - logsumexp(beta * table, axis=1, keepdims=True))


def favourites(rows, parameters):
    return np.cos(np.arange(N_UNITS) + 10.0 * rows[:, :1])


def expect(strategy, family, rows, parameters, n_rounds=1, n_copies=1):
    """Return the sums of <s> and <s s'> over the rows, by round and copy of them."""
    rows = np.repeat(rows, n_copies, axis=0)
    state, rng = begin(strategy, family, rows), np.random.default_rng(3)
    rounds = [state.collect(rows, parameters, 1, rng) for _ in range(n_rounds)]
    sums = [one for groups in rounds for one in (groups if n_copies == N_GROUPS else [total(groups)])]
    return np.array([np.vstack([one.unit, one.unit_unit]) for one in sums])


def moments(weights):
    return np.vstack([weights.sum(axis=0) @ ALL, (ALL.T * weights.sum(axis=0)) @ ALL])


@pytest.mark.every(2)
@pytest.mark.few(3)
@BY_MODEL
def test_the_quadratic_form_is_proven_where_there_is_one(build):
    family, rows, parameters, table = prepared(build)
    density = build_once(family)
    assert (density.slopes is not None) == MODELS[build]
    np.testing.assert_allclose(density.at(parameters, rows[0])(rows, None).table(), table, rtol=1e-10)


@pytest.mark.parametrize(
    ("write", "is_proven"),
    [
        (lambda s, y: y[0] * s[0] + s[1] * s[2] + pt.exp(y[1]), True),
        (lambda s, y: ((y[0] - s[1] / 3.0 + s[0]) ** 2).sum() * 2.0, True),
        (lambda s, y: y[0] * s[0] * s[1], False),  # another form for each row
        (lambda s, y: (s[0] - y[0] * s[1]) ** 2, False),
        (lambda s, y: s[0] * s[1] * s[2], False),
        (lambda s, y: pt.switch(s[0] > y[0], s[1], s[2]), False),
        (lambda s, y: pt.switch(y[0] > 0.0, s[1] * s[0], 0.0), False),
        (lambda s, y: pt.floor(s[0] / 2.0), False),
        (lambda s, y: s[0] / (1.0 + s[1]), False),
    ],
)
def test_a_form_is_quadratic_by_its_graph_or_not_at_all(write, is_proven):
    s, y = pt.tensor("s", dtype="float64", shape=(3,)), pt.tensor("y", dtype="float64", shape=(2,))
    assert is_quadratic(write(s, y), s, [y], {}) == is_proven


@pytest.mark.few(3)
@pytest.mark.every(3)
@BY_MODEL
@pytest.mark.parametrize("beta", [1.0, 0.3])
def test_enumeration_gives_the_exact_moments(build, beta):
    family, rows, parameters, table = prepared(build)
    (found,) = expect(learning.Enumeration(beta=beta), family, rows, parameters)
    np.testing.assert_allclose(found, moments(posterior(table, beta)), rtol=1e-9)
    selected = learning.Selection(favourites, N_UNITS, beta=beta)
    np.testing.assert_allclose(expect(selected, family, rows, parameters)[0], found, rtol=1e-9)


@pytest.mark.few(3)
@pytest.mark.every(2)
@BY_MODEL
def test_selection_leaves_out_what_is_not_selected(build):
    family, rows, parameters, table = prepared(build)
    best = np.argsort(-favourites(rows, parameters), axis=1)[:, :3]
    outside = np.ones((len(rows), N_UNITS))
    np.put_along_axis(outside, best, 0.0, axis=1)
    truncated = np.where(outside @ ALL.T > 0.0, -np.inf, table)
    (found,) = expect(learning.Selection(favourites, 3), family, rows, parameters)
    np.testing.assert_allclose(found, moments(posterior(truncated)), rtol=1e-9, atol=1e-12)


@pytest.mark.every(4)
@pytest.mark.slow
@pytest.mark.parametrize("build", [sparse_coding, noisy_or], ids=lambda build: build.__name__)
@pytest.mark.parametrize("n_units", [None, 3, N_UNITS])
@pytest.mark.parametrize("beta", [1.0, 0.4])
def test_chains_visit_states_as_often_as_the_posterior_says(build, n_units, beta):
    """4 rounds of 8 chains a row, rounds as independent as 40 sweeps make them; |z| < 5 of 30 numbers."""
    family, rows, parameters, _ = prepared(build)
    length = {"n_sweeps": 40, "n_burn": 10, "beta": beta}
    sampled = learning.SelectAndSample(favourites, n_units, **length) if n_units else learning.GibbsSampling(**length)
    exact = learning.Selection(favourites, n_units, beta=beta) if n_units else learning.Enumeration(beta=beta)
    (truth,) = expect(exact, family, rows, parameters)
    found = expect(sampled, family, rows, parameters, 4, N_GROUPS)
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    # What is hardly ever visited has no error of its own: that of as many independent states.
    z = (found.mean(axis=0) - truth) / np.maximum(error, np.sqrt(np.maximum(truth, 1e-12) / (32 * 40)))
    assert np.abs(z).max() < 5.0


def test_statistics_of_rows_are_sums_over_groups():
    family, rows, parameters, table = prepared(sparse_coding)
    whole = total(begin(learning.Enumeration(), family, rows).collect(rows, parameters, 1, np.random.default_rng(1)))
    assert whole.n_rows == len(rows)
    np.testing.assert_allclose(whole.row, rows.sum(axis=0))
    np.testing.assert_allclose(whole.square, (rows**2).sum(axis=0))
    np.testing.assert_allclose(whole.row_unit, rows.T @ (posterior(table) @ ALL))
    np.testing.assert_allclose(whole.score, logsumexp(table, axis=1).sum())


def drawn(n, seed=4):
    rng = np.random.default_rng(seed)
    basis = rng.normal(size=(6, 4))
    return (rng.random((n, 4)) < 0.3) @ basis.T + 0.3 * rng.normal(size=(n, 6))


def test_closed_steps_never_lower_the_likelihood_and_stop():
    rows = drawn(300)
    model = build_model(*first_parameters(rows, 4, np.random.default_rng(0)).values())
    method = learning.ExpectationMaximization(e_step=learning.Enumeration(), m_step=m_step)
    result = pymc_hais.fit(model, {"y": rows}, PARAMETERS, method, n_steps=400, progressbar=False)
    objective = result["learning"]["objective"].values
    assert np.all(np.diff(objective) < 1e-9)
    assert objective[0] - objective[-1] > 0.5
    assert result["learning"].attrs["reason"] == "tolerance"
    assert result["learning"]["states_per_row"].values[-1] == 2**4


@pytest.mark.exhaustive
def test_steps_along_the_gradient_reach_what_closed_steps_do():
    rows = drawn(200)
    first = first_parameters(rows, 3, np.random.default_rng(0))
    found = {}
    for m in (m_step, None):
        model = build_model(*first.values())
        method = learning.ExpectationMaximization(e_step=learning.Enumeration(), m_step=m)
        n_steps = 400 if m else 1500
        constraints = {"W": None, "sigma": "positive", "pi": None}
        pymc_hais.fit(model, {"y": rows}, constraints, method, n_steps=n_steps, progressbar=False, random_seed=1)
        values = {name: np.asarray(model[name].get_value()) for name in PARAMETERS}
        family, _ = build_family(model, {"y": rows}, list(PARAMETERS))
        state = begin(learning.Enumeration(), family, rows)
        found[m] = total(state.collect(rows, values, 1, np.random.default_rng(1))).score / len(rows)
    assert abs(found[m_step] - found[None]) < 0.01


def test_many_states_are_thinned_without_bias():
    """64 of 2^8 states stand for all of them in a step along the gradient: systematic draws, 200 times."""
    rng = np.random.default_rng(5)
    model = build_model(rng.normal(size=(4, 8)), 1.0, 0.3)
    family, rows = build_family(model, {"y": ROWS}, list(PARAMETERS))
    parameters = {name: np.asarray(model[name].get_value()) for name in PARAMETERS}
    state, batch = begin(learning.Enumeration(), family, rows), Batch(rows, np.arange(len(rows)), parameters, 1)
    means = []
    for _ in range(200):
        drawn_states, weights = state.sample_hidden(batch, rng)
        assert drawn_states.shape == (len(rows), 64, 8)
        means.append(np.einsum("mt,mth->mh", weights, drawn_states))
    table = build_once(family).at(parameters, rows[0])(rows, None).table()
    z = (np.mean(means, axis=0) - posterior(table) @ states(8)) / (np.std(means, axis=0) / np.sqrt(200))
    assert np.abs(z).max() < 5.0


def test_the_exponent_follows_the_step():
    seen = []

    def rising(step):
        seen.append(step)
        return min(1.0, step / 3.0)

    rows = drawn(50)
    model = build_model(*first_parameters(rows, 3, np.random.default_rng(0)).values())
    method = learning.ExpectationMaximization(e_step=learning.Selection(score, 2, beta=rising), m_step=m_step)
    pymc_hais.fit(model, {"y": rows}, PARAMETERS, method, n_steps=4, progressbar=False)
    assert sorted(set(seen)) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: learning.Selection(3, 2), "`score` must be a function"),
        (lambda: learning.Selection(score, 0), "`n_units` must be a whole number of at least 1"),
        (lambda: learning.GibbsSampling(n_sweeps=0), "`n_sweeps` must be"),
        (lambda: learning.GibbsSampling(n_burn=-1), "`n_burn` must be"),
        (lambda: learning.Enumeration(beta=0.0), "`beta` must be above 0 and at most 1"),
        (lambda: learning.ExpectationMaximization(m_step=m_step), "`m_step` must be .* beside an `e_step` over binary"),
        (lambda: learning.ExpectationMaximization(e_step=learning.Enumeration(), m_step=3), "`m_step` must be"),
    ],
)
def test_settings_that_cannot_be_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def attempt(e_step, n_units=4, m=m_step, **kwargs):
    model = build_model(RNG.normal(size=(4, n_units)), 1.0, 0.3)
    method = learning.ExpectationMaximization(e_step=e_step, m_step=m)
    pymc_hais.fit(model, {"y": ROWS}, PARAMETERS, method, n_steps=1, progressbar=False, **kwargs)


@pytest.mark.slow
def test_what_does_not_fit_the_model_is_refused_by_name():
    with pytest.raises(ValueError, match=r"up to 18 hidden units, and the model has 19: pass Selection"):
        attempt(learning.Enumeration(), 19)
    with pytest.raises(ValueError, match=r"`n_units` is 5, and the model has 4 hidden units"):
        attempt(learning.SelectAndSample(score, 5))
    with pytest.raises(ValueError, match=r"Selection goes through 2\^n_units states, for up to 18 units"):
        attempt(learning.Selection(score, 19), 20)
    with pytest.raises(ValueError, match=r"`score` must return finite scores of shape \(1, 4\); got shape \(1, 2\)"):
        attempt(learning.Selection(lambda rows, _: rows[:, :2], 2))
    with pytest.raises(ValueError, match=r"`m_step` must return the parameters .*; got \['W'\]"):
        attempt(learning.Enumeration(), m=lambda sums, values: {"W": values["W"]})
    with pytest.raises(ValueError, match=r"`m_step` must return `sigma` of shape \(\); got shape \(2,\)"):
        attempt(learning.Enumeration(), m=lambda sums, values: values | {"sigma": np.ones(2)})
    with pytest.raises(ValueError, match=r"takes all rows in each step, and no gradient"):
        attempt(learning.Enumeration(), batch_size=2)
    for hidden, kind in ((pm.Normal, "continuous"), (pm.Poisson, "discrete with other values than 0 and 1")):
        with pm.Model() as model:
            w = pm.Data("W", W)
            extra = hidden("extra", 1.0)
            pm.Normal("y", w[:, 0] * extra, 1.0, observed=np.zeros(N_DIMS))
        with pytest.raises(ValueError, match=f"`extra` is {kind}"):
            begin(learning.Enumeration(), *build_family(model, {"y": ROWS}, ["W"]))
