"""Integrals over normals behind a Kronecker product: which models have one, and that it is exact."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import logsumexp
from scipy.stats import halfnorm, multivariate_normal, norm

import pymc_hais
from pymc_hais.density.compiling import freeze_dims_and_data
from pymc_hais.density.layout import build_layout
from pymc_hais.latent import integrated
from pymc_hais.latent.integrated import integrate
from pymc_hais.latent.kronecker import find_kronecker
from tests.latent.integrals import assert_calibrated, assert_exact
from tests.statistical import assert_mean

RNG = np.random.default_rng(5)
GRID = [np.linspace(0.0, 3.0, n)[:, None] for n in (6, 4)]
FIELD = RNG.normal(size=(6, 4))
DESIGN = RNG.normal(size=(30, 7))
OUTCOMES = DESIGN @ RNG.normal(size=(7, 3)) + RNG.normal(size=(30, 3))


def covariances():
    first, second = [pm.gp.cov.Matern52(1, ls=pm.LogNormal(f"length_{i}", 0.0, 0.5)) for i in range(2)]
    return [pm.HalfNormal("eta", 1.0) ** 2 * first, second]


def grid():
    """A Gaussian process on a grid, as PyMC writes it, around a mean that is a variable."""
    with pm.Model() as model:
        level = pm.gp.mean.Constant(pm.Normal("level", 0.0, 2.0))
        field = pm.gp.LatentKron(mean_func=level, cov_funcs=covariances()).prior("f", Xs=GRID)
        pm.Normal("y", field, pm.HalfNormal("noise", 1.0), observed=FIELD.ravel())
    return model


def three_axes():
    functions = [pm.gp.cov.ExpQuad(1, ls=length) for length in (0.5, 1.0, 2.0)]
    with pm.Model() as model:
        functions[0] = pm.HalfNormal("eta", 1.0) ** 2 * functions[0]
        field = pm.gp.LatentKron(cov_funcs=functions).prior("f", Xs=[*GRID, GRID[1][:3]])
        pm.Normal("y", field, pm.HalfNormal("noise", 1.0), observed=RNG.normal(size=72))
    return model


def basis():
    """Products of basis functions, with weights that depend on a length, and noise of each column."""
    frequencies = np.arange(1, 6)
    with pm.Model() as model:
        length = pm.LogNormal("length", 0.0, 0.5)
        rows, columns = (np.sin(x * frequencies) * pt.exp(-0.1 * length * frequencies) for x in GRID)
        z = pm.Normal("z", 0.0, 1.0, shape=25)
        field = pm.LogNormal("scale") * (columns @ (rows @ z.reshape((5, 5))).T).T
        pm.Normal("y", field + pm.Normal("level"), pm.HalfNormal("noise", 1.0, shape=4), observed=FIELD)
    return model


def outcomes():
    """Coefficients of several outcomes: with a scale for each covariate, around what other variables say."""
    with pm.Model() as model:
        scales = pm.HalfNormal("scales", 1.0, shape=(7, 1))
        slopes = pm.Normal("slopes", pm.Normal("middle", shape=3), scales, shape=(7, 3))
        pm.Normal("y", 1.0 - DESIGN @ slopes, pm.Exponential("noise", 1.0, shape=3), observed=OUTCOMES)
    return model


def rows_of_noise():
    """A noise for each row of the data, transposed, of a variable with dimensions of length one."""
    with pm.Model() as model:
        z = pm.Normal("z", 0.5, 3, shape=(1, 7, 3))
        mean = pt.dot(z[0].T, DESIGN.T) / pm.HalfNormal("divisor", 1.0)
        pm.Normal("y", mean, pm.HalfNormal("noise", 1.0, shape=30), observed=OUTCOMES.T)
    return model


def many_rows():
    """A regression with one scale of all slopes: its matrix of products is constant."""
    with pm.Model() as model:
        slopes = pm.HalfNormal("scale", 1.0) * pm.Normal("z", shape=14)
        mean = pm.Normal("intercept") + np.c_[DESIGN, DESIGN**2] @ slopes
        pm.Normal("y", mean, pm.HalfNormal("noise", 1.0), observed=OUTCOMES[:, 0])
    return model


@pytest.mark.parametrize(
    ("model", "owner"),
    [
        (outcomes, "slopes"),
        pytest.param(grid, "f_rotated_", marks=pytest.mark.slow),
        pytest.param(basis, "z", marks=pytest.mark.slow),
        pytest.param(three_axes, "f_rotated_", marks=pytest.mark.slow),
        pytest.param(rows_of_noise, "z", marks=pytest.mark.slow),
        pytest.param(many_rows, "z", marks=pytest.mark.slow),
    ],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_integral_and_draws_are_exact(model, owner):
    assert_exact(model(), {owner})


def log_marginal(model, **point):
    """Return the log density of the data given values of all variables that are not integrated out."""
    found = integrate(model)
    values = {one.name: point[one.name.removesuffix("_log__")] for one in found.model.value_vars}
    values = {name: np.log(value) if name.endswith("_log__") else value for name, value in values.items()}
    rest = found.model
    both = rest.compile_fn([rest.logp(), rest.logp(vars=rest.free_RVs)], mode="FAST_COMPILE")
    value, log_prior = both(values)
    return value - log_prior


def test_integral_is_the_marginal_density_of_the_data():
    lengths, eta, level, noise = (0.8, 1.3), 0.7, -0.4, 0.3
    matern = [np.sqrt(5.0) * abs(x - x.T) / length for x, length in zip(GRID, lengths, strict=True)]
    first, second = ((1.0 + r + r**2 / 3.0) * np.exp(-r) for r in matern)
    covariance = np.kron(eta**2 * first + 1e-6 * np.eye(6), second + 1e-6 * np.eye(4)) + noise**2 * np.eye(24)
    expected = multivariate_normal(np.full(24, level), covariance).logpdf(FIELD.ravel())
    found = log_marginal(grid(), length_0=lengths[0], length_1=lengths[1], eta=eta, level=level, noise=noise)
    assert found == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("dtype", ["float32", "int8", pytest.param("bool", marks=pytest.mark.slow)])
def test_products_of_any_design_are_made_of_doubles(dtype):
    """Of columns that nearly agree, under little noise, also of numbers that would overflow."""
    rng = np.random.default_rng(6)
    design = (100.0 * rng.uniform(-1.0, 1.0, size=(60, 12))).astype("int8" if dtype in ("int8", "bool") else dtype)
    design = design > 0 if dtype == "bool" else design
    if dtype == "float32":
        design[:, 1] = design[:, 0] + 1e-3 * rng.normal(size=60)
    y = design.astype(float) @ rng.normal(size=12) + 1e-3 * rng.normal(size=60)
    with pm.Model() as model:
        z = pm.Normal("z", 0.0, pm.HalfNormal("scale", 1.0), shape=12)
        pm.Normal("y", pt.constant(design) @ z, pm.HalfNormal("noise", 1.0), observed=y)
    doubles = design.astype(float)
    directions, roots, _ = np.linalg.svd(doubles)
    sds = np.sqrt(np.r_[roots, np.zeros(48)] ** 2 * 0.7**2 + 1e-6)
    expected = norm(0.0, sds).logpdf(directions.T @ y).sum()
    assert log_marginal(model, scale=0.7, noise=1e-3) == pytest.approx(expected, abs=1e-5)


def test_data_that_are_a_covariate_are_what_was_observed():
    with pm.Model() as model:
        x = pm.Normal("x", pm.Normal("middle"), 1.0, observed=DESIGN)
        slopes = pm.HalfNormal("scale", 1.0) * pm.Normal("z", shape=(7, 3))
        pm.Normal("y", x @ slopes, pm.HalfNormal("noise", 1.0), observed=OUTCOMES)
    assert_exact(model, {"z"})


def groups_beside(design):
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0.0, pm.HalfNormal("scale", 1.0), shape=design.shape[1])
        effects = pm.Normal("effects", 0.0, pm.HalfNormal("s", 1.0), shape=15)
        pm.Normal("y", design @ slopes + effects[np.arange(30) % 15], 1.0, observed=OUTCOMES[:, 0])
    return model


def test_of_two_solutions_that_with_more_elements_is_taken(monkeypatch):
    wide, narrow = groups_beside(RNG.normal(size=(30, 20))), groups_beside(RNG.normal(size=(30, 13)))
    assert integrate(wide).owners == ("slopes",)
    assert integrate(narrow).owners == ("effects",)
    is_confirmed = integrated._is_confirmed
    monkeypatch.setattr(
        integrated, "_is_confirmed", lambda found, *rest: found.owners != ("slopes",) and is_confirmed(found, *rest)
    )
    assert integrate(wide).owners == ("effects",)


def test_noise_beyond_floating_point_is_not_held():
    found = integrate(many_rows())
    middle = found.layout.flatten([np.asarray(found.model.initial_point()[name]) for name in found.layout.names])
    place = found.layout.offsets[found.layout.owners.index("noise")]
    assert found.holds(middle[None])
    middle[place] = np.log(1e-9)
    assert not found.holds(middle[None])


def test_no_rows_of_data_have_no_shape_to_read():
    with pm.Model() as model:
        z = pm.Normal("z", 0.0, pm.HalfNormal("scale"), shape=12)
        pm.Normal("y", (np.zeros((0, 12)) @ z).reshape((3, 0)), 1.0, observed=np.zeros((3, 0)))
    assert find_kronecker(freeze_dims_and_data(model), build_layout(model)) is None


def test_draws_have_the_conditional_mean_and_covariance():
    found, n = integrate(basis()), 20_000
    theta = 0.3 * np.random.default_rng(1).normal(size=found.layout.n_dims)
    draws = found.complete(np.tile(theta, (n, 1)), np.random.default_rng(2))[:, found.solution.places]
    middle = found.complete(theta)[found.solution.places]
    arrays, unit = found.compute(theta[None]), np.eye(middle.size)

    def distance(x):  # squared, in units of the normal
        log_density = [found.solution.log_density(arrays, one[None])[0] for one in (middle, *(middle + x))]
        return 2.0 * (log_density[0] - np.array(log_density[1:]))

    pairs = distance((unit[:, None] + unit).reshape(-1, middle.size)).reshape(unit.shape)
    precision = 0.5 * (pairs - distance(unit)[:, None] - distance(unit))
    standard = (draws - middle) @ np.linalg.cholesky(precision)
    assert_mean(standard.sum(axis=1) / np.sqrt(middle.size), 0.0)
    for i, j in ((0, 0), (12, 12), (24, 24), (0, 1), (5, 20)):
        assert_mean(standard[:, i] * standard[:, j], float(i == j))


def coefficients():
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0.0, pm.HalfNormal("scale", 1.0), shape=14)
        pm.Normal("y", np.c_[DESIGN, DESIGN**2] @ slopes, pm.HalfNormal("noise", 1.0), observed=OUTCOMES[:, 0])
    return model


def _log_evidence_of_coefficients():
    """Integrate the marginal density of the data over both scales, on a grid of their logarithms."""
    logs, step = np.linspace(-6.0, 1.5, 201, retstep=True)
    values, vectors = np.linalg.eigh(np.c_[DESIGN, DESIGN**2] @ np.c_[DESIGN, DESIGN**2].T)
    scale, noise = np.exp(logs)[:, None, None], np.exp(logs)[:, None]
    log_density = norm(0.0, np.sqrt(scale**2 * values + noise**2)).logpdf(vectors.T @ OUTCOMES[:, 0]).sum(axis=-1)
    log_prior = halfnorm.logpdf(np.exp(logs)) + logs
    return logsumexp(log_density + log_prior[:, None] + log_prior) + 2.0 * np.log(step)


def test_a_default_call_has_the_exact_log_z_and_all_variables():
    idata = pm.sample_hais(model=coefficients(), random_seed=1, quiet=True)
    estimate = pymc_hais.log_marginal_likelihood(idata)
    assert idata["posterior"].attrs["integrated_out"] == "slopes"
    assert idata["posterior"]["slopes"].shape == (4, 1000, 14)
    assert abs(estimate.value - _log_evidence_of_coefficients()) < 4.0 * estimate.se


@pytest.mark.exhaustive
def test_z_is_unbiased_and_its_error_is_right():
    assert_calibrated(coefficients(), "slopes", _log_evidence_of_coefficients())


def heavy_tails(z):
    pm.StudentT("y", nu=4.0, mu=DESIGN @ z, sigma=1.0, observed=OUTCOMES)


def noise_that_depends_on_them(z):
    pm.Normal("y", DESIGN @ z, pt.exp(z[0, 0]), observed=OUTCOMES)


def noise_of_each_value(z):
    pm.Normal("y", DESIGN @ z, np.exp(OUTCOMES), observed=OUTCOMES)


def squares(z):
    pm.Normal("y", DESIGN @ z**2, 1.0, observed=OUTCOMES)


def an_outcome_twice(z):
    pm.Normal("y", (DESIGN @ z)[:, [0, 1, 1]], 1.0, observed=OUTCOMES)


def data_twice(z):
    pm.Normal("y", DESIGN @ z, 1.0, observed=OUTCOMES)
    pm.Normal("first", z[0], 1.0, observed=OUTCOMES[0])


def a_potential(z):
    pm.Normal("y", DESIGN @ z, 1.0, observed=OUTCOMES)
    pm.Potential("sum", -(pt.sum(z) ** 2))


def another_prior(z):
    pm.Normal("y", DESIGN @ z + pm.Normal("level", z[0, 0]), 1.0, observed=OUTCOMES)


def weights_of_each_value(z):
    pm.Normal("y", DESIGN @ (z * np.arange(21.0).reshape(7, 3)), 1.0, observed=OUTCOMES)


REFUSED = [
    *(heavy_tails, noise_that_depends_on_them, noise_of_each_value, squares, an_outcome_twice, data_twice),
    *(a_potential, another_prior, weights_of_each_value),
]


@pytest.mark.parametrize("data", REFUSED, ids=lambda one: one.__name__)
def test_other_forms_are_left(data):
    with pm.Model() as model:
        scale = pm.HalfNormal("scale")
        data(pm.Normal("z", 0.0, scale, shape=(7, 3)))
    assert find_kronecker(freeze_dims_and_data(model), build_layout(model)) is None
