"""The screening: rarely suspicious of right draws, however heavy their tails; always of wrong ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pymc_hais.goodness_of_fit.stein import find_suspects

N_DRAWS = 4000
LEVEL = 1e-2


# Forward draws and score in closed form: name -> function of a generator to (positions, gradient).
def gaussian(rng, shift=0.0, scale=1.0, correlation=0.0):
    x = rng.normal(size=(N_DRAWS, 3))
    x[:, 1] = correlation * x[:, 0] + np.sqrt(1 - correlation**2) * x[:, 1]
    x = shift + scale * x
    return x, -x


def centred_eight_schools(rng):
    """log tau with tau ~ HalfCauchy(5); mu ~ N(0, 5); theta_j ~ N(mu, tau)."""
    tau = 5 * np.abs(rng.standard_cauchy(size=N_DRAWS))
    mu = rng.normal(0, 5, N_DRAWS)
    z = rng.normal(size=(N_DRAWS, 8))
    theta = mu[:, None] + tau[:, None] * z
    d_log_tau = 1 - 2 * tau**2 / (25 + tau**2) + (z**2 - 1).sum(axis=1)
    d_mu = -mu / 25 + (z / tau[:, None]).sum(axis=1)
    return np.column_stack([np.log(tau), mu, theta]), np.column_stack([d_log_tau, d_mu, -z / tau[:, None]])


def cauchy(rng):
    x = rng.standard_cauchy(size=(N_DRAWS, 3))
    return x, -2 * x / (1 + x**2)


def student_t2(rng):
    x = rng.standard_t(2.0, size=(N_DRAWS, 3))
    return x, -3 * x / (2 + x**2)


def uniform(rng):
    u = rng.uniform(size=(N_DRAWS, 3))
    return np.log(u) - np.log1p(-u), 1 - 2 * u


def arcsine(rng):
    """Beta(0.5, 0.5) = sin^2 of a uniform angle, so that 1 - u keeps its digits."""
    angle = rng.uniform(0, np.pi / 2, size=(N_DRAWS, 3))
    return 2 * np.log(np.tan(angle)), 0.5 - np.sin(angle) ** 2


def lognormal_scales(rng):
    log_s = rng.normal(0, 2, size=(N_DRAWS, 4))
    z = rng.normal(size=(N_DRAWS, 4))
    return np.hstack([log_s, z * np.exp(log_s)]), np.hstack([-log_s / 4 + z**2 - 1, -z / np.exp(log_s)])


def random_walk(rng):
    """Log sigma with sigma ~ HalfNormal(0.5), and a walk of 20 steps with standard deviation sigma."""
    sigma = 0.5 * np.abs(rng.normal(size=N_DRAWS))
    z = rng.normal(size=(N_DRAWS, 20))
    steps = np.column_stack([z[:, :1], sigma[:, None] * z[:, 1:]])
    pull = np.column_stack([z[:, :1], z[:, 1:] / sigma[:, None]])
    d_sigma = 1 - 4 * sigma**2 + (z[:, 1:] ** 2 - 1).sum(axis=1)
    gradient = -pull + np.column_stack([pull[:, 1:], np.zeros(N_DRAWS)])
    return np.column_stack([np.log(sigma), steps.cumsum(axis=1)]), np.column_stack([d_sigma, gradient])


def skewed_funnel(rng):
    """log tau with tau ~ HalfCauchy(1), and Gumbel(0, tau) variables: scores without a variance, one-sided."""
    tau = np.abs(rng.standard_cauchy(size=N_DRAWS))
    z = rng.gumbel(size=(N_DRAWS, 5))
    score = (np.exp(-z) - 1) / tau[:, None]
    d_log_tau = 2 / (1 + tau**2) - 1 + (z * (1 - np.exp(-z)) - 1).sum(axis=1)
    return np.column_stack([np.log(tau), tau[:, None] * z]), np.column_stack([d_log_tau, score])


def ordered(rng):
    x = np.sort(rng.normal(size=(N_DRAWS, 3)), axis=1)
    step = np.diff(x, axis=1)
    tail = np.cumsum(x[:, ::-1], axis=1)[:, ::-1]  # the sum of the elements from i on
    return np.column_stack([x[:, 0], np.log(step)]), np.column_stack([-tail[:, 0], 1 - tail[:, 1:] * step])


RIGHT = [
    gaussian,
    centred_eight_schools,
    cauchy,
    student_t2,
    uniform,
    arcsine,
    lognormal_scales,
    random_walk,
    skewed_funnel,
    ordered,
]


def suspects(positions, gradient, level=LEVEL):
    return find_suspects(positions, gradient, np.zeros(positions.shape[1], int), level)


@pytest.mark.every(4)
@pytest.mark.parametrize("prior", RIGHT, ids=lambda prior: prior.__name__)
@pytest.mark.parametrize("n_seeds", [10, pytest.param(500, marks=pytest.mark.slow)])
def test_right_priors_are_rarely_suspected(prior, n_seeds):
    """At most one in a hundred, by a union over correlated tests; more than this has probability 1e-5."""
    found = sum(bool(suspects(*prior(np.random.default_rng(seed)))) for seed in range(n_seeds))
    assert found <= stats.binom.isf(1e-5, n_seeds, LEVEL)


def test_where_the_density_jumps_draws_are_suspected_whatever_the_identity_says():
    """Whether the density ends there too is for the exact test to say."""
    rng = np.random.default_rng(1)
    x = rng.exponential(size=(N_DRAWS, 3))
    for draws in (x, 1.2 * x):
        (suspect,) = suspects(draws, np.full_like(x, -1.0))
        assert suspect.excess == 1.0


WRONG = {
    "shifted": lambda rng: gaussian(rng, shift=0.2),
    "too wide": lambda rng: gaussian(rng, scale=1.1),
    "too narrow": lambda rng: gaussian(rng, scale=0.9),
    "correlated": lambda rng: gaussian(rng, correlation=0.2),
    "t3 for t5": lambda rng: (x := rng.standard_t(3.0, size=(N_DRAWS, 1)), -6 * x / (5 + x**2)),
    "t5 for t3": lambda rng: (x := rng.standard_t(5.0, size=(N_DRAWS, 1)), -4 * x / (3 + x**2)),
    "Laplace for normal": lambda rng: (x := rng.laplace(scale=2**-0.5, size=(N_DRAWS, 1)), -x),
    "no Jacobian": lambda rng: (y := np.log(np.abs(rng.normal(size=(N_DRAWS, 1)))), -np.exp(2 * y)),
    "scale of a vector": lambda rng: (x := 1.03 * rng.normal(size=(N_DRAWS, 100)), -x),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_draws_are_suspected(name):
    n_seeds = 3 if name == "scale of a vector" else 10  # of a hundred coordinates
    assert all(suspects(*WRONG[name](np.random.default_rng(seed))) for seed in range(n_seeds))


def test_unsorted_draws_of_an_ordered_variable_are_suspected():
    """Draws of the logarithms of |differences| as if they were gaps, as a forgotten sort would give."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(N_DRAWS, 3))
    step = np.abs(np.diff(x, axis=1))
    positions = np.column_stack([x[:, 0], np.log(step)])
    value = x[:, :1] + np.column_stack([np.zeros(N_DRAWS), step.cumsum(axis=1)])
    tail = np.cumsum(value[:, ::-1], axis=1)[:, ::-1]
    assert suspects(positions, np.column_stack([-tail[:, 0], 1 - tail[:, 1:] * step]))


def test_unusable_rows_and_coordinates_are_left_out():
    x, gradient = gaussian(np.random.default_rng(2))
    gradient[3], x[4], gradient[5, 0] = np.nan, np.inf, -np.inf
    assert suspects(x, gradient) == []
    shifted, gradient = gaussian(np.random.default_rng(3), shift=5.0)
    assert find_suspects(shifted, gradient, np.full(3, -1), LEVEL) == []
    assert suspects(shifted[:99], gradient[:99]) == []  # too few to tell
    assert suspects(np.zeros_like(x), np.zeros_like(x)) == []


def test_children_come_first_and_the_worst_coordinate_first():
    """A wrong child also spoils the score of its parent; a wrong parent leaves its child's alone."""
    rng = np.random.default_rng(4)
    blocks = np.array([0, 1, 1, 2])

    def score(a, b1, b2, c):  # b1, b2 and c ~ N(0, 1), and a is the mean of b1
        return np.column_stack([b1 - 2 * a, a - b1, -b2, -c])

    def names(*x):
        return ["abc"[one.variable] for one in find_suspects(np.column_stack(x), score(*x), blocks, 1e-6)]

    a, b1, b2, c = rng.normal(size=(4, N_DRAWS))
    assert names(a, a + b1 + 1.0, b2, c) == ["b", "a"]
    assert names(a + 1.0, a + 1.0 + b1, b2, c) == ["a"]
    wrong = (a, a + b1, 2 * b2, c)
    (suspect,) = find_suspects(np.column_stack(wrong), score(*wrong), blocks, 1e-6)
    assert suspect.coordinates[0] == 2


def test_the_partner_of_a_wrong_correlation():
    x, score = gaussian(np.random.default_rng(6), correlation=0.5)
    (suspect,) = suspects(x, score)
    assert set(suspect.coordinates[:2]) == {0, 1}
    assert [*suspect.partners[:2]] == [1 - i for i in suspect.coordinates[:2]]


@pytest.mark.slow
def test_many_coordinates():
    x = np.random.default_rng(5).normal(size=(N_DRAWS, 600))
    assert suspects(x, -x) == []
    x[:, 301] *= 1.2
    (suspect,) = suspects(x, -x)
    assert suspect.coordinates[0] == 301
