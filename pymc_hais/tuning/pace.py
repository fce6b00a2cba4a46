"""Time without compiling, and how much a pilot may still do so that it ends in the time it has."""

import time
from typing import Any


class Stopwatch:
    """Counts seconds but for those of compiling, which the attribute ``seconds`` of the clock counts."""

    def __init__(self, clock: Any) -> None:
        self._clock, self._begin, self._compiled = clock, time.perf_counter(), clock.seconds

    @property
    def elapsed(self) -> float:
        """Seconds so far."""
        return time.perf_counter() - self._begin - (self._clock.seconds - self._compiled)


class Pace(Stopwatch):
    """Compares the remaining seconds of a pilot with the seconds that the rest needs at the pace so far."""

    def __init__(self, seconds: float, clock: Any) -> None:
        super().__init__(clock)
        self._seconds = seconds

    def share(self, fraction: float) -> float:
        """Return the share of its usual moves that the rest may make, in [0, 1], from the fraction that is done."""
        if fraction <= 0.0:
            return float(self.elapsed < self._seconds)
        elapsed = self.elapsed
        left, rest = self._seconds - elapsed, elapsed * (1.0 - fraction) / fraction
        return 1.0 if left >= rest or rest == 0.0 else max(0.0, left / rest)

    def affordable(self, n_moves: int, n_made: int) -> int:
        """Return how many of ``n_moves`` there is time for, at the speed of the ``n_made`` moves so far."""
        return int(min(n_moves, max(0.0, self._seconds - self.elapsed) * n_made / max(self.elapsed, 1e-9)))
