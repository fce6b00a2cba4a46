"""Held-out rows of the report's generative models: right within their own errors, row by row?

Run ``python -m benchmarks.image_rows`` from the root: rows with closed forms (linear Gaussian models, Phi = 0), then
log Z of complete experts, then rows of Laplace and bilinear models against long runs from the prior with other random
numbers and ten times the temperatures.  Parameters are known, not trained.  A name such as ``bilinear`` makes one part.
"""

import json
import logging
import sys
import time

import numpy as np

import pymc_hais
from examples.image_models import bilinear, linear_gaussian, linear_laplace, poe_laplace, poe_student
from examples.image_models.filters import NOISE
from examples.product_of_experts import build_filters

MODULES = {"gaussian": linear_gaussian, "laplace": linear_laplace, "bilinear": bilinear}
#: Kind, columns, causes, intensities, rows.
CLOSED = (("gaussian", 8, 3, 0, 1400), ("gaussian", 16, 16, 0, 500), ("gaussian", 36, 36, 0, 500))
SILENT = (("laplace", 8, 12, 0, 300), ("bilinear", 8, 4, 3, 300))
LONG = {
    "laplace": (("laplace", 16, 16, 0, 100), ("laplace", 16, 32, 0, 100)),
    "bilinear": (("bilinear", 16, 8, 8, 60),),
}
#: Temperatures at most, of the rows and of the long runs.
TEMPERATURES = {"laplace": (400, 4000), "bilinear": (2000, 20_000)}
EXPERTS = ((poe_laplace, 1.0), (poe_student, 2.0), (poe_student, 1.5), (poe_student, 1.1))


def build_parameters(kind: str, n_dims: int, n_causes: int, n_intensities: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    phi = {"phi": rng.normal(size=(n_dims, n_causes)) / np.sqrt(n_causes)}
    if kind != "bilinear":
        return phi
    theta = np.eye(n_causes) + 0.2 * rng.normal(size=(n_causes, n_causes))
    return phi | {"theta": theta, "psi": rng.uniform(0.0, 2.0 / n_intensities, size=(n_causes, n_intensities))}


def generate(kind: str, parameters: dict, n: int) -> np.ndarray:
    """Draw rows (n, M) of the model."""
    rng = np.random.default_rng(1)
    n_causes = parameters["phi"].shape[1]
    a = rng.normal(size=(n, n_causes)) if kind == "gaussian" else rng.laplace(size=(n, n_causes))
    if kind == "bilinear":
        d = rng.exponential(size=(n, parameters["psi"].shape[1]))
        a = (a @ parameters["theta"].T) * (d @ parameters["psi"].T)
    return a @ parameters["phi"].T + NOISE * rng.normal(size=(n, len(parameters["phi"])))


def score(kind: str, parameters: dict, x: np.ndarray, seed: int = 1, **settings):
    """Return values and errors (n,), the temperatures of the rounds, the findings, and the seconds of the processor."""
    begin, model = time.process_time(), MODULES[kind].build_model(parameters)
    found = pymc_hais.log_likelihood(model, {"x": x}, random_seed=seed, progressbar=False, **settings)["held_out"]
    lengths = "+".join(str(one["n_temperatures"]) for one in json.loads(found.attrs["rounds"]))
    names = " ".join(one["name"] for one in json.loads(found.attrs["findings"]))
    return found["value"].values, found["se"].values, lengths, names, time.process_time() - begin


def show(what: str, n: int, z: np.ndarray, *others) -> None:
    *others, seconds = others
    tells = f"{np.sqrt(np.mean(z**2)):.2f} | {np.abs(z).max():.1f}" if len(z) else " | "
    print(f"| {what} | {n} | {tells} | " + " | ".join(map(str, others)) + f" | {seconds:.0f} |", flush=True)


def check_closed() -> None:
    for kind, n_dims, n_causes, _, n in CLOSED:
        parameters = build_parameters(kind, n_dims, n_causes, 0)
        x = generate(kind, parameters, n)
        value, se, *others = score(kind, parameters, x)
        z = (value - linear_gaussian.exact_log_likelihood(parameters, x)) / se
        show(f"{kind}, {n_causes} causes, {n_dims} columns", n, z, f"{se.mean():.3f}", *others)
    for kind, n_dims, n_causes, n_intensities, n in SILENT:
        parameters = build_parameters(kind, n_dims, n_causes, n_intensities)
        parameters["phi"] = np.zeros_like(parameters["phi"])
        x = NOISE * np.random.default_rng(2).normal(size=(n, n_dims))
        value, se, *others = score(kind, parameters, x)
        off = np.abs(value - linear_gaussian.exact_log_likelihood(parameters, x)).max()
        show(f"{kind}, Phi = 0: off by at most {off:.0e}", n, np.empty(0), f"{se.mean():.0e}", *others)


def check_experts() -> None:
    for module, weight in EXPERTS:
        parameters = {"phi": build_filters(12)} | ({} if module is poe_laplace else {"weights": np.full(12, weight)})
        begin, model = time.process_time(), module.build_model(parameters)
        found = pymc_hais.log_likelihood(model, {"x": np.zeros((2, 12))}, random_seed=1, progressbar=False)["held_out"]
        error, se = float(found["log_z"]) - module.exact_log_z(parameters), float(found["log_z_se"])
        names = " ".join(one["name"] for one in json.loads(found.attrs["findings"]))
        what = f"{module.__name__.split('.')[-1]}, lambda {weight}: log Z"
        show(what, 1, np.array([error / se]), f"{se:.3f}", "", names, time.process_time() - begin)


def check_long(kind: str) -> None:
    for _, n_dims, n_causes, n_intensities, n in LONG[kind]:
        parameters = build_parameters(kind, n_dims, n_causes, n_intensities)
        x = generate(kind, parameters, n)
        most, ten_times = TEMPERATURES[kind]
        value, se, *others = score(kind, parameters, x, max_temperatures=most)
        long = {"target_se": 0.1 / np.sqrt(10.0), "max_temperatures": ten_times, "reference": "prior"}
        true, error, *of_long = score(kind, parameters, x, 2, **long)
        z = (value - true) / np.hypot(se, error)
        what = f"{kind}, {n_causes} causes, {n_dims} columns, against {of_long[0]} temperatures ({of_long[1]})"
        show(what, n, z, f"{se.mean():.3f}", *others)


def main() -> None:
    logging.getLogger("pymc").setLevel(logging.ERROR)
    logging.getLogger("pymc.hais").setLevel(logging.CRITICAL)
    print("| what | rows | rms z | worst z | se of a row | T | findings | CPU s |\n|" + " --- |" * 8)
    parts = {"closed": check_closed, "experts": check_experts}
    parts |= {kind: lambda kind=kind: check_long(kind) for kind in LONG}
    for name in sys.argv[1:] or parts:
        parts[name]()


if __name__ == "__main__":
    main()
