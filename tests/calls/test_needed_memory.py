"""Memory: what is counted before a run is what the run takes, and a density that needs too much is named."""

import resource
import sys

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_hais
from pymc_hais.core.process import bytes_of, check_memory
from tests.density.test_memory import peak
from tests.processes import run_apart
from tests.quick import QUICK, one_mean
from tests.toys import HAS_JAX

CHAINS = 4


def main(few, many, n_dims):
    """Anneal a few particles, then many; print the peak of memory after each in bytes."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0, shape=n_dims)
        pm.Normal("y", x.sum(), 1.0, observed=0.3)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for draws in (few, many):
        pymc_hais.sample_hais(draws, model=model, chains=CHAINS, n_temperatures=5, random_seed=1, progressbar=False)
        print(peak())


def measure(few, many, n_dims):
    """Return how much further a run with many particles takes the peak of a process of its own."""
    program = f"from tests.calls.test_needed_memory import main; main({few}, {many}, {n_dims})"
    before, after = map(float, run_apart(program).splitlines()[-2:])
    return after - before


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize(
    ("few", "many", "n_dims"), [(1000, 10_000, 200), pytest.param(20_000, 100_000, 2, marks=pytest.mark.exhaustive)]
)
def test_a_run_grows_by_what_is_counted_and_not_by_much_less(few, many, n_dims):
    grown = measure(few, many, n_dims)
    counted = bytes_of(CHAINS * (many - few), n_dims)
    assert 0.4 * counted < grown < counted


def test_more_particles_than_the_machine_has_memory_for_are_refused(monkeypatch):
    """100,000 draws x 4 chains x 1,000 dimensions take 44 GB by extrapolation, and at least half of it."""
    monkeypatch.setattr("pymc_hais.core.process.memory", lambda: 22 * 10**9)
    with pytest.raises(ValueError, match="of 1,000 dimensions each, take"):
        check_memory(100_000, 4, 1000)


def test_few_particles_of_many_dimensions_are_refused_before_the_pilot(monkeypatch):
    monkeypatch.setattr("pymc_hais.calls.sample.choose", lambda *_: pytest.fail("work has begun"))
    monkeypatch.setattr("pymc_hais.core.process.memory", lambda: 10**5)
    with pytest.raises(ValueError, match=r"`draws` = .* pass at most"):
        pymc_hais.sample_hais(model=one_mean(), **QUICK)


@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
@pytest.mark.parametrize("backend", ["jax", pytest.param(None, marks=pytest.mark.slow)])
def test_a_density_that_needs_too_much_names_its_widest_term(monkeypatch, backend):
    with pm.Model() as model:
        x = pm.Normal("x", shape=300)
        pm.Potential("pairs", pt.sort(pt.exp(-((x[:, None] - x[None, :]) ** 2)).ravel())[0])
        pm.Normal("y", x.sum(), 1.0, observed=np.zeros(3))
    monkeypatch.setattr("pymc_hais.engines.jax.memory", lambda: 10**6)
    with pytest.raises(
        ValueError, match=r"needs .* this machine has .* Its widest term is `pairs`, with an array of 300 x 300"
    ):
        pymc_hais.sample_hais(model=model, backend=backend, **QUICK)
