"""Modes of continuous variables beside discrete ones: a mass that no particle visited is found and annealed from."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_hais.planning.building import compile_first
from pymc_hais.run.modes.beside_sites import climb_beside_sites, find_states
from tests.front_door import assert_right, estimate
from tests.hills import hilly_model
from tests.runs import build_run, call_of, still


@pytest.mark.slow
def test_modes_that_were_missed_beside_sites_are_annealed_from():
    """Two of four hills in 20 dimensions hold three quarters of Z, and the first run has nothing of them."""
    drawn = hilly_model(1045)
    found, idata = estimate(drawn.model)
    assert not [one for one in found.findings if one.severity == "error"], str(found)
    assert_right(found, drawn.log_z)
    assert "had missed modes" in idata["posterior"].attrs["reference_reason"]


def test_hills_that_move_with_the_sites_are_climbed_at_each_state():
    with pm.Model() as model:
        s = pm.Bernoulli("s", 0.4)
        x = pm.Normal("x", 0.0, 3.0, shape=2)
        terms = [pm.logp(pm.Normal.dist(centre + 0.5 * s, 0.2), x).sum() for centre in (-2.0, 2.0)]
        pm.Potential("hills", pt.logsumexp(pt.stack(terms)))
    problem = compile_first(model, "prior", call_of(model)).problem
    starts = np.array([[-1.0, -1.0, 0.0], [1.0, 1.0, 0.0], [-1.0, -1.0, 1.0], [1.0, 1.0, 1.0], [-1.0, -1.5, 0.0]])
    found = climb_beside_sites(problem, starts, np.ones(3), 50)
    # The normal prior (3.0) pulls each hill (0.2) towards zero, by a factor of 1 / (1 + 0.04 / 9).
    expected = np.array([[-2.0, 0.0], [2.0, 0.0], [-1.5, 1.0], [2.5, 1.0]])
    assert len(found.peaks) == 4
    for centre, state in expected:
        distance = np.abs(found.positions - np.array([centre / (1.0 + 0.04 / 9.0)] * 2 + [state]))
        assert np.min(distance.max(axis=1)) < 1e-3


def test_the_states_of_weighted_particles_are_counted():
    positions = np.array([[[0.3, 1.0], [0.1, 0.0], [0.2, 1.0], [0.5, 1.0]]])
    run = build_run(np.log([[0.1, 0.6, 0.2, 0.1]]), state=still(1, 4, 2)._replace(position=positions))
    states = find_states(run, 1)
    np.testing.assert_array_equal(states.values, [[0.0], [1.0]])
    np.testing.assert_allclose(states.probabilities, [0.6, 0.4])
    np.testing.assert_array_equal(states.of_particles, [1, 0, 1, 1])
