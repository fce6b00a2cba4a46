"""Over many seeds: intervals of models with discrete variables hold the exact log Z as often as they say."""

import logging

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.stats import poisson

import pymc_hais
from examples import ising
from tests import discrete_truth as truth

N_SEEDS = 100
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
def test_intervals_cover(build, capsys, monkeypatch):
    monkeypatch.setattr(logging.getLogger("pymc.hais"), "disabled", True)
    model, exact = build()
    estimates = [
        pymc_hais.log_marginal_likelihood(pymc_hais.sample_hais(model=model, random_seed=seed, **SIZE))
        for seed in range(N_SEEDS)
    ]
    errors = np.array([one.value - exact for one in estimates])
    se = np.array([one.se for one in estimates])
    count = int(sum(one.lower <= exact <= one.upper for one in estimates))
    with capsys.disabled():
        print(
            f"\n{build.__name__}: coverage {count / N_SEEDS:.3f}, mean error {errors.mean():.4f}, "
            f"sd {errors.std():.4f}, mean se {se.mean():.4f}"
        )
    below, above = stats.binom.cdf(count, N_SEEDS, COVERAGE[0]), stats.binom.sf(count - 1, N_SEEDS, COVERAGE[1])
    assert min(below, above) >= LEVEL / 2, f"coverage {count / N_SEEDS:.3f} of {N_SEEDS}"
    # log Z errs low by half its variance, and not by more than that and what the mean's own error allows.
    bias, error = errors.mean() + 0.5 * errors.var(), errors.std() / np.sqrt(N_SEEDS)
    assert abs(bias) <= stats.norm.isf(LEVEL / 2) * error
    chosen = np.random.default_rng(0).integers(N_SEEDS, size=(4000, N_SEEDS))
    low, high = np.quantile(se[chosen].mean(axis=1) / errors[chosen].std(axis=1), [LEVEL / 2, 1.0 - LEVEL / 2])
    assert high >= RATIO[0], f"mean se / sd between {low:.2f} and {high:.2f}: error bars are too short"
    assert low <= RATIO[1], f"mean se / sd between {low:.2f} and {high:.2f}: error bars are too long"
    # No run is far off without a finding.
    warned = np.array([not one.is_trustworthy for one in estimates])
    assert not np.any((np.abs(errors) > 4.5 * se) & ~warned)
