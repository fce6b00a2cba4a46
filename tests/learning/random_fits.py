"""Random fits whose best values are known: a method, a model, units, an optimiser and a number of steps.

What a method minimises is written here in NumPy, row by row.  Its minimum over the rows of a fit is found by Newton's
method, and its standard errors are those of the sandwich, ``H^-1 S H^-1 / n``.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from scipy.optimize import minimize
from scipy.special import expit, gammaln

import pymc_hais
from pymc_hais import learning
from tests.learning import densities

STATES = densities.states(3)
UPPER = np.triu_indices(3, 1)


@dataclass(frozen=True)
class Case:
    """A model at its first values, rows, and the method's terms of each row (n,) as a function of the parameters."""

    method: Any
    model: Any
    data: dict
    terms: Any  # (parameters (P,)) -> (n,)
    first: np.ndarray  # (P,): where the search for the best values begins
    units: np.ndarray  # (P,): sizes of the parameters
    read: Any  # (model) -> (P,)
    parameters: Any
    can_batch: bool = True


def slopes(terms, at, units):
    """Return the gradient of each row's term (n, P), by central differences."""
    steps = 1e-5 * np.diag(units)
    moved = [(terms(at + one) - terms(at - one)) / (2e-5 * unit) for one, unit in zip(steps, units, strict=True)]
    return np.stack(moved, axis=1)


def best(case):
    """Return the minimum of the mean of the terms, and standard errors of it from sample to sample."""
    units = case.units

    def scaled(z):
        return case.terms(z * units).mean()

    at = minimize(scaled, case.first / units, method="BFGS").x * units
    for _ in range(5):
        gradient = slopes(case.terms, at, units)
        steps = 1e-4 * np.diag(units)
        bends = [slopes(case.terms, at + one, units) - slopes(case.terms, at - one, units) for one in steps]
        hessian = np.stack([one.mean(axis=0) / (2e-4 * unit) for one, unit in zip(bends, units, strict=True)])
        at = at - np.linalg.solve(hessian, gradient.mean(axis=0))
    inverse = np.linalg.inv(hessian)
    covariance = inverse @ np.atleast_2d(np.cov(gradient.T)) @ inverse / len(gradient)
    return at, np.sqrt(np.diag(covariance))


def normal(rng, n):
    """Score matching of normal columns, each in its own units, in standard deviations of the rows."""
    n_columns = int(rng.integers(1, 4))
    units = 10.0 ** rng.uniform(-6, 6) * 10.0 ** rng.uniform(-2, 2, n_columns)
    rows = units * (rng.normal(0, 3, n_columns) + rng.standard_t(6, (n, n_columns)))
    scales = rows.std(axis=0)

    def terms(at):
        mu, sigma = np.split(at, 2)
        return (scales**2 * (-1 / sigma**2 + 0.5 * ((rows - mu) / sigma**2) ** 2)).sum(axis=1)

    first = rows.mean(axis=0) + units * rng.normal(0, 2, n_columns), units * rng.uniform(0.7, 3, n_columns)
    with pm.Model() as model:
        pm.Normal("y", pm.Data("mu", first[0]), pm.Data("sigma", first[1]), observed=np.zeros(n_columns))
    return Case(
        learning.ScoreMatching(), model, {"y": rows}, terms, np.r_[rows.mean(axis=0), rows.std(axis=0)],
        np.r_[units, units], lambda model: np.r_[model["mu"].get_value(), model["sigma"].get_value()],
        {"mu": None, "sigma": "positive"},
    )  # fmt: skip


def correlated(rng, n):
    """Score matching of a normal density by its precision and shift."""
    half = np.eye(2) + 0.4 * rng.normal(size=(2, 2))
    rows = rng.normal(size=(n, 2)) @ half + rng.normal(size=2)
    scales, lower = rows.std(axis=0), np.tril_indices(2)

    def terms(at):
        precision = np.zeros((2, 2))
        precision[lower] = at[:3]
        precision = precision + np.tril(precision, -1).T
        score = at[3:] - rows @ precision
        return -np.diag(precision) @ scales**2 + 0.5 * ((scales * score) ** 2).sum(axis=1)

    def read(model):
        matrix = model["L"].get_value()
        return np.r_[(0.5 * (matrix + matrix.T))[lower], model["b"].get_value()]

    inverse = np.linalg.inv(np.cov(rows.T))
    return Case(
        learning.ScoreMatching(), densities.gaussian(np.eye(2), np.zeros(2)), {"x": rows}, terms,
        np.r_[inverse[lower], inverse @ rows.mean(axis=0)], np.ones(5), read, ["L", "b"],
    )  # fmt: skip


def rate(rng, n):
    """Maximum likelihood of the logarithm of a rate."""
    log_rate = rng.normal()
    rows = rng.poisson(np.exp(log_rate), n)
    with pm.Model() as model:
        pm.Poisson("x", pm.math.exp(pm.Data("t", np.array(log_rate + rng.normal()))), observed=0)

    def terms(at):
        return np.exp(at[0]) - rows * at[0] + gammaln(rows + 1.0)

    first = np.log(rows.mean(keepdims=True) + 1e-3)
    read = lambda model: np.atleast_1d(model["t"].get_value())  # noqa: E731
    return Case(learning.MaximumLikelihood(), model, {"x": rows}, terms, first, np.ones(1), read, ["t"])


def bits(rng, n):
    """Three bits, by pseudolikelihood, ratio matching, flow, or draws of the model itself."""
    couplings, biases = np.triu(rng.normal(size=(3, 3)), 1), 0.5 * rng.normal(size=3)
    rows = densities.boltzmann_rows(couplings, biases, n, int(rng.integers(2**31)))

    def score(states, at):
        return states[:, UPPER[0]] * states[:, UPPER[1]] @ at[:3] + states @ at[3:]

    def odds(at):  # of each flipped bit (n, 3)
        flipped = np.stack([np.where(np.arange(3) == i, 1 - rows, rows) for i in range(3)], axis=1)
        return score(flipped.reshape(-1, 3), at).reshape(-1, 3) - score(rows, at)[:, None]

    def draw(parameters, size, rng):
        at = np.r_[parameters["W"][UPPER], parameters["b"]]
        p = np.exp(score(STATES, at))
        return STATES[rng.choice(8, size=size, p=p / p.sum())]

    methods = [
        (learning.Pseudolikelihood(), lambda at: np.logaddexp(0, odds(at)).sum(axis=1)),
        (learning.RatioMatching(), lambda at: (expit(odds(at)) ** 2).sum(axis=1)),
        (learning.MinimumProbabilityFlow(), lambda at: np.exp(0.5 * odds(at)).sum(axis=1)),
        (learning.SelfContrastive(draw), lambda at: np.logaddexp.reduce(score(STATES, at)) - score(rows, at)),
    ]
    method, terms = methods[rng.integers(len(methods))]
    model = densities.boltzmann(np.triu(rng.normal(size=(3, 3)), 1), rng.normal(size=3))
    return Case(
        method, model, {"s": rows.astype(int)}, terms, np.r_[couplings[UPPER], biases], np.ones(6),
        lambda model: np.r_[model["W"].get_value()[UPPER], model["b"].get_value()], ["W", "b"],
    )  # fmt: skip


def run(seed, is_default=False):
    """Return what a fit says, how many standard errors its worst parameter is off, and a description."""
    rng = np.random.default_rng([seed, 46])
    n = int(10 ** rng.uniform(2.5, 4))
    build = [normal, correlated, rate, bits][seed % 4]
    case = build(rng, n)
    settings = {}
    if not is_default:
        # Rates that are for parameters of size one: others get steps that are too short, or far too long.
        make = [pm.adam, pm.sgd, pm.momentum, pm.rmsprop][rng.integers(4)]
        if rng.random() < 0.7 or case.method.follows_parameters:
            settings["optimizer"] = make(learning_rate=10.0 ** rng.uniform(-3, 0.5))
            settings["batch_size"] = int(min(n, 10 ** rng.uniform(1.3, 3)))
        settings["n_steps"] = int(10 ** rng.uniform(1.5, 3.5))
    result = pymc_hais.fit(
        case.model, case.data, case.parameters, case.method, random_seed=seed, progressbar=False, **settings
    )
    attrs = result["learning"].attrs
    at, errors = best(case)
    off = float(np.abs((case.read(case.model) - at) / errors).max())
    told = (
        f"{seed} {build.__name__} {case.method.name} n={n} {attrs['optimizer']} {settings} {attrs['reason']}: {off:.2g}"
    )
    return bool(attrs["converged"]), off, told
