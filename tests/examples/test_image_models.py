"""The models of natural images, their data and their training, against formulas written out here once more."""

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import pymc_hais
from examples.image_models import bilinear, linear_gaussian, linear_laplace, mcrbm, poe_laplace, poe_student
from examples.image_models import compare_models as comparison
from examples.image_models import patches as data
from examples.image_models.training import compile_density, train
from tests.toys import HAS_JAX

pytestmark = pytest.mark.skipif(not HAS_JAX, reason="without JAX these take minutes")

NOISE = 0.1
RNG = np.random.default_rng(2012)
PHI = RNG.normal(size=(3, 4))  # three dimensions, four causes or, transposed, four experts
X = RNG.normal(size=3)


def log_noise(x, mean):
    return sum(
        -0.5 * ((x_i - m_i) / NOISE) ** 2 - math.log(NOISE * math.sqrt(2.0 * math.pi))
        for x_i, m_i in zip(x, mean, strict=True)
    )


def gaussian_case():
    a = RNG.normal(size=4)
    prior = -0.5 * np.sum(a**2) - 2.0 * math.log(2.0 * math.pi)
    return linear_gaussian, {"phi": PHI}, {"a": a}, prior + log_noise(X, PHI @ a)


def laplace_case():
    a = RNG.normal(size=4)
    return linear_laplace, {"phi": PHI}, {"a": a}, -np.sum(np.abs(a)) - 4.0 * math.log(2.0) + log_noise(X, PHI @ a)


def bilinear_case():
    theta, psi, c, d = RNG.normal(size=(4, 2)), RNG.normal(size=(4, 3)), RNG.normal(size=2), RNG.exponential(size=3)
    a = [sum(theta[i, k] * c[k] for k in range(2)) * sum(psi[i, j] * d[j] for j in range(3)) for i in range(4)]
    expected = -np.sum(np.abs(c)) - 2.0 * math.log(2.0) - np.sum(d) + log_noise(X, PHI @ a)
    # PyMC's state is log d; its density is compared without the Jacobian of that.
    return bilinear, {"phi": PHI, "theta": theta, "psi": psi}, {"c": c, "d_log__": np.log(d)}, expected


def poe_laplace_case():
    return poe_laplace, {"phi": PHI.T}, {"x": X}, -sum(abs(sum(PHI[i, k] * X[i] for i in range(3))) for k in range(4))


def poe_student_case():
    weights = RNG.uniform(0.6, 2.0, size=4)
    expected = -sum(weights[k] * math.log(1.0 + (PHI[:, k] @ X) ** 2) for k in range(4))
    return poe_student, {"phi": PHI.T, "weights": weights}, {"x": X}, expected


def mcrbm_case():
    pool, filters, bias = -RNG.uniform(size=(2, 4)), RNG.normal(size=(4, 3)), RNG.normal(size=2)
    mean_filters, mean_bias, visible = RNG.normal(size=(5, 3)), RNG.normal(size=5), RNG.normal(size=3)
    length = sum(x_i**2 for x_i in X)
    energy = length / (2.0 * 0.8**2) - X @ visible
    for k in range(2):
        inside = sum(pool[k, i] * (filters[i] @ X) ** 2 / (length + 0.5) for i in range(4))
        energy -= math.log(1.0 + math.exp(0.5 * inside + bias[k]))
    for j in range(5):
        energy -= math.log(1.0 + math.exp(mean_filters[j] @ X + mean_bias[j]))
    parameters = {
        "pool": pool, "filters": filters, "covariance_bias": bias, "mean_filters": mean_filters,
        "mean_bias": mean_bias, "visible_bias": visible, "sigma": np.array(0.8),
    }  # fmt: skip
    return mcrbm, parameters, {"x": X}, -energy


CASES = {
    "linear Gaussian": gaussian_case,
    "linear Laplace": laplace_case,
    "bilinear": bilinear_case,
    "Laplace experts": poe_laplace_case,
    "Student experts": poe_student_case,
    "mcRBM": mcrbm_case,
}


def held_out(model, rows, **settings):
    settings = {"random_seed": 1, "progressbar": False, **settings}
    return pymc_hais.log_likelihood(model, {"x": rows}, **settings)["held_out"]


def assert_within_errors(result, exact):
    errors = 4.0 * result["se"].values + 1e-6
    assert np.all(np.abs(result["value"].values - exact) <= errors), (result["value"].values, exact, errors)
    assert errors.max() < 1.0


@pytest.mark.parametrize("name", CASES)
def test_log_density_is_the_formula(name):
    module, parameters, point, expected = CASES[name]()
    density = compile_density(module.build_model, parameters)
    rows = X[None] if density.is_generative else np.zeros((1, 0))
    state = np.concatenate([value.ravel() for value in point.values()])[None]
    jacobian = point["d_log__"].sum() if name == "bilinear" else 0.0
    # In training, with symbols for parameters ...
    assert density.in_state(state, rows, parameters)[0] == pytest.approx([expected + jacobian], rel=1e-9)
    # ... and as a PyMC model of numbers.
    model = module.build_model(parameters)
    for rv in model.observed_RVs:
        model.rvs_to_values[rv] = model.rvs_to_values[rv].type.make_constant(X)
    logp = model.compile_logp(jacobian=False, mode="FAST_COMPILE")
    assert float(logp(point)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_density(name):
    module, parameters, point, _ = CASES[name]()
    density = compile_density(module.build_model, parameters)
    state = np.tile(np.concatenate([value.ravel() for value in point.values()]), (2, 1))
    state[1] += 0.1
    rows = np.stack([X, X + 0.2]) if density.is_generative else np.zeros((2, 0))
    gradients, small = density.in_parameters(state, rows, parameters), 1e-6

    def mean(moved):
        return density.in_state(state, rows, moved)[0].mean()

    rng = np.random.default_rng(0)
    for key, value in parameters.items():
        direction = rng.normal(size=np.shape(value))
        slope = (
            mean(parameters | {key: value + small * direction}) - mean(parameters | {key: value - small * direction})
        ) / (2.0 * small)
        assert np.sum(gradients[key] * direction) == pytest.approx(slope, rel=1e-4, abs=1e-5), key


def without_basis(module):
    parameters = {"phi": np.zeros((3, 4))}
    return parameters if module is not bilinear else parameters | {"theta": np.ones((4, 2)), "psi": np.ones((4, 2))}


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(linear_gaussian, marks=pytest.mark.slow),
        linear_laplace,
        pytest.param(bilinear, marks=pytest.mark.slow),
    ],
)
def test_without_a_basis_a_generative_model_is_the_noise(module):
    """Eq. 41 of arXiv:1205.1925."""
    rows = NOISE * np.array([[0.0, 0.0, 0.0], [1.0, -2.0, 0.5], [3.0, 0.0, 1.0]])
    exact = multivariate_normal(np.zeros(3), NOISE**2 * np.eye(3)).logpdf(rows)
    assert_within_errors(held_out(module.build_model(without_basis(module)), rows, reference="prior"), exact)


@pytest.mark.slow
def test_linear_gaussian_model_equals_its_closed_form():
    rows = 0.5 * np.random.default_rng(3).normal(size=(4, 3))
    exact = multivariate_normal(np.zeros(3), PHI @ PHI.T + NOISE**2 * np.eye(3)).logpdf(rows)
    assert linear_gaussian.exact_log_likelihood({"phi": PHI}, rows) == pytest.approx(exact)
    assert_within_errors(held_out(linear_gaussian.build_model({"phi": PHI}), rows), exact)


@pytest.mark.parametrize("module", [poe_laplace, pytest.param(poe_student, marks=pytest.mark.slow)])
def test_complete_experts_equal_their_closed_form(module):
    rng = np.random.default_rng(5)
    phi, weights, rows = rng.normal(size=(4, 4)), rng.uniform(1.5, 2.5, size=4), rng.normal(size=(3, 4))
    u = rows @ phi.T
    if module is poe_laplace:
        energy, one = np.abs(u), np.full(4, math.log(2.0))
    else:
        energy = weights * np.log1p(u**2)
        one = [0.5 * math.log(math.pi) + math.lgamma(w - 0.5) - math.lgamma(w) for w in weights]
    log_z = np.sum(one) - math.log(abs(np.linalg.det(phi)))
    parameters = {"phi": phi, "weights": weights}
    assert module.exact_log_z(parameters) == pytest.approx(log_z)
    result = held_out(module.build_model(parameters), rows)
    assert abs(result["log_z"].item() - log_z) <= 4.0 * result["log_z_se"].item()
    assert result["log_z_se"].item() < 0.2
    assert result["value"].values == pytest.approx(-energy.sum(axis=1) - result["log_z"].item())


# Data ----------------------------------------------------------------------------------------------------


@pytest.fixture
def photographs(monkeypatch):
    """Photographs made here: smooth noise, of a contrast that goes with the name."""

    def load(name):
        noise = np.random.default_rng(len(name)).normal(size=(60, 80)).cumsum(axis=0).cumsum(axis=1)
        return 128.0 + len(name) * noise / noise.std()

    monkeypatch.setattr(data, "load_photograph", load)


def prepare(training=("a", "bb"), held_out=("ccc",)):
    return data.load_patches(6, 4, n_train=301, n_test=7, training=training, held_out=held_out)


def test_training_patches_are_white_and_shapes_are_as_asked(photographs):
    found = prepare()
    assert found.train.shape == (301, 6)
    assert found.test.shape == (7, 6)
    assert np.cov(found.train, rowvar=False) == pytest.approx(np.eye(6), abs=1e-9)
    assert found.train.mean(axis=0) == pytest.approx(np.zeros(6), abs=1e-9)


def test_statistics_come_from_training_and_rows_from_other_photographs(photographs):
    found, other_test, other_training = prepare(), prepare(held_out=("dddddd",)), prepare(training=("a", "eeeee"))
    assert np.array_equal(found.train, other_test.train)
    assert not np.allclose(found.test, other_test.test)
    # The same patches are cut, so only the whitening can have changed.
    assert not np.allclose(found.test, other_training.test)
    assert not set(data.TRAINING) & set(data.HELD_OUT)
    with pytest.raises(ValueError, match=r"Hold out other photographs.*'a'"):
        prepare(held_out=("a",))


def test_patches_have_no_mean_and_log_intensity(monkeypatch):
    # A patch of the product of light and reflectance: in logs, light that is constant goes with the mean.
    dark = np.random.default_rng(1).uniform(50.0, 100.0, size=(30, 30))
    found = {}
    for light in (1.0, 1000.0):
        monkeypatch.setattr(data, "load_photograph", lambda name, light=light: light * dark)
        found[light] = data.cut(("dark",), 20, 4, np.random.default_rng(2))
        assert found[light].mean(axis=1) == pytest.approx(np.zeros(20), abs=1e-12)
    assert found[1.0] == pytest.approx(found[1000.0], abs=0.03)
    assert found[1.0].std() > 0.1


@pytest.mark.parametrize("name", data.TRAINING + data.HELD_OUT)
def test_photographs_are_there_without_a_download(name):
    pytest.importorskip("sklearn" if name in data.WITH_SCIKIT_LEARN else "skimage")
    pytest.importorskip("PIL")
    image = data.load_photograph(name)
    assert image.ndim == 2
    assert min(image.shape) >= 300
    assert 0.0 <= image.min() < 60.0 < 180.0 < image.max() <= 255.5


@pytest.mark.skipif(not data.VAN_HATEREN.exists(), reason="needs ../shared/cases/vanhateren_patches36.npz")
def test_van_hateren_patches_are_white():
    found = data.load_van_hateren(50)
    assert (found.train.shape, found.test.shape) == ((10_000, 36), (50, 36))
    assert np.cov(found.train, rowvar=False) == pytest.approx(np.eye(36), abs=0.05)


# Training ------------------------------------------------------------------------------------------------


def test_training_finds_complete_experts():
    rng = np.random.default_rng(7)
    truth = np.linalg.qr(rng.normal(size=(3, 3)))[0] * np.sqrt(2.0)
    x = np.linalg.solve(truth, rng.laplace(size=(3, 3000))).T

    def exact(parameters):
        return -np.abs(x @ parameters["phi"].T).sum(axis=1).mean() - poe_laplace.exact_log_z(parameters)

    start = {"phi": np.eye(3)}
    trained = train(poe_laplace.build_model, start, x, n_steps=400)
    assert exact(start) < exact({"phi": truth}) - 0.1
    assert exact(trained) == pytest.approx(exact({"phi": truth}), abs=0.03)


def test_training_of_causes_reaches_the_closed_form():
    rng = np.random.default_rng(8)
    x = rng.normal(size=(1000, 2)) @ np.array([[1.0, 0.5], [0.0, 0.4]])

    def exact(parameters):
        return linear_gaussian.exact_log_likelihood(parameters, x).mean()

    start, best = {"phi": 0.5 * np.eye(2)}, linear_gaussian.fit(x, 2)
    trained = train(linear_gaussian.build_model, start, x, n_steps=400)
    assert exact(start) < exact(best) - 0.3
    assert exact(best) - 0.05 < exact(trained) <= exact(best) + 1e-9


def test_constraints_are_kept():
    x = np.random.default_rng(9).normal(size=(200, 3))
    parameters = mcrbm.initialise(x, 8)
    parameters["pool"] += 1.02  # at the edge, where the first steps cross it
    trained = train(mcrbm.build_model, parameters, x, mcrbm.project, n_steps=5)
    assert np.all(trained["pool"] <= 0.0)
    long = mcrbm.project(parameters | {"pool": -np.ones_like(parameters["pool"]), "filters": np.full((4, 3), 5.0)})
    assert np.all(long["pool"].sum(axis=1) >= -1.0 - 1e-12)
    assert np.linalg.norm(long["filters"], axis=1) == pytest.approx(np.full(4, 0.5 * math.sqrt(3.0)))
    assert np.all(np.isfinite(np.concatenate([np.ravel(value) for value in trained.values()])))
    low = {"phi": np.eye(2), "weights": np.array([-1.0, 3.0])}
    assert np.all(poe_student.project(low)["weights"] > 0.5)


@pytest.mark.parametrize("module", [linear_laplace, bilinear, poe_laplace, poe_student])
def test_models_start_with_at_least_complete_filters(module):
    x = np.random.default_rng(10).laplace(size=(300, 3))
    with pytest.raises(ValueError, match="got 2"):
        module.initialise(x, 2)


# Comparison ----------------------------------------------------------------------------------------------


def test_results_survive_their_file_and_are_drawn(tmp_path):
    row = {"mcse": 0.1, "sem": 2.0, "gain": 1.0, "gain_sem": 0.5, "exact": 0.25, "findings": "pareto_k", "seconds": 3.0}
    rows = [{"model": name, "size": 16 * k, "mean": -float(k), **row} for k, name in enumerate(comparison.MODELS, 1)]
    path = tmp_path / "rows.csv"
    comparison.write(rows, path)
    assert comparison.read(path) == rows
    comparison.draw(rows, tmp_path / "rows.png")
    assert (tmp_path / "rows.png").stat().st_size > 10_000


def test_verdict_needs_twice_the_error(capsys):
    row = {"model": "mcRBM", "size": 3, "gain": 1.0, "gain_sem": 0.3, "mcse": 0.5}
    comparison.conclude([row])
    comparison.conclude([{**row, "mcse": 0.1}])
    first, second = capsys.readouterr().out.splitlines()
    assert "does NOT beat" in first
    assert "beats" in second


@pytest.mark.slow
def test_one_model_is_trained_and_scored(photographs):
    found = prepare(held_out=("bbb",))
    row = comparison.measure("experts, Laplace", found, 6, 200, {})
    assert row["mean"] == pytest.approx(row["exact"], abs=4.0 * row["mcse"])
    assert set(row) == set(comparison.COLUMNS)
