"""Held-out patches under models with one to four times as many sources as dimensions.

Beside them a product of Student-t experts, and a normal distribution.  Rows of the overcomplete models are annealed
from around their Gibbs draws; the complete model and the normal distribution have closed forms.  Patches have 8 x 8
pixels and their 31 leading components are taken, or with ``--width 16`` 16 x 16 pixels and 36 components.
``python -m examples.overcomplete.compare [--small] [--width 16]``
"""

import argparse
import logging
import time

import numpy as np
from scipy.stats import multivariate_normal

import pymc_hais
from examples.image_models import poe_student
from examples.image_models.patches import Patches
from examples.overcomplete.data import load_rows
from examples.overcomplete.scoring import names_of, score
from examples.overcomplete.training import fit

COMPONENTS = {8: 31, 16: 36}


def normal(patches: Patches) -> np.ndarray:
    """Return log p(x) of the held-out rows under the normal distribution of the training rows."""
    train = patches.train
    return multivariate_normal(train.mean(axis=0), np.cov(train, rowvar=False)).logpdf(patches.test)


def experts(patches: Patches, n_experts: int, n_steps: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Fit a product of Student-t experts; return log p of the held-out rows, and the error of log Z."""
    model = poe_student.build_model(poe_student.initialise(patches.train, n_experts))
    fitted = pymc_hais.fit(
        model, {"x": patches.train}, poe_student.LEARNT, poe_student.METHOD, n_steps=n_steps, random_seed=1,
        progressbar=False,
    )  # fmt: skip
    found = pymc_hais.log_likelihood(model, {"x": patches.test}, random_seed=1, progressbar=False)["held_out"]
    return found["value"].values, float(found["mcse"]), names_of(fitted["learning"]) + names_of(found)


def line(
    name: str, values: np.ndarray, errors, base: np.ndarray, findings: list[str], seconds: float | None = None
) -> str:
    """Return one line: mean, Monte Carlo error, difference from the complete model with its error over rows."""
    error = float(np.sqrt(np.sum(np.square(errors))) / len(values)) if np.ndim(errors) else errors
    apart = values - base
    spread = apart.std(ddof=1) / np.sqrt(len(apart))
    gain = f"{apart.mean():+7.3f} ± {spread:.3f}"
    took = "" if seconds is None else f"{seconds:8.0f} s"
    return f"{name:24s}{values.mean():9.3f} ± {error:.3f} {gain} {took}  {' '.join(findings)}".rstrip()


def main(small: bool, width: int) -> None:
    logging.getLogger("pymc").setLevel(logging.ERROR)
    n_components, sizes = (15, (1, 2)) if small else (COMPONENTS[width], (1, 2, 3, 4))
    n_train, n_test, n_steps = (5000, 40, 800) if small else (20_000, 200, 4000)
    patches = load_rows(width, n_components, n_train, n_test)
    print(f"{patches.source}: {n_components} components, {n_test} held-out rows, nats per row")
    print("Mean and Monte Carlo error; difference from the complete model and its error over rows; seconds of CPU")
    base = None
    for size in sizes:
        begin = time.process_time()
        fitted = fit(patches.train, size * n_components, n_steps)
        values, errors, findings = score(patches.test, fitted.a, fitted.source, target_se=0.3)
        base = values if base is None else base
        seconds = time.process_time() - begin
        findings = names_of(fitted.tree["learning"]) + findings
        print(line(f"{size} x complete", values, errors, base, findings, seconds), flush=True)
    print(line("normal", normal(patches), 0.0, base, []))
    for size in sizes[:2]:
        begin = time.process_time()
        values, error, findings = experts(patches, size * n_components, n_steps)
        seconds = time.process_time() - begin
        print(line(f"{size} x experts, Student-t", values, error, base, findings, seconds), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--width", type=int, choices=list(COMPONENTS), default=8)
    arguments = parser.parse_args()
    main(arguments.small, arguments.width)
