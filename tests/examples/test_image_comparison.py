"""The photographs that the models of natural images learn from, their training and their comparison."""

import json

import numpy as np
import pytest

import pymc_hais
from examples.image_models import (
    bilinear,
    figure,
    linear_gaussian,
    linear_laplace,
    mcrbm,
    poe_laplace,
    poe_student,
    table,
    training,
)
from examples.image_models import compare_models as comparison
from examples.image_models import patches as data
from tests.toys import HAS_JAX

pytestmark = pytest.mark.skipif(not HAS_JAX, reason="without JAX these take minutes")


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


def train(module, parameters, x, n_steps, method):
    """Return trained parameters."""
    model = module.build_model(parameters)
    method = training.METHODS[method]
    pymc_hais.fit(model, {"x": x}, module.LEARNT, method, n_steps=n_steps, random_seed=1, progressbar=False)
    return {name: model[name].get_value() for name in parameters}


@pytest.mark.every(2)
@pytest.mark.exhaustive
@pytest.mark.parametrize("method", ["chains", "flow"])
def test_training_finds_complete_experts(method):
    rng = np.random.default_rng(7)
    truth = np.linalg.qr(rng.normal(size=(3, 3)))[0] * np.sqrt(2.0)
    x = np.linalg.solve(truth, rng.laplace(size=(3, 3000))).T

    def exact(parameters):
        return -np.abs(x @ parameters["phi"].T).sum(axis=1).mean() - poe_laplace.exact_log_z(parameters)

    start = {"phi": np.eye(3)}
    assert exact(start) < exact({"phi": truth}) - 0.1
    assert exact(train(poe_laplace, start, x, 400, method)) == pytest.approx(exact({"phi": truth}), abs=0.03)


@pytest.mark.slow
def test_training_of_causes_reaches_the_closed_form():
    rng = np.random.default_rng(8)
    x = rng.normal(size=(1000, 2)) @ np.array([[1.0, 0.5], [0.0, 0.4]])

    def exact(parameters):
        return linear_gaussian.exact_log_likelihood(parameters, x).mean()

    start, best = {"phi": 0.5 * np.eye(2)}, linear_gaussian.maximise_likelihood(x, 2)
    assert exact(start) < exact(best) - 0.3
    assert exact(best) - 0.05 < exact(train(linear_gaussian, start, x, 400, "EM")) <= exact(best) + 1e-9


@pytest.mark.slow
def test_constraints_are_kept():
    x = np.random.default_rng(9).normal(size=(200, 3))
    parameters = mcrbm.initialise(x, 8)
    parameters["pool"] += 1.02  # at the edge, where the first steps cross it
    parameters["pool"] = np.minimum(parameters["pool"], 0.0)
    trained = train(mcrbm, parameters, x, 5, "flow")
    assert np.all(trained["pool"] <= 0.0)
    assert np.linalg.norm(trained["filters"], axis=1) == pytest.approx(np.ones(4))
    assert np.all(np.isfinite(np.concatenate([np.ravel(value) for value in trained.values()])))
    student = train(poe_student, {"phi": np.eye(3), "weights": np.array([1.0, 1.0, 3.0])}, x, 5, "flow")
    assert np.all(student["weights"] > 0.0)


@pytest.mark.parametrize("module", [linear_laplace, bilinear, poe_laplace, poe_student])
def test_models_start_with_at_least_complete_filters(module):
    x = np.random.default_rng(10).laplace(size=(300, 3))
    with pytest.raises(ValueError, match="got 2"):
        module.initialise(x, 2)


# Comparison ----------------------------------------------------------------------------------------------


def made_up(model, size, values, **changed):
    row = {
        "model": model, "size": size, "method": "chains", "values": values, "gain": values, "mcse": 0.01,
        "findings": [], "other": 0.5, "seconds": 3.0, "training_seconds": 2.0, "n_steps": 10, "way": [],
    }  # fmt: skip
    return row | changed


def test_what_has_not_converged_is_said_and_not_drawn(tmp_path, capsys, monkeypatch):
    way = [{"step": 0, "gain": [0.0, 1.0], "mcse": 0.1}]
    good = made_up("mcRBM", 8, [1.0, 2.0, 4.0], way=way)
    bad = made_up("bilinear", 5, [9.0, 9.5, 9.2], findings=["not_converged"])
    drawn, draw_sizes = [], figure.draw_sizes

    def note(ax, rows):
        drawn.append(rows)
        draw_sizes(ax, rows)

    monkeypatch.setattr(figure, "draw_sizes", note)
    figure.draw([good, bad], tmp_path / "rows.png")
    figure.draw([bad], tmp_path / "nothing.png")
    assert drawn == [[good], []]
    capsys.readouterr()
    table.conclude([good, bad])
    assert "bilinear (5, chains)" in capsys.readouterr().out.splitlines()[0]


def test_models_are_compared_row_by_row(capsys):
    # Rows differ by far more than the models do, and by the same: only the paired difference tells the models apart.
    low, high = [-10.0, 0.0, 10.0], [-9.0, 1.1, 10.9]
    table.conclude([made_up("mcRBM", 8, high), made_up("bilinear", 5, low), made_up("mcRBM", 4, [-99.0, -98.0, -90.0])])
    assert "mcRBM (8) is above bilinear (5): +1.00" in capsys.readouterr().out
    table.conclude([made_up("mcRBM", 8, high, mcse=0.6), made_up("bilinear", 5, low)])
    assert "mcRBM (8) is not clearly above" in capsys.readouterr().out


def test_what_has_no_error_has_no_number(capsys):
    # Of the highest mean, and no density.
    row = made_up("experts, Student-t", 4, [7.0, 7.5, 9.0], mcse=np.inf)
    table.show(row)
    assert "no number with an error     2     3" in capsys.readouterr().out
    assert poe_student.exact_log_z({"phi": np.eye(2), "weights": np.array([2.0, 0.4])}) == np.inf
    table.conclude([row, made_up("mcRBM", 8, [1.0, 2.0, 4.0]), made_up("bilinear", 5, [0.0, 1.1, 2.9])])
    assert "Student-t" not in capsys.readouterr().out


def test_noisy_steps_are_averaged_on_the_way_as_they_are_at_the_end():
    steps = np.arange(10, 210, 10)
    assert steps[training.near(steps, 100.0, is_noisy=True)].tolist() == [80, 90, 100]
    assert steps[training.near(steps, 105.0, is_noisy=False)].tolist() == [100]
    for is_noisy in (True, False):
        assert steps[training.near(steps, 0.0, is_noisy)].tolist() == [10]


def test_an_entry_is_measured_once(tmp_path, photographs, monkeypatch):
    measured = []

    def measure(name, size, method, patches, arguments):
        measured.append((name, size, method))
        asked = {"n_temperatures": arguments.n_temperatures, "particles": arguments.particles}
        values = list(range(len(patches.test)))
        return made_up(name, size, values, method=method, source=patches.source, **asked)

    monkeypatch.setattr(comparison, "measure", measure)
    monkeypatch.setattr(comparison, "load_patches", lambda *_, **__: prepare())
    given = ["--small", "--data", "photographs", "--json", str(tmp_path / "rows.json")]
    arguments = comparison.read_arguments(given)
    first = comparison.compare(arguments)
    assert [(row["model"], row["size"], row["method"]) for row in first] == measured
    assert {name for name, *_ in measured} == set(comparison.MODELS)
    by_chains = comparison.entries(comparison.read_arguments(["--methods", "chains"]), 6)
    assert {method for *_, method in by_chains} == {"chains"}
    n_measured = len(measured)
    assert comparison.compare(arguments) == first
    assert len(measured) == n_measured
    # With other temperatures or particles it is another entry.
    for name, value in {"n_temperatures": 50, "particles": 100}.items():
        setattr(arguments, name, value)
        n_measured += len(first)
        for _ in range(2):
            comparison.compare(arguments)
            assert len(measured) == n_measured
    # Files without such a word were made with the defaults.
    for row in first:
        del row["n_temperatures"], row["particles"]
    arguments.json.write_text(json.dumps(first))
    assert comparison.compare(comparison.read_arguments(given)) == first
    assert len(measured) == n_measured


@pytest.mark.every(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "method"), [(linear_gaussian, "closed form"), (linear_laplace, "EM"), (poe_laplace, "flow")]
)
def test_rows_or_log_z_have_as_many_temperatures_and_particles_as_are_asked_for(module, method):
    x = np.random.default_rng(11).normal(size=(3, 2))
    # More temperatures than the package takes by itself.
    arguments = comparison.read_arguments(["--n-temperatures", "10100", "--particles", "110"])
    settings = comparison.settings_of(method, arguments)
    model = module.build_model({"phi": np.array([[1.0, 0.3], [-0.2, 0.8]])})
    attrs = pymc_hais.log_likelihood(model, {"x": x}, random_seed=1, progressbar=False, **settings)["held_out"].attrs
    lengths = json.loads(attrs.get("rounds", "[]")) or [{"n_rows": 1, "n_temperatures": attrs["n_temperatures"]}]
    assert [one["n_temperatures"] for one in lengths] == [10_100]
    # Short rounds that scout and a few moves at the end are added; four populations would be four times as many.
    assert 10_100 <= attrs["n_gradients"] / (lengths[0]["n_rows"] * 110) < 20_200


@pytest.mark.exhaustive
def test_one_model_is_trained_and_scored(photographs):
    found = prepare(held_out=("bbb",))
    arguments = comparison.read_arguments(["--steps", "200"])
    row = comparison.measure("experts, Laplace", 6, "chains", found, arguments)
    assert abs(row["other"]) < 4.0  # of log Z, from the closed form
    assert row["mcse"] < 0.1
    gaussian = -0.5 * ((found.test**2).sum(axis=1) + 6.0 * np.log(2.0 * np.pi))
    assert np.subtract(row["values"], row["gain"]) == pytest.approx(gaussian)
    unfinished = comparison.measure("mcRBM", 12, "chains", found, comparison.read_arguments(["--steps", "3"]))
    assert "not_converged" in unfinished["findings"]
