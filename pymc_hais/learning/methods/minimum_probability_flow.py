"""Minimum probability flow: how fast probability leaves the data under a dynamics with the model as equilibrium."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt

from pymc_hais.inputs.arguments import check_integer, check_positive
from pymc_hais.learning.family import Family, factor_covariance
from pymc_hais.learning.neighbours import log_odds, one_changed
from pymc_hais.learning.protocol import Batch, Method


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
