"""Where the first pilot starts, given what a user passes as ``reference=``."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_hais.kernels import LinearConstraints
from pymc_hais.model import improper_priors, refuse_periodic
from pymc_hais.model.sites.sites import refuse_endless
from pymc_hais.problem.constraints import axis_bounds
from pymc_hais.references import Box, StudentT

#: Degrees of freedom of the start where no prior says how far the target may reach, and of the fit to particles that
#: have tails: a reference with lighter tails than the target leaves its particles to wander there, too few and
#: unnoticed.
HEAVY = 2.0


@dataclass(frozen=True, eq=False)
class GivenDraws:
    """Posterior draws of another run, to which a reference is fitted instead of to a pilot's particles."""

    positions: np.ndarray  # (n, D): flat vectors of the model


def takes_fit(reference: Any) -> bool:
    """Whether ``reference=`` lets a fit be mixed with what the annealing starts from."""
    return isinstance(reference, GivenDraws) or (isinstance(reference, str) and reference in ("auto", "fitted"))


def is_auto(reference: Any) -> bool:
    """Whether ``reference=`` leaves the start to us."""
    return isinstance(reference, str) and reference == "auto"


def first_reference(reference: Any, model: Any, constraints: LinearConstraints | None = None) -> Any:
    """Say where the first pilot starts where a fit follows, and what a fit is mixed with; another one stays as it is.

    Raises ValueError for a fit, a periodic variable, or a discrete one with too many values.  For "auto", if a prior is
    improper although the model has data: the marginal likelihood is then defined only up to a constant, which must be
    the user's decision.
    """
    if not takes_fit(reference):
        return reference
    if not is_auto(reference):
        refuse_periodic(model)
        refuse_endless(model)
    improper = improper_priors(model)
    if not improper or (is_auto(reference) and model.observed_RVs):
        return "prior"  # which names an improper prior in its error
    return heavy_reference(constraints)


def heavy_reference(constraints: LinearConstraints | None) -> Any:
    """Say where the first pilot starts without a prior: in heavy tails, or inside the walls."""
    return StudentT(HEAVY) if constraints is None else Box(*axis_bounds(constraints))
