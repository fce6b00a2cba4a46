"""Held-out log-likelihoods of a trained model: every row with its error, and another estimate to compare with."""

import time
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pymc as pm

import pymc_hais
from examples.image_models.training import names_of_findings


@dataclass(frozen=True)
class Scores:
    """Log-likelihoods (R,) with Monte Carlo errors (R,), and what they have in common.

    ``other`` says how far another estimate is away, in standard errors of the difference: of log Z, where it is common
    to all rows, else root mean square over some rows.
    """

    values: np.ndarray
    se: np.ndarray
    mcse: float
    log_z: float
    findings: list[str]
    seconds: float  # of processor time
    other: float = float("nan")


def score(model: pm.Model, x: np.ndarray, seed: int = 2012, **settings) -> Scores:
    """Score rows x (R, M)."""
    begin = time.process_time()
    result = pymc_hais.log_likelihood(model, {"x": x}, random_seed=seed, progressbar=False, **settings)["held_out"]
    return Scores(
        result["value"].values,
        np.hypot(result["se"].values, float(result.get("log_z_se", 0.0))),
        float(result["mcse"]),
        float(result.get("log_z", 0.0)),
        names_of_findings(result.attrs),
        time.process_time() - begin,
    )


def compare_with_another(module: ModuleType, parameters: dict, found: Scores, x: np.ndarray, **settings) -> float:
    """Score once more, by a closed form where there is one, else with other random numbers from another start.

    Rows of generative models are annealed from the prior; log Z of the others from a Student-t density.
    """
    if hasattr(module, "exact_log_likelihood"):
        return rms((found.values - module.exact_log_likelihood(parameters, x)) / found.se)
    if hasattr(module, "exact_log_z") and len(set(parameters["phi"].shape)) == 1:
        return float((found.log_z - module.exact_log_z(parameters)) / found.se[0])
    model = module.build_model(parameters)
    if found.log_z:
        idata = pm.sample_hais(
            model=model, reference=pymc_hais.StudentT(4.0, 0.0, 1.0), random_seed=1, progressbar=False
        )
        log_z = pymc_hais.log_marginal_likelihood(idata)
        return float((found.log_z - log_z.value) / np.hypot(found.se[0], log_z.se))
    again = score(model, x, seed=1, reference="prior", **settings)
    return rms((found.values[: len(x)] - again.values) / np.hypot(found.se[: len(x)], again.se))


def rms(z: np.ndarray) -> float:
    return float(np.sqrt(np.mean(z**2)))
