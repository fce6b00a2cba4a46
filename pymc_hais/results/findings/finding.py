"""How checks of a finished run are registered."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from pymc_hais.estimators import Finding

type Check = Callable[..., Iterator[Finding]]


class Registered(NamedTuple):
    """A check of a finished run."""

    function: Check
    is_of_first_run: bool  # an extension is not checked again


#: Name of a check, as the finding ``unfinished`` shows it where the check fails -> the check.
CHECKS: dict[str, Registered] = {}


def check(what: str, *, is_of_first_run: bool = False) -> Callable[[Check], Check]:
    """Register a check of a finished run, called ``what`` where it fails.

    The parameters of the check are attributes of :class:`pymc_hais.run.evidence.Evidence` by name,
    ``evidence`` itself, or ``runner``.
    """

    def register(function: Check) -> Check:
        CHECKS[what] = Registered(function, is_of_first_run)
        return function

    return register
