"""Real models with known log Z, default settings: error, standard error, findings, gradients and time."""

import importlib
import logging
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pymc as pm

import pymc_hais

CASES = Path(__file__).parents[2] / "shared" / "cases"

#: Priors that PyMC does not normalise: what to take from the listed log Z to get the log marginal likelihood.
LOG_PRIOR_MASS = {"conjugate_zoo": -np.log(24.0)}

VARIANTS = [
    "conjugate_regression50",
    "radiata_pine:m1",
    "radiata_pine:m2",
    "pima_friel_wyse:m1",
    "pima_friel_wyse:m2",
    "pima_friel_wyse:m1_tau1",
    "pima_friel_wyse:m2_tau1",
    "hier_normal:H0",
    "hier_normal:H1",
    "eight_schools:centred",
    "eight_schools:noncentred",
    "sleep_ttest:jags_H1",
    "sleep_ttest:jags_H0",
    "poe_vanhateren36:laplace_normal",
    "poe_vanhateren36:student_normal",
    "conjugate_zoo",
    "orthant:halfnormal",
    "orthant:hard",
    "brownian32",
    "coal_mining:marginal",
    "gbs_funnel16",
    "many_well32:normal",
    "logistic_uci:sonar",
    "logistic_uci:ionosphere",
    "lkj_prior:n2",
    "lkj_prior:n3",
    "lkj_prior:n4",
    "hais_demo_gaussian:gauss",
    "hais_demo_gaussian:nonneg",
    "poe_vanhateren36:laplace",
    "poe_vanhateren36:student",
    "orthant:halfflat",
    "many_well32:flat",
    "gbs_cauchy48",
    "co2_local_level:noncentred",
    "co2_local_level:centred",
]


def build(case: str) -> tuple[pm.Model, float, float]:
    """Build a case "name:variant": the model, its log marginal likelihood and how well that is known."""
    if str(CASES) not in sys.path:
        sys.path.append(str(CASES))
    name, *variant = case.split(":")
    model, log_z, sd, _ = importlib.import_module(name).build(*variant)
    # The LKJ prior alone has the listed log Z as its own mass, so the marginal likelihood of no data is one.
    return model, 0.0 if name == "lkj_prior" else log_z - LOG_PRIOR_MASS.get(name, 0.0), sd


def header() -> str:
    """Name what :func:`describe` tells."""
    names = ["case", "log Z", "error", "se", "error / se", "rounds", "T", "million gradients", "s", "CPU s", "findings"]
    return f"| {' | '.join(names)} |\n" + "| --- " * len(names) + "|"


def describe(case: str, model: pm.Model, truth: float, sd: float, seed: int = 1, **kwargs) -> str:
    """Run one case and describe the outcome on a line."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    idata = pymc_hais.sample_hais(model=model, random_seed=seed, progressbar=False, **kwargs)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - begin_cpu
    estimate = pymc_hais.log_marginal_likelihood(idata)
    error = estimate.value - truth
    distance = error / max(np.hypot(estimate.se, sd), 1e-12) if error else 0.0
    attrs = idata["posterior"].attrs
    gradients = (attrs["n_gradients"] + attrs["n_gradients_pilot"]) / 1e6
    findings = ", ".join(f.name for f in estimate.findings) or "-"
    return (
        f"| {case} | {truth:.3f} | {error:+.3f} | {estimate.se:.3f} | {distance:+.1f} | {attrs['n_rounds']} | "
        f"{attrs['n_temperatures']} | {gradients:.2f} | {seconds:.1f} | {cpu_seconds:.1f} | {findings} |"
    )


def main() -> None:
    if not CASES.exists():
        print(f"skipped: the shared cases are not beside the repository ({CASES.name} missing)")
        return
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.CRITICAL)
    print(header())
    for case in sys.argv[1:] or VARIANTS:
        print(describe(case, *build(case)), flush=True)


if __name__ == "__main__":
    main()
