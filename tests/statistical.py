"""Statistical assertions with a stated false-alarm level.

The whole suite may raise a false alarm with probability ``SUITE_LEVEL``, were its seeds drawn anew.  The
assertions share it equally (Bonferroni), and a ledger refuses more of them than were planned for: in each process, and
at the end of the suite in all processes together (``tests/conftest.py``).
"""

import numpy as np
from scipy import stats

from tests.level import LEVEL, spend


def threshold(n_comparisons=1):
    """Return the |z| that any of n normal scores exceeds with probability at most ``LEVEL``."""
    return float(stats.norm.isf(0.5 * LEVEL / n_comparisons))


def z_scores(samples, expected):
    """Score the means along the first axis of samples (N, ...) against their expectations."""
    samples = np.asarray(samples, dtype=float)
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    return (samples.mean(axis=0) - expected) / error


def is_mean(samples, expected):
    """Whether the means of samples (N, ...) are as expected: what ``assert_mean`` asserts."""
    scores = z_scores(samples, expected)
    return bool(np.max(np.abs(scores)) <= threshold(np.size(scores)))


def assert_mean(samples, expected, message=""):
    """Assert that the means of independent samples (N, ...) are as expected, by the central limit."""
    spend()
    scores = z_scores(samples, expected)
    limit = threshold(np.size(scores))
    assert np.max(np.abs(scores)) <= limit, f"{message} z scores {np.round(scores, 1)} beyond {limit:.2f}"


def assert_caught(samples, expected, message=""):
    """Assert that a mutant's samples fail the assertion that the right ones pass (no level spent)."""
    assert not is_mean(samples, expected), f"the test does not see the mutant {message}"


def assert_distribution(samples, cdf):
    """Assert that independent samples (N,) follow a continuous distribution (Kolmogorov-Smirnov)."""
    spend()
    p_value = stats.kstest(np.ravel(samples), cdf).pvalue
    assert p_value >= LEVEL, f"Kolmogorov-Smirnov p = {p_value:.1e}"


def assert_uncorrelated(a, b):
    """Assert that paired samples (N,) have correlation zero."""
    spend()
    score = np.corrcoef(np.ravel(a), np.ravel(b))[0, 1] * np.sqrt(np.size(a))
    assert abs(score) <= threshold(), f"correlation z score {score:.1f}"


def assert_share(count, n, low, high):
    """Assert that a probability lies in [low, high], from a count of n trials (exact binomial tails)."""
    spend()
    p_value = min(stats.binom.cdf(count, n, low), stats.binom.sf(count - 1, n, high))
    assert p_value >= LEVEL / 2, f"share {count / n:.4f} is not within {low} to {high}"
