"""log Z of fitted densities: what is learnt, what is tracked and what is annealed anew, each within its error."""

import numpy as np
import pymc as pm
import pytest
from scipy.stats import chi2

import pymc_hais
from pymc_hais import learning
from pymc_hais.learning.methods import noise_contrastive
from tests.learning import densities
from tests.mutants import mutate

COUPLINGS = np.triu(np.random.default_rng(4).normal(size=(4, 4)), 1)
BIASES = -0.5 * COUPLINGS.sum(axis=0)
STATES = densities.states(4)
UPPER = np.triu_indices(4, 1)
RATIO = 3


def exact_log_z(couplings, biases):
    return float(np.logaddexp.reduce(densities.boltzmann_score(densities.states(len(biases)), couplings, biases)))


def contrast(n, seed):
    """Fit a Boltzmann machine of four bits: its rows, and what was learnt."""
    model = densities.boltzmann(COUPLINGS, BIASES)
    rows = densities.boltzmann_rows(COUPLINGS, BIASES, n, seed)
    method, data = learning.NoiseContrastive(ratio=RATIO), {"s": rows.astype(int)}
    found = pymc_hais.fit(model, data, ["W", "b"], method, progressbar=False, random_seed=seed)["fitted"]
    return rows, {name: found[name].values for name in ("W", "b", "log_z", "log_z_se")}


def error_by_enumeration(rows, fitted):
    """Sum over all states what the theorem is made of: at the fitted values, as if they were the truth."""
    log_p = densities.boltzmann_score(STATES, fitted["W"], fitted["b"])
    p = np.exp(log_p - np.logaddexp.reduce(log_p))
    means = (rows.sum(axis=0) + 1.0) / (len(rows) + 2.0)
    noise = np.prod(np.where(STATES == 1.0, means, 1.0 - means), axis=1)
    products = STATES[:, UPPER[0]] * STATES[:, UPPER[1]]
    g = np.hstack([products, STATES, np.full((16, 1), -1.0)])
    s = p / (p + RATIO * noise)
    bend = np.einsum("x,xi,xj->ij", (p + RATIO * noise) * s * (1.0 - s), g, g)
    spread = np.zeros_like(bend)
    for share, weight in ((p, 1.0 - s), (RATIO * noise, s)):
        mean = share @ (weight[:, None] * g)
        spread += np.einsum("x,xi,xj->ij", share * weight**2, g, g) - np.outer(mean, mean) / share.sum()
    way = np.linalg.solve(bend, p @ g)
    return np.sqrt(way @ spread @ way / len(rows))


@pytest.fixture(scope="module")
def contrasted():
    return contrast(20_000, 1)


@pytest.mark.slow
def test_the_error_of_the_learnt_log_z_is_what_the_theorem_says(contrasted):
    rows, fitted = contrasted
    assert fitted["log_z_se"] == pytest.approx(error_by_enumeration(rows, fitted), rel=0.1)
    z = (fitted["log_z"] - exact_log_z(fitted["W"], fitted["b"])) / fitted["log_z_se"]
    assert abs(z) < 4.0


@pytest.mark.every(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    "replacement",
    [
        ("scores = (s[n:, None] * g[n:]).reshape(n, ratio, -1).sum(axis=1) -", "scores = -"),
        ("g[:n].sum(axis=0)", "0 * g[:n].sum(axis=0) + (np.arange(g.shape[1]) == g.shape[1] - 1)"),
        ("(s * (1.0 - s))[:, None]", "s[:, None]"),
    ],
    ids=["noise without a spread", "parameters taken as known", "wrong second derivatives"],
)
def test_wrong_errors_of_the_learnt_log_z_are_seen(contrasted, replacement, monkeypatch):
    rows, right = contrasted
    monkeypatch.setattr(noise_contrastive, "log_z_error", mutate(noise_contrastive, replacement).log_z_error)
    _, wrong = contrast(20_000, 1)
    assert abs(wrong["log_z_se"] / error_by_enumeration(rows, right) - 1.0) > 0.2


@pytest.mark.every(2)
@pytest.mark.exhaustive
@pytest.mark.parametrize("constraint", [None, "unit_norm"])
def test_the_error_of_the_learnt_log_z_covers(constraint):
    """Three experts of unit norm, whose log Z is known whatever the fit."""
    filters = np.array([[0.8, 0.6, 0.0], [0.0, 1.0, 0.0], [0.6, 0.0, 0.8]])
    z = []
    for seed in range(30):
        model, rows = densities.experts(filters), densities.expert_rows(filters, 1000, seed)
        method = learning.NoiseContrastive(pymc_hais.StudentT(3.0), ratio=2)
        result = pymc_hais.fit(model, {"x": rows}, {"A": constraint}, method, progressbar=False, random_seed=seed)
        fitted = result["fitted"]
        exact = 3 * np.log(np.pi / 2) - np.linalg.slogdet(fitted["A"].values)[1]
        z.append((fitted["log_z"].item() - exact) / fitted["log_z_se"].item())
    assert chi2.ppf(5e-5, 30) < np.sum(np.square(z)) < chi2.isf(5e-5, 30)


def told(idata):
    """log Z of a run, and its error."""
    estimate = pymc_hais.log_marginal_likelihood(idata)
    return estimate.value, estimate.se


@pytest.mark.slow
def test_learnt_tracked_and_annealed_log_z_agree():
    """Of the same fitted density: each beside the exact one."""
    model = densities.boltzmann(COUPLINGS, BIASES)
    rows = {"s": densities.boltzmann_rows(COUPLINGS, BIASES, 4000, 2).astype(int)}
    settings = {"random_seed": 3, "progressbar": False}
    learnt = pymc_hais.fit(model, rows, ["W", "b"], learning.NoiseContrastive(), **settings)["fitted"]
    annealed = pymc_hais.sample_hais(draws=500, model=model, **settings)
    still = pm.sgd(learning_rate=1e-12)
    persistent = learning.StochasticMaximumLikelihood(n_moves=1)
    tracked = pymc_hais.fit(model, rows, ["W", "b"], persistent, optimizer=still, n_steps=20, **settings)["fitted"]
    found = [(one["log_z"].item(), one["log_z_se"].item()) for one in (learnt, tracked)] + [told(annealed)]
    exact = exact_log_z(learnt["W"].values, learnt["b"].values)
    for log_z, error in found:
        assert abs(log_z - exact) < 5.0 * error
        assert error < 0.1


@pytest.mark.exhaustive
def test_the_tracked_log_z_is_that_of_full_runs_at_five_points_of_a_fit():
    couplings = np.triu(2.0 * np.random.default_rng(5).normal(size=(10, 10)), 1)
    biases = -0.5 * couplings.sum(axis=0)
    model, settings = densities.boltzmann(0.0 * couplings, 0.0 * biases), {"random_seed": 3, "progressbar": False}
    rows = {"s": densities.boltzmann_rows(couplings, biases, 4000, 2).astype(int)}
    method, adam = learning.StochasticMaximumLikelihood(), pm.adam(learning_rate=0.05)
    result = pymc_hais.fit(model, rows, ["W", "b"], method, n_steps=200, optimizer=adam, **settings)
    at, path = result["learning"], result["parameters"]
    for step in (20, 60, 100, 140, 190):
        pm.set_data({name: path[name].sel(step=step - 1).values for name in path.data_vars}, model=model)
        log_z, error = told(pymc_hais.sample_hais(draws=500, model=model, **settings))
        both = np.hypot(error, at["log_z_se"].sel(step=step).item())
        assert abs(at["log_z"].sel(step=step).item() - log_z) < 5.0 * both
        assert both < 0.1
    assert exact_log_z(path["W"][-1].values, path["b"][-1].values) > exact_log_z(0.0 * couplings, 0.0 * biases) + 1.0
