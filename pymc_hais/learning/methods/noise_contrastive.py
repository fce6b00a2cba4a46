"""Noise-contrastive estimation: classify rows against noise, and learn log Z as a parameter."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt

from pymc_hais.inputs.arguments import check_integer
from pymc_hais.learning.family import KINDS, Family
from pymc_hais.learning.methods.contrast_error import MOST_PARAMETERS, Contrast, Slopes, compile_slopes
from pymc_hais.learning.methods.noise import Noise, bind_noise, factor_covariance, fit_frequencies
from pymc_hais.learning.protocol import Batch, Method, Pull
from pymc_hais.references import Gaussian


@dataclass(frozen=True)
class NoiseContrastive(Method):
    r"""Learn to tell rows from noise of a known density (Gutmann & Hyvärinen 2010, equation 8; 2012, equation 12).

    .. math:: J = -\operatorname{mean}_x \log s(G(x) - \log \nu) - \nu \operatorname{mean}_y \log s(\log \nu - G(y)),
              \quad G = \log p - \log Z - \log p_\text{noise}

    with s the logistic function and :math:`\nu` draws y of the noise for each row.  log Z is learnt as a parameter of
    its own: ``result["fitted"]["log_z"]``.  Its error ``log_z_se``, compared with log Z of the fitted density, assumes
    a model that can be right and noise that is drawn once; noise drawn anew in each step makes the error smaller.  It
    is NaN for more than 2,000 parameters.

    Parameters
    ----------
    noise : object, optional
        Any reference with ``sample(n, rng)`` and a symbolic ``logp(x)``, such as :class:`pymc_hais.Gaussian`,
        :class:`~pymc_hais.StudentT` or :class:`~pymc_hais.Box`.  It must reach wherever the data may lie.  By default a
        Gaussian with the mean and covariance of real rows, or the frequencies of each discrete element.
    ratio : int, default 10
        Draws of the noise for each row; with many draws the method approaches maximum likelihood.

    References
    ----------
    Gutmann, M. U. and Hyvärinen, A. (2010). Noise-contrastive estimation: a new estimation principle for unnormalized
    statistical models. AISTATS. (2012) JMLR 13, 307-361.
    """

    noise: Any = None
    ratio: int = 10

    supports: ClassVar[frozenset[str]] = frozenset(KINDS)

    def __post_init__(self) -> None:
        check_integer("ratio", self.ratio, 1)
        if self.noise is not None and not all(callable(getattr(self.noise, one, None)) for one in ("sample", "logp")):
            raise ValueError(
                "`noise` must have sample(n, rng) and logp(x), as pymc_hais.Gaussian has; got "
                f"{self.noise!r}. Leave it out for a Gaussian with the data's mean and covariance."
            )

    def check(self, family: Family) -> None:
        """Refuse, without a noise, rows for which there is no default."""
        super().check(family)
        kinds = {one.kind for one in family.visible}
        if self.noise is None and not (kinds == {"real"} or kinds <= {"binary", "categorical"}):
            raise ValueError(
                f"NoiseContrastive has no default noise for {' and '.join(sorted(kinds))} rows: pass `noise` with the "
                "same range of values as the data."
            )

    def own(self, family: Family, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Learn log Z."""
        return {"log_z": np.zeros(())}

    def begin(self, family: Family, rows: np.ndarray, rng: np.random.Generator) -> tuple[Noise, Slopes, np.ndarray]:
        """Fit or bind the noise, and compile the program for the error of log Z."""
        if self.noise is None and family.visible[0].kind != "real":
            noise = fit_frequencies(family, rows)
        else:
            fit = Gaussian(rows.mean(axis=0), factor_covariance(rows))
            noise = bind_noise(fit if self.noise is None else self.noise, family.n_dims)
        return noise, compile_slopes(family), rows

    def prepare(self, state: Any, batch: Batch, rng: np.random.Generator) -> tuple[list[np.ndarray], Any]:
        """Draw noise (m, ratio, D), and evaluate its log density at the rows (m,) and at the noise (m, ratio)."""
        n, n_dims = batch.rows.shape
        noise, *_ = state
        drawn = np.asarray(noise.sample(n * self.ratio, rng), dtype=np.float64)
        at_rows, at_noise = noise.log_density(batch.rows), noise.log_density(drawn)
        if not np.isfinite(at_rows).all():
            raise ValueError("The density of the `noise` is zero at some row: pass one that reaches wherever data lie.")
        return [drawn.reshape((n, self.ratio, n_dims)), at_rows, at_noise.reshape((n, self.ratio))], state

    def objective(self, family: Family, rows: pt.TensorVariable, extras: list[pt.TensorVariable]) -> Any:
        """Return the terms (m,)."""
        drawn, at_rows, at_noise = extras
        n, ratio, n_dims = drawn.type.shape
        log_z, log_ratio = family.own["log_z"], np.log(self.ratio)
        for_rows = family.log_density(rows) - log_z - at_rows - log_ratio
        for_noise = family.log_density(drawn.reshape((n * ratio, n_dims))).reshape((n, ratio)) - log_z - at_noise
        return pt.softplus(-for_rows) + pt.softplus(for_noise - log_ratio).sum(axis=1)

    def finish(
        self, state: Any, parameters: Mapping[str, np.ndarray], pull: Pull, rng: np.random.Generator
    ) -> dict[str, Any]:
        """Return the standard error of log Z."""
        noise, slopes, rows = state
        if sum(one.size for one in parameters.values()) > MOST_PARAMETERS:
            return {"log_z_se": np.nan}
        return {"log_z_se": Contrast(slopes, noise, rows, self.ratio, parameters).log_z_error(pull, rng)}

    def width(self, family: Family) -> int:
        """Count the noise."""
        return family.n_dims * (1 + self.ratio)
