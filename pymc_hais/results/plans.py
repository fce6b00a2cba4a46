"""The plan of a run, as a group of its result or as a file, and whole results on disk."""

import os
from pathlib import Path

import numpy as np
from xarray import Dataset, DataTree

from pymc_hais.core.files import encode, replacing, write_record
from pymc_hais.core.messages import shown
from pymc_hais.inputs.saved import RECORD, RESULT, arrays_and_facts
from pymc_hais.run.plan import Plan, encode_plan
from pymc_hais.runner.runner import Runner


def plan_group(plan: Plan) -> Dataset:
    """Put a plan into a group as one variable, which is one line on a screen: the bytes of its file."""
    return Dataset({RECORD: ("byte", np.frombuffer(encode(*encode_plan(plan)), np.uint8))})


def save_plan(idata: DataTree, path: str | os.PathLike[str]) -> None:
    """Write what a run learnt to a file, for ``sample_hais(plan=path)``: runs of other data then need no pilot.

    Parameters
    ----------
    idata : DataTree
        Result of :func:`sample_hais`.  It keeps its plan itself, as the group ``plan``, and may be passed as ``plan=``
        in place of the file.
    path : path-like
        In an existing folder.  The file is NumPy's ``.npz`` whatever its name; a file of that name is replaced.

    Raises
    ------
    ValueError
        If ``idata`` has no plan, or ``path`` does not name a file.
    OSError
        If the file cannot be written.

    See Also
    --------
    extend : more particles along the same plan, for the same data.

    Examples
    --------
    >>> idata = pm.sample_hais()  # doctest: +SKIP
    >>> pymc_hais.save_plan(idata, "radon.plan")  # doctest: +SKIP
    >>> pm.set_data({"y": other})  # doctest: +SKIP
    >>> idata = pm.sample_hais(plan="radon.plan")  # doctest: +SKIP
    """
    arrays, facts = arrays_and_facts(idata, "idata")
    if not isinstance(path, str | os.PathLike) or Path(path).is_dir():
        raise ValueError(f"`path` must be the path of a file to write, not of a folder; got {shown(path)}.")
    write_record(Path(path), arrays, facts)


def keep_result(idata: DataTree, runner: Runner) -> None:
    """Write a result into the folder of its run, if the run is complete; a stopped run continues from its pieces."""
    checkpoint = runner.workers.checkpoint
    if checkpoint is None or runner.ledger.is_interrupted:
        return
    path = checkpoint.path / RESULT

    def write() -> None:
        with replacing(path) as temporary:
            idata.to_netcdf(temporary, engine="h5netcdf")

    # A full disk, or coordinates that the format does not take.
    runner.attempt(f"its file {str(path)!r}", write, None)
