"""The error bar, over many seeds: what it promises is what happens."""

import numpy as np
import pytest

from benchmarks.calibration import MODELS, coverage
from tests.statistical import assert_share

N_SEEDS = 100


@pytest.mark.slow
def test_95_percent_intervals_cover_the_truth(capsys):
    shares = np.array([coverage(build, N_SEEDS)[0] for build in MODELS])
    with capsys.disabled():
        print("\ncoverage:", ", ".join(f"{m.__name__} {s:.3f}" for m, s in zip(MODELS, shares, strict=True)))
    # Each model on its own, and all together, to the precision that the number of seeds allows.
    for share in shares:
        assert_share(round(share * N_SEEDS), N_SEEDS, 0.91, 0.98)
    assert_share(round(shares.sum() * N_SEEDS), N_SEEDS * len(MODELS), 0.91, 0.98)
