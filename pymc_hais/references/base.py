"""What a reference is: a normalised distribution of the flat vector that can be sampled."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

__all__ = ["Reference", "Start"]


@runtime_checkable
class Reference(Protocol):
    """What a user may pass as ``reference=``: anything with these two methods.

    The flat vector x (D,) joins the model's value variables, raveled, in the order of ``model.value_vars``: the
    unconstrained space, in which a positive variable is its logarithm.
    """

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw (n, D) independent positions."""
        ...

    def logp(self, position: Any) -> Any:
        """Return the normalised log density as a PyTensor scalar, given the symbolic position (D,)."""
        ...


class Start(Protocol):
    """A reference bound to one model: where its particles start, at beta = 0.

    Attributes
    ----------
    label : str
        For messages and for the file.
    is_prior : bool
        Whether it is the prior itself: then the log ratio is the log-likelihood, exactly.
    """

    @property
    def label(self) -> str:
        """Name it."""
        ...

    @property
    def is_prior(self) -> bool:
        """Tell whether it is the prior."""
        ...

    def sample(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw positions (n, D), and tell which (n,) lie beyond the range of floating point."""
        ...

    def logp(self, position: Any, log_prior: Any) -> Any:
        """Return the log density as a graph, given the graph of the model's own log prior."""
        ...
