"""The first pilot's start, for each value of ``reference=``, and the search for a better start."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from pymc_hais.density import improper_priors, refuse_periodic
from pymc_hais.density.sites.variables import refuse_endless
from pymc_hais.kernels import LinearConstraints
from pymc_hais.planning.learning import NoStartError, Trial, learn
from pymc_hais.problem.constraints import axis_bounds
from pymc_hais.problem.problem import Problem
from pymc_hais.references import Box, StudentT
from pymc_hais.run.plan import Plan
from pymc_hais.runner.runner import Runner

_log = logging.getLogger("pymc.hais")

#: Degrees of freedom of the start where no prior says how far the target may reach, and of the fit to particles that
#: have tails: a reference with lighter tails than the target leaves its particles to wander there, too few and
#: unnoticed.
HEAVY = 2.0


@dataclass(frozen=True, eq=False)
class GivenDraws:
    """Posterior draws of another run, to which a reference is fitted instead of to a pilot's particles."""

    positions: np.ndarray  # (n, D): flat vectors of the model


@dataclass(frozen=True, eq=False)
class StartOptions:
    """The user's options for the start of a run."""

    reference: Any = "auto"  # a name, a distribution, another model, or draws
    path: Any = "geometric"
    points: np.ndarray | None = None  # flat vectors (n, D) that lead to modes
    plan: Plan | None = None

    def reference_of(self, problem: Problem) -> Any:
        """Return the reference that decides on the start: the user's, or the one from the user's points."""
        return self.reference if self.points is None else problem.reference

    def with_modes(self, positions: np.ndarray) -> Self:
        """Start from other modes as well."""
        return replace(self, points=positions if self.points is None else np.concatenate([self.points, positions]))


def takes_fit(reference: Any) -> bool:
    """Whether ``reference=`` allows a fit, mixed with the first reference."""
    return isinstance(reference, GivenDraws) or (isinstance(reference, str) and reference in ("auto", "fitted"))


def is_auto(reference: Any) -> bool:
    """Whether ``reference=`` leaves the start to us."""
    return isinstance(reference, str) and reference == "auto"


def first_reference(reference: Any, model: Any, constraints: LinearConstraints | None = None) -> Any:
    """Return where the first pilot starts if a fit follows, which the fit is mixed with; else the reference as given.

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
    """Return where the first pilot starts without a prior: a heavy-tailed Student-t, or a box with constraints."""
    return StudentT(HEAVY) if constraints is None else Box(*axis_bounds(constraints))


@dataclass
class Search:
    """The search for a start of one problem."""

    problem: Problem  # compiled for the first start
    reference: Any  # as the user gave it
    runner: Runner
    known: Plan | None = None  # the plan of a finished run, to be followed
    found: Trial | None = None  # the best start so far

    @property
    def best(self) -> Trial:
        """The best start so far, for strategies that come after the first pilot."""
        assert self.found is not None
        return self.found

    def reject(self, reason: str) -> None:
        """Let the best start so far give the reason against another one."""
        if self.found is None:
            _log.debug("Not from the mode: %s", reason)
        else:
            self.found = self.found.because(reason)

    def learn(
        self, problem: Problem, number: int, runner: Runner | None = None, sees_earlier: bool = True
    ) -> Trial | str:
        """Run the pilots of another start; a sentence if no particle from there has a density above zero.

        ``number`` tells the random numbers of its pilots from others'.  ``sees_earlier`` says whether particles of the
        best start so far tell about the tails of its log ratio.
        """
        best = self.best
        try:
            return learn(problem, best.rows, number, runner or best.runner, best if sees_earlier else None)
        except NoStartError:
            return f"No particle from {problem.label} has a density above zero."


#: A way to start: returns a trial to be taken, or the reason why not, which is "" where it is not for the problem.
Strategy = Callable[[Search], Trial | str]
