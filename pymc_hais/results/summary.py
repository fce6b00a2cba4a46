"""A result -> a few lines: log Z, its error, the run and its cost, and the findings."""

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from xarray import Dataset, DataTree

from pymc_hais.estimators import LogZEstimate
from pymc_hais.estimators.values import to_html, to_text
from pymc_hais.inputs.results import log_marginal_likelihood, open_result
from pymc_hais.runner.timing import duration


@dataclass(frozen=True, repr=False)
class Summary:
    """A few lines on a result, as text and, in a notebook, as HTML.

    Attributes
    ----------
    estimate : LogZEstimate
        log Z with its error and findings.
    run : str
        Chains, draws, time, temperatures and reference; the shares of several modes.
    """

    estimate: LogZEstimate
    run: str

    def __repr__(self) -> str:
        """Show the estimate, the run, and one finding a line."""
        return to_text(self._headline(), self.estimate.findings)

    def _repr_html_(self) -> str:
        """Show the same with a list of the findings."""
        return to_html(self._headline(), self.estimate.findings)

    def _headline(self) -> str:
        end = "" if self.estimate.findings else "\nNo findings"
        return f"{replace(self.estimate, findings=())!r}\n{self.run}{end}"


def summary(idata: DataTree | str | os.PathLike[str]) -> Summary:
    """Summarise a result in a few lines: log Z and its error, the run and its seconds, and the findings.

    Parameters
    ----------
    idata : DataTree or path
        Result of :func:`sample_hais` or :func:`extend`, or the name of its file.

    Returns
    -------
    Summary
        Shown as text, and as HTML in a notebook.

    Raises
    ------
    ValueError
        If ``idata`` holds no log Z, or its file cannot be read.

    Examples
    --------
    >>> idata = pm.sample_hais()  # doctest: +SKIP
    >>> pymc_hais.summary(idata)  # doctest: +SKIP
    log Z = -31.327 ± 0.012 (95% interval -31.350 to -31.303)
    4 chains of 1,000 draws in 3 s: 1 round of 16 temperatures from the prior
    No findings
    """
    result = open_result(idata)
    estimate = log_marginal_likelihood(result)
    run = _describe({str(name): value for name, value in result["posterior"].attrs.items()})
    return Summary(estimate, run + _describe_modes(result))


def _describe(attrs: dict[str, Any]) -> str:
    """Describe a run by the attributes of its result."""
    text = f"{attrs['chains']} chain{'s' if attrs['chains'] > 1 else ''}"
    text += f" of {attrs['draws']:,} draws" if "draws" in attrs else ""
    text += f" in {duration(attrs['total_time'])}" if "total_time" in attrs else ""
    if not attrs.get("n_rounds"):
        return text
    rounds, n_steps = attrs["n_rounds"], attrs["n_temperatures"]
    length = f"{n_steps:,} temperature{'' if n_steps == 1 else 's'}"
    made = f"{rounds} rounds, the last of {length}," if rounds > 1 else f"1 round of {length}"
    return f"{text}: {made} from {attrs['reference']}"


def _describe_modes(idata: DataTree) -> str:
    """Describe the shares of Z around the five largest modes, if several have a share.

    Results of earlier versions have no errors of the shares.
    """
    group = idata["modes"].to_dataset() if "modes" in idata.children else Dataset()
    if "share_se" not in group or np.sum(group["share"] > 0.001) < 2:
        return ""
    order = np.argsort(-group["share"].values)[:5]
    shares = [f"{group['share'].values[i]:.2f} ± {group['share_se'].values[i]:.2f}" for i in order]
    rest = ", ..." if group.sizes["mode"] > len(order) else ""
    return f"\nShares of the posterior around the modes: {', '.join(shares)}{rest}"
