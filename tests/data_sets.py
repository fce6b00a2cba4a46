"""Many data sets of one conjugate regression along one plan, compiled once; log Z is exact."""

from dataclasses import dataclass, replace

import numpy as np
import pymc as pm

from pymc_hais.inputs.request import read
from pymc_hais.planning.choose import choose
from pymc_hais.planning.starts import Search
from pymc_hais.problem.building import build_problem
from pymc_hais.results.findings.plan import check_plan
from pymc_hais.run.plan import Origin, Plan, Promise
from pymc_hais.run.rounds import run_rounds
from tests.truth import log_evidence_regression


class DataSets:
    """y = X w + noise, with w from its prior ("predictive"), always the same ("like"), or far outside ("gross")."""

    def __init__(self, n_dims=2, n=5, seed=0):
        self._rng = np.random.default_rng(seed)
        self.design = self._rng.normal(size=(n, n_dims))
        self.prior_sd = 2.0
        self._weights = self.prior_sd * self._rng.normal(size=n_dims)
        self.first = self._observe(self._weights)

    def _observe(self, weights):
        return self.design @ weights + self._rng.normal(size=len(self.design))

    def _draw_weights(self, kind):
        if kind == "like":
            return self._weights
        normal = self._rng.normal(size=self._weights.size)
        return self.prior_sd * (normal if kind == "predictive" else 10.0 * np.sign(normal))

    def draw(self, kind, n):
        return [self._observe(self._draw_weights(kind)) for _ in range(n)]

    def log_z(self, y):
        return log_evidence_regression(self.design, y, self.prior_sd, 1.0)

    def model(self):
        with pm.Model() as model:
            w = pm.Normal("w", 0.0, self.prior_sd, shape=self._weights.size)
            pm.Normal("y", pm.math.dot(self.design, w), 1.0, observed=self.first)
        return model


@dataclass(frozen=True)
class Found:
    estimate: object
    rounds: tuple
    is_misfit: bool
    covers: bool


@dataclass(frozen=True)
class LearntPlan:
    sets: DataSets
    problem: object
    plan: Plan
    recipe: object

    def run(self, y, seed, target_se=None):
        """Follow the plan on other data, as ``sample_hais(plan=)`` does once its model is compiled."""
        problem = replace(self.problem, rows={"y": np.asarray(y)[None]})
        call = call_of(problem.model, 1000 + seed, target_se).with_sampling(recipe=self.recipe)
        evidence = run_rounds(problem, replace(self.plan, tail=None), call)
        estimate = evidence.estimate
        misfit = any(check_plan(self.plan, evidence.run))
        return Found(estimate, evidence.row.rounds, misfit, estimate.lower <= self.sets.log_z(y) <= estimate.upper)


def call_of(model, seed, target_se=None):
    numbers = {"backend": "jax", "draws": 500, "chains": 2, "target_se": target_se, "random_seed": seed}
    return read("sample_hais", model, numbers).runner()


def learn(sets, reference):
    """Learn a plan on the first data set."""
    model = sets.model()
    call = call_of(model, 1)
    rows = {"y": sets.first[None]}
    problem = build_problem(model, "prior", call.compiler, call.seeds, rows, reference == "fitted")
    problem, plan = choose(Search(problem, reference, call))
    evidence = run_rounds(problem, plan, call)
    origin = Origin(problem.layout, None, evidence.ladder, Promise.of(evidence.run))
    lengths = np.array([len(evidence.ladder.schedule)])
    return LearntPlan(sets, problem, replace(plan, origin=origin, lengths=lengths), call.sampling.recipe)
