"""Costly densities have smaller pilots, wider stages and cheaper confirmation."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from scipy.integrate import quad
from scipy.special import gammaln
from scipy.stats import norm

from pymc_hais.planning import learning
from pymc_hais.problem.problem import Problem
from tests.front_door import assert_right, estimate
from tests.toys import HAS_JAX


@pytest.mark.parametrize(("grain", "is_costly"), [(1, False), (2, True), (20, True), (21, False), (500, False)])
def test_few_particles_at_a_time_are_a_sign_of_a_costly_density(grain, is_costly):
    problem = SimpleNamespace(engine=SimpleNamespace(grain=lambda n: grain))
    assert Problem.is_costly.fget(problem) is is_costly


@pytest.mark.parametrize(
    ("is_costly", "is_near", "has_fields", "n_particles", "is_wide"),
    [
        *[(False, False, False, 500, False), (True, False, False, 250, True), (False, True, False, 250, False)],
        *[(True, True, False, 250, False), (True, False, True, 250, True), (True, True, True, 125, False)],
    ],
)
def test_pilots_of_costly_densities_are_small_and_their_stages_wide(
    is_costly, is_near, has_fields, n_particles, is_wide, monkeypatch
):
    asked = []

    class Asked(Exception):
        """Ends the test where a pilot would run."""

    def run_pilots(problem, rows, number, runner, *sizes):
        asked.extend(sizes)
        raise Asked

    monkeypatch.setattr(learning, "run_pilots", run_pilots)
    problem = SimpleNamespace(is_costly=is_costly, is_near=is_near, fixes_predictors=has_fields)
    with pytest.raises(Asked):
        learning.learn(problem, [0], 0, None)
    assert asked == [n_particles, is_wide]


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
@pytest.mark.parametrize("seed", [1, 2])
def test_log_z_is_right_where_a_density_counts_as_costly(seed, monkeypatch):
    """One variable has two modes, and the rate a vague prior: few particles and climbs have to see both modes."""
    from pymc_hais.engines import jax as jax_engine

    monkeypatch.setattr(jax_engine, "_ELEMENTS", 1)  # as few particles in a program as there may be
    a, y = 0.01, np.array([1.1, -0.3, 0.7, 2.2])
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("slopes", 0.0, 2.0, shape=4), 1.0, observed=y)
        pm.Poisson("n", pm.Gamma("rate", a, a), observed=7)
        pm.Normal("square", pm.Normal("root") ** 2, 0.2, observed=1.5)
    found, idata = estimate(model, random_seed=seed)
    of_slopes = norm(0.0, np.sqrt(5.0)).logpdf(y).sum()
    of_rate = a * np.log(a) - gammaln(a) + gammaln(a + 7) - (a + 7) * np.log(a + 1) - gammaln(8)
    of_root = np.log(quad(lambda x: norm.pdf(x) * norm(x**2, 0.2).pdf(1.5), -5.0, 5.0, points=[-1.2, 1.2])[0])
    assert_right(found, of_slopes + of_rate + of_root)
    assert found.is_trustworthy
    roots = idata["posterior"]["root"].values
    assert 0.35 < np.mean(roots > 0.0) < 0.65
