"""Held-out log-likelihood of the report's linear generative model: accuracy, cost, and how the cost scales.

Run ``python benchmarks/heldout.py`` for the report's size, with ``--scaling`` for rows, particles and latents.
"""

import json
import logging
import sys
import time

import numpy as np
import pymc as pm
from scipy.stats import multivariate_normal

from pymc_hais.calls.heldout import log_likelihood

SIGMA = 0.1


def build(n_latents: int, n_dims: int = 36, seed: int = 0) -> tuple[pm.Model, np.ndarray]:
    """The model of one row, and its basis."""
    phi = np.random.default_rng(seed).normal(size=(n_dims, n_latents)) / np.sqrt(n_latents)
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 1.0, shape=n_latents)
        pm.Normal("x", phi @ a, SIGMA, observed=np.zeros(n_dims))
    return model, phi


def run(n_rows: int = 100, draws: int = 200, n_latents: int = 36, seed: int = 1, **kwargs) -> str:
    """Run once, and describe the outcome on a line."""
    model, phi = build(n_latents)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n_rows, n_latents)) @ phi.T + SIGMA * rng.normal(size=(n_rows, len(phi)))
    exact = multivariate_normal(np.zeros(len(phi)), phi @ phi.T + SIGMA**2 * np.eye(len(phi))).logpdf(x)
    begin, cpu = time.perf_counter(), time.process_time()
    result = log_likelihood(model, {"x": x}, draws=draws, random_seed=seed, progressbar=False, **kwargs)["held_out"]
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    error, se = result["value"].values - exact, result["se"].values
    scores, attrs = error / se, result.attrs
    lengths = "+".join(str(one["n_temperatures"]) for one in json.loads(attrs["rounds"]))
    return (
        f"| {n_rows} | {draws} | {n_latents} | {lengths} | {seconds:.0f} | {cpu:.0f} | {attrs['compile_time']:.0f} | "
        f"{(attrs['n_gradients'] + attrs['n_gradients_pilot']) / 1e6:.2f} | {error.mean():+.4f} | "
        f"{float(result['mcse']):.4f} | {float(result['sem']):.2f} | {se.mean():.3f} | {np.abs(scores).max():.1f} | "
        f"{np.sqrt(np.mean(scores**2)):.2f} |"
    )


def main() -> None:
    logging.getLogger("pymc").setLevel(logging.ERROR)
    print(
        "| rows | particles | latents | T | s | CPU s | compile s | million gradients | error | mcse | sem "
        "| se of a row | max score | rms score |"
    )
    print("|" + " --- |" * 14)
    print(run(), flush=True)
    if "--scaling" in sys.argv:
        for sizes in (
            {"n_rows": 20},
            {"n_rows": 500},
            {"draws": 100},
            {"draws": 800},
            {"n_latents": 9},
            {"n_latents": 72},
        ):
            print(run(**sizes), flush=True)
        print(run(reference="prior"), flush=True)


if __name__ == "__main__":
    main()
