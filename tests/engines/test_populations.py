"""Populations together are the populations one by one: to the bit on one engine, to rounding from one to another."""

from dataclasses import replace
from functools import cache

import numba
import numpy as np
import pytest

from pymc_hais.core.annealing import anneal
from pymc_hais.core.records import Segment
from pymc_hais.engines.numba import NumbaEngine
from pymc_hais.engines.python import PythonEngine
from pymc_hais.kernels.paths import Defended
from tests.populations import start
from tests.toys import HAS_JAX, build_plan

if HAS_JAX:
    import jax.numpy as jnp

    from pymc_hais.engines import jax as jax_module

#: A few contracting steps: rounding (1e-16 an operation) stays far below this.
TOLERANCE = {"rtol": 0.0, "atol": 1e-10}
WEIGHTS = np.array([2.0, 5.0])
needs_jax = pytest.mark.skipif(not HAS_JAX, reason="needs JAX")
# Numba takes long to compile, and calls the same transitions: one agreement of engines stands for it.
ENGINES = [pytest.param("jax", marks=needs_jax), pytest.param("numba", marks=pytest.mark.exhaustive), "python"]


def build_density(xp):
    """Standard-normal reference; a lopsided ratio around a centre and a level that each population has of its own."""

    def density(x, centre, level, weights):
        y = weights * xp.exp(x - centre)
        return -0.5 * xp.sum(x * x), xp.sum(level * x - y), -x, level - y

    return density


@cache
def build_engine(name):
    of_one = (np.zeros(2), np.zeros(()))
    if name == "jax":
        return jax_module.JaxEngine(build_density(jnp), [WEIGHTS], 2, inputs=of_one)
    if name == "numba":
        return NumbaEngine(numba.njit(build_density(np)), [WEIGHTS], 2, inputs=of_one)
    return PythonEngine(build_density(np), [WEIGHTS], 2, "c")


def populations(n_populations, n_particles, seed=0):
    """Return positions (B, P, 2), inputs that differ from one population to the next, and keys (B, 2)."""
    rng = np.random.default_rng(seed)
    inputs = [rng.normal(size=(n_populations, 2)), rng.uniform(0.5, 3.0, n_populations)]
    keys = rng.integers(2**32, size=(n_populations, 2), dtype=np.uint32)
    return rng.normal(size=(n_populations, n_particles, 2)), inputs, keys


METRIC = np.array([[0.7, 0.0], [-0.3, 0.5]])


SEGMENT = Segment(3, np.linspace(0.0, 1.0, 6), np.linspace(0.9, 0.5, 5), np.linspace(0.1, 0.9, 5), METRIC)


def move(engine, positions, inputs, keys):
    """Start populations and move them through a segment of five steps; return all numbers by name."""
    state = engine.start(positions.copy(), inputs, keys)
    moved, trace = engine.run_segment(state, inputs, SEGMENT, keys)
    chosen = np.tile(np.arange(positions.shape[1])[::-1] // 2, (len(keys), 1))
    taken = engine.take(moved, chosen)
    return numbers(start=state, moved=moved, trace=trace, taken=taken)


def visit(engine, positions, inputs, keys):
    """Do the same in one call."""
    state, moved, trace = engine.visit(positions.copy(), inputs, SEGMENT, keys)
    return numbers(start=state, moved=moved, trace=trace)


def numbers(**records):
    return {
        f"{name}.{field}": np.array(getattr(record, field))
        for name, record in records.items()
        for field in record._fields
    }


def one_by_one(engine, positions, inputs, keys):
    rows = [slice(b, b + 1) for b in range(len(keys))]
    alone = [move(engine, positions[b], [one[b] for one in inputs], keys[b]) for b in rows]
    return {name: np.concatenate([one[name] for one in alone]) for name in alone[0]}


def assert_equal(found, expected):
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name, strict=True)


@pytest.mark.parametrize("name", ENGINES)
def test_together_they_are_the_same_to_the_bit_as_one_by_one(name):
    together, alone = (f(build_engine(name), *populations(5, 60)) for f in (move, one_by_one))
    assert_equal(together, alone)
    rates = together["trace.acceptance_rate"]
    assert rates.shape == (5, 5, 60)
    assert 0.3 < rates.mean() < 0.98
    # The populations differ: by their inputs, their keys and their positions.
    assert len(np.unique(together["trace.log_increment"][:, -1])) == 300


@pytest.mark.parametrize("name", ENGINES[:2])
def test_engines_agree_to_rounding(name):
    found, expected = (move(build_engine(one), *populations(3, 20)) for one in (name, "python"))
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, **TOLERANCE, err_msg=key)


@pytest.mark.few(3)
@pytest.mark.parametrize("n_particles", [20, 600])  # on JAX tiles of which much is filled up; and several
@pytest.mark.parametrize("name", ENGINES)
def test_a_visit_is_a_start_and_a_segment(name, n_particles):
    found, expected = (f(build_engine(name), *populations(3, n_particles)) for f in (visit, move))
    for key, value in found.items():
        np.testing.assert_allclose(value, expected[key], **TOLERANCE, err_msg=key)


@pytest.mark.parametrize("name", ENGINES)
def test_inputs_keys_and_positions_each_make_a_difference(name):
    positions, inputs, keys = populations(2, 20)
    positions[1], keys[1] = positions[0], keys[0]
    same_inputs = [np.repeat(one[:1], 2, axis=0) for one in inputs]
    moved = move(build_engine(name), positions, same_inputs, keys)
    assert all(np.array_equal(*value) for value in moved.values())
    centre, level = inputs
    for changed in ([centre, same_inputs[1]], [same_inputs[0], level]):
        moved = move(build_engine(name), positions, changed, keys)
        assert np.all(moved["moved.position"][0] != moved["moved.position"][1])
        np.testing.assert_array_equal(*moved["start.momentum"])


@pytest.mark.parametrize("name", ENGINES)
def test_the_number_of_threads_makes_no_difference(name, monkeypatch):
    engine = build_engine(name)
    if name == "jax":
        monkeypatch.setattr(jax_module, "_PARTICLES", 16)  # several tiles
    results = []
    for cores in (1, 2, 7):
        engine.set_cores(cores)
        results.append(move(engine, *populations(5, 60)))
    assert_equal(results[1], results[0])
    assert_equal(results[2], results[0])


@pytest.mark.every(2)
@pytest.mark.few(3)
@needs_jax
@pytest.mark.parametrize(
    ("n_populations", "n_particles"),
    [
        pytest.param(1, 2, id="fewer populations than a tile has"),
        pytest.param(11, 2, id="more, but no multiple"),
        pytest.param(2, 32, id="two tiles a population"),
        pytest.param(3, 37, id="particles that no tile divides"),
        pytest.param(1, 17, id="one more than a tile"),
    ],
)
def test_what_fills_a_tile_up_changes_nothing(n_populations, n_particles, monkeypatch):
    engine, given = build_engine("jax"), populations(n_populations, n_particles)
    monkeypatch.setattr(jax_module, "_PARTICLES", 16)
    together = move(engine, *given)
    assert_equal(together, one_by_one(engine, *given))
    for key, value in move(build_engine("python"), *given).items():
        np.testing.assert_allclose(together[key], value, **TOLERANCE, err_msg=key)


@needs_jax
def test_with_many_rows_of_data_a_call_moves_fewer_particles(monkeypatch):
    monkeypatch.setattr(jax_module, "_ELEMENTS", 1000)
    whole, given = build_engine("jax"), populations(2, 20)
    engine = jax_module.JaxEngine(build_density(jnp), [WEIGHTS], 2, inputs=(np.zeros(2), np.zeros(())), width=150)
    assert {len(tile.particles) for tile in engine._tiles((2, 20))} == {5}  # 6 would fit, and four times 5 make 20
    for key, value in move(engine, *given).items():
        np.testing.assert_allclose(value, move(whole, *given)[key], **TOLERANCE, err_msg=key)
    widest = jax_module.JaxEngine(build_density(jnp), [WEIGHTS], 2, inputs=given[1], width=10**9)
    assert {len(tile.particles) for tile in widest._tiles((1, 20))} == {4}


@needs_jax
def test_any_number_of_populations_runs_the_same_programs():
    engine = jax_module.JaxEngine(build_density(jnp), [WEIGHTS], 2, inputs=(np.zeros(2), np.zeros(())))
    for n in (1, 3, 8, 20):
        move(engine, *populations(n, 60))
    assert len(engine._programs) == 1  # it starts particles as well


@pytest.mark.parametrize("name", ENGINES[:2])
def test_a_start_is_evaluated_wherever_it_is(name):
    """The density is zero, infinite or NaN, and so is the gradient; the momenta are normal numbers all the same."""
    positions, inputs, keys = populations(2, 20)
    expected = build_engine(name).start(positions, inputs, keys)
    positions[0, :3] = [[800.0, 0.0], [np.inf, 0.0], [np.nan, 0.0]]
    found = build_engine(name).start(positions, inputs, keys)
    for one, value in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(one)[0, 3:], np.asarray(value)[0, 3:])
    np.testing.assert_array_equal(found.momentum, expected.momentum)
    with np.errstate(all="ignore"):
        values = [build_density(np)(x, *(one[0] for one in inputs), WEIGHTS) for x in positions[0, :3]]
    for found_one, value in zip(found[2:], zip(*values, strict=True), strict=True):
        np.testing.assert_allclose(np.asarray(found_one)[0, :3], value, rtol=1e-12)


@pytest.mark.parametrize("name", ENGINES)
def test_annealed_together_they_are_annealed_one_by_one(name):
    engine, (positions, inputs, keys) = build_engine(name), populations(3, 60)
    index = np.repeat(np.arange(8), 5)  # a segment, and a chance to resample, every five steps
    plan = replace(build_plan(np.linspace(0.0, 1.0, 41) ** 3, 0.5, [METRIC] * 8, index), resample_below=0.9)
    rngs = [np.random.default_rng(b) for b in range(3)]
    run = anneal(engine, plan, start(engine, positions, keys, rngs, inputs))
    assert np.all(run.n_resampled > 0)
    for b in range(3):
        rows = slice(b, b + 1)
        particles = start(
            engine, positions[rows], keys[rows], [np.random.default_rng(b)], [one[rows] for one in inputs]
        )
        alone, ours = anneal(engine, plan, particles), run.select(rows)
        for field in ("log_z", "log_weights", "ancestors", "acceptance_rate", "n_divergent", "n_resampled"):
            np.testing.assert_array_equal(getattr(ours, field), getattr(alone, field), err_msg=field)
        np.testing.assert_array_equal(ours.state.position, alone.state.position)


@pytest.mark.parametrize("name", ENGINES)
def test_another_path_shares_the_density_and_has_inputs_of_its_own(name):
    beside = [(np.array([1.0, -1.0]), 0.2 * np.eye(2), 0.3)]
    engine, (positions, inputs, keys) = build_engine(name), populations(4, 30)
    centres = np.random.default_rng(5).normal(size=(4, 2))
    path = Defended.from_fit(4.0, np.array([[0.8, 0.0], [0.3, 0.5]]), 0.2, beside=beside)
    along = engine.along(path)
    assert along.path is path
    assert engine.path.name == "geometric"
    together = move(along, positions, [*inputs, centres], keys)
    assert_equal(together, one_by_one(along, positions, [*inputs, centres], keys))
    for key, value in move(build_engine("python").along(path), positions, [*inputs, centres], keys).items():
        np.testing.assert_allclose(together[key], value, **TOLERANCE, err_msg=key)
    # The engine that it was made of goes on as before, and without a fit the new one is that engine.
    before, without = move(engine, positions, inputs, keys), engine.along(Defended.from_fit(np.inf, np.eye(2), 1.0))
    assert_equal(move(without, positions, [*inputs, centres], keys), before)


@pytest.mark.parametrize("name", ENGINES)
def test_tuned_data_may_be_others_without_compiling_again(name):
    engine, given = build_engine(name), populations(2, 20)
    other = engine.along(engine.path, [np.array([1.0, 9.0])])
    moved, before = move(other, *given), move(engine, *given)
    assert np.all(moved["start.log_ratio"] != before["start.log_ratio"])
    np.testing.assert_array_equal(moved["start.momentum"], before["start.momentum"])
    y = np.array([1.0, 9.0]) * np.exp(given[0] - given[1][0][:, None])
    expected = np.sum(given[1][1][:, None, None] * given[0] - y, axis=-1)
    np.testing.assert_allclose(moved["start.log_ratio"], expected)
