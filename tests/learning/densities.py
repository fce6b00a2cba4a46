"""Small densities to learn, with everything about them in NumPy, and rows of them."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_hais
from pymc_hais.learning.family import build_family, with_own
from pymc_hais.learning.optimisers.descent import Descent
from pymc_hais.learning.program import build_program, cut


def experts(weights):
    """Student-t experts: log p = -2 sum_l log(1 + (A x)_l^2), normalised only where A is square."""
    with pm.Model() as model:
        a = pm.Data("A", weights)
        x = pm.Flat("x", shape=weights.shape[1])
        pm.Potential("experts", -(2.0 * pt.log1p(pt.dot(a, x) ** 2)).sum())
    return model


def gaussian(precision, shift):
    """log p = -x' L x / 2 + b' x: a Hessian with all its elements."""
    with pm.Model() as model:
        matrix, b = pm.Data("L", precision), pm.Data("b", shift)
        x = pm.Flat("x", shape=len(shift))
        pm.Potential("energy", -0.5 * pt.dot(x, pt.dot(0.5 * (matrix + matrix.T), x)) + pt.dot(b, x))
    return model


def boltzmann(couplings, biases):
    """log p = s' W s + b' s for bits s; W counts above the diagonal."""
    with pm.Model() as model:
        w, b = pm.Data("W", couplings), pm.Data("b", biases)
        s = pymc_hais.FlatDiscrete("s", shape=len(biases))
        upper = w * np.triu(np.ones_like(couplings), 1)
        pm.Potential("energy", pt.dot(s, pt.dot(upper, s)) + pt.dot(b, s))
    return model


def states(n):
    return ((np.arange(2**n)[:, None] >> np.arange(n)) & 1).astype(float)


def boltzmann_score(rows, couplings, biases):
    return np.einsum("ni,ij,nj->n", rows, np.triu(couplings, 1), rows) + rows @ biases


def boltzmann_rows(couplings, biases, n, seed):
    every = states(len(biases))
    score = boltzmann_score(every, couplings, biases)
    p = np.exp(score - score.max())
    return every[np.random.default_rng(seed).choice(len(every), size=n, p=p / p.sum())]


def expert_rows(weights, n, seed):
    """Exact draws: u of independent t variables with three degrees of freedom, x = A^-1 u."""
    u = np.random.default_rng(seed).standard_t(3.0, size=(n, len(weights))) / np.sqrt(3.0)
    return np.linalg.solve(weights, u.T).T


class Objective:
    """A method's objective of all rows as a function of the parameters, with the random numbers of one seed."""

    def __init__(self, method, model, data, names, seed=0):
        family, self.rows = build_family(model, data, names, "jax")
        method.check(family)
        own = method.own(family, self.rows)
        self.family = with_own(family, own)
        self.first = family.first_values() | own
        rng, places = np.random.default_rng(seed), np.arange(len(self.rows))
        descent = Descent(method, self.family, self.rows, self.first, {}, rng, 1, 1.0, None, None)
        batch = descent.batch(places, self.first, 0)
        self.extras, _ = method.prepare(method.begin(self.family, self.rows, rng), batch, rng)
        self.program = build_program(method, self.family, batch, self.extras)
        self.pieces = cut(self.rows, self.extras, len(self.rows))

    def __call__(self, values):
        return self.pieces.evaluate(self.program, values, dict)[0]


def assert_gradient(objective, n_directions=3, step=1e-5, rtol=1e-5):
    """Compare the gradient with central differences along random directions of all parameters."""
    rng, first = np.random.default_rng(1), objective.first
    gradient = objective(first).by_name
    for _ in range(n_directions):
        way = {name: rng.normal(size=np.shape(value)) for name, value in first.items()}
        ends = [objective({name: first[name] + s * step * way[name] for name in first}).objective for s in (1, -1)]
        along = sum(np.sum(gradient[name] * way[name]) for name in first)
        np.testing.assert_allclose(along, (ends[0] - ends[1]) / (2 * step), rtol=rtol, atol=1e-7)
