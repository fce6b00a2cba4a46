"""Results and plans on disk."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from xarray import DataTree

from pymc_hais.core.files import decode, read_record, write_record
from pymc_hais.core.messages import shown
from pymc_hais.run.plan import Plan, decode_plan

#: The group of a result.
PLAN = "plan"
#: Its variable.
RECORD = "record"
#: The file of a result in the folder of a checkpoint.
RESULT = "result.nc"


def read_plan(source: Any, argument: str = "plan") -> Plan:
    """Read the plan of a result, which messages call ``argument``, or of a file of a plan or of a result."""
    if isinstance(source, str | os.PathLike):
        path, beginning, of_zip, of_hdf5 = Path(source), b"", b"PK", b"\x89HDF"  # save_plan writes zip files
        if path.is_file():
            with path.open("rb") as file:
                beginning = file.read(len(of_hdf5))
        if path.is_dir() or (path.is_file() and not beginning.startswith((of_zip, of_hdf5))):
            raise ValueError(
                f"`plan` is {str(path)!r}, which is neither a file of pymc_hais.save_plan nor one of a result: pass "
                f"the path of such a file (in the folder of a checkpoint it is {RESULT}), or a result of sample_hais."
            )
        if beginning != of_hdf5:
            return decode_plan(*read_record(path))
        source = open_result(path)
    return decode_plan(*_arrays_and_facts(source, argument))


def _arrays_and_facts(idata: Any, argument: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays of the plan of a result, which messages call ``argument``, and its other facts."""
    if not isinstance(idata, DataTree):
        raise ValueError(
            f"`{argument}` must be a result of sample_hais"
            + (", or the path of its file or of one of pymc_hais.save_plan" if argument == "plan" else "")
            + f"; got {type(idata).__name__}."
        )
    group = idata.children[PLAN].to_dataset() if PLAN in idata.children else {}
    if RECORD not in group:
        groups = ", ".join(idata.children) or "none"
        raise ValueError(
            f"`{argument}` has no group `{PLAN}` that can be read (its groups: {groups}): it is not a result of "
            "sample_hais, an earlier version made it, its model has no free variables, or its path moves a parameter "
            "or starts from another model. Run sample_hais anew."
        )
    return decode(np.asarray(group[RECORD].values, np.uint8).tobytes())


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
    arrays, facts = _arrays_and_facts(idata, "idata")
    if not isinstance(path, str | os.PathLike) or Path(path).is_dir():
        raise ValueError(f"`path` must be the path of a file to write, not of a folder; got {shown(path)}.")
    write_record(Path(path), arrays, facts)


def open_result(source: Any) -> Any:
    """Return a result, read from its file or from the folder of its checkpoint where a path is given.

    Raises ValueError if there is no result, or it cannot be read.
    """
    if not isinstance(source, str | os.PathLike):
        return source
    path = Path(source).expanduser()
    is_zarr = any((path / name).exists() for name in (".zgroup", "zarr.json"))
    if path.is_dir() and not is_zarr:
        path = path / RESULT
        if not path.exists():
            raise ValueError(
                f"The run in the folder {str(source)!r} is not finished: repeat the call that began it, with "
                f"checkpoint={str(source)!r}, to finish it."
            )
    if not path.exists():
        raise ValueError(f"There is no file {str(path)!r}: pass the path of a result that was saved.")
    try:
        with xarray.open_datatree(path, engine="zarr" if is_zarr else "h5netcdf") as opened:
            return opened.load()
    except Exception as error:  # HDF5 raises anything at a file that is none of its own
        raise ValueError(
            f"The file {str(path)!r} cannot be read as a result ({type(error).__name__}): pass what sample_hais "
            "returned, a file that its to_netcdf or to_zarr wrote, or the folder of a checkpoint."
        ) from error
