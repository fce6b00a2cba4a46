"""What fits into the time that is left."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_hais.core.schedules import SHORTEST
from pymc_hais.inputs.request import read
from pymc_hais.runner.timing import Clock, Size, duration, fit_into, takes
from pymc_hais.tuning import pilot as pilot_module
from pymc_hais.tuning.pilot import Pace, Stopwatch

FEWEST = 50


@given(
    st.floats(0, 1e9), st.integers(1, 10_000), st.integers(100, 5000), st.integers(0, 8), st.booleans(),
    st.integers(1, 12),
)  # fmt: skip
def test_a_round_fits_into_its_moves_if_it_can(moves, n_steps, draws, n_final, is_fixed, n_tiles):
    wanted = Size(n_steps, draws)
    shortest = n_steps if is_fixed else SHORTEST
    tile = -(-draws // n_tiles) if n_tiles < 12 else 1
    size = fit_into(moves, wanted, shortest, n_final, tile)
    assert size.n_steps <= n_steps
    assert size.draws <= draws
    assert size.n_steps >= min(shortest, n_steps)
    assert size.draws >= min(FEWEST, draws)
    assert size.draws % tile == 0 or size.draws == draws
    smallest = Size(min(shortest, n_steps), min(-(-FEWEST // tile) * tile, draws))
    assert takes(size, n_final) <= max(moves, takes(smallest, n_final))
    if takes(wanted, n_final) <= moves:
        assert size == wanted
    elif size.draws < draws:  # only where no temperature is left to take from another tile
        assert takes(Size(min(shortest, n_steps), size.draws + tile), n_final) > moves


def test_without_a_limit_nothing_is_taken():
    assert fit_into(Clock().moves(1.0), Size(7, 100), 16, 8) == Size(7, 100)
    assert Clock().left == np.inf
    assert fit_into(Clock(1.0).moves(0.0), Size(7, 100), 16, 8) == Size(7, 100)  # nothing is known of the speed


def test_a_clock_counts_from_the_call():
    clock = Clock(5.0, begin=-1e6)
    assert clock.left == clock.part(0.5).left == 0.0
    assert clock.elapsed > 1e6
    assert 0.0 < Clock(5.0).left <= 5.0


@pytest.mark.parametrize("given", [0, -1.0, "60", True, float("nan")])
def test_a_limit_must_be_a_positive_number(given):
    with pytest.raises(ValueError, match="`max_seconds` must be a positive number"):
        read("sample_hais", None, {"max_seconds": given})


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.01, "1 s"), (7.4, "7 s"), (99, "99 s"), (150, "2 min"), (5000, "83 min"), (9000, "2.5 h")]
)
def test_durations_are_written_for_people(seconds, said):
    assert duration(seconds) == said


class SetTime:
    """Time that a test sets, and seconds of compiling."""

    def __init__(self, monkeypatch):
        self.now = self.seconds = 0.0
        monkeypatch.setattr(pilot_module.time, "perf_counter", lambda: self.now)


def test_compiling_does_not_count(monkeypatch):
    clock = SetTime(monkeypatch)
    clock.seconds = 2.0
    watch = Stopwatch(clock)
    clock.now, clock.seconds = 10.0, 5.0
    assert watch.elapsed == 7.0


def test_a_pilot_hurries_as_much_as_it_must(monkeypatch):
    clock = SetTime(monkeypatch)
    pace = Pace(10.0, clock)
    assert pace.share(0.0) == 1.0
    clock.now = 4.0
    assert pace.share(0.5) == 1.0  # 4 s to go, 6 s left
    assert pace.share(0.2) == pytest.approx(6.0 / 16.0)
    assert pace.affordable(100, 8) == 12  # 8 moves took 4 s
    assert pace.affordable(10, 8) == 10
    clock.now = 11.0
    assert pace.share(0.9) == pace.share(0.0) == 0.0
    assert pace.share(1.0) == 1.0  # nothing is left to do
    assert pace.affordable(100, 8) == 0


def test_a_pilot_without_a_limit_does_not_hurry(monkeypatch):
    clock = SetTime(monkeypatch)
    pace = Pace(np.inf, clock)
    clock.now = 1e9
    assert pace.share(0.001) == 1.0
    assert pace.affordable(50, 1) == 50
