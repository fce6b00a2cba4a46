"""Pseudolikelihood: each element, or block of them, given all others."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt

from pymc_hais.inputs.arguments import check_integer
from pymc_hais.learning.family import Family
from pymc_hais.learning.neighbours import log_odds
from pymc_hais.learning.protocol import Method

#: States of a block, at most.
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
