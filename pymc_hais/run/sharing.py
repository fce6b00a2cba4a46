"""``executor=`` and ``checkpoint=`` -> the workers of a call, checked before any work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pymc_hais.core.seeds import Seeds
from pymc_hais.jobs.checkpoint import open_checkpoint, open_folder
from pymc_hais.jobs.executors import check_executor
from pymc_hais.jobs.identity import take_identity
from pymc_hais.jobs.locks import locked
from pymc_hais.jobs.workers import Workers
from pymc_hais.run.settings import Settings

__all__ = ["share_out"]

#: Arguments that change no number of a run: who computes, what is shown, and what is kept of it.
_NO_NUMBERS = {
    "model", "cores", "executor", "checkpoint", "progressbar", "progressbar_theme", "var_names", "idata_kwargs",
}  # fmt: skip


@contextmanager
def share_out(settings: Settings, function: str, model: Any, arguments: Mapping[str, Any]) -> Iterator[Settings]:
    """Hand the jobs of a call to an executor, and keep finished ones in a checkpoint, locked meanwhile.

    Parameters
    ----------
    settings : Settings
    function : str
        The public function that is called.
    model : pymc.Model
    arguments : dict
        All that it was called with.

    Raises
    ------
    ValueError, OSError, RuntimeError
        Naming the argument, what is wrong with it, and what to pass instead.
    """
    executor, checkpoint = arguments["executor"], arguments["checkpoint"]
    check_executor(executor)
    workers = Workers(executor, None, settings.compiler.cores)
    if checkpoint is None:
        yield replace(settings, workers=workers)
        return
    of_log_z = arguments.get("sample_kwargs") or {}
    if arguments.get("max_seconds") is not None or of_log_z.get("max_seconds") is not None:
        raise ValueError(
            "`checkpoint` takes no `max_seconds`, since a run that is cut short is not reproducible: leave one of them "
            "out. A call with a checkpoint may be interrupted or killed at any time, and goes on when it is made again."
        )
    others = _numbers_of(arguments)
    del others["random_seed"]
    identity = take_identity(function, model, settings.seeds.entropy, others)
    with locked(open_folder(checkpoint)):
        kept, agreed = open_checkpoint(checkpoint, identity, arguments["random_seed"] is not None)
        entropy = tuple(map(int, agreed["random_seed"]))
        yield replace(settings, workers=replace(workers, checkpoint=kept), seeds=Seeds(entropy))


def _numbers_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that change numbers, those for a call within the call included."""
    taken = {name: value for name, value in arguments.items() if name not in _NO_NUMBERS}
    if taken.get("sample_kwargs"):
        taken["sample_kwargs"] = _numbers_of(taken["sample_kwargs"])
    if isinstance(taken.get("plan"), str):  # the content counts
        taken["plan"] = Path(taken["plan"])
    return taken
