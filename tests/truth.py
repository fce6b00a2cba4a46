"""Closed forms with their derivations, and toy densities whose every pi_beta can be sampled exactly.

A toy has ``density(xp)``, which builds ``density(x, *data) -> log_reference, log_ratio, grad_reference,
grad_ratio``; ``sample(rng, n, beta)`` from pi_beta; and ``log_z(beta)``, the log normaliser of
exp(log_reference + beta * log_ratio).  ``tests/test_truth.py`` checks each against quadrature.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import betaln, gammaln, polygamma
from scipy.stats import multivariate_normal

# Evidences of models as a user writes them ---------------------------------------------------------------


def log_evidence_normal(y, prior_mean, prior_sd, sigma):
    """Return log p(y) for mu ~ N(prior_mean, prior_sd^2), y_i ~ N(mu, sigma^2)."""
    # y = mu 1 + noise is jointly normal: mean prior_mean 1, covariance prior_sd^2 1 1' + sigma^2 I.
    y = np.atleast_1d(np.asarray(y, dtype=float))
    covariance = prior_sd**2 * np.ones((y.size, y.size)) + sigma**2 * np.eye(y.size)
    return float(multivariate_normal(np.full(y.size, prior_mean), covariance).logpdf(y))


def log_evidence_regression(design, y, prior_sd, sigma):
    """Return log p(y) for w ~ N(0, prior_sd^2 I), y ~ N(design w, sigma^2 I)."""
    # A linear map of normals plus normal noise: covariance prior_sd^2 X X' + sigma^2 I.
    covariance = prior_sd**2 * design @ design.T + sigma**2 * np.eye(len(y))
    return float(multivariate_normal(np.zeros(len(y)), covariance).logpdf(y))


def log_evidence_gamma_poisson(y, a, b):
    """Return log p(y) for g ~ Gamma(a, rate b), y_i ~ Poisson(g)."""
    # prod_i g^y_i e^-g / y_i! times b^a g^(a-1) e^(-b g) / Gamma(a) is a Gamma(a + S, b + n) kernel:
    # p(y) = b^a / Gamma(a) * Gamma(a + S) / (b + n)^(a + S) / prod y_i!, with S the sum of n counts.
    y = np.atleast_1d(y)
    total = y.sum()
    return float(
        a * np.log(b) - gammaln(a) + gammaln(a + total) - (a + total) * np.log(b + y.size)
        - gammaln(y + 1.0).sum()
    )  # fmt: skip


def log_evidence_gamma_exponential(y, a, b):
    """Return log p(y) for g ~ Gamma(a, rate b), y_i ~ Exponential(rate g); a = 1 is an exponential prior."""
    # g^n e^(-g S) times the prior is a Gamma(a + n, b + S) kernel.
    y = np.atleast_1d(np.asarray(y, dtype=float))
    return float(a * np.log(b) - gammaln(a) + gammaln(a + y.size) - (a + y.size) * np.log(b + y.sum()))


def log_evidence_beta_binomial(k, n, a, b):
    """Return log p(k) for p ~ Beta(a, b), k ~ Binomial(n, p)."""
    # C(n, k) B(a + k, b + n - k) / B(a, b), and C(n, k) = 1 / ((n + 1) B(k + 1, n - k + 1)).
    return float(betaln(a + k, b + n - k) - betaln(a, b) - betaln(k + 1, n - k + 1) - np.log(n + 1.0))


# Steps from one temperature to another ------------------------------------------------------------------


def step_discrepancy(toy, before, after):
    """Return log E g^2 - 2 log E g under pi_before, with g = exp((after - before) log ratio)."""
    # E g^n is the ratio of the normalisers at before + n (after - before) and at before.
    return toy.log_z(2.0 * after - before) + toy.log_z(before) - 2.0 * toy.log_z(after)


# Toys on the unconstrained scale -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LogGamma:
    """x = mix y, exp(y_d) ~ Gamma(a_d, rate b_d), log ratio sum_d (k_d y_d - m_d exp(y_d)) + constant."""

    # With the Jacobian of g = e^y the log reference is a log b - log Gamma(a) + a y - b e^y, so pi_beta is
    # the same family at a + beta k, b + beta m: lopsided (skewness psi''(a) / psi'(a)^1.5 < 0) and exact.
    a: np.ndarray
    b: np.ndarray
    k: np.ndarray
    m: np.ndarray
    constant: float = 0.0
    mix: np.ndarray | None = None

    @property
    def n_dims(self):
        return len(self.a)

    def _mix(self):
        return np.eye(self.n_dims) if self.mix is None else self.mix

    def density(self, xp):
        a, b, k, m = (xp.asarray(array) for array in (self.a, self.b, self.k, self.m))
        inverse = xp.asarray(np.linalg.inv(self._mix()))
        normaliser = float(np.sum(self.a * np.log(self.b) - gammaln(self.a)))
        normaliser -= float(np.linalg.slogdet(self._mix())[1])
        constant = self.constant

        def density(x, *data):
            y = inverse @ x
            g = xp.exp(y)
            log_reference = normaliser + xp.sum(a * y - b * g)
            log_ratio = constant + xp.sum(k * y - m * g)
            return log_reference, log_ratio, inverse.T @ (a - b * g), inverse.T @ (k - m * g)

        return density

    def sample(self, rng, n, beta):
        g = rng.gamma(self.a + beta * self.k, size=(n, self.n_dims)) / (self.b + beta * self.m)
        return np.log(g) @ self._mix().T

    def log_z(self, beta=1.0):
        a, b = self.a + beta * self.k, self.b + beta * self.m
        terms = self.a * np.log(self.b) - gammaln(self.a) + gammaln(a) - a * np.log(b)
        return float(terms.sum() + beta * self.constant)

    def standardise(self, x, beta):
        """Return y (N, D) scaled to mean 0 and variance 1 under pi_beta, and its skewness (D,)."""
        # The cumulant generating function of log g is log Gamma(a + t) - log Gamma(a) - t log b.
        a, b = self.a + beta * self.k, self.b + beta * self.m
        y = x @ np.linalg.inv(self._mix()).T
        mean, variance = polygamma(0, a) - np.log(b), polygamma(1, a)
        return (y - mean) / np.sqrt(variance), polygamma(2, a) / variance**1.5

    def speed(self, beta):
        """Return the sd of the log ratio under pi_beta."""
        # d^2 log Z / d beta^2: Var(y) = psi'(a), Var(e^y) = a / b^2, Cov(y, e^y) = 1 / b.
        a, b = self.a + beta * self.k, self.b + beta * self.m
        variance = self.k**2 * polygamma(1, a) + self.m**2 * a / b**2 - 2.0 * self.k * self.m / b
        return float(np.sqrt(variance.sum()))


def gamma_poisson(y, a, b):
    """Return the toy of ``log_evidence_gamma_poisson`` on the log scale."""
    y = np.atleast_1d(y)
    one = np.ones(1)
    return LogGamma(a * one, b * one, y.sum() * one, y.size * one, -float(gammaln(y + 1.0).sum()))


def gamma_exponential(y, a, b):
    """Return the toy of ``log_evidence_gamma_exponential`` on the log scale."""
    y = np.atleast_1d(np.asarray(y, dtype=float))
    one = np.ones(1)
    return LogGamma(a * one, b * one, y.size * one, y.sum() * one)


@dataclass(frozen=True, eq=False)
class Normal:
    """x_d ~ N(0, prior_sd_d^2), one observation y_d ~ N(x_d, sigma^2) each."""

    prior_sd: np.ndarray
    y: np.ndarray
    sigma: float

    @property
    def n_dims(self):
        return len(self.y)

    def density(self, xp):
        prior_sd, y = xp.asarray(self.prior_sd), xp.asarray(self.y)
        sigma = self.sigma
        constant = -0.5 * np.log(2.0 * np.pi)
        of_reference = self.n_dims * constant - float(np.log(self.prior_sd).sum())
        of_ratio = self.n_dims * (constant - np.log(sigma))

        def density(x, *data):
            z, r = x / prior_sd, (y - x) / sigma
            log_reference = of_reference - 0.5 * xp.sum(z * z)
            log_ratio = of_ratio - 0.5 * xp.sum(r * r)
            return log_reference, log_ratio, -z / prior_sd, r / sigma

        return density

    def _posterior(self, beta):
        # Precisions add: 1 / prior_sd^2 + beta / sigma^2.
        variance = 1.0 / (1.0 / self.prior_sd**2 + beta / self.sigma**2)
        return beta * self.y * variance / self.sigma**2, np.sqrt(variance)

    def sample(self, rng, n, beta):
        mean, sd = self._posterior(beta)
        return mean + sd * rng.standard_normal((n, self.n_dims))

    def log_z(self, beta=1.0):
        # N(y; x, s^2)^beta = (2 pi s^2)^((1 - beta) / 2) beta^(-1/2) N(y; x, s^2 / beta), and the integral of
        # two normals in x is N(y; 0, prior_sd^2 + s^2 / beta).  beta > 0.
        variance = self.prior_sd**2 + self.sigma**2 / beta
        power = 0.5 * (1.0 - beta) * np.log(2.0 * np.pi * self.sigma**2) - 0.5 * np.log(beta)
        return float(np.sum(power - 0.5 * np.log(2.0 * np.pi * variance) - 0.5 * self.y**2 / variance))

    def speed(self, beta):
        """Return the sd of the log ratio under pi_beta."""
        # log ratio = -r^2 / 2 with r ~ N(mu, s^2): Var(r^2) = 2 s^4 + 4 mu^2 s^2.
        mean, sd = self._posterior(beta)
        mu, s = (self.y - mean) / self.sigma, sd / self.sigma
        return float(np.sqrt(np.sum(0.5 * s**4 + mu**2 * s**2)))


@dataclass(frozen=True, eq=False)
class BetaBinomial:
    """x = logit p, p ~ Beta(a, b), k ~ Binomial(n, p)."""

    a: float
    b: float
    k: int
    n: int
    n_dims = 1

    def density(self, xp):
        a, b, k, n = self.a, self.b, self.k, self.n
        of_reference = -float(betaln(a, b))
        of_ratio = float(-betaln(k + 1, n - k + 1) - np.log(n + 1.0))

        def density(x, *data):
            # dp = p (1 - p) dx turns the powers a - 1, b - 1 into a, b.
            log_p, log_q = -xp.logaddexp(0.0, -x), -xp.logaddexp(0.0, x)
            p = xp.exp(log_p)
            log_reference = of_reference + xp.sum(a * log_p + b * log_q)
            log_ratio = of_ratio + xp.sum(k * log_p + (n - k) * log_q)
            return log_reference, log_ratio, a - (a + b) * p, k - n * p

        return density

    def sample(self, rng, n, beta):
        p = rng.beta(self.a + beta * self.k, self.b + beta * (self.n - self.k), size=(n, 1))
        return np.log(p) - np.log1p(-p)

    def log_z(self, beta=1.0):
        # C(n, k)^beta B(a + beta k, b + beta (n - k)) / B(a, b).
        choose = -betaln(self.k + 1, self.n - self.k + 1) - np.log(self.n + 1.0)
        kernel = betaln(self.a + beta * self.k, self.b + beta * (self.n - self.k))
        return float(beta * choose + kernel - betaln(self.a, self.b))
