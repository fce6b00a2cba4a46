"""Maximum likelihood for the image models, by gradient ascent with persistent Hamiltonian Monte Carlo.

The gradient of a log-likelihood is a mean over states that are being sampled while the parameters move:

- a generative model p(x, a) needs causes a of each training row given that row: grad log p(x) = E[grad log p(x, a)];
- an analysis model exp(-E(x)) / Z needs points of the model: grad log p(x) = -grad E(x) + E_model[grad E].

A Hamiltonian trajectory before each step keeps the states where they belong.  It is the same for every model: the
density and both its gradients come from ``build_model`` itself, called with symbols instead of numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import vectorize_graph

Parameters = dict[str, np.ndarray]

N_LEAPFROG = 10
#: A generative model takes so many rows, all in every step: causes left behind by their parameters would shrink those.
N_ROWS = 2000
#: Trajectories of their causes before the first step.
N_SETTLE = 30
#: Rows in a step of an analysis model, and points of the model that stand for its normalising constant.
BATCH, N_CHAINS = 300, 500
#: Steps of the parameters: small where the causes have to follow within the noise.
RATES = {"generative": 0.003, "analysis": 0.01}
MOMENTUM, SQUARES = 0.9, 0.99


@dataclass(frozen=True)
class Density:
    """Log density of many states (n, D), and its gradients, as functions of (state, rows, parameters).

    ``in_state`` returns log densities (n,) and gradients (n, D); ``in_parameters`` the gradient of their mean.
    """

    is_generative: bool
    n_dims: int
    in_state: Callable
    in_parameters: Callable


def compile_density(build_model: Callable[[dict], pm.Model], parameters: Parameters) -> Density:
    """Compile the density of a model of one row for many rows and any values of the parameters."""
    symbols = {name: pt.tensor(name, shape=np.shape(value), dtype="float64") for name, value in parameters.items()}
    model = build_model(symbols)
    sizes = [int(np.prod(value.type.shape)) for value in model.value_vars]
    n_dims, n_observed = sum(sizes), sum(model.rvs_to_values[row].type.shape[0] for row in model.observed_RVs)
    both = pt.tensor("both", shape=(None, n_dims + n_observed), dtype="float64")  # so that they have one length
    state, rows = both[:, :n_dims], both[:, n_dims:]
    ends = np.cumsum([0, *sizes])
    batched = {value: state[:, ends[i] : ends[i + 1]] for i, value in enumerate(model.value_vars)}
    batched |= {model.rvs_to_values[variable]: rows for variable in model.observed_RVs}
    log_density = vectorize_graph(model.logp(), batched)
    inputs = [both, *symbols.values()]
    in_state = pytensor.function(inputs, [log_density, pt.grad(log_density.sum(), state)], mode="JAX")
    gradients = pt.grad(log_density.mean(), list(symbols.values()))
    in_parameters = pytensor.function(inputs, gradients, mode="JAX")

    def call(function: Callable, state: np.ndarray, rows: np.ndarray, values: Parameters) -> list[np.ndarray]:
        joined = np.hstack([state, rows])
        return [np.asarray(result) for result in function(joined, *(values[name] for name in symbols))]

    return Density(
        bool(model.observed_RVs),
        n_dims,
        lambda *given: call(in_state, *given),
        lambda *given: dict(zip(symbols, call(in_parameters, *given), strict=True)),
    )


class Chains:
    """Hamiltonian chains, one a state, that go on while the parameters change; the step size follows acceptance."""

    def __init__(self, density: Density, states: np.ndarray, rng: np.random.Generator, step_size: float = 0.1):
        self.density, self.states, self.rng, self.step_size = density, states, rng, step_size

    def move(self, rows: np.ndarray, parameters: Parameters) -> np.ndarray:
        """Make one trajectory of all states (n, D) and return them."""
        start = self.states
        velocity = self.rng.normal(size=start.shape)
        size = self.step_size * self.rng.uniform(0.8, 1.2)
        log_density, gradient = self.density.in_state(start, rows, parameters)
        x, v, before = start, velocity, log_density - 0.5 * np.sum(velocity**2, axis=1)
        for _ in range(N_LEAPFROG):
            v = v + 0.5 * size * gradient
            x = x + size * v
            log_density, gradient = self.density.in_state(x, rows, parameters)
            v = v + 0.5 * size * gradient
        with np.errstate(over="ignore", invalid="ignore"):  # a trajectory that flew away is rejected
            rise = log_density - 0.5 * np.sum(v**2, axis=1) - before
        accepted = np.log(self.rng.uniform(size=len(x))) < np.where(np.isfinite(rise), rise, -np.inf)
        self.step_size *= np.exp(0.1 * (accepted.mean() - 0.8))
        self.states = np.where(accepted[:, None], x, start)
        return self.states


@dataclass
class Ascent:
    """Adam (Kingma & Ba 2015), its rate falling linearly to nothing over a number of steps."""

    parameters: Parameters
    rate: float
    n_steps: int

    def __post_init__(self):
        self.mean = {name: np.zeros_like(value) for name, value in self.parameters.items()}
        self.square = {name: np.zeros_like(value) for name, value in self.parameters.items()}

    def climb(self, step: int, gradient: Parameters) -> Parameters:
        rate = self.rate * (1.0 - step / self.n_steps)
        for name, g in gradient.items():
            self.mean[name] = MOMENTUM * self.mean[name] + (1.0 - MOMENTUM) * g
            self.square[name] = SQUARES * self.square[name] + (1.0 - SQUARES) * g**2
            mean = self.mean[name] / (1.0 - MOMENTUM ** (step + 1))
            spread = np.sqrt(self.square[name] / (1.0 - SQUARES ** (step + 1)))
            self.parameters[name] = self.parameters[name] + rate * mean / (spread + 1e-8)
        return self.parameters


def train(
    build_model: Callable[[dict], pm.Model],
    parameters: Parameters,
    patches: np.ndarray,
    project: Callable[[Parameters], Parameters] = dict,
    n_steps: int = 1000,
    seed: int = 0,
) -> Parameters:
    """Return parameters that raise the likelihood of the patches (N, M), from where they are.

    ``project`` puts parameters back where they are allowed, after every step.  The result is the mean over the last
    quarter of the steps.
    """
    density, rng = compile_density(build_model, parameters), np.random.default_rng(seed)
    follow = _follow_causes if density.is_generative else _follow_model
    gradient = follow(density, patches, rng, parameters)
    ascent = Ascent(dict(parameters), RATES["generative" if density.is_generative else "analysis"], n_steps)
    total = {name: np.zeros_like(value) for name, value in parameters.items()}
    first = n_steps - max(n_steps // 4, 1)
    for step in range(n_steps):
        ascent.parameters = project(ascent.climb(step, gradient(ascent.parameters)))
        if step >= first:
            total = {name: total[name] + value for name, value in ascent.parameters.items()}
    return {name: value / (n_steps - first) for name, value in total.items()}


def _follow_causes(density: Density, patches: np.ndarray, rng: np.random.Generator, start: Parameters) -> Callable:
    """Follow the causes of each row; the gradient is that of the complete data."""
    rows = patches[:N_ROWS]
    chains = Chains(density, 0.1 * rng.normal(size=(len(rows), density.n_dims)), rng)
    for _ in range(N_SETTLE):  # far from their posterior, causes would tear at the parameters
        chains.move(rows, start)
    return lambda parameters: density.in_parameters(chains.move(rows, parameters), rows, parameters)


def _follow_model(density: Density, patches: np.ndarray, rng: np.random.Generator, start: Parameters) -> Callable:
    """Follow points of the model, which start at patches; the gradient is data minus model."""
    chains = Chains(density, patches[rng.choice(len(patches), N_CHAINS)], rng)
    nothing = np.zeros((max(N_CHAINS, BATCH), 0))  # an analysis model has no rows beside its states

    def gradient(parameters: Parameters) -> Parameters:
        data = patches[rng.choice(len(patches), min(BATCH, len(patches)), replace=False)]
        of_data = density.in_parameters(data, nothing[: len(data)], parameters)
        points = chains.move(nothing[:N_CHAINS], parameters)
        of_model = density.in_parameters(points, nothing[:N_CHAINS], parameters)
        return {name: of_data[name] - of_model[name] for name in of_data}

    return gradient
