"""The error bar over many seeds: neither too short nor too long, and findings that ring where they should."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.calibration import CASES, calibrate, calibrate_rows

#: Pilots, runs that each of them serves, and the size of a run.
N_PILOTS, N_RUNS = 80, 5
N = N_PILOTS * N_RUNS
SIZE = {"draws": 100, "chains": 4, "target_se": 0.1, "progressbar": False}
#: What is promised, and the probability that a promise which is just kept fails its test.
COVERAGE, RATIO, LEVEL = (0.93, 0.97), (0.85, 1.3), 1e-3


def show(found, capsys):
    with capsys.disabled():
        print(f"\n{found}")


def assert_calibrated(found):
    n, count = len(found.errors), int(found.covered.sum())
    below, above = stats.binom.cdf(count, n, COVERAGE[0]), stats.binom.sf(count - 1, n, COVERAGE[1])
    assert min(below, above) >= LEVEL / 2, f"coverage {count / n:.3f} of {n}"
    chosen = np.random.default_rng(0).integers(n, size=(4000, n))
    ratios = found.se[chosen].mean(axis=1) / found.errors[chosen].std(axis=1)
    low, high = np.quantile(ratios, [LEVEL / 2, 1.0 - LEVEL / 2])
    assert high >= RATIO[0], f"mean se / sd between {low:.2f} and {high:.2f}: error bars are too short"
    assert low <= RATIO[1], f"mean se / sd between {low:.2f} and {high:.2f}: error bars are too long"


def assert_alarms_ring_where_they_should(found):
    z = np.abs(found.errors) / found.se
    right = z < 3.0
    assert found.warned[right].mean() <= 0.1
    assert not np.any((z > 4.0) & ~found.warned)


@pytest.mark.every(8)
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_intervals_cover_and_errors_are_as_large_as_they_say(case, capsys):
    found = calibrate(case, N_PILOTS, N_RUNS, **SIZE)
    show(found, capsys)
    assert_calibrated(found)
    assert_alarms_ring_where_they_should(found)


@pytest.mark.exhaustive
def test_intervals_of_held_out_rows_cover(capsys):
    found = calibrate_rows(N // 4, **SIZE)  # of 4 rows
    show(found, capsys)
    assert_calibrated(found)
    assert_alarms_ring_where_they_should(found)


@pytest.mark.parametrize("factor", [0.75, 1.5])
def test_an_error_bar_of_the_wrong_size_is_seen(factor):
    errors, se = stats.norm.ppf((np.arange(N) + 0.5) / N), np.full(N, factor)
    found = type("Found", (), {"errors": errors, "se": se, "covered": np.abs(errors) <= 1.96 * se})
    with pytest.raises(AssertionError):
        assert_calibrated(found)


def test_an_error_bar_of_the_right_size_passes():
    errors, se = stats.norm.ppf((np.arange(N) + 0.5) / N), np.ones(N)
    assert_calibrated(type("Found", (), {"errors": errors, "se": se, "covered": np.abs(errors) <= 1.96 * se}))
