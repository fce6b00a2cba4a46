"""Linked importance sampling: chains at a few temperatures, each linked to the next by one of its states.

Neal (2005), "Estimating ratios of normalizing constants using linked importance sampling", arXiv:math/0511216.  With
the geometric bridge sqrt(p_j p_(j+1)) between neighbours every factor of the weight is an average over a whole chain,
where annealed importance sampling has a single state.
"""

import numpy as np


class Link:
    """The chains of n particles at one temperature: their averages towards both neighbours, and the linking states.

    A state is chosen among those seen so far with the chance of its weight, so that no more than one is kept.  The
    widths are the distances in beta to the temperatures below and above.
    """

    def __init__(self, n: int, width_before: float, width: float, rng: np.random.Generator) -> None:
        self._before, self._width, self._rng = width_before, width, rng
        self._back, self._ahead = np.full(n, -np.inf), np.full(n, -np.inf)
        self._n_states = 0

    def add(self, log_ratio: np.ndarray) -> np.ndarray:
        """Count another state of each chain, given log ratios (n,); return for which it is now the linking one."""
        # Where the target has no density a draw of the reference has log ratio -inf; moves never lead there.
        with np.errstate(invalid="ignore"):
            ahead = 0.5 * self._width * log_ratio
            self._back = np.logaddexp(self._back, -0.5 * self._before * log_ratio)
            self._ahead = np.logaddexp(self._ahead, ahead)
            share = np.exp(ahead - self._ahead)
        self._n_states += 1
        return self._rng.random(len(log_ratio)) < np.where(np.isnan(share), 1.0, share)

    @property
    def log_back(self) -> np.ndarray:
        """Log of the mean over each chain of sqrt(p below / p), (n,)."""
        return self._back - np.log(self._n_states)

    @property
    def log_ahead(self) -> np.ndarray:
        """Log of the mean over each chain of sqrt(p above / p), (n,)."""
        return self._ahead - np.log(self._n_states)
