"""How soon Gibbs sampling and Hamiltonian transitions forget where they were, by steps and by seconds.

Both are transitions of the package, compiled by the same engine, at beta = 1: the posterior of the sources of one
held-out patch under a trained model of twice as many sources as dimensions.
``python -m examples.overcomplete.autocorrelation [--small]``
"""

import argparse
import logging
import time
from typing import NamedTuple

import matplotlib
import numpy as np
import pymc as pm

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from examples.overcomplete.data import load_rows
from examples.overcomplete.gibbs import GibbsSweeps, SourceGibbs
from examples.overcomplete.model import build_model, null_basis, spread
from examples.overcomplete.training import Fitted, fit
from pymc_hais import Hamiltonian
from pymc_hais.core.records import Segment
from pymc_hais.learning.likelihood.chains import build_chains

#: Autocorrelations are summed up to so many times their sum (Sokal 1997).
_WINDOW = 6.0
#: Gibbs sweeps from the least-norm sources to the posterior.
_SETTLE = 500


class Chains(NamedTuple):
    """Positions (step, chain, N - M), and the seconds of CPU that a step of one chain takes."""

    draws: np.ndarray
    seconds: float


def run(model: pm.Model, kernel, start: np.ndarray, n_steps: int, seed: int = 1) -> Chains:
    """Move chains from start (chain, N - M); step sizes and metric are tuned by a pilot."""
    rng = np.random.default_rng(seed)
    tuned = build_chains(model, [], None, rng, "jax", kernel)
    problem, size = tuned.problem, tuned.step_size
    engine, inputs, keys = problem.engine, problem.inputs([0]), rng.integers(2**32, size=(1, 2), dtype=np.uint32)

    def segment(first: int, n: int) -> Segment:
        sizes = np.full(n, size)
        return Segment(first, np.ones(n + 1), sizes, engine.kernel.persistence(sizes), tuned.metric)

    state = engine.start(problem.to_coordinates(start)[None], inputs, keys)
    draws = np.empty((n_steps, *start.shape))
    for i in range(n_steps):
        state, _ = engine.run_segment(state, inputs, segment(i, 1), keys)
        draws[i] = problem.to_model(np.asarray(state.position[0], float))
    long = segment(n_steps, 200)
    np.asarray(engine.run_segment(state, inputs, long, keys)[0].position)  # compiled
    begin = time.process_time()
    np.asarray(engine.run_segment(state, inputs, long, keys)[0].position)
    return Chains(draws, (time.process_time() - begin) / (200 * len(start)))


def autocorrelations(draws: np.ndarray) -> np.ndarray:
    """Return R(tau) of each chain (chain, step), summed over dimensions; the mean and variance are those of all."""
    n_steps = len(draws)
    away = draws - draws.mean(axis=(0, 1))
    spectrum = np.abs(np.fft.rfft(away, 2 * n_steps, axis=0)) ** 2
    sums = np.fft.irfft(spectrum.sum(axis=-1), axis=0)[:n_steps].T
    return sums / np.arange(n_steps, 0, -1) / (away**2).sum(axis=-1).mean()


def integrated(curves: np.ndarray) -> float:
    """Return 1 + 2 sum R(tau) of the mean curve, up to a window of several of these times."""
    times = 2.0 * np.cumsum(curves.mean(axis=0)) - 1.0
    (ends,) = np.nonzero(np.arange(len(times)) >= _WINDOW * times)
    return float(times[ends[0]] if len(ends) else times[-1])


def with_error(curves: np.ndarray) -> tuple[float, float]:
    """Return the time of autocorrelation (steps) and its standard error, by the jackknife over chains."""
    n = len(curves)
    without = [integrated(np.delete(curves, i, axis=0)) for i in range(n)]
    return integrated(curves), float(np.sqrt((n - 1) * np.var(without)))


def measure(fitted: Fitted, x: np.ndarray, n_chains: int, n_steps: int) -> dict[str, Chains]:
    """Run all transitions from the same points of the posterior of a row (M,)."""
    rows = np.repeat(x[None], n_chains, axis=0)
    values = {"A": fitted.a} | {name: getattr(fitted.source, name) for name in fitted.source.learnt}
    sweeps = GibbsSweeps(fitted.source, _SETTLE)
    s = sweeps(rows, rows @ np.linalg.pinv(fitted.a).T, values, np.random.default_rng(3))
    start = s @ null_basis(fitted.a).T / spread(np.linalg.pinv(fitted.a) @ x, len(x))
    model = build_model(fitted.a, fitted.source, x)
    kernels = {
        "Gibbs": SourceGibbs(fitted.a, fitted.source, x=x),
        "persistent HMC": Hamiltonian(),
        "HMC, 10 leapfrog steps": Hamiltonian(n_leapfrog=10, damping=np.inf),
    }
    return {name: run(model, kernel, start, n_steps) for name, kernel in kernels.items()}


def report(found: dict[str, Chains]) -> None:
    """Print the times of autocorrelation, and ratios of seconds to Gibbs sampling with their errors."""
    times = {name: with_error(autocorrelations(one.draws)) for name, one in found.items()}
    gibbs, seconds = times["Gibbs"], found["Gibbs"].seconds
    print(f"{'transition':24s} {'steps':>14s} {'ms a step':>10s} {'ms':>14s} {'over Gibbs':>15s}")
    for name, (steps, error) in times.items():
        cost = 1e3 * found[name].seconds
        ratio = steps * found[name].seconds / (gibbs[0] * seconds)
        relative = np.hypot(error / steps, gibbs[1] / gibbs[0]) if name != "Gibbs" else 0.0
        line = f"{steps:7.1f} ± {error:4.1f} {cost:10.4f} {steps * cost:7.3f} ± {error * cost:4.3f}"
        print(f"{name:24s} {line} {ratio:7.2f} ± {ratio * relative:5.2f}", flush=True)


def draw(found: dict[str, Chains], longest: int = 100):
    """Draw traces of one chain, and R(tau) against steps and milliseconds; return the figure."""
    figure, (traces, steps, seconds) = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    for i, (name, one) in enumerate(found.items()):
        traces.plot(one.draws[: 2 * longest, 0, 0] - 6.0 * i, lw=0.8, label=name)
        curve = autocorrelations(one.draws).mean(axis=0)[:longest]
        steps.plot(curve, label=name)
        seconds.semilogx(1e3 * one.seconds * np.arange(1, longest), curve[1:], label=name)
    traces.set(xlabel="step", yticks=[], title="one hidden variable of one chain")
    steps.set(xlabel="steps", title="R(tau)")
    seconds.set(xlabel="ms of CPU, one chain", title="R(tau)")
    steps.legend()
    return figure


def main(small: bool) -> None:
    logging.getLogger("pymc").setLevel(logging.ERROR)
    n_components, n_rows, n_fit = (15, 1, 800) if small else (31, 3, 4000)
    patches = load_rows(8, n_components, n_train=20_000, n_test=n_rows)
    fitted = fit(patches.train, 2 * n_components, n_fit)
    print(f"{patches.source}: {n_components} components, {2 * n_components} sources")
    for row, x in enumerate(patches.test):
        print(f"held-out row {row}, of length {np.linalg.norm(x):.1f}")
        found = measure(fitted, x, *((50, 500) if small else (100, 3000)))
        report(found)
    draw(found).savefig("autocorrelation.png", dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    main(parser.parse_args().small)
