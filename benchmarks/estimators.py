"""Every estimator of log Z on the same runs: against the truth of the public cases, and their coverage over seeds.

python -m benchmarks.estimators cases [case ...]
python -m benchmarks.estimators coverage [runs]
"""

import logging
import sys
import time
import warnings
from collections import defaultdict

import numpy as np
import pymc as pm

import pymc_hais
from benchmarks import cases
from benchmarks.calibration import beta_binomial, exponential_scale, gamma_poisson, normal_mean, regression

QUICK = [
    "radiata_pine:m1",
    "radiata_pine:m2",
    "pima_friel_wyse:m1",
    "pima_friel_wyse:m2_tau1",
    "hier_normal:H0",
    "hier_normal:H1",
    "eight_schools:centred",
    "eight_schools:noncentred",
    "sleep_ttest:jags_H1",
    "conjugate_regression50",
    "orthant:halfnormal",
    "brownian32",
    "coal_mining:marginal",
    "logistic_uci:sonar",
    "logistic_uci:ionosphere",
    "hais_demo_gaussian:gauss",
    "poe_vanhateren36:laplace",
    "gbs_funnel16",
]


def on_cases(names: list[str]) -> None:
    """Print the error of every estimator, and how many of its standard errors that is."""
    for name in names:
        model, log_z, sd = cases.build(name)
        begin = time.perf_counter()
        idata = pm.sample_hais(model=model, random_seed=1, estimators="all", progressbar=False)
        table = pymc_hais.estimates(idata)
        scores = (table["value"] - log_z) / np.hypot(table["se"], sd)
        cells = [
            f"{method} {row['value'] - log_z:+.3f} ± {row['se']:.3f} ({scores[method]:+.1f})"
            for method, row in table.iterrows()
        ]
        print(f"{name} [{time.perf_counter() - begin:.0f} s] " + "; ".join(cells), flush=True)


def coverage(n_runs: int) -> None:
    """Print how often the 95% interval of every estimator holds the truth."""
    for build in (normal_mean, gamma_poisson, beta_binomial, exponential_scale, regression):
        model, truth = build()
        inside, scores = defaultdict(int), defaultdict(list)
        for seed in range(n_runs):
            idata = pm.sample_hais(200, model=model, random_seed=seed, estimators="all", progressbar=False)
            for method, row in pymc_hais.estimates(idata).iterrows():
                inside[method] += row["lower"] <= truth <= row["upper"]
                scores[method].append((row["value"] - truth) / row["se"])
        cells = [f"{method} {inside[method] / n_runs:.3f} (z {np.std(scores[method]):.2f})" for method in inside]
        print(f"{build.__name__}: " + "; ".join(cells), flush=True)


if __name__ == "__main__":
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    what, *rest = sys.argv[1:] or ["cases"]
    if what == "coverage":
        coverage(int(rest[0]) if rest else 200)
    elif cases.CASES.exists():
        on_cases(rest or QUICK)
    else:
        print(f"skipped: {cases.CASES} is missing")
