"""Results, files, estimates and numbers that a user compares -> the estimate of each, and its draws if it has any."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
from xarray import DataTree

from pymc_hais.core.messages import shown
from pymc_hais.estimators import LogZEstimate, to_estimate
from pymc_hais.inputs.estimates import EVIDENCE, data_of, log_marginal_likelihood
from pymc_hais.inputs.saved import open_result


def read_results(results: Any) -> tuple[dict[str, LogZEstimate], dict[str, Any]]:
    """Return the estimate of each model, and its DataTree (None where only log Z is given).

    Raises ValueError for fewer than two results, files that cannot be read, and what holds no log Z.
    """
    _check_mapping(results)
    pairs = {name: _read(name, given) for name, given in results.items()}
    return {name: one for name, (one, _) in pairs.items()}, {name: tree for name, (_, tree) in pairs.items()}


def _check_mapping(results: Any) -> None:
    """Refuse anything but a dictionary of at least two results."""
    if isinstance(results, Sequence) and not isinstance(results, str):
        names = ", ".join(f"{name!r}: ..." for name in "abcdefgh"[: len(results)])
        raise ValueError(
            f"`results` must be a dictionary that names the models, {{{names}}}; got a list without names."
        )
    # A result by itself is a mapping, too.
    if not isinstance(results, Mapping) or len(results) < 2 or isinstance(results, DataTree):
        got = f"{len(results)}" if isinstance(results, dict) else type(results).__name__
        raise ValueError(
            "`results` must be a dictionary of at least two results of sample_hais, or estimates of log Z, such as "
            f"{{'a': idata_a, 'b': idata_b}}; got {got}."
        )


def _read(name: Any, given: Any) -> tuple[LogZEstimate, Any]:
    """Return the estimate and the DataTree of one model's entry."""
    if isinstance(given, str | os.PathLike):
        given = open_result(given)
    if isinstance(given, tuple) and len(given) == 2:
        return _read_pair(name, *given)
    if isinstance(given, LogZEstimate):
        return given, None
    if is_number(given):
        return _from_number(name, given), None
    groups = _groups(given)
    if "posterior" in groups and EVIDENCE not in groups:
        raise ValueError(
            f"The result of {name!r} has posterior draws but no log Z, as those of pm.sample: call pm.sample_hais, or "
            f"estimate log Z from the draws, {{{name!r}: (idata, pymc_hais.bridge(model, idata))}}."
        )
    if EVIDENCE not in groups:
        raise ValueError(
            f"The result of {name!r} must be the whole DataTree that sample_hais returns, the name of its file, an "
            f"estimate of log Z, a number, or (log Z, its standard error); got {shown(given)}."
        )
    return log_marginal_likelihood(given), given


def _read_pair(name: Any, first: Any, second: Any) -> tuple[LogZEstimate, Any]:
    """Read (log Z, its standard error), or (draws, their log Z)."""
    if is_number(first):
        return _from_number(name, first, second), None
    tree = open_result(first)
    if "posterior" not in _groups(tree):
        raise ValueError(
            f"The pair of {name!r} must be (log Z, its standard error) or (posterior draws, log Z); got "
            f"({shown(first)}, {shown(second)})."
        )
    estimate, _ = _read(name, second)
    return (replace(estimate, data=data_of(tree)) if estimate.data is None else estimate), tree


def is_number(thing: Any) -> bool:
    """Whether something is a real number, of Python, NumPy or xarray."""
    is_array = getattr(thing, "ndim", None) == 0 and getattr(thing, "dtype", np.dtype(object)).kind in "fiu"
    return is_array or (isinstance(thing, Real) and not isinstance(thing, bool))


def _from_number(name: Any, value: Any, se: Any = 0.0) -> LogZEstimate:
    """Take a log Z as exact, or with a standard error."""
    if math.isnan(value) or value == math.inf:
        raise ValueError(f"log Z of {name!r} must be a number; got {float(value)}.")
    if not is_number(se) or not 0.0 <= se < math.inf:
        raise ValueError(f"The standard error of log Z of {name!r} must be a number of at least 0; got {shown(se)}.")
    return to_estimate(float(value), float(se), "given")


def _groups(idata: Any) -> list[str]:
    """Name the groups of a DataTree, or of ArviZ's older InferenceData."""
    found = idata.children if hasattr(idata, "children") else getattr(idata, "groups", ())
    return [str(name).lstrip("/") for name in (found() if callable(found) else found)]
