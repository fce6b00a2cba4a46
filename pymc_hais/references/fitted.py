"""A shape fitted to particles, around a centre for each row of data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from pymc_hais.paths import Defended
from pymc_hais.references.gaussian import Gaussian
from pymc_hais.references.student_t import StudentT


@dataclass(frozen=True, eq=False)
class Fitted:
    """A part of a mixture with another reference, which keeps a share of the draws in case the fit misses a region.

    Attributes
    ----------
    shape : Gaussian or StudentT
        Around the origin.
    centres : ndarray (R, D)
    share_of_other : float
        1 where there is no fit.
    log_mass_of_other : float
        Log of what the other reference's density integrates to.
    source : str
        What it was fitted to, for messages.
    """

    shape: Gaussian | StudentT
    centres: np.ndarray
    share_of_other: float
    log_mass_of_other: float = 0.0
    source: str = "the pilot"

    @classmethod
    def none(cls, n_rows: int, n_dims: int, is_dense: bool) -> Self:
        """Leave all draws to the other reference."""
        scale = np.eye(n_dims) if is_dense else np.ones(n_dims)
        return cls(Gaussian(np.zeros(n_dims), scale), np.zeros((n_rows, n_dims)), 1.0)

    @property
    def is_dense(self) -> bool:
        """Whether the scale is a matrix."""
        return self.shape.scale.ndim == 2

    @property
    def has_light_tails(self) -> bool:
        """Whether most draws are of a Gaussian."""
        return self.share_of_other < 1.0 and isinstance(self.shape, Gaussian)

    @property
    def path(self) -> Defended:
        """The path that starts from the mixture."""
        df = self.shape.df if isinstance(self.shape, StudentT) else np.inf
        return Defended.from_fit(df, self.shape.scale, self.share_of_other, self.log_mass_of_other)

    def label(self, other: str) -> str:
        """Name the mixture, given the name of the other reference."""
        if self.share_of_other == 1.0:
            return other
        rows = " around each row" if len(self.centres) > 1 else ""
        share = self.share_of_other
        return f"{other} ({share:.0%}) and {self.shape} fitted to {self.source}{rows} ({1.0 - share:.0%})"

    def draw(self, row: int, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw (n, D) positions around the centre of a row."""
        return self.centres[row] + self.shape.sample(n, rng)
