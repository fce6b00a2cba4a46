"""The way to a reference model: it is learnt, whatever the kernel of the way from there."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

from pymc_hais.kernels import Hamiltonian, RandomWalk
from pymc_hais.planning import building
from tests.mutants import mutate
from tests.runs import build_pilot, call_of

PILOT = build_pilot()


class Followed(Exception):
    pass


def plan_to_the_reference(**options):
    """Return the plan along which draws of a reference model are annealed, for a run with these options."""

    def anneal(engine, plan, particles, report):
        raise Followed(plan)

    with pm.Model() as model:
        pm.Normal("x")
    engine = SimpleNamespace(kernel=Hamiltonian())
    problem = SimpleNamespace(engine=engine, model=None, draw=lambda rows, streams, n: None)
    known = {"with_reference": lambda *given: given[2], "check_same_variables": lambda *_: None}
    module = mutate(building, anneal=anneal, **known)
    source, call = (problem, SimpleNamespace(pilot=PILOT)), call_of(model, **options)
    with pytest.raises(Followed) as caught:
        module.build_ratio_problem(None, *source, call).draw(100, np.random.SeedSequence(0))
    return caught.value.args[0]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kernel": Hamiltonian(step_size=0.02)},
        {"kernel": RandomWalk(step_size=0.02), "schedule": "linear", "n_temperatures": 30},
        {"kernel": Hamiltonian(damping=0.1)},
    ],
    ids=["default", "step", "walk", "damping"],
)
def test_steps_metrics_and_refresh_are_those_of_its_pilot(options):
    plan = plan_to_the_reference(**options)
    # Those of the stages at their betas, and between neighbours elsewhere.
    at = np.interp(np.log(plan.schedule.betas[1:]), np.log(PILOT.betas), np.log(PILOT.step_sizes))
    np.testing.assert_allclose(plan.step_sizes, np.exp(at))
    assert [metric.tolist() for metric in plan.metrics] == [metric.tolist() for metric in PILOT.metrics]
    np.testing.assert_allclose(plan.persistence, np.exp(-0.5 * 2.0 * plan.step_sizes))  # a damping of 2


def test_whether_to_resample_is_the_users():
    assert plan_to_the_reference().resample_below == 0.5
    assert plan_to_the_reference(resample=False).resample_below == 0.0
