"""The first pilot's start, for each value of ``reference=``, and the search for a better start."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_hais.density import Model, improper_priors, refuse_periodic
from pymc_hais.density.sites.variables import refuse_endless
from pymc_hais.kernels import LinearConstraints
from pymc_hais.planning.learning import NoStartError, Trial, learn
from pymc_hais.problem.constraints import axis_bounds
from pymc_hais.problem.problem import Problem
from pymc_hais.references import Box, StudentT
from pymc_hais.run.plan import Plan
from pymc_hais.run.row_evidence import PriorMass
from pymc_hais.runner.runner import Runner

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


def takes_fit(reference: Any) -> bool:
    """Whether ``reference=`` allows a fit, mixed with the first reference."""
    return isinstance(reference, GivenDraws) or (isinstance(reference, str) and reference in ("auto", "fitted"))


def is_auto(reference: Any) -> bool:
    """Whether ``reference=`` leaves the start to us."""
    return isinstance(reference, str) and reference == "auto"


def first_reference(reference: Any, model: Model, constraints: LinearConstraints | None = None) -> Any:
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


@dataclass(frozen=True, eq=False)
class Search:
    """The search for a start of one problem; each stage of planning returns a copy that knows more."""

    problem: Problem  # compiled for the first start
    reference: Any  # as the user gave it, or mixed with given modes
    runner: Runner
    #: The model to anneal to, and the runner of that run, while the problem is that of a reference model.
    target: tuple[Any, Runner] | None = None
    points: np.ndarray | None = None  # flat vectors (n, D) that lead to modes
    known: Plan | None = None  # the plan of a finished run, to be followed
    #: Variables whose prior draws cannot be used as they are, so that particles start from another reference.
    replaced: tuple[str, ...] = ()
    undrawn: tuple[str, ...] = ()  # the same, if their draws do not follow their density
    mass: PriorMass | None = None  # of the prior, once it is measured
    found: Trial | None = None  # the best start so far

    @property
    def best(self) -> Trial:
        """The best start so far, for strategies that come after the first pilot."""
        assert self.found is not None
        return self.found

    @property
    def log_prior_mass(self) -> float:
        """Log of the prior's mass; 0 as long as it is not measured."""
        return self.mass.estimate.value if self.mass else 0.0

    def learn(
        self, problem: Problem, number: int, runner: Runner | None = None, sees_earlier: bool = True
    ) -> Trial | str:
        """Run the pilots of another start; a sentence if no particle from there has a density above zero.

        ``number`` tells the random numbers of its pilots from others'.  ``sees_earlier`` says whether particles of the
        best start so far tell about the tails of its log ratio.
        """
        best = self.best
        try:
            earlier = best if sees_earlier else None
            return learn(problem, best.rows, number, runner or best.runner, earlier, mass=self.mass)
        except NoStartError:
            return f"No particle from {problem.label} has a density above zero."


#: A way to start: returns a trial to be taken, or the reason why not, which is "" where it is not for the problem.  A
#: strategy that changes the problem for the strategies after it returns the changed search.
Strategy = Callable[[Search], Trial | Search | str]
