"""Self-contrastive estimation: classify rows against draws of the present model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad

from pymc_hais.learning.family import KINDS, Family
from pymc_hais.learning.protocol import Batch, Method


@dataclass(frozen=True)
class SelfContrastive(Method):
    r"""Noise-contrastive estimation whose noise is a copy of the model, made anew in each step (Goodfellow 2015).

    .. math:: J = -\operatorname{mean}_x \log s(G(x)) - \operatorname{mean}_y \log s(-G(y)),
              \quad G = \log p_\theta - \log p_{\theta'}, \quad y \sim p_{\theta'}

    with s the logistic function and :math:`\theta' = \theta` not differentiated.  The gradient of J is half that of the
    negative log-likelihood (section 3 of the paper), as exact as the draws are; the gradients of the normalising
    constants cancel.  The value of J is always 2 log 2.

    Parameters
    ----------
    sample : callable
        ``sample(parameters, n, rng)`` draws n rows (n, D) of the model at values of the parameters, a dict of arrays.

    References
    ----------
    Goodfellow, I. J. (2015). On distinguishability criteria for estimating generative models. ICLR workshop;
    arXiv:1412.6515.
    """

    sample: Callable[[Mapping[str, np.ndarray], int, np.random.Generator], Any]

    supports: ClassVar[frozenset[str]] = frozenset(KINDS)
    follows_parameters: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not callable(self.sample):
            raise ValueError(f"`sample` must be a function of (parameters, n, rng); got {self.sample!r}.")

    def prepare(self, state: Any, batch: Batch, rng: np.random.Generator) -> tuple[list[np.ndarray], Any]:
        """Draw as many rows of the model."""
        drawn = np.asarray(self.sample(batch.parameters, len(batch.rows), rng), dtype=np.float64)
        if drawn.shape != batch.rows.shape or not np.isfinite(drawn).all():
            raise ValueError(
                f"`sample` of SelfContrastive must return finite rows {batch.rows.shape}; got the shape {drawn.shape}."
            )
        return [drawn], state

    def objective(self, family: Family, rows: pt.TensorVariable, extras: list[pt.TensorVariable]) -> Any:
        """Return the terms (m,)."""
        of_rows, of_draws = (family.log_density(one) for one in (rows, extras[0]))
        terms = pt.softplus(disconnected_grad(of_rows) - of_rows), pt.softplus(of_draws - disconnected_grad(of_draws))
        return terms[0] + terms[1]
