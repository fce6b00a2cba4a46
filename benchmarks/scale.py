"""How the cost grows: with workers, dimensions, rows, chains and data sets, and what sharing and keeping cost.

``python benchmarks/scale.py SECTION ... [--chains N] [--repeats N]``; sections: workers, weigh, memory, checkpoint,
killed, rows, dims, chains, study, study_prior.
"""

import argparse
import logging
import time
import warnings
from statistics import median

import numpy as np
import pymc as pm
import scale_workers
from cases import build
from models import gaussian
from scipy.stats import multivariate_normal, multivariate_t

import pymc_hais

#: What :func:`cost` tells.
COST = ["million gradients", "round s", "us a move"]


def cost(attrs) -> str:
    """Return the evaluations of a run's rounds, their seconds, and seconds for each move of a particle."""
    evaluations = attrs["n_gradients"]
    return f"{evaluations / 1e6:.2f} | {attrs['sampling_time']:.1f} | {1e6 * attrs['sampling_time'] / evaluations:.2f}"


def rows(sizes: tuple[int, ...]) -> None:
    """Held-out rows of a model with two latent variables."""
    rng = np.random.default_rng(0)
    basis = rng.normal(size=(5, 2))
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 1.0, shape=2)
        pm.Normal("x", basis @ a, 0.3, observed=np.zeros(5))
    names = ["rows", "s", "CPU s", "million gradients", "CPU us each", "error of the mean", "mcse", "rms error / se"]
    print(f"| {' | '.join(names)} |\n" + "| --- " * len(names) + "|")
    for n in sizes:
        x = rng.normal(size=(n, 2)) @ basis.T + 0.3 * rng.normal(size=(n, 5))
        begin, cpu = time.perf_counter(), time.process_time()
        found = pymc_hais.log_likelihood(model, {"x": x}, random_seed=1, progressbar=False)["held_out"]
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
        exact = multivariate_normal(np.zeros(5), basis @ basis.T + 0.09 * np.eye(5)).logpdf(x)
        error, gradients = found["value"].values - exact, found.attrs["n_gradients"] / 1e6
        rms = np.sqrt(np.mean((error / found["se"].values) ** 2))
        errors = f"{error.mean():+.5f} | {float(found['mcse']):.5f} | {rms:.2f}"
        print(f"| {n} | {seconds:.1f} | {cpu:.1f} | {gradients:.2f} | {cpu / gradients:.2f} | {errors} |", flush=True)


def dims(sizes: tuple[int, ...]) -> None:
    """A normal with conjugate data, 4 x 250 particles; a second call, beside the seconds of the first."""
    names = ["D", "first call s", "s", "CPU s", "pilot s", "T", *COST, "ns a move and D", "error", "se"]
    print(f"| {' | '.join(names)} |\n" + "| --- " * len(names) + "|")
    for n in sizes:
        model, truth = gaussian(n)
        begin = time.perf_counter()
        pymc_hais.sample_hais(250, model=model, target_se=None, random_seed=1, progressbar=False)
        first = time.perf_counter() - begin
        begin, cpu = time.perf_counter(), time.process_time()
        idata = pymc_hais.sample_hais(250, model=model, target_se=None, random_seed=1, progressbar=False)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
        estimate, attrs = pymc_hais.log_marginal_likelihood(idata), idata["posterior"].attrs
        each = 1e9 * attrs["sampling_time"] / attrs["n_gradients"] / n
        whole = f"{first:.1f} | {seconds:.1f} | {cpu:.1f} | {attrs['pilot_time']:.1f} | {attrs['n_temperatures']}"
        error = f"{estimate.value - truth:+.3f} | {estimate.se:.3f}"
        print(f"| {n} | {whole} | {cost(attrs)} | {each:.1f} | {error} |", flush=True)


def chains(sizes: tuple[int, ...], repeats: int) -> None:
    """Chains of 1,000 particles along one plan, after a first call."""
    model, truth, _ = build("logistic_uci:sonar")
    plan = pymc_hais.sample_hais(model=model, random_seed=1, target_se=None, progressbar=False)
    print(f"| chains | s | CPU s | {' | '.join(COST)} | error | se |\n" + "| --- " * 8 + "|")
    for n in sizes:
        seen = []
        for _ in range(repeats):
            begin, cpu = time.perf_counter(), time.process_time()
            idata = pymc_hais.sample_hais(
                model=model, chains=n, plan=plan, random_seed=2, target_se=None, progressbar=False
            )
            seen.append((time.perf_counter() - begin, time.process_time() - cpu, idata))
        seconds, cpu, idata = sorted(seen, key=lambda one: one[0])[len(seen) // 2]
        estimate, attrs = pymc_hais.log_marginal_likelihood(idata), idata["posterior"].attrs
        error = f"{estimate.value - truth:+.4f} | {estimate.se:.4f}"
        print(f"| {n} | {seconds:.1f} | {cpu:.1f} | {cost(attrs)} | {error} |", flush=True)


def regression(X: np.ndarray, y: np.ndarray) -> pm.Model:
    """A conjugate regression with unknown noise: log Z is a multivariate Student-t."""
    with pm.Model() as model:
        design, outcome = pm.Data("X", X), pm.Data("outcome", y)
        variance = pm.InverseGamma("variance", 3.0, 3.0)
        scale = pm.math.sqrt(variance)
        b = pm.Normal("b", 0.0, 1.0, shape=X.shape[1])
        pm.Normal("y", scale * (design @ b), scale, observed=outcome)
    return model


def simulate(rng: np.random.Generator, X: np.ndarray, n_sets: int, is_of_one_truth: bool) -> list[np.ndarray]:
    """Simulate data sets of one true parameter, or each of its own prior draw."""
    data = []
    for i in range(n_sets):
        if i == 0 or not is_of_one_truth:
            slopes, scale = rng.normal(size=X.shape[1]), np.sqrt(3.0 / rng.gamma(3.0))
        data.append(scale * (X @ slopes + rng.normal(size=len(X))))
    return data


def exact(X: np.ndarray, y: np.ndarray) -> float:
    return float(multivariate_t(np.zeros(len(y)), np.eye(len(y)) + X @ X.T, df=6.0).logpdf(y))


def study(n_sets: int, n_anew: int, is_of_one_truth: bool) -> None:
    """Data sets of one regression: one compilation, and one plan, for all; beside a new model each time."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(200), rng.normal(size=(200, 9))])
    data = simulate(rng, X, n_sets, is_of_one_truth)
    truth = [exact(X, y) for y in data]
    ways = {
        "a new model each": lambda: anew(X, data[:n_anew]),
        "compiled once": lambda: compiled(X, data, "auto", has_plan=False),
        "compiled once, a plan from a fit": lambda: compiled(X, data, "auto", has_plan=True),
        "compiled once, a plan from the prior": lambda: compiled(X, data, "prior", has_plan=True),
    }
    print("| way | data sets | s | CPU s | s a data set | CPU s | median se | rms error / se | largest | findings |")
    print("| --- " * 10 + "|")
    for name, way in ways.items():
        begin, cpu = time.perf_counter(), time.process_time()
        estimates = way()
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
        scores = np.array([(one.value - value) / one.se for one, value in zip(estimates, truth, strict=False)])
        named = [finding.name for one in estimates for finding in one.findings]
        told = ", ".join(f"{one} {named.count(one)}" for one in sorted(set(named))) or "-"
        n, se = len(estimates), median(one.se for one in estimates)
        print(
            f"| {name} | {n} | {seconds:.1f} | {cpu:.1f} | {seconds / n:.2f} | {cpu / n:.2f} | {se:.3f} | "
            f"{np.sqrt(np.mean(scores**2)):.2f} | {np.abs(scores).max():.1f} | {told} |",
            flush=True,
        )


def anew(X: np.ndarray, data: list[np.ndarray]) -> list:
    return [_estimate(pm.sample_hais(model=regression(X, y), **_of(i))) for i, y in enumerate(data)]


def compiled(X: np.ndarray, data: list[np.ndarray], reference: str, has_plan: bool) -> list:
    model = regression(X, data[0])
    program = pymc_hais.compile(model, reference=reference)
    plan = pm.sample_hais(model=program, **_of(len(data))) if has_plan else None
    found = []
    for i, y in enumerate(data):
        pm.set_data({"outcome": y}, model=model)
        found.append(_estimate(pm.sample_hais(model=program, plan=plan, **_of(i))))
    return found


def _of(i: int) -> dict:
    # A plan that does not fit would else be followed by rounds of up to 10,000 temperatures.
    return {"random_seed": i, "progressbar": False, "max_temperatures": 500}


def _estimate(idata):
    return pymc_hais.log_marginal_likelihood(idata)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="+")
    parser.add_argument("--chains", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="*")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    sections = {
        "workers": lambda: scale_workers.workers(options.chains, options.repeats),
        "weigh": lambda: scale_workers.weigh(options.sizes or (10, 100, 1000, 10_000)),
        "memory": lambda: scale_workers.memory(options.sizes or (10, 100, 1000, 10_000)),
        "checkpoint": lambda: scale_workers.checkpoints(options.chains, options.repeats),
        "killed": lambda: scale_workers.killed(options.chains),
        "rows": lambda: rows(options.sizes or (100, 1000, 10_000, 100_000)),
        "dims": lambda: dims(options.sizes or (10, 100, 1000, 10_000)),
        "chains": lambda: chains(options.sizes or (4, 8, 16, 32, 64), options.repeats),
        "study": lambda: study(200, 10, is_of_one_truth=True),
        "study_prior": lambda: study(20, 5, is_of_one_truth=False),
    }
    for section in options.sections:
        print(f"\n## {section}\n", flush=True)
        sections[section]()


if __name__ == "__main__":
    main()
