"""Over many seeds: intervals of models with discrete variables hold the exact log Z as often as they say."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.stats import poisson

from benchmarks.calibration import Case, calibrate
from examples import ising
from tests import discrete_truth as truth

#: Pilots, and runs that each of them serves.
N_PILOTS, N_RUNS = 50, 2
#: What is promised, and the probability that a promise which is just kept fails its test.
COVERAGE, RATIO, LEVEL = (0.93, 0.97), (0.8, 1.4), 1e-3
SIZE = {"draws": 200, "chains": 4, "target_se": 0.1, "progressbar": False}

pytestmark = pytest.mark.slow


def mixture():
    y = np.array([-1.8, 0.2, 4.0, 1.0, 0.4, -2.2])
    settings = np.array([0.3, 0.7]), [-1.0, 0.5], 0.8, 0.6
    model = truth.build_mixture_of_unknown_means(y, *settings)
    return model, truth.log_evidence_mixture_of_unknown_means(y, *settings)


def lattice():
    return ising.build_model(4, 0.4), ising.exact_log_z(4, 0.4)


def counts():
    with pm.Model() as model:
        n = pm.Poisson("n", [5.0, 2.0, 30.0])
        pm.Binomial("y", n, 0.3, observed=[4, 1, 14])
    return model, float(poisson.logpmf([4, 1, 14], [1.5, 0.6, 9.0]).sum())


@pytest.mark.every(3)
@pytest.mark.parametrize("build", [mixture, lattice, counts])
def test_intervals_cover(build, capsys):
    found = calibrate(Case(build), N_PILOTS, N_RUNS, **SIZE)
    errors, se, n, count = found.errors, found.se, len(found.errors), int(found.covered.sum())
    with capsys.disabled():
        print(f"\n{found}, mean error {errors.mean():.4f}")
    below, above = stats.binom.cdf(count, n, COVERAGE[0]), stats.binom.sf(count - 1, n, COVERAGE[1])
    assert min(below, above) >= LEVEL / 2, f"coverage {count / n:.3f} of {n}"
    # log Z errs low by half its variance, and not by more than that and what the mean's own error allows.
    bias, error = errors.mean() + 0.5 * errors.var(), errors.std() / np.sqrt(n)
    assert abs(bias) <= stats.norm.isf(LEVEL / 2) * error
    chosen = np.random.default_rng(0).integers(n, size=(4000, n))
    low, high = np.quantile(se[chosen].mean(axis=1) / errors[chosen].std(axis=1), [LEVEL / 2, 1.0 - LEVEL / 2])
    assert high >= RATIO[0], f"mean se / sd between {low:.2f} and {high:.2f}: error bars are too short"
    assert low <= RATIO[1], f"mean se / sd between {low:.2f} and {high:.2f}: error bars are too long"
    # No run is far off, with a finding or without: by chance one of them is once in 1,500 tests.
    assert np.all(np.abs(errors) <= 4.5 * se)
