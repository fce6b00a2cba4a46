"""Independent margins of discrete sites, next to a reference of the continuous dimensions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_hais.core.protocols import Reference
from pymc_hais.model import SiteVariable


@dataclass(frozen=True, eq=False)
class Margins:
    """Every site drawn on its own."""

    continuous: Reference | None  # of the first dimensions; None where all are sites
    n_continuous: int
    variables: Sequence[SiteVariable]  # all with finitely many values
    probabilities: Sequence[np.ndarray]  # (S, K) of each site's values, for each variable; positive where it may be

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw (n, D) positions."""
        parts = [] if self.continuous is None else [self.continuous.sample(n, rng)]
        for variable, p in zip(self.variables, self.probabilities, strict=True):
            cumulative = np.cumsum(p, axis=1)[:, :-1]
            parts.append(variable.low + np.sum(rng.uniform(size=(n, len(p), 1)) >= cumulative, axis=2, dtype=float))
        return np.concatenate(parts, axis=1)

    def logp(self, position: Any) -> Any:
        """Return the log density as a graph."""
        total = 0.0 if self.continuous is None else self.continuous.logp(position[: self.n_continuous])
        for variable, p in zip(self.variables, self.probabilities, strict=True):
            log_p = np.log(p).astype(position.dtype)
            value = position[variable.start : variable.stop].astype("int64") - variable.low
            if p.shape[1] == 2:
                total = total + pt.switch(value, log_p[:, 1], log_p[:, 0]).sum()
            else:
                total = total + pt.as_tensor(log_p)[np.arange(len(p)), value].sum()
        return total

    def __str__(self) -> str:
        """Name it in messages."""
        margins = "independent margins"
        return margins if self.continuous is None else f"{self.continuous} and {margins}"


def uniform_margins(continuous: Reference | None, n_continuous: int, variables: Sequence[SiteVariable]) -> Margins:
    """Make all values of every site as likely; refuse a variable with infinitely many."""
    for variable in variables:
        if not variable.n_values:
            raise ValueError(
                f"A reference of the continuous dimensions alone leaves `{variable.name}` out, which has no largest "
                'value, or too many: pass reference="prior", or a dict with a PyMC distribution for each variable.'
            )
    tables = [np.full((v.stop - v.start, v.n_values), 1.0 / v.n_values) for v in variables]
    return Margins(continuous, n_continuous, variables, tables)
