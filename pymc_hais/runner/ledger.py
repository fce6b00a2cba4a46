"""The costs of a call, stage by stage, and the missing parts of its result."""

import logging
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

_log = logging.getLogger("pymc.hais")

#: The stage of all that planning pays, rounds of its own apart.
PILOT = "pilot"
#: The stage of all that judges a reference or the final particles; what other stages may pay does not depend on it.
DIAGNOSIS = "diagnosis"


class Missing(NamedTuple):
    """A part of the result that is not there."""

    what: str
    why: str
    severity: str


@dataclass
class Ledger:
    """The costs of a call so far; runs within it write into the same ledger."""

    gradients: Counter[str] = field(default_factory=Counter)  # evaluations of value and gradient by stage
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  # by stage, compiling apart
    is_interrupted: bool = False  # whether Ctrl-C was pressed
    missing: list[Missing] = field(default_factory=list)

    @property
    def n_gradients(self) -> int:
        """Evaluations of value and gradient of all stages but the pilots'."""
        return self.gradients.total() - self.gradients[PILOT]

    @property
    def n_annealed(self) -> int:
        """Evaluations of rounds and earlier searches for modes; a new search may take a share of this number."""
        return self.gradients["rounds"] + self.gradients["modes"]

    def miss(self, what: str, why: str, severity: str) -> None:
        """Note a part that the result lacks."""
        self.missing.append(Missing(what, why, severity))
        _log.warning(f"The result will lack {what} ({why}).")
