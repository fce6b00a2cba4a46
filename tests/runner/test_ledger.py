"""What a call pays is counted where it is paid, whether or not a result comes of it."""

from types import SimpleNamespace

import numpy as np
import pytest

import pymc_hais
from pymc_hais.calls import sample
from pymc_hais.core.seeds import Branch
from pymc_hais.planning.building import compile_first
from pymc_hais.planning.confirm import anneal_few
from pymc_hais.planning.learning import learn
from pymc_hais.planning.modes.reference import start_beside
from pymc_hais.problem.problem import CHUNK
from pymc_hais.run.modes.climbing import Peak
from pymc_hais.runner.ledger import PILOT
from pymc_hais.tuning import PILOT_PARTICLES
from tests.quick import one_mean
from tests.runs import call_of
from tests.toys import HAS_JAX

pytestmark = pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")


@pytest.fixture(scope="module")
def first():
    """A start that had a pilot."""
    model = one_mean()
    runner = call_of(model, draws=100, chains=2, backend="jax")
    return learn(compile_first(model, "auto", runner).problem, [0], 0, runner)


def test_a_population_that_confirms_a_fit_is_counted(first):
    ledger = first.runner.ledger
    before = ledger.n_gradients
    anneal_few(first.problem, first.plan, first.runner)
    n_particles = max(250, first.problem.engine.tile(PILOT_PARTICLES))
    assert ledger.n_gradients - before == n_particles * (1 + first.length)
    assert ledger.gradients["rounds"] == ledger.n_annealed


def test_a_start_beside_that_is_not_taken_is_counted(first):
    far = Peak(np.array([40.0]), -1.0, np.eye(1), np.eye(1), 0.0)  # no mode is there: hardly any draw counts
    missed, masses = SimpleNamespace(which=[0]), [SimpleNamespace(log_mass=5.0)]
    found = SimpleNamespace(missed=missed, masses=masses, peaks=[far], is_conditional=False)
    positions = first.pilots[0].positions
    weights = np.full((1, len(positions)), -np.log(len(positions)))
    run = SimpleNamespace(log_weights=weights, log_z=np.zeros(1), positions=positions)
    before = first.runner.ledger.gradients[PILOT]
    plan, estimate = first.plan, SimpleNamespace(value=-5.0)
    evidence = SimpleNamespace(problem=first.problem, plan=plan, mass=plan.start.mass, run=run, estimate=estimate)
    assert start_beside(evidence, found, first.runner) is None
    assert first.runner.ledger.gradients[PILOT] - before == CHUNK


def test_runs_within_a_run_share_its_ledger_and_no_random_numbers(first):
    own = first.runner.branch(Branch.FROM_MODES)
    assert own.ledger is first.runner.ledger
    assert own.next_round().number == 1
    assert own.with_sampling(draws=200).next_round().number == 2


def test_other_estimates_are_counted_under_their_own_names(monkeypatch):
    """A bridge evaluates as many draws as there are particles twice, and the way back is as long as a round."""
    kept, ask = [], sample.ask_others
    monkeypatch.setattr(sample, "ask_others", lambda evidence, runner: kept.append(runner) or ask(evidence, runner))
    given = {"n_temperatures": 4, "estimators": "all", "reference": "prior", "target_se": None}
    pymc_hais.sample_hais(100, model=one_mean(), chains=2, random_seed=1, progressbar=False, quiet=True, **given)
    paid = kept[0].ledger.gradients
    assert paid["rounds"] == 200 * (1 + 4)
    assert paid["bidirectional"] % paid["rounds"] == 0 < paid["bidirectional"]
    assert paid["bridge"] == 2 * 200
    assert paid["linked"] > 200
    assert paid["linked"] % 200 == 0
