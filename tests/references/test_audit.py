"""The prior audit: silent on right priors, however heavy their tails; loud on wrong draws."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytest

from pymc_hais.model import Layout, build_density, build_layout
from pymc_hais.references import build_prior, check_prior_draws
from pymc_hais.references.audit import find_mismatches

N_DRAWS = 500

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def vector(d, periodic=False):
    return Layout(("x_log__",), ("x",), ((d,),), (periodic,))


# Forward draws and score in closed form: name -> function of a generator to (positions, gradient, clipped).
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


def clipped_gamma(rng):
    """Gamma(0.01, 1) on the logarithmic scale, where a tenth is below what we pretend to be able to hold."""
    log_x = np.log(rng.gamma(1.01, size=(N_DRAWS, 2))) + np.log(rng.uniform(size=(N_DRAWS, 2))) / 0.01
    clipped = (log_x < -230).any(axis=1)
    return np.maximum(log_x, -230), np.where(log_x < -230, 50.0, 0.01 - np.exp(log_x)), clipped


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


def bounded_without_transform(rng):
    x = rng.exponential(size=(N_DRAWS, 3))
    return x, np.full_like(x, -1.0)


RIGHT = [
    gaussian,
    centred_eight_schools,
    cauchy,
    student_t2,
    uniform,
    arcsine,
    clipped_gamma,
    lognormal_scales,
    random_walk,
    skewed_funnel,
    ordered,
    bounded_without_transform,
]


def audit(positions, gradient, clipped=None):
    clipped = np.zeros(len(positions), bool) if clipped is None else clipped
    return find_mismatches(vector(positions.shape[1]), positions, gradient, clipped)


@pytest.mark.parametrize("prior", RIGHT, ids=lambda prior: prior.__name__)
@pytest.mark.parametrize("n_seeds", [20, pytest.param(2000, marks=pytest.mark.slow)])
def test_right_priors_pass(prior, n_seeds):
    """Each audit raises a false alarm with probability 1e-6."""
    assert all(audit(*prior(np.random.default_rng(seed))) == [] for seed in range(n_seeds))


@pytest.mark.parametrize(
    "error", [{"shift": 0.5}, {"scale": 1.5}, {"scale": 0.7}, {"correlation": 0.5}, {"correlation": -0.5}]
)
def test_wrong_draws_are_caught(error):
    assert all(audit(*gaussian(np.random.default_rng(seed), **error)) == ["x"] for seed in range(20))


def test_unsorted_draws_of_an_ordered_variable_are_caught():
    """Draws of the logarithms of |differences| as if they were gaps, as a forgotten sort would give."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(N_DRAWS, 3))
    step = np.abs(np.diff(x, axis=1))
    positions = np.column_stack([x[:, 0], np.log(step)])
    value = x[:, :1] + np.column_stack([np.zeros(N_DRAWS), step.cumsum(axis=1)])
    tail = np.cumsum(value[:, ::-1], axis=1)[:, ::-1]
    assert audit(positions, np.column_stack([-tail[:, 0], 1 - tail[:, 1:] * step])) == ["x"]


def test_unusable_rows_and_coordinates_are_left_out():
    x, gradient = gaussian(np.random.default_rng(2))
    gradient[3], x[4], gradient[5, 0] = np.nan, np.inf, -np.inf
    assert audit(x, gradient) == []
    shifted, gradient = gaussian(np.random.default_rng(3), shift=5.0)
    none = np.zeros(N_DRAWS, bool)
    assert find_mismatches(vector(3, periodic=True), shifted, gradient, none) == []
    assert audit(shifted, gradient, np.arange(N_DRAWS) > 50) == []  # too few left to tell
    assert audit(np.zeros_like(x), np.zeros_like(x)) == []


def test_the_variable_that_is_wrong_is_named_first():
    """A wrong child also spoils the score of its parent; a wrong parent leaves its child's alone."""
    rng = np.random.default_rng(4)
    layout = Layout(("a", "b", "c"), ("a", "b", "c"), ((), (), ()), (False,) * 3)
    none = np.zeros(N_DRAWS, bool)

    def score(a, b, c):  # b and c ~ N(0, 1), and a is the mean of b
        return np.column_stack([b - 2 * a, a - b, -c])

    a, b, c = rng.normal(size=(3, N_DRAWS))
    wrong_child = np.column_stack([a, a + b + 1.0, c])
    assert find_mismatches(layout, wrong_child, score(*wrong_child.T), none) == ["b", "a"]
    wrong_parent = np.column_stack([a + 1.0, a + 1.0 + b, c])
    assert find_mismatches(layout, wrong_parent, score(*wrong_parent.T), none) == ["a"]


def test_many_coordinates():
    x = np.random.default_rng(5).normal(size=(N_DRAWS, 600))
    assert audit(x, -x) == []
    x[:, 301] *= 1.6
    assert audit(x, -x) == ["x"]


# The same through PyMC models.
def check(build, seed=1):
    with pm.Model() as model:
        build()
    values, clipped = build_prior(model).sample(N_DRAWS, seed)
    layout = build_layout(model, [value[0] for value in values])
    graph = build_density(model, layout)
    with model:
        function = pm.compile([graph.position, *graph.data], graph.density[2], mode="FAST_COMPILE")
    positions = layout.flatten(values)
    gradient = np.array([function(position, *graph.data_values) for position in positions])
    check_prior_draws(layout, positions, gradient, clipped)


def custom(mean, scale):
    def random(m, rng=None, size=None):
        return rng.normal(m + mean, scale, size=size)

    return lambda: pm.CustomDist("x", pm.Normal("m"), logp=lambda v, m: -0.5 * (v - m) ** 2, random=random, shape=3)


def correlated():
    def random(m, rng=None, size=None):
        return rng.multivariate_normal(m, [[1.0, 0.5], [0.5, 1.0]], size=size)

    def logp(value, m):
        return -0.5 * ((value - m) ** 2).sum(axis=-1)

    pm.CustomDist("x", np.zeros(2), logp=logp, random=random, signature="(n)->(n)")


@pytest.mark.parametrize(
    "build", [custom(0.5, 1.0), custom(0.0, 1.5), correlated], ids=["shifted", "scaled", "correlated"]
)
def test_a_custom_distribution_that_contradicts_itself(build):
    with pytest.raises(ValueError, match=r"forward draws of `x`.*do not follow.*`random`"):
        check(build)


def test_a_custom_distribution_that_agrees():
    check(custom(0.0, 1.0))


def test_car_draws_of_pymc():
    """PyMC draws pm.CAR with a covariance that is not the inverse of the precision in its density."""
    neighbours = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    with pytest.raises(ValueError, match=r"forward draws of `x` do not follow.*pm\.MvNormal"):
        check(lambda: pm.CAR("x", mu=np.zeros(3), W=neighbours, alpha=0.8, tau=1.0))


@pytest.mark.parametrize(
    "build",
    [
        lambda: pm.Censored("x", pm.Normal.dist(), lower=0.0, upper=1.0),
        lambda: pm.Mixture("x", w=[0.5, 0.5], comp_dists=[pm.DiracDelta.dist(0.0), pm.Normal.dist()]),
    ],
    ids=["censored", "spike and slab"],
)
def test_point_masses_are_refused(build):
    with pytest.raises(ValueError, match=r"`x` repeat the value 0: it has point masses"):
        check(build)


def test_probabilities_next_to_one_are_no_point_masses():
    check(lambda: pm.Beta("x", 0.01, 0.01))
