"""How models of image patches are trained: the methods, and what a fit leaves behind.

Analysis models by minimum probability flow with L-BFGS, as in section 4 of arXiv:1205.1925, and by persistent chains;
generative models by expectation maximisation with persistent Hamiltonian chains.
"""

import json
import time
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pymc as pm

import pymc_hais
from pymc_hais import learning

METHODS = {
    "closed form": None,
    "EM": learning.ExpectationMaximization(n_settle=500),
    # Steps of one standard deviation, the default, are ruled by rows far out: 0.5 nats a row are lost by them here.
    "flow": learning.MinimumProbabilityFlow(n_neighbours=8, scale=0.3),
    "chains": learning.StochasticMaximumLikelihood(),
}
#: Causes that are drawn, and not integrated out, make gradients far noisier than the likelihood's own, with noise of
#: 0.1: the defaults, steps of 0.01 with 256 rows, ended 2 nats a row below these, and seemed to have converged.
STEADY = {"optimizer": pm.adam(learning_rate=0.003), "batch_size": 1024}

#: Of the gradient, in standard errors: with another sample of rows it would differ by ten times as much.
TOLERANCE = 0.1


@dataclass(frozen=True)
class Trained:
    """A model of one row that has been trained.

    ``way`` holds parameters before the end, by the step that they belong to: of noisy steps the mean over the last
    quarter of those until then, as it is at the end.
    """

    model: pm.Model
    parameters: dict[str, np.ndarray]
    findings: list[str]
    n_steps: int
    seconds: float  # of processor time
    way: dict[int, dict[str, np.ndarray]]


def train(
    module: ModuleType, patches: np.ndarray, size: int, method: str, n_steps: int, n_points: int = 3, seed: int = 2012
) -> Trained:
    """Train a model of one of this folder's modules, and keep ``n_points`` of the way there."""
    begin = time.process_time()
    if METHODS[method] is None:
        parameters = module.maximise_likelihood(patches, size)
        return Trained(module.build_model(parameters), parameters, [], 0, time.process_time() - begin, {})
    model = module.build_model(module.initialise(patches, size))
    settings = {"n_steps": n_steps, "tolerance": TOLERANCE, "random_seed": seed, "progressbar": False}
    settings |= {} if method == "flow" else STEADY | {"batch_size": min(STEADY["batch_size"], len(patches))}
    result = pymc_hais.fit(model, {"x": patches}, module.LEARNT, METHODS[method], **settings)
    told, steps = result["learning"].attrs, result["parameters"]["step"].values
    way = {}
    for end in (told["n_steps"] * i / n_points for i in range(n_points)):
        kept = near(steps, end, is_noisy=method != "flow")
        way[int(steps[kept][-1])] = {
            name: result["parameters"][name].values[kept].mean(axis=0) for name in module.LEARNT
        }
    parameters = {name: model[name].get_value() for name in module.LEARNT}
    return Trained(model, parameters, names_of_findings(told), told["n_steps"], time.process_time() - begin, way)


def near(steps: np.ndarray, end: float, is_noisy: bool) -> slice:
    """Return which kept steps represent a step: the last one before it, or, for noisy methods, the last quarter."""
    last = max(int(np.searchsorted(steps, end, side="right")), 1)
    first = int(np.searchsorted(steps, 0.75 * end)) if is_noisy else last - 1
    return slice(min(first, last - 1), last)


def names_of_findings(attrs) -> list[str]:
    return [finding["name"] for finding in json.loads(attrs["findings"])]
