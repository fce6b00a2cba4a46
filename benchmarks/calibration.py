"""Over many seeds: how often the 95% interval holds the exact log Z, and whether findings ring where they should."""

import argparse
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from scipy.special import betaln, gammaln
from scipy.stats import multivariate_normal, norm

from benchmarks.hierarchies import MODELS as HIERARCHIES
from benchmarks.hierarchies import neal_funnel
from pymc_hais.core.seeds import Seeds
from pymc_hais.estimators import LogZEstimate
from pymc_hais.inputs.request import read
from pymc_hais.planning.choose import choose
from pymc_hais.planning.starts import Search
from pymc_hais.problem.building import build_problem
from pymc_hais.results.diagnose import with_findings
from pymc_hais.results.findings.weights import check_weights
from pymc_hais.run.rounds import run_rounds


def normal_mean() -> tuple[pm.Model, float]:
    """Conjugate normal mean: y ~ N(0, I + 9 11')."""
    y = np.array([1.2, 0.3, 2.5, 1.9, 0.8])
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 3.0)
        pm.Normal("y", mu, 1.0, observed=y)
    return model, float(multivariate_normal(np.zeros(5), np.eye(5) + 9.0).logpdf(y))


def gamma_poisson() -> tuple[pm.Model, float]:
    """Skewed: a small count with a gamma(1/2, 1/10) rate on the log scale."""
    a, b, y = 0.5, 0.1, np.array([0, 1, 0])
    with pm.Model() as model:
        rate = pm.Gamma("rate", a, b)
        pm.Poisson("y", rate, observed=y)
    n, s = len(y), y.sum()
    return model, float(a * np.log(b) - gammaln(a) + gammaln(a + s) - (a + s) * np.log(b + n) - gammaln(y + 1).sum())


def beta_binomial() -> tuple[pm.Model, float]:
    """Skewed at the boundary: no successes in 20 trials, Beta(1/2, 1/2)."""
    with pm.Model() as model:
        p = pm.Beta("p", 0.5, 0.5)
        pm.Binomial("y", 20, p, observed=0)
    return model, float(betaln(0.5, 20.5) - betaln(0.5, 0.5))


def exponential_scale() -> tuple[pm.Model, float]:
    """Skewed: an inverse-gamma variance of a normal sample."""
    a, b, y = 2.0, 1.0, np.array([0.1, -4.0, 2.2, 0.3])
    with pm.Model() as model:
        variance = pm.InverseGamma("variance", a, b)
        pm.Normal("y", 0.0, pm.math.sqrt(variance), observed=y)
    n, s = len(y), 0.5 * np.sum(y**2)
    value = a * np.log(b) - gammaln(a) + gammaln(a + n / 2) - (a + n / 2) * np.log(b + s) - n / 2 * np.log(2 * np.pi)
    return model, float(value)


def regression() -> tuple[pm.Model, float]:
    """Ten correlated coefficients, 30 rows."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 10)) @ (np.eye(10) + 0.7)
    y = X @ rng.normal(size=10) + rng.normal(size=30)
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0, shape=10)
        pm.Normal("y", X @ b, 1.0, observed=y)
    return model, float(multivariate_normal(np.zeros(30), np.eye(30) + X @ X.T).logpdf(y))


def two_modes() -> tuple[pm.Model, float]:
    """Bimodal and lopsided: |x| + noise is observed, the prior favours one side."""
    with pm.Model() as model:
        x = pm.Normal("x", 1.0, 3.0)
        pm.Normal("y", pm.math.abs(x), 0.5, observed=2.0)
    # Each branch of |x| is a normal times a normal, cut at zero.
    precision = 1 / 9 + 4
    log_z = -np.inf
    for sign in (1.0, -1.0):
        mean = (1.0 / 9 + 4 * sign * 2.0) / precision
        branch = norm(1.0, np.sqrt(9 + 0.25)).logpdf(sign * 2.0) + norm(0, 1).logcdf(sign * mean * np.sqrt(precision))
        log_z = np.logaddexp(log_z, branch)
    return model, float(log_z)


def latent_rows() -> tuple[pm.Model, np.ndarray]:
    """Rows y_r ~ N(0, 1 + 1) of a latent mean, to be held out: log p(y_r) of each."""
    with pm.Model() as model:
        z = pm.Normal("z", 0.0, 1.0)
        pm.Normal("y", z, 1.0, observed=np.zeros(1))
    return model, np.random.default_rng(7).normal(0.0, 3.0, size=(4, 1))


@dataclass(frozen=True)
class Case:
    """A model with exact log Z, and how it is sampled."""

    build: Callable[[], tuple[pm.Model, float]]
    reference: str = "auto"

    @property
    def name(self) -> str:
        """Name the model, and the reference where it is not the default."""
        return self.build.__name__ + ("" if self.reference == "auto" else f" ({self.reference})")


CASES = [
    Case(normal_mean),
    Case(gamma_poisson, "prior"),
    Case(beta_binomial),
    Case(exponential_scale, "fitted"),
    Case(regression, "fitted"),
    Case(two_modes),
    Case(neal_funnel, "fitted"),
]


class Calibration(NamedTuple):
    """What many seeds gave.

    Attributes
    ----------
    name : str
    errors, se : ndarray (N,)
        Estimate minus truth, and the reported error.
    covered : ndarray (N,) of bool
        Whether the 95% interval held the truth.
    warned : ndarray (N,) of bool
        Whether any finding was a warning or an error.
    """

    name: str
    errors: np.ndarray
    se: np.ndarray
    covered: np.ndarray
    warned: np.ndarray

    def __str__(self) -> str:
        """Show the coverage, the errors against their bars, and how often findings rang and should have."""
        z = np.abs(self.errors) / self.se
        right, wrong = z < 3.0, z > 4.0
        false_alarms = np.mean(self.warned[right]) if right.any() else np.nan
        return (
            f"{self.name:28s} coverage {self.covered.mean():.3f}  mean se {self.se.mean():.4f}  sd "
            f"{self.errors.std():.4f}  ratio {self.se.mean() / self.errors.std():.2f}  warned where right "
            f"{false_alarms:.1%}  silent beyond 4 se {np.sum(wrong & ~self.warned)}"
        )


def calibrate(case: Case, n_seeds: int, n_repeats: int = 1, **options: Any) -> Calibration:
    """Estimate log Z of one model with many seeds; it is compiled once, and each pilot serves some runs."""
    model, truth = case.build()
    runner = read("sample_hais", model, {**options, "random_seed": 1}).runner()
    problem = build_problem(model, "prior", runner.compiler, runner.seeds, takes_fit=case.reference != "prior")
    rows = []
    for seed in range(n_seeds):
        runner = read("sample_hais", model, {**options, "random_seed": seed}).runner()
        start = choose(Search(problem, case.reference, runner))
        for run in range(n_repeats):
            own = replace(runner, seeds=Seeds((seed, run)))
            rows.append(_row(with_findings(run_rounds(*start, own), own), truth))
    return Calibration(case.name, *map(np.array, zip(*rows, strict=True)))


def calibrate_rows(n_seeds: int, **options: Any) -> Calibration:
    """Score held-out rows with many seeds; every row of every seed counts."""
    model, y = latent_rows()
    truth = norm.logpdf(y[:, 0], 0.0, np.sqrt(2.0))
    runner = read("sample_hais", model, {**options, "random_seed": 1}).runner()
    problem = build_problem(model, "prior", runner.compiler, runner.seeds, {"y": y}, takes_fit=True)
    rows = []
    for seed in range(n_seeds):
        runner = read("sample_hais", model, {**options, "random_seed": seed}).runner()
        evidence = run_rounds(*choose(Search(problem, "auto", runner)), runner)
        for row, value in zip(evidence.rows, truth, strict=True):
            findings = tuple(check_weights(row, evidence, runner))
            rows.append(_row(replace(row.estimate, findings=findings), float(value)))
    return Calibration("latent_rows (held out)", *map(np.array, zip(*rows, strict=True)))


def _row(estimate: LogZEstimate, truth: float) -> tuple[float, float, bool, bool]:
    is_covered = estimate.lower <= truth <= estimate.upper
    return estimate.value - truth, estimate.se, is_covered, any(f.severity != "info" for f in estimate.findings)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--draws", type=int, default=1000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.CRITICAL)
    for case in [*CASES, *map(Case, HIERARCHIES)]:
        print(calibrate(case, options.seeds, draws=options.draws, chains=4, target_se=0.1), flush=True)
    print(calibrate_rows(options.seeds // 4, draws=options.draws // 4, chains=4, target_se=0.1), flush=True)


if __name__ == "__main__":
    main()
