"""Ratio matching and generalised score matching: forms of score matching for binary rows."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytensor.tensor as pt

from pymc_hais.learning.family import Family
from pymc_hais.learning.neighbours import log_odds, one_changed
from pymc_hais.learning.protocol import Method


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
