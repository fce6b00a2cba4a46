"""Lopsided targets with discrete sites: every state can be listed, and so every expectation is a sum.

A target has ``density(xp)``, which builds ``density(x, *data) -> log_reference, log_ratio, grad_reference,
grad_ratio`` with what its rule wants at the sites; ``block``, the sites; ``sample(rng, n)``, exact draws of pi_beta at
``BETA``; and ``features(x, v)``, whose expectations are ``expected()``.
"""

import functools
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, polygamma, softmax

from pymc_hais.kernels import SiteBlock
from tests.discrete_truth import all_states
from tests.kernels.targets import BETA

#: Shares that rarer events than these would not follow the central limit in.
_RARE = 0.02


def alternate(n_sites):
    """Give neighbours in a chain different colours."""
    return np.arange(n_sites) % 2


def one_by_one(n_sites):
    return np.arange(n_sites)


@dataclass(frozen=True, eq=False)
class Enumerable:
    """What targets that have nothing but sites share."""

    colours: np.ndarray

    @functools.cached_property
    def log_densities(self):
        """Return both ends of the log density (2, n) at every state."""
        density = self.density(np)
        return np.array([density(state)[:2] for state in self.states]).T

    def probabilities(self, beta=BETA):
        reference, ratio = self.log_densities
        return softmax(reference + beta * ratio)

    def sample(self, rng, n):
        return self.states[rng.choice(len(self.states), n, p=self.probabilities())]

    @functools.cached_property
    def _values(self):
        return [np.unique(column) for column in self.states.T]

    def _features(self, x):
        """Whether each site, and each pair of sites, has each of its values, (n, F)."""
        held = [x[:, [i]] == values for i, values in enumerate(self._values)]
        pairs = [
            (one[:, :, None] & other[:, None, :]).reshape(len(x), -1)
            for i, one in enumerate(held)
            for other in held[i + 1 :]
        ]
        return np.hstack([*held, *pairs])

    @functools.cached_property
    def _frequent(self):
        shares = self.probabilities() @ self._features(self.states)
        return (shares > _RARE) & (shares < 1.0 - _RARE), shares

    def features(self, x, v):
        return self._features(x)[:, self._frequent[0]].astype(float)

    def expected(self):
        is_frequent, shares = self._frequent
        return shares[is_frequent]


@dataclass(frozen=True, eq=False)
class Boltzmann(Enumerable):
    """S binary sites: log density fields' s + s' couplings s / 2, with fields (2, S) and couplings (2, S, S)."""

    fields: np.ndarray
    couplings: np.ndarray  # symmetric, nothing on the diagonal
    rule: str = "gradient"

    @property
    def states(self):
        return all_states((self.fields.shape[1],))[0].astype(float)

    @property
    def block(self):
        return SiteBlock(0, self.fields.shape[1], self.colours, self.rule)

    def density(self, xp):
        fields, couplings, is_linear = xp.asarray(self.fields), xp.asarray(self.couplings), self.rule == "gradient"

        def density(s, *data):
            slopes = [fields[end] + couplings[end] @ s for end in (0, 1)]
            values = [xp.sum(s * (fields[end] + slopes[end])) / 2 for end in (0, 1)]
            # Times the site itself, the slope is the sum of the terms that the site is in.
            return *values, *(slope if is_linear else s * slope for slope in slopes)

        return density


@dataclass(frozen=True, eq=False)
class Chain(Enumerable):
    """A chain of S sites of K values: log density sum_i own[i, s_i] + sum_i pair[s_i, s_(i + 1)], at both ends."""

    own: np.ndarray  # (2, S, K)
    pair: np.ndarray  # (2, K, K)
    low: int = 0

    @property
    def states(self):
        _, n_sites, n_values = self.own.shape
        return self.low + all_states((n_sites,), n_values=n_values)[0].astype(float)

    @property
    def block(self):
        _, n_sites, n_values = self.own.shape
        return SiteBlock(0, n_sites, self.colours, "table", self.low, n_values)

    def density(self, xp):
        own, pair, low = xp.asarray(self.own), xp.asarray(self.pair), self.low
        places, none = xp.arange(own.shape[2]), xp.zeros(1)

        def density(s, *data):
            held = (s - low)[:, None] == places
            both = held[:-1, :, None] & held[1:, None, :]
            values, sums = [], []
            for end in (0, 1):
                alone = xp.sum(xp.where(held, own[end], 0.0), 1)
                links = xp.sum(xp.where(both, pair[end], 0.0), (1, 2))
                values.append(xp.sum(alone) + xp.sum(links))
                sums.append(alone + xp.concatenate((none, links)) + xp.concatenate((links, none)))
            return *values, *sums

        return density


@dataclass(frozen=True, eq=False)
class Counts(Enumerable):
    """Counts n_i of weight about rate_i^n_i / n_i!, times exp(beta (pull' n - (n_i - n_j)^2 / 2 for neighbours))."""

    rates: np.ndarray
    pull: np.ndarray
    most: int = 40  # beyond it the density is zero: with small rates it is so anyway

    @property
    def states(self):
        return all_states((len(self.rates),), n_values=self.most + 1)[0].astype(float)

    @property
    def block(self):
        return SiteBlock(0, len(self.rates), self.colours, "walk", 0, 0)

    def density(self, xp):
        log_rates, pull, most, none = xp.log(xp.asarray(self.rates)), xp.asarray(self.pull), self.most, xp.zeros(1)

        def density(n, *data):
            # Stirling's formula in place of the factorial, which has no name that all namespaces share.
            m = xp.maximum(n, 0.0) + 1.0
            alone = xp.where((n < 0.0) | (n > most), -xp.inf, m * log_rates - (m - 0.5) * xp.log(m) + m)
            links = -0.5 * (n[1:] - n[:-1]) ** 2
            sums = pull * n + xp.concatenate((none, links)) + xp.concatenate((links, none))
            return xp.sum(alone), xp.sum(pull * n) + xp.sum(links), alone, sums

        return density


@dataclass(frozen=True, eq=False)
class Mixed:
    """y = x[:2] is log-gamma given S binary sites s: shape a + beta (k + k_s s) and rate b + beta (m + m_s s)."""

    # log density a'y - b'exp(y) + fields'(s - 1/2), and the log ratio (k + k_s s)'y - (m + m_s s)'exp(y) +
    # s' couplings s / 2: linear in each site, with odds that depend on y.  Given s the integral over y is
    # prod_d Gamma(A_d) / B_d^A_d with the shapes A and rates B at beta.
    colours: np.ndarray
    a: np.ndarray
    b: np.ndarray
    k: np.ndarray
    m: np.ndarray
    k_s: np.ndarray  # (2, S)
    m_s: np.ndarray  # (2, S)
    fields: np.ndarray
    couplings: np.ndarray
    rule: str = "gradient"

    @property
    def n_sites(self):
        return len(self.fields)

    @property
    def block(self):
        return SiteBlock(2, 2 + self.n_sites, self.colours, self.rule)

    def density(self, xp):
        a, b, k, m = (xp.asarray(one) for one in (self.a, self.b, self.k, self.m))
        k_s, m_s, fields, couplings = (xp.asarray(one) for one in (self.k_s, self.m_s, self.fields, self.couplings))
        is_linear = self.rule == "gradient"

        def density(x, *data):
            y, s = x[:2], x[2:]
            g, shape, rate = xp.exp(y), k + k_s @ s, m + m_s @ s
            log_reference = xp.sum(a * y - b * g) + xp.sum(fields * (s - 0.5))
            log_ratio = xp.sum(shape * y - rate * g) + 0.5 * xp.sum(s * (couplings @ s))
            slopes = fields, k_s.T @ y - m_s.T @ g + couplings @ s
            first, second = slopes if is_linear else (s * slope for slope in slopes)
            return (
                log_reference,
                log_ratio,
                xp.concatenate((a - b * g, first)),
                xp.concatenate((shape * 1.0 - rate * g, second)),
            )

        return density

    @functools.cached_property
    def _law(self):
        """Return all sites (n, S), their probabilities, and the shapes and rates (n, 2) of exp(y) given them."""
        states = all_states((self.n_sites,))[0].astype(float)
        shape = self.a + BETA * (self.k + states @ self.k_s.T)
        rate = self.b + BETA * (self.m + states @ self.m_s.T)
        coupled = 0.5 * np.einsum("ni,ij,nj->n", states, self.couplings, states)
        mass = np.sum(gammaln(shape) - shape * np.log(rate), axis=1)
        return states, softmax(states @ self.fields + BETA * coupled + mass), shape, rate

    def sample(self, rng, n):
        states, probabilities, shape, rate = self._law
        chosen = rng.choice(len(states), n, p=probabilities)
        return np.hstack([np.log(rng.gamma(shape[chosen]) / rate[chosen]), states[chosen]])

    def features(self, x, v):
        """Return moments (n, F) of y, v, their products, s, and the products of s with both and with itself."""
        y, s = x[:, :2] - self._centre, x[:, 2:]

        def products(*factors):
            return functools.reduce(lambda p, q: (p[:, :, None] * q[:, None, :]).reshape(len(x), -1), factors)

        pairs = products(s, s)[:, np.triu(np.ones((self.n_sites,) * 2, dtype=bool), 1).ravel()]
        of_sites = [s, pairs, products(s, y), products(s, y**2), products(s, v), products(s, y, v)]
        return np.hstack(
            [y, y**2, v, v**2, v**3, v**4, products(y, v), products(y**2, v), products(y, v**2), *of_sites]
        )

    @functools.cached_property
    def _centre(self):
        _, probabilities, shape, rate = self._law
        return probabilities @ (polygamma(0, shape) - np.log(rate))

    def expected(self):
        states, p, shape, rate = self._law
        mean = polygamma(0, shape) - np.log(rate) - self._centre
        square, n = polygamma(1, shape) + mean**2, self.n_sites
        pairs = (states.T * p) @ states
        of_v = [np.zeros(2), np.ones(2), np.zeros(2), np.full(2, 3.0), np.zeros(8), np.repeat(p @ mean, 2)]
        of_sites = [p @ states, pairs[np.triu_indices(n, 1)], (states.T * p) @ mean, (states.T * p) @ square]
        return np.concatenate([p @ mean, p @ square, *of_v, *map(np.ravel, of_sites), np.zeros(6 * n)])


# The targets ---------------------------------------------------------------------------------------------


def ring(weights):
    """Couple four sites in a circle."""
    matrix = np.zeros((4, 4))
    for i, weight in enumerate(weights):
        matrix[i, (i + 1) % 4] = matrix[(i + 1) % 4, i] = weight
    return matrix


def boltzmann(rule="gradient", colours=None, n_sites=4):
    """Four sites on a circle, or three of them in a chain."""
    fields = np.array([[-0.4, 0.3, -0.8, 0.5], [1.1, -1.5, 0.2, -0.7]])
    couplings = np.stack([ring([0.6, -0.5, 0.4, -0.9]), ring([1.5, 1.8, -1.2, 1.0])])
    colours = alternate(n_sites) if colours is None else colours
    return Boltzmann(colours, fields[:, :n_sites], couplings[:, :n_sites, :n_sites], rule)


def chain(n_sites=3, n_values=3, colours=None, low=1):
    rng = np.random.default_rng(12)
    own, pair = 0.4 * rng.normal(size=(2, n_sites, n_values)), 0.6 * rng.normal(size=(2, n_values, n_values))
    return Chain(alternate(n_sites) if colours is None else colours, own, pair, low)


def counts(most=40, n_sites=2):
    return Counts(alternate(n_sites), np.array([1.5, 3.0, 0.8])[:n_sites], np.array([1.3, -0.5, 0.4])[:n_sites], most)


def mixed(rule="gradient", colours=None):
    couplings = np.array([[0.0, 1.2, 0.0], [1.2, 0.0, -1.5], [0.0, -1.5, 0.0]])
    k_s, m_s = np.array([[1.6, 0.0, 0.5], [-0.6, 1.2, 0.0]]), np.array([[0.0, 2.0, 0.0], [0.0, 0.0, 3.0]])
    first = [np.array(one) for one in ([0.8, 1.6], [0.5, 1.0], [0.5, 1.0], [1.0, 2.0])]
    colours = alternate(3) if colours is None else colours
    return Mixed(colours, *first, k_s, m_s, np.array([-0.5, 0.6, 0.2]), couplings, rule)
