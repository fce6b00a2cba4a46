"""Rows of a linear Gaussian model, whose log-likelihood is known, and how tests ask for rows and score them."""

from functools import cache

import numpy as np
import pymc as pm
from scipy.stats import multivariate_normal

from pymc_hais.calls.heldout import log_likelihood
from pymc_hais.density.rows import check_rows
from pymc_hais.planning.choose import choose
from pymc_hais.planning.starts import Search, first_reference
from pymc_hais.problem.building import build_problem
from pymc_hais.run.rounds import run_rounds
from tests.runs import call_of

SIGMA = 0.1


def basis(n_dims, n_causes, seed=0):
    return np.random.default_rng(seed).normal(size=(n_dims, n_causes)) / np.sqrt(n_causes)


def linear(phi, sigma=SIGMA):
    """x = Phi a + noise, for one row; the same model each time, so that a second call compiles nothing."""
    return _linear(phi.tobytes(), phi.shape, sigma)


@cache
def _linear(phi, shape, sigma):
    phi = np.frombuffer(phi).reshape(shape)
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 1.0, shape=phi.shape[1])
        pm.Normal("x", phi @ a, sigma, observed=np.zeros(len(phi)))
    return model


def exact_linear(phi, x, sigma=SIGMA):
    # A linear map of standard normals plus independent noise: x ~ N(0, Phi Phi' + sigma^2 I).
    return multivariate_normal(np.zeros(len(phi)), phi @ phi.T + sigma**2 * np.eye(len(phi))).logpdf(x)


def generate(phi, n, seed=1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, phi.shape[1])) @ phi.T + SIGMA * rng.normal(size=(n, len(phi)))


def held_out(model, data, **kwargs):
    return log_likelihood(model, data, **{"random_seed": 1, "progressbar": False, **kwargs})["held_out"]


def largest_score(result, exact):
    return float(np.max(np.abs(result["value"].values - exact) / result["se"].values))


def run_rows(model, data, reference="auto", **options):
    """Take the trip of held-out rows step by step; return what is found."""
    call = call_of(model, **{"draws": 200, "chains": 1, "target_se": 0.1, **options})
    start = first_reference(reference, model)
    fits = reference in ("auto", "fitted")
    problem = build_problem(model, start, call.compiler, call.seeds, check_rows(model, data), fits)
    return run_rounds(*choose(Search(problem, reference, call)), call)
