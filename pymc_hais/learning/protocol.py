"""The protocol of methods of learning.

One call of :func:`pymc_hais.fit` calls a method in this order:

1. ``check(family)`` refuses densities that it cannot learn; the default reads ``supports`` and ``takes_hidden``.
2. ``own(family, rows)``: parameters of the method itself (log Z), which are learnt beside those of the model.
3. ``begin(family, rows, rng)``: its state before the first step: chains, a fitted noise, programs of its own.  This is
   the only place in which a method may compile anything.
4. ``prepare(state, batch, rng)``: numbers for one step (noise, chain states, masks) and the next state.
5. ``objective(family, rows, extras)``: once, with symbols: the graph that is minimised.
6. ``finish(state, parameters, pull, rng)``: numbers about the final parameters, such as log Z.

The core compiles the objective and its gradient with respect to all parameters once, and evaluates both in each step.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc_hais.core.messages import quoted
from pymc_hais.learning.family import Family

#: Gradients by name of the parameter, in other coordinates.
type Pull = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


class Batch(NamedTuple):
    """The rows of one step.

    Attributes
    ----------
    rows : ndarray (m, D)
    places : ndarray (m,) of int
        Which rows of the data these are.
    parameters : dict
        Present values of the model's parameters and of the method's own, by name.
    step : int
        From 1; gradients at the mean of the last steps have the number of the last one.
    gradient : dict or None
        Of the objective at the step before, in the parameters; None at the first one.
    """

    rows: np.ndarray
    places: np.ndarray
    parameters: Mapping[str, np.ndarray]
    step: int
    gradient: Mapping[str, np.ndarray] | None = None


class Method:
    """A method of learning; subclasses are frozen dataclasses of their settings.

    Attributes
    ----------
    supports : frozenset of str
        Kinds of visible variables that it takes, of ``pymc_hais.learning.family.KINDS``.
    takes_hidden : bool
        Whether a model may have free variables that the data do not name.
    follows_parameters : bool
        Whether the arrays of ``prepare`` depend on the parameters, as the states of chains do.  If not, they are made
        once for all rows, with one entry a row along the first axis, and the objective is a deterministic function of
        the parameters that L-BFGS can minimise.
    knows_log_z : bool
        Whether it tracks log Z during the fit; see :meth:`log_z`.
    is_base : bool
        True for a base class that is no method itself.
    """

    supports: ClassVar[frozenset[str]] = frozenset()
    takes_hidden: ClassVar[bool] = False
    follows_parameters: ClassVar[bool] = False
    knows_log_z: ClassVar[bool] = False
    is_base: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Name of the class."""
        return type(self).__name__

    def check(self, family: Family) -> None:
        """Refuse a density that the method is not made for.

        Raises
        ------
        ValueError
            Naming the method, the variable, and the methods that take it.
        """
        if refused := [one for one in family.visible if one.kind not in self.supports]:
            name, kind = refused[0].name, refused[0].kind
            why = " (its distribution does not reach over all real numbers)" if kind == "restricted" else ""
            raise ValueError(
                f"{self.name} learns from {' or '.join(sorted(self.supports))} variables, and `{name}` is {kind}{why}. "
                f"Methods that take it: {name_methods(lambda one: kind in one.supports)}."
            )
        if family.hidden and not self.takes_hidden:
            raise ValueError(
                f"{self.name} needs the density of the visible variables, and {quoted(family.hidden)} would have to "
                f"be integrated out: sum hidden variables out in the model, or name them in `data`. Methods that take "
                f"hidden variables: {name_methods(lambda one: one.takes_hidden)}."
            )

    @property
    def is_closed(self) -> bool:
        """Whether the method has steps of its own, each from all rows, instead of a gradient."""
        return False

    def own(self, family: Family, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the first values of the method's own parameters, which it learns too; they are in ``family.own``."""
        return {}

    def begin(self, family: Family, rows: np.ndarray, rng: np.random.Generator) -> Any:
        """Return the state before the first step, from all rows (n, D)."""
        return None

    def prepare(self, state: Any, batch: Batch, rng: np.random.Generator) -> tuple[list[np.ndarray], Any]:
        """Return the arrays of one step, always of the same shapes, and the next state."""
        return [], state

    def objective(self, family: Family, rows: pt.TensorVariable, extras: list[pt.TensorVariable]) -> Any:
        """Return the graph of the objective, which is minimised: terms (m,) whose mean over rows counts, or one number.

        The method follows its gradient with respect to the parameters; ``rows`` (m, D) and ``extras``, in the order of
        ``prepare``, are constants.  One number is the objective of a whole batch, which L-BFGS cannot split into rows:
        it is for methods that follow the parameters.
        """
        raise NotImplementedError(f"{self.name} has no objective.")

    def backend(self, family: Family) -> str | None:
        """Return the backend that compiles the objective; None for the first one that can."""
        return family.backend

    def is_final(self, step: int) -> bool:
        """Whether a step minimises the method's own objective, and not an annealed form of it."""
        return True

    def width(self, family: Family) -> int:
        """Return about how many numbers the terms of one row hold at once; it limits the rows evaluated together."""
        return family.n_dims

    def finish(
        self, state: Any, parameters: Mapping[str, np.ndarray], pull: Pull, rng: np.random.Generator
    ) -> dict[str, Any]:
        """Return numbers about the final parameters, by name, for the group ``fitted``.

        ``pull`` turns gradients in the parameters, by name, into those in coordinates that no constraint limits.
        """
        return {}

    def log_z(self, state: Any) -> tuple[Mapping[str, np.ndarray], float, float]:
        """Return the last parameters with a known log Z, their log Z, and its error."""
        raise NotImplementedError(f"{self.name} knows no log Z.")

    def monitors(self, state: Any) -> dict[str, float]:
        """Return numbers that are kept beside the objective, at each step that is kept."""
        return {}


def name_methods(has: Callable[[type[Method]], bool]) -> str:
    """Return the names of the methods with a property."""
    found, waiting = [], Method.__subclasses__()
    while waiting:
        one = waiting.pop(0)
        if not vars(one).get("is_base") and has(one):
            found.append(one.__name__)
        waiting.extend(one.__subclasses__())
    return ", ".join(sorted(found)) or "none"
