"""Results on disk: beside the checkpoint of the run that they end, or wherever a user has written one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import xarray
from xarray import DataTree

from pymc_hais.run.checkpoint import Checkpoint
from pymc_hais.run.files import replacing
from pymc_hais.run.guard import Guard

__all__ = ["keep_result", "open_result"]

_RESULT = "result.nc"


def keep_result(idata: DataTree, checkpoint: Checkpoint | None, guard: Guard) -> None:
    """Write a result into the folder of its run, if that has ended: one that was cut short goes on from its pieces."""
    if checkpoint is None or guard.is_interrupted:
        return
    path = checkpoint.path / _RESULT

    def write() -> None:
        with replacing(path) as temporary:
            idata.to_netcdf(temporary, engine="h5netcdf")

    # A full disk, or coordinates that the format does not take.
    guard.attempt(f"its file {str(path)!r}", write, None)


def open_result(source: Any) -> Any:
    """Return a result, read from its file or from the folder of its checkpoint where a path is given.

    Parameters
    ----------
    source : DataTree or path

    Raises
    ------
    ValueError
        If there is no result, or it cannot be read.
    """
    if not isinstance(source, str | os.PathLike):
        return source
    path = Path(source).expanduser()
    if path.is_dir():
        path = path / _RESULT
        if not path.exists():
            raise ValueError(
                f"The folder {str(source)!r} has no finished run: make the call that began it again, with "
                f"checkpoint={str(source)!r}, and it goes on to its end."
            )
    try:
        with xarray.open_datatree(path, engine="h5netcdf") as opened:
            return opened.load()
    except Exception as error:  # HDF5 raises anything at a file that is none of its own
        raise ValueError(
            f"The file {str(path)!r} cannot be read as a result ({type(error).__name__}): pass what sample_hais "
            "returned, a file that its to_netcdf wrote, or the folder of a checkpoint."
        ) from error
