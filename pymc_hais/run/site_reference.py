"""The pilot's particles at discrete sites -> a reference of independent margins near the target."""

from __future__ import annotations

import numpy as np

from pymc_hais.model import SiteVariable, find_site_variables
from pymc_hais.references import Independent, Margins
from pymc_hais.run.building import with_reference
from pymc_hais.run.problem import Problem
from pymc_hais.run.seeds import Purpose
from pymc_hais.run.settings import Settings
from pymc_hais.tuning import fit_reference

__all__ = ["fit_margins", "refuse_unfit"]

#: Share of the margins that stays with the reference before the fit, and with the uniform distribution.
_SHARE_OF_OTHER, _SHARE_OF_UNIFORM = 0.09, 0.01
#: Draws that tell the margins of the reference before the fit.
_DRAWS = 500


def refuse_unfit(problem: Problem) -> None:
    """Refuse a fit where a margin has no end, or every row of data would need one of its own.

    Raises
    ------
    ValueError
    """
    endless = [v.name for v in find_site_variables(problem.model, problem.layout) if not v.n_values]
    if endless or problem.n_rows > 1:
        why = f"`{endless[0]}` has no largest value" if endless else "each row of data has margins of its own"
        raise ValueError(f'reference="fitted" is not for this model: {why}. Pass reference="prior".')


def fit_margins(problem: Problem, positions: np.ndarray, settings: Settings) -> Problem:
    """Compile the problem for independent margins of particles (P, D) at beta = 1, mixed with those of its reference.

    No value of a site becomes impossible, so that no weight is infinite; the continuous dimensions, where there are
    any, follow one fitted density.
    """
    layout = problem.layout
    variables = find_site_variables(problem.model, layout)
    drawn = problem.reference.draw(_DRAWS, settings.seeds.sequence(Purpose.CHECK, 6)).positions
    continuous = fit_reference(positions[:, : layout.n_continuous]) if layout.n_continuous else None
    tables = [_mix(_frequencies(positions, v), _frequencies(drawn, v)) for v in variables]
    margins = Independent(Margins(continuous, layout.n_continuous, variables, tables), layout.n_dims)
    return with_reference(problem.model, layout, margins, settings.compiler, settings.seeds)


def _frequencies(positions: np.ndarray, variable: SiteVariable) -> np.ndarray:
    """Count the values of each site, (S, K), as shares."""
    values = variable.low + np.arange(variable.n_values)
    return np.mean(positions[:, variable.start : variable.stop, None] == values, axis=0)


def _mix(fitted: np.ndarray, other: np.ndarray) -> np.ndarray:
    uniform = np.full_like(fitted, 1.0 / fitted.shape[1])
    share = 1.0 - _SHARE_OF_OTHER - _SHARE_OF_UNIFORM
    return share * fitted + _SHARE_OF_OTHER * other + _SHARE_OF_UNIFORM * uniform
