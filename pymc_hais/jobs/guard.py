"""What follows a finished round, in one guard: neither an error nor Ctrl-C there costs what is finished."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

_log = logging.getLogger("pymc.hais")


class Missing(NamedTuple):
    """A part of the result that is not there."""

    what: str
    why: str
    severity: str


class Guard:
    """Does the stages that follow a finished round, and remembers what of them is missing from the result.

    Attributes
    ----------
    is_interrupted : bool
        Whether Ctrl-C was pressed.
    """

    def __init__(self) -> None:
        self.is_interrupted = False
        self.missing: list[Missing] = []

    def attempt[T, U](
        self,
        what: str,
        stage: Callable[[], T],
        otherwise: U,
        severity: str = "warning",
        is_dear: bool = False,
        is_kept: bool = False,
    ) -> T | U:
        """Return what a stage gives; if it fails or is interrupted, what stands in for it.

        ``what`` the stage makes is for the finding, which is of this severity if it is missing.  For what ``is_dear``,
        who has pressed Ctrl-C is not to wait.  Of what ``is_kept`` a checkpoint has all that is finished: an error is
        raised then, for the same call goes on from there once what the error names is mended.
        """
        if is_dear and self.is_interrupted:
            self._miss(what, "interrupted before", severity)
            return otherwise
        try:
            return stage()
        except KeyboardInterrupt:
            self.is_interrupted = True
            self._miss(what, "interrupted", severity)
        except Exception as error:  # the stages evaluate a user's model, on a user's executor
            if is_kept:
                raise
            _log.debug("%s failed", what, exc_info=error)
            first = str(error).split("\n")[0]
            self._miss(what, f"{type(error).__name__}: {first}" if first else type(error).__name__, severity)
        return otherwise

    def surely[T](self, stage: Callable[[], T]) -> T:
        """Return what a short stage gives that nothing stands in for; if it is interrupted, it is done again."""
        try:
            return stage()
        except KeyboardInterrupt:
            self.is_interrupted = True
            return stage()

    def _miss(self, what: str, why: str, severity: str) -> None:
        self.missing.append(Missing(what, why, severity))
        _log.warning(f"The result will lack {what} ({why}).")
