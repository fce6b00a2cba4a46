"""Methods that compare the density at a row with the density at states near it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt

from pymc_hais.inputs.arguments import check_integer, check_positive
from pymc_hais.learning.family import Family, factor_covariance
from pymc_hais.learning.protocol import Batch, Method


def one_changed(family: Family, rows: pt.TensorVariable) -> Any:
    """Return rows (m, K, D) with one element at each of its other values: K is the number of such values.

    Of binary rows these are the D states with one bit flipped.
    """
    moves = [
        (place, move, one.low, one.n_values)
        for one in family.visible
        for place in range(one.start, one.stop)
        for move in range(1, one.n_values)
    ]
    places, shifts, low, counts = np.array(moves, dtype=np.float64).T
    at = np.eye(family.n_dims)[places.astype(int)]
    here = rows[:, places.astype(int)]
    turned = (here - low + shifts) % counts + low  # (m, K)
    return rows[:, None, :] + (turned - here)[:, :, None] * pt.constant(at)


def log_odds(family: Family, rows: pt.TensorVariable, there: pt.TensorVariable) -> Any:
    """Return log p(x') - log p(x) (m, K) for states x' (m, K, D) of rows x (m, D)."""
    n, n_there, n_dims = there.type.shape
    log_density = family.log_density(there.reshape((n * n_there, n_dims))).reshape((n, n_there))
    return log_density - family.log_density(rows)[:, None]


@dataclass(frozen=True)
class MinimumProbabilityFlow(Method):
    r"""Minimise the flow of probability from the data to their neighbours (Sohl-Dickstein et al. 2011).

    .. math:: K = \operatorname{mean}_x \sum_{x'} g(x, x') \exp\left(\tfrac12 [\log p(x') - \log p(x)]\right)

    with a symmetric g.  Any symmetric g makes it consistent: at the data's density the derivative is a sum over pairs
    of :math:`g \sqrt{p(x) p(x')}` times a difference that changes sign when x and x' are exchanged.

    - **Discrete rows**: x' differs in one element, g = 1; of binary rows these are the D bit flips (section 4 of the
      paper).  Neighbours that are data too are not left out: their flows in both directions cancel in expectation.
    - **Real rows**: x' = x +- delta with delta ~ N(0, scale^2 C / D), C the covariance of the data, and both signs of
      each delta: the sum over g is a mean over ``n_neighbours`` pairs, drawn once for L-BFGS and anew in each step of
      another optimiser.  As ``scale`` goes to 0 this is sliced score matching; larger steps see more of the density,
      until a few pairs dominate the exponentials.  With C the fit does not depend on the units of the variables.

    Parameters
    ----------
    n_neighbours : int, default 16
        Pairs for each real row.  More make the fit better, up to about D.
    scale : float, default 1
        Root mean square length of a step, in standard deviations of the data.

    References
    ----------
    Sohl-Dickstein, J., Battaglino, P. and DeWeese, M. R. (2011). Minimum probability flow learning. ICML;
    arXiv:0906.4779.
    """

    n_neighbours: int = 16
    scale: float = 1.0

    supports: ClassVar[frozenset[str]] = frozenset({"real", "binary", "categorical"})

    def __post_init__(self) -> None:
        check_integer("n_neighbours", self.n_neighbours, 1)
        check_positive("scale", self.scale, "standard deviations", None)

    def check(self, family: Family) -> None:
        """Refuse rows of both real and discrete elements, too."""
        super().check(family)
        if len({one.kind == "real" for one in family.visible}) > 1:
            raise ValueError("MinimumProbabilityFlow takes rows of real numbers or of discrete ones, not of both.")

    def begin(self, family: Family, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
        """Return a factor (D, D) of the covariance of real rows."""
        return factor_covariance(rows) if family.visible[0].kind == "real" else None

    def prepare(self, state: Any, batch: Batch, rng: np.random.Generator) -> tuple[list[np.ndarray], Any]:
        """Draw steps (m, k, D) to neighbours of real rows."""
        if state is None:
            return [], state
        noise = rng.normal(size=(len(batch.rows), self.n_neighbours, batch.rows.shape[1]))
        return [self.scale / np.sqrt(batch.rows.shape[1]) * noise @ state.T], state

    def objective(self, family: Family, rows: pt.TensorVariable, extras: list[pt.TensorVariable]) -> Any:
        """Return the flow from each row (m,)."""
        if not extras:
            return pt.exp(0.5 * log_odds(family, rows, one_changed(family, rows))).sum(axis=1)
        steps = extras[0]
        there = pt.concatenate([rows[:, None, :] + steps, rows[:, None, :] - steps], axis=1)
        return pt.exp(0.5 * log_odds(family, rows, there)).mean(axis=1)

    def width(self, family: Family) -> int:
        """Count the neighbours."""
        if family.visible[0].kind == "real":
            return family.n_dims * 2 * self.n_neighbours
        return family.n_dims * sum((one.stop - one.start) * (one.n_values - 1) for one in family.visible)


class _OneFlip(Method):
    """Methods that compare a row with the rows that have one bit flipped."""

    is_base: ClassVar[bool] = True
    supports: ClassVar[frozenset[str]] = frozenset({"binary"})

    def width(self, family: Family) -> int:
        """Count the flips."""
        return family.n_dims**2


@dataclass(frozen=True)
class RatioMatching(_OneFlip):
    r"""Match the ratios of the density at a row and at its neighbours (Hyvärinen 2007, section 3).

    .. math:: J = \operatorname{mean}_x \sum_i \left( \frac{1}{1 + p(x) / p(x^{(i)})} \right)^2

    where :math:`x^{(i)}` has bit i flipped.

    References
    ----------
    Hyvärinen, A. (2007). Some extensions of score matching. Computational Statistics & Data Analysis 51, 2499-2512.
    """

    def objective(self, family: Family, rows: pt.TensorVariable, extras: list[pt.TensorVariable]) -> Any:
        """Return the terms (m,)."""
        return (pt.sigmoid(log_odds(family, rows, one_changed(family, rows))) ** 2).sum(axis=1)


@dataclass(frozen=True)
class GeneralizedScoreMatching(_OneFlip):
    r"""Score matching with sums over one bit in place of derivatives (Lyu 2009, section 4).

    With :math:`(L_i p)(x) = \sum_{x_i} p(x)`, the expected square of :math:`L_i p / p - L_i q / q` is minimised, for
    the data's density p and the model's q.  Since :math:`L_i q / q = 1 / q(x_i \mid x_{-i})`, this is, but for a
    constant,

    .. math:: J = \operatorname{mean}_x \sum_i \left[ \frac{1}{q(x_i \mid x_{-i})^2}
                  - 2 \sum_{v} \frac{1}{q(v \mid x_{-i})} \right].

    Rare states count much: where a bit is nearly determined by the others, its terms are huge and the fit is noisy, or
    does not converge.  :class:`RatioMatching` and :class:`Pseudolikelihood` can be used for such data.

    References
    ----------
    Lyu, S. (2009). Interpretation and generalization of score matching. UAI.
    """

    def objective(self, family: Family, rows: pt.TensorVariable, extras: list[pt.TensorVariable]) -> Any:
        """Return the terms (m,)."""
        odds = log_odds(family, rows, one_changed(family, rows))
        own, other = 1.0 + pt.exp(odds), 1.0 + pt.exp(-odds)  # 1 / q of the bit as it is, and flipped
        return (own**2 - 2.0 * (own + other)).sum(axis=1)


#: Most states of a block.
_MOST_STATES = 4096


@dataclass(frozen=True)
class Pseudolikelihood(Method):
    r"""Maximise the density of each block of a row given the rest of it, which needs sums over the block alone.

    .. math:: J = -\operatorname{mean}_x \sum_B \log \frac{p(x)}{\sum_{x'_B} p(x'_B, x_{-B})}

    With blocks of one element this is Besag's (1975); a block of all elements would be the likelihood itself, and
    blocks in between are the generalised pseudolikelihood (Huang & Ogata 2002).

    Parameters
    ----------
    blocks : int or sequence of sequences of int, default 1
        Number of consecutive elements of the row (D,) in a block; or the elements of each block, and blocks may
        overlap.  A block has at most 4096 states.

    References
    ----------
    Besag, J. (1975). Statistical analysis of non-lattice data. The Statistician 24, 179-195.

    Huang, F. and Ogata, Y. (2002). Generalized pseudo-likelihood estimates for Markov random fields on lattice. Annals
    of the Institute of Statistical Mathematics 54, 1-18.
    """

    blocks: int | Sequence[Sequence[int]] = 1

    supports: ClassVar[frozenset[str]] = frozenset({"binary", "categorical"})

    def __post_init__(self) -> None:
        if not isinstance(self.blocks, Sequence):
            return check_integer("blocks", self.blocks, 1)
        given = list(self.blocks)
        is_listed = all(isinstance(one, Sequence) and len(one) for one in given)
        if not given or not is_listed or any(not isinstance(i, int | np.integer) for one in given for i in one):
            raise ValueError(f"`blocks` must be a whole number from 1, or lists of elements; got {self.blocks!r}.")

    def check(self, family: Family) -> None:
        """Refuse elements that a row does not have, and blocks of too many states, too."""
        super().check(family)
        for block, states in self._tables(family):
            if len(states) > _MOST_STATES or not all(0 <= one < family.n_dims for one in block):
                raise ValueError(
                    f"The block {block} of Pseudolikelihood must be of elements 0 to {family.n_dims - 1}, and have at "
                    f"most {_MOST_STATES} states."
                )

    def objective(self, family: Family, rows: pt.TensorVariable, extras: list[pt.TensorVariable]) -> Any:
        """Return minus the sum over the blocks of log p(x_B | the rest) (m,)."""
        tables = self._tables(family)
        masks, values = (np.zeros((sum(len(states) for _, states in tables), family.n_dims)) for _ in range(2))
        ends = np.cumsum([0, *(len(states) for _, states in tables)])
        for (block, states), first, last in zip(tables, ends[:-1], ends[1:], strict=True):
            masks[first:last, block], values[first:last, block] = 1.0, states
        odds = log_odds(family, rows, rows[:, None, :] * pt.constant(1.0 - masks) + pt.constant(values))
        if len(set(np.diff(ends))) == 1:
            return pt.logsumexp(odds.reshape((rows.type.shape[0], len(tables), -1)), axis=2).sum(axis=1)
        return sum(pt.logsumexp(odds[:, a:b], axis=1) for a, b in pairwise(ends))

    def width(self, family: Family) -> int:
        """Count the states of all blocks."""
        return family.n_dims * sum(len(states) for _, states in self._tables(family))

    def _tables(self, family: Family) -> list[tuple[list[int], list[tuple[int, ...]]]]:
        """Return which elements each block has, and all its states; one more than the most where there are too many."""
        n_dims, values = family.n_dims, dict[int, range]()
        for one in family.visible:
            values |= dict.fromkeys(range(one.start, one.stop), range(one.low, one.low + one.n_values))
        if isinstance(self.blocks, int | np.integer):
            size = min(int(self.blocks), n_dims)
            blocks = [list(range(first, min(first + size, n_dims))) for first in range(0, n_dims, size)]
        else:
            blocks = [sorted(set(map(int, block))) for block in self.blocks]
        tables = []
        for block in blocks:
            every = product(*(values.get(one, ()) for one in block))
            tables.append((block, [state for state, _ in zip(every, range(_MOST_STATES + 1), strict=False)]))
        return tables
