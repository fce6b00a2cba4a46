"""The error of the log Z that noise-contrastive estimation learns, as log Z of the fitted density.

The terms of the rows, each with draws of the noise of its own, are independent, and the fit is the zero of the mean of
their gradients: asymptotically its covariance is ``H^-1 S H^-1 / n``, with S the covariance of those gradients and H
the expected second derivatives, ``E[s (1 - s) g g']`` over rows and noise where the model can be right (Gutmann and
Hyvärinen 2012, theorem 3).  Here s is the probability that a row or draw is given of being a row, and g the gradient of
``log p - log Z``.  The learnt log Z is off from that of the fitted parameters by ``d log_z - E[grad log p]' d theta``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from scipy.special import expit

from pymc_hais.density.compiling import compile_interpreted
from pymc_hais.learning.family import Family
from pymc_hais.learning.methods.noise import Noise
from pymc_hais.learning.program import HELD
from pymc_hais.learning.protocol import Pull

#: Parameters, at most: the work grows as their square.
MOST_PARAMETERS = 2000
#: ``(parameters, rows (m, D)) -> log densities (m,), gradients in each parameter (m, *shape)``.
type Slopes = Callable[[Mapping[str, np.ndarray], np.ndarray], tuple[np.ndarray, dict[str, np.ndarray]]]


def compile_slopes(family: Family) -> Slopes:
    """Compile the log densities of rows, and the gradient of each of them in the parameters."""
    rows = pt.tensor("rows", dtype="float64", shape=(None, family.n_dims))
    learnt = family.parameters
    function = compile_interpreted([*learnt.values(), rows], family.slopes(rows))

    def evaluate(values: Mapping[str, np.ndarray], at: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        log_density, *found = function(*(values[name] for name in learnt), at)
        shapes = [(len(at), *symbol.type.shape) for symbol in learnt.values()]  # also of what is the same for all rows
        each = [np.broadcast_to(one, shape) for one, shape in zip(found, shapes, strict=True)]
        return np.broadcast_to(log_density, len(at)), dict(zip(learnt, each, strict=True))

    return evaluate


@dataclass(frozen=True)
class Contrast:
    """Rows and noise of the classification, at fitted parameters."""

    slopes: Slopes
    noise: Noise
    rows: np.ndarray  # (n, D)
    ratio: int  # draws of the noise for each row
    values: Mapping[str, np.ndarray]  # of the parameters, and ``log_z``

    def log_z_error(self, pull: Pull, rng: np.random.Generator) -> float:
        """Return the standard error of the learnt log Z, as that of the fitted density."""
        turn = _turn(self.values, pull)
        n_kept = max(2000, 10 * len(turn))  # rows are enough for covariances
        kept = self.rows[rng.permutation(len(self.rows))[:n_kept]]
        n_parts = -(-len(kept) * (1 + self.ratio) * len(turn) // HELD)
        sums = [self._sums(part, turn, rng) for part in np.array_split(kept, n_parts)]
        bend, squares, scores, slope = (sum(one) / len(kept) for one in zip(*sums, strict=True))
        # A direction with second derivatives of less than 1e-10 of the largest changes nothing.
        way = np.linalg.lstsq(bend, slope, rcond=1e-10)[0]
        return float(np.sqrt(way @ (squares - np.outer(scores, scores)) @ way / len(self.rows)))

    def _sums(self, rows: np.ndarray, turn: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Return sums over rows, with fresh noise: second derivatives, squares of scores, scores, and g of the rows."""
        n, drawn = len(rows), np.asarray(self.noise.sample(len(rows) * self.ratio, rng), dtype=np.float64)
        at = np.concatenate([rows, drawn])
        log_density, each = self.slopes(self.values, at)
        each["log_z"] = np.full(len(at), -1.0)
        g = np.hstack([each[name].reshape(len(at), -1) for name in self.values]) @ turn
        log_ratio = log_density - self.values["log_z"] - self.noise.log_density(at) - np.log(self.ratio)
        is_possible = np.isfinite(log_density)
        s, g = np.where(is_possible, expit(log_ratio), 0.0), np.where(is_possible[:, None], g, 0.0)
        scores = (s[n:, None] * g[n:]).reshape(n, self.ratio, -1).sum(axis=1) - (1.0 - s[:n, None]) * g[:n]
        return g.T @ ((s * (1.0 - s))[:, None] * g), scores.T @ scores, scores.sum(axis=0), g[:n].sum(axis=0)


def _turn(values: Mapping[str, np.ndarray], pull: Pull) -> np.ndarray:
    """Return the matrix (P, P) that gradients (m, P) in the values are multiplied by for those in free coordinates."""
    ends = np.cumsum([one.size for one in values.values()])
    turned = []
    for unit in np.eye(ends[-1]):
        parts = zip(values.items(), np.split(unit, ends[:-1]), strict=True)
        pulled = pull({name: part.reshape(value.shape) for (name, value), part in parts})
        turned.append(np.concatenate([np.ravel(pulled[name]) for name in values]))
    return np.stack(turned)
