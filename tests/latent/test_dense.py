"""Displacements by dense matrices against numbers and differences; and linear predictors, read from the graph."""

import time

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors
from scipy.sparse import csr_array

from pymc_hais.density import build_layout, has_normal_fields
from pymc_hais.density.compat import rewrite_pregrad
from pymc_hais.density.containers import freeze_with_inputs
from pymc_hais.density.markov.markov import Markov
from pymc_hais.density.proofs.linear import SlopeReader
from pymc_hais.density.proofs.predictors import find_predictor
from pymc_hais.density.rewrites.graphs import count
from pymc_hais.latent.dense import Dense, DenseDisplacement, _write_design, read_design
from pymc_hais.latent.fields import find_fields
from pymc_hais.latent.precisions import Nearby
from tests.density.coordinates.charted import neighbours

N = 16
RNG = np.random.default_rng(6)
X, Y = RNG.normal(size=(20, N)), RNG.normal(size=20)


@pytest.mark.parametrize("share", [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)])
def test_graphs_are_the_numbers_and_gradients_their_slopes(share):
    """Of the displacement alone, as of a likelihood; of the factor, as of a Jacobian; and of both."""
    n = 5
    inputs = [pt.matrix("a", shape=(n, n)), *(pt.vector(name, shape=(n,)) for name in ("gradient", "z"))]
    root, displacement, *_ = DenseDisplacement()(*inputs)
    of_way, of_root = share
    weights = RNG.normal(size=(2, n))
    total = of_way * (weights[0] * pt.tanh(displacement)).sum() + of_root * (weights[1] * pt.log(root)).sum()
    slopes = pytensor.grad(total, inputs, disconnected_inputs="ignore")
    function = pytensor.function(inputs, [root, displacement, total, *slopes], mode="FAST_COMPILE")
    half = RNG.normal(size=(n, n))
    values = [half @ half.T + n * np.eye(n), *RNG.normal(size=(2, n))]
    found_root, found_way, _, *found = function(*values)
    factor = Dense().compute_factor([one[None] for one in values[:2]])
    np.testing.assert_allclose(found_root, factor.diagonal[0], rtol=1e-12)
    np.testing.assert_allclose(found_way, Dense().compute_displacement(factor, values[2][None])[0], rtol=1e-12)
    back = Dense().compute_coordinates(factor, found_way[None])
    np.testing.assert_allclose(back[0], values[2], rtol=1e-10, atol=1e-12)

    def slope(i, move):
        ahead, behind = ([one + sign * move if j == i else one for j, one in enumerate(values)] for sign in (1, -1))
        return (function(*ahead)[2] - function(*behind)[2]) / 2e-6

    for i, one in enumerate(values):
        units = 1e-6 * np.eye(one.size).reshape(-1, *one.shape)
        if i == 0:  # symmetric matrices move symmetrically
            units = 0.5 * (units + units.swapaxes(1, 2))
        np.testing.assert_allclose(found[i].ravel(), [slope(i, unit) for unit in units], rtol=1e-5, atol=1e-6)


def test_a_matrix_beyond_floating_point_has_no_numbers():
    factor = Dense().compute_factor([np.array([np.eye(3), np.full((3, 3), np.inf), -np.eye(3)]), np.ones((3, 3))])
    assert np.isfinite(factor.diagonal[0]).all()
    assert not np.isfinite(factor.diagonal[1:]).all(axis=1).any()


def scaled(z):
    return pm.math.dot(X, z * pm.HalfNormal("scale", 1.0))


#: Likelihoods of the coefficients z, and whether these have a linear predictor that moves with other variables.
LIKELIHOODS = {
    "normal": (lambda z: pm.Normal("y", scaled(z), 1.0, observed=Y), True),
    "Student-t, of several hills": (lambda z: pm.StudentT("y", nu=4.0, mu=scaled(z), sigma=1.0, observed=Y), False),
    "Bernoulli": (lambda z: pm.Bernoulli("y", logit_p=scaled(z), observed=Y > 0.0), True),
    "binomial": (lambda z: pm.Binomial("y", 5, logit_p=scaled(z), observed=np.arange(20) % 6), True),
    "negative binomial": (
        lambda z: pm.NegativeBinomial("y", mu=pm.math.exp(scaled(z)), alpha=2.0, observed=np.arange(20) % 6),
        True,
    ),
    "with an intercept": (lambda z: pm.Normal("y", pm.Normal("a") + scaled(z), 1.0, observed=Y), True),
    "picked": (lambda z: pm.Normal("y", scaled(z)[np.arange(19)], 1.0, observed=Y[:19]), True),
    "matrix on the right": (
        lambda z: pm.Normal("y", pm.math.dot(z * pm.HalfNormal("scale"), X.T), 1.0, observed=Y),
        True,
    ),
    "a Potential": (lambda z: pm.Potential("y", -pm.math.sum(pm.math.sqr(scaled(z) - Y))), True),
    "picked after a mean is added": (
        lambda z: pm.Poisson(
            "y", pm.math.exp((scaled(z) + pm.Normal("a"))[Y > 0.0]), observed=np.arange((Y > 0).sum())
        ),
        True,
    ),
    "rows whose number other variables decide": (
        lambda z: pm.Potential(
            "y",
            -pt.sqr(pm.Normal("a") + pt.as_tensor(X)[pt.nonzero(pt.as_tensor(Y) + pm.HalfNormal("s") > 0.0)] @ z).sum(),
        ),
        False,
    ),
    "nothing moves": (lambda z: pm.Normal("y", pm.math.dot(X, z), 1.0, observed=Y), False),
    "one by one": (lambda z: pm.Normal("y", z * pm.HalfNormal("scale"), 1.0, observed=Y[:N]), False),
    "two predictors": (
        lambda z: pm.Normal("y", scaled(z) + pm.math.sqr(pm.math.dot(X, z)), 1.0, observed=Y),
        False,
    ),
    "also its scale": (lambda z: pm.Normal("y", scaled(z), pm.math.exp(z[0]), observed=Y), False),
    "a function of the sum": (lambda z: pm.Potential("y", -pm.math.sqr(pm.math.sum(pm.math.sqr(scaled(z))))), False),
    "neighbours": (lambda z: pm.Potential("y", -pm.math.sum(scaled(z)[1:] ** 2 * scaled_again(z)[:-1] ** 2)), False),
    "a density of all": (lambda z: pm.MvNormal("y", scaled(z), np.eye(20) + 0.5, observed=Y), False),
    "of itself": (lambda z: pm.Normal("y", pm.math.dot(X, z * pm.math.exp(z)), 1.0, observed=Y), False),
    "transposed": (
        lambda z: pm.Potential("y", -pm.math.sum(pm.math.sqr((m := scaled(z).reshape((4, 5))) + m.T[:4, :1]))),
        True,
    ),
}


#: What stands beside the coefficients z in a linear predictor, and which variables are one field with these.
BESIDE = {
    "an intercept": (lambda: pm.Normal("a"), {"z", "a"}),
    "slopes": (lambda: pm.math.dot(X[:, :2], pm.Normal("b", shape=2)), {"z", "b"}),
    "a slope that another variable scales": (lambda: pm.Normal("b") * pm.HalfNormal("s"), {"z", "b"}),
    "effects of groups": (lambda: pm.Normal("u", 0.0, pm.HalfNormal("s"), shape=4)[np.arange(20) % 4], {"z", "u"}),
    "effects of groups of a common mean": (
        lambda: pm.Normal("u", pm.Normal("m"), 1.0, shape=4)[np.arange(20) % 4],
        {"z", "u"},
    ),
    "a difference of effects": (lambda: (u := pm.Normal("u", shape=20)) - u[::-1], {"z", "u"}),
    "areas with neighbours": (lambda: pm.ICAR("x", W=neighbours(20).astype(int)), {"z", "x"}),
    "a square": (lambda: pm.Normal("a") ** 2, {"z"}),
    "a product of two": (lambda: pm.Normal("a") * pm.Normal("b"), {"z", "a"}),
    "another distribution": (lambda: pm.Laplace("a", 0.0, 1.0), {"z"}),
    "a bounded variable": (lambda: pm.HalfNormal("a"), {"z"}),
}


@pytest.mark.parametrize("name", BESIDE)
def test_which_normals_are_one_field_is_read_from_the_graph(name):
    build, owners = BESIDE[name]
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(build() + scaled(pm.Normal("z", shape=N))), observed=np.arange(20) % 5)
    (found,) = find_fields(freeze_with_inputs(model, [])[0], build_layout(model), normals=True)
    assert set(found.owners) == owners


@pytest.mark.few(4)
@pytest.mark.every(3)
@pytest.mark.parametrize("name", BESIDE)
def test_normals_behind_one_predictor_have_one_hill(name):
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(BESIDE[name][0]() + scaled(pm.Normal("z", shape=N))), observed=np.arange(20) % 5)
    assert has_normal_fields(model)


GROUP = np.arange(60) % 20


def intercepts():
    return pm.Normal("a") + pm.Normal("u", 0.0, pm.HalfNormal("s"), shape=20)[GROUP]


def correlated_slopes():
    chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
    effects = pm.Normal("mean", shape=2) + pm.Normal("z", shape=(20, 2)) @ chol.T
    return effects[GROUP, 0] + effects[GROUP, 1] * np.linspace(-1.0, 1.0, 60)


def crossed_groups_beside_slopes():
    slopes = pm.math.dot(RNG.normal(size=(60, 3)), pm.Normal("slopes", shape=3))
    return slopes + intercepts() + pm.HalfNormal("t") * pm.Normal("v", shape=12)[np.arange(60) % 12]


def few_groups():
    """So few that a matrix of all elements is the faster one."""
    effects = pm.HalfNormal("s") * pm.Normal("z", shape=(9, 2))
    return effects[GROUP % 9, 0] + effects[GROUP % 9, 1] * np.linspace(-1.0, 1.0, 60)


@pytest.mark.parametrize("effects", [intercepts, correlated_slopes, crossed_groups_beside_slopes, few_groups])
def test_effects_of_groups_alone_are_no_field(effects):
    """Pilots are as good at them, in less time."""
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(effects()), observed=np.arange(60) % 5)
    assert not has_normal_fields(model)


def scaled_again(z):
    return pm.math.dot(X, z * pm.HalfNormal("other", 1.0))


@pytest.mark.few(3)
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_what_is_a_linear_predictor(name):
    likelihood, expected = LIKELIHOODS[name]
    with pm.Model() as model:
        likelihood(pm.Normal("z", shape=N))
    assert has_normal_fields(model) == expected
    # Nobody has asked for them.
    assert find_fields(freeze_with_inputs(model, [])[0], build_layout(model)) == []


#: Coefficients that are no independent normals, or that others depend on, or that are too few.
OTHERS = {
    "not normal": lambda: pm.Laplace("z", 0.0, 1.0, shape=N),
    "bounded": lambda: pm.HalfNormal("z", shape=N),
    "correlated": lambda: pm.MvNormal("z", np.zeros(N), np.eye(N), shape=N),
    "a parent": lambda: parent(pm.Normal("z", shape=N)),
    "too few": lambda: pm.math.concatenate([pm.Normal("z", shape=N - 1), [0.0]]),
}


def parent(z):
    pm.Normal("child", z[0], 1.0)
    return z


@pytest.mark.parametrize("name", OTHERS)
def test_other_coefficients_keep_their_coordinates(name):
    with pm.Model() as model:
        pm.Normal("y", scaled(OTHERS[name]()), 1.0, observed=Y)
    assert not has_normal_fields(model)


def test_the_matrix_is_the_likelihood_s_whatever_the_layout():
    """Coefficients in a matrix that is turned round: the Hessian of PyTensor, at the point where the likelihood is."""
    rng = np.random.default_rng(7)
    left, right = rng.normal(size=(3, 5)), rng.normal(size=(4, 6))
    scale = rng.uniform(0.5, 2.0, size=(5, 1))

    def terms(x):
        return -0.5 * pt.sqr(x).sum(), -pt.exp(pt.dot(left, scale * x.T) @ right).sum()

    point, flat = pt.matrix("point", shape=(4, 5)), pt.vector("flat", shape=(20,))
    found = Dense().expand(Nearby(*terms(point), [point], 1.0, [lambda graph: graph], [()]))
    whole = sum(terms(flat.reshape((4, 5))))
    expected = [-pytensor.gradient.hessian(whole, flat), pytensor.grad(whole, flat)]
    x = 0.1 * rng.normal(size=(4, 5))
    arrays = pytensor.function([point], found, mode="FAST_COMPILE")(x)
    for one, other in zip(arrays, pytensor.function([flat], expected, mode="FAST_COMPILE")(x.ravel()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_the_matrix_of_several_variables_is_the_likelihood_s():
    """The matrix is the Hessian of PyTensor, for a mean, coefficients, differences of effects, and areas."""
    rng = np.random.default_rng(8)
    design, sizes = rng.normal(size=(8, 5)), (1, 5, 8, 8)
    markov = Markov(csr_array(neighbours(8)), of_sum=0.3)
    flat, x = pt.vector("flat", shape=(22,)), 0.3 * rng.normal(size=22)
    ends = np.cumsum([0, *sizes])
    precision = np.diag(1.7 * markov.degrees) - 1.7 * 0.6 * markov.weights.toarray() + 0.3

    def terms(mean, z, effects, areas):
        log_prior = -0.5 * (mean**2 / 4.0 + pt.sqr(z).sum() + pt.sqr(effects).sum() + areas @ precision @ areas)
        eta = 2.0 * mean + design @ (z * 0.7) + effects - effects[::-1] - 0.4 * areas
        return log_prior, -pt.exp(eta).sum()

    parts = [flat[ends[i] : ends[i + 1]] for i in range(4)]
    whole = sum(terms(parts[0][0], *parts[1:]))
    expected = [-pytensor.gradient.hessian(whole, flat), pytensor.grad(whole, flat)]
    points = [pt.scalar("mean"), *(pt.vector(f"x{i}", shape=(size,)) for i, size in enumerate(sizes[1:]))]
    near = Nearby(
        *terms(*points), points, 1.0, [lambda graph: graph], [(), (), (), (pt.constant(0.6), pt.constant(1.7))]
    )
    found = Dense((None, None, None, markov)).expand(near)
    values = [x[0], *(x[ends[i] : ends[i + 1]] for i in range(1, 4))]
    arrays = pytensor.function(points, found, mode="FAST_COMPILE")(*values)
    for one, other in zip(arrays, pytensor.function([flat], expected, mode="FAST_COMPILE")(x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


GROUPS, TIME = np.arange(60) % 8, np.linspace(-1.0, 1.0, 60)


def growth(z, scales):
    """Intercepts and slopes whose correlation and scales are variables; z (8, 2)."""
    lower = pt.stack([pt.stack([scales[0], 0.0]), pt.stack([scales[1], scales[2]])])
    return ((z @ lower.T)[GROUPS] * np.stack([np.ones(60), TIME], axis=1)).sum(axis=1)


#: Predictors of z (8, 2), and how many factors each of its elements has at most; None where it cannot be read.
DESIGNS = {
    "slopes by group": (lambda z, s: s[0] * z[GROUPS, 0] + s[1] * z[GROUPS, 1] * TIME, 1),
    "scales side by side": (lambda z, s: ((z * s[:2])[GROUPS] * X[:1, :2]).sum(axis=1), 1),
    "correlated slopes": (growth, 2),
    "a scale for each row": (lambda z, s: z[GROUPS, 0] * s[np.arange(60) % 3], 3),
    "a scale for each row, divided": (lambda z, s: z[GROUPS, 0] / s[np.arange(60) % 3], None),
    "divided by one scale": (lambda z, s: z[GROUPS, 1] / s[0] - z[GROUPS, 0], 1),
    "basis functions": (lambda z, s: pt.dot(np.cos(np.outer(TIME, np.arange(16))), z.ravel() * s[1]), 1),
    "a common factor": (lambda z, s: (1.0 + s[0] * TIME) * z[GROUPS, 0] + s[0], 2),
    "a matrix that moves": (lambda z, s: pt.dot(pt.exp(-s[0] * np.outer(TIME, np.arange(16))), z.ravel()), None),
    "an offset that moves": (lambda z, s: z[GROUPS, 0] + pt.exp(s[0] * TIME), 1),
}


@pytest.mark.parametrize("weights", ["one each", "one for all"])
@pytest.mark.parametrize("name", DESIGNS)
def test_a_design_has_the_slopes_of_its_predictor(name, weights):
    """Compare M W M', M s and the slopes of both with numbers from the Jacobian that PyTensor computes."""
    build, n_layers = DESIGNS[name]
    z, scales = pt.matrix("z", shape=(8, 2)), pt.vector("scales", shape=(3,))
    eta = build(z, scales)
    (log_rest,) = rewrite_pregrad([-pt.exp(eta).sum()])
    predictor = find_predictor(log_rest, [z])
    design = read_design(predictor, [z])
    assert n_layers is None if design is None else design.factors.type.shape == (n_layers, 16)
    design = design or _write_design(predictor, [z])
    w = pt.vector("w", shape=(60,))
    full = w if weights == "one each" else pt.alloc(w[0], 60)
    jacobian = pytensor.gradient.jacobian(eta, z).reshape((60, 16))
    expected = [jacobian.T @ (full[:, None] * jacobian), jacobian.T @ w]
    found = [design.products(full), design.sums(w)]
    mixed = pt.constant(RNG.normal(size=(16, 16)))
    totals = [(mixed * products).sum() + pt.sqr(sums).sum() for products, sums in (found, expected)]
    slopes = [pytensor.grad(total, [scales, w], disconnected_inputs="ignore") for total in totals]
    compute = pytensor.function([z, scales, w], [*found, *slopes[0], *expected, *slopes[1]], mode="FAST_COMPILE")
    values = compute(RNG.normal(size=(8, 2)), RNG.uniform(0.5, 2.0, size=3), RNG.uniform(size=60))
    for one, other in zip(values[:4], values[4:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_a_design_with_few_elements_is_a_sparse_one():
    """Each of 600 rows has four slopes that are not zero, of 82: nothing is as large as 82 x 600."""
    groups, x = np.arange(600) % 40, np.linspace(-1.0, 1.0, 600)
    mean, z, scale = pt.vector("mean", shape=(2,)), pt.matrix("z", shape=(40, 2)), pt.vector("scale", shape=(2,))
    effects = mean + scale * z
    (log_rest,) = rewrite_pregrad([-pt.exp(effects[groups, 0] + effects[groups, 1] * x).sum()])
    design = read_design(find_predictor(log_rest, [mean, z]), [mean, z])
    assert design.matrix.nnz == 4 * 600
    w = pt.vector("w", shape=(600,))
    found = [design.products(w), design.sums(w)]
    assert max(count(one) or 0 for one in ancestors(found)) < 82 * 600
    scales, weights = RNG.uniform(0.5, 2.0, size=2), RNG.uniform(size=600)
    both = np.stack([np.ones(600), x], axis=1)
    matrix = np.zeros((600, 82))
    matrix[:, :2] = both
    matrix[np.arange(600)[:, None], 2 + 2 * groups[:, None] + [0, 1]] = scales * both
    compute = pytensor.function([mean, z, scale, w], found, mode="FAST_COMPILE", on_unused_input="ignore")
    products, sums = compute(np.ones(2), np.ones((40, 2)), scales, weights)
    np.testing.assert_allclose(products, matrix.T @ (weights[:, None] * matrix), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(sums, matrix.T @ weights, rtol=1e-10, atol=1e-10)


def test_correlated_slopes_stand_beside_their_means():
    """Of two variables one has a factor for each element, the other one two; 12 groups have no data."""
    mean, z, scales = pt.vector("mean", shape=(2,)), pt.matrix("z", shape=(20, 2)), pt.vector("scales", shape=(3,))
    eta = growth(z, scales) + mean[0] + mean[1] * TIME
    (log_rest,) = rewrite_pregrad([-pt.exp(eta).sum()])
    design = read_design(find_predictor(log_rest, [mean, z]), [mean, z])
    assert design.factors.type.shape == (2, 42)
    slopes = pytensor.gradient.jacobian(eta, [mean, z])
    jacobian = pt.concatenate([one.reshape((60, -1)) for one in slopes], axis=1)
    w = pt.vector("w", shape=(60,))
    both = [design.products(w), jacobian.T @ (w[:, None] * jacobian)]
    compute = pytensor.function([mean, z, scales, w], both, mode="FAST_COMPILE", on_unused_input="ignore")
    values = np.zeros(2), np.zeros((20, 2)), RNG.uniform(0.5, 2.0, size=3), RNG.uniform(size=60)
    np.testing.assert_allclose(*compute(*values), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n_steps", [12, 3000])
def test_a_long_chain_of_products_is_not_read(n_steps):
    """Its slopes would be made of thousands of products of numbers."""
    z, scales = pt.matrix("z", shape=(8, 2)), pt.vector("scales", shape=(3,))
    eta = z[GROUPS, 0]
    moved = [z, eta]
    for i in range(n_steps):
        parts = eta[::-1], eta[2]
        products = parts[0] * scales[i % 3], TIME * parts[1]
        eta = products[0] + products[1]
        moved += [*parts, *products, products[1].owner.inputs[1]]
        moved.append(eta)
    began = time.process_time()
    assert SlopeReader([z], moved, 60).read(eta) is None
    assert time.process_time() - began < 10.0


def test_many_other_variables_keep_the_coordinates():
    """No Gaussian is weighed in so many dimensions."""
    with pm.Model() as model:
        local = pm.HalfNormal("local", shape=N)
        pm.Normal("y", pm.math.dot(X, pm.Normal("z", shape=N) * local), 1.0, observed=Y)
    assert not has_normal_fields(model)
