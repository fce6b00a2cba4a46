"""An estimate of log Z as a value, and what data it is of."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Self

import numpy as np

from pymc_hais.estimators.values.factor import BayesFactor, Exponential, LogBayesFactor
from pymc_hais.estimators.values.shown import Finding, Value


@dataclass(frozen=True)
class ObservedData:
    """A description of observed data that identifies them whatever their names."""

    digests: tuple[str, ...]  # one of each observed array, in order; none where a model has no observed variable
    description: str

    def differs(self, other: Self | None) -> bool:
        """Whether these are other data than another estimate's, as far as both are known."""
        return other is not None and bool(self.digests and other.digests) and self.digests != other.digests


def describe_data(arrays: Mapping[str, Any]) -> ObservedData:
    """Describe observed arrays by name; missing values are NaN."""
    named = {name: np.asarray(array) for name, array in arrays.items()}
    texts = ", ".join(f"`{name}` {array.shape}{_mean(array)}" for name, array in named.items())
    return ObservedData(tuple(sorted(map(_digest, named.values()))), texts)


def _mean(array: np.ndarray) -> str:
    known = array[~np.isnan(array)] if array.dtype.kind in "biuf" else array[:0]
    return f" with mean {known.mean():.4g}" if known.size else ""


def _digest(array: np.ndarray) -> str:
    """Digest shape and numbers of an array: equal arrays of any type have the same digest."""
    if array.dtype.kind in "biuf":
        numbers = array.astype(np.float64)
        # One NaN, and no negative zeros.
        content = np.where(np.isnan(numbers), np.nan, numbers + 0.0).tobytes()
    else:
        content = repr(array.tolist()).encode()
    return hashlib.sha256(f"{array.shape}".encode() + content).hexdigest()


@dataclass(frozen=True, repr=False)
class LogZEstimate(Value):
    """A log marginal likelihood (in nats) with its error.

    ``first - second`` is a :class:`LogBayesFactor`, ``first.bayes_factor(second)`` the same on its natural scale; one
    of the two may be a number, such as an exact value.  Estimates of different data have no Bayes factor.
    ``float(estimate)``, ``round(estimate, 2)`` and ``<`` use the value alone.  ``f"{estimate:.2f}"`` is the value with
    its error, ``estimate.log10`` the same to base 10, and ``np.exp(estimate)`` is Z with its interval.

    Attributes
    ----------
    value : float
        log of the mean of the populations' estimates of Z.
    mc_se : float
        Monte Carlo standard error of ``value``: the spread that another seed would show.
    shortfall : float
        How far below log Z the value may lie because particles missed regions that are hard to reach: a one-sided
        allowance by rules of thumb, 0 if nothing indicates it.
    lower, upper : float
        95% interval for log Z.
    estimator : str
    log_prior_mass : float
        The number that was subtracted from the log of the integral of ``exp(model.logp())``, because the prior's
        density does not integrate to one in PyMC; 0 if it does.
    findings : tuple of Finding
    per_chain : tuple of float
        Each population's own estimate.
    quantity : str
        "log marginal likelihood", or the name of ``value`` for an unnormalised model.
    data : ObservedData or None
        Description of the observed data, without the numbers themselves; None if it is not known.
    """

    value: float
    mc_se: float
    lower: float
    upper: float
    shortfall: float = 0.0
    estimator: str = "annealed"
    log_prior_mass: float = 0.0
    findings: tuple[Finding, ...] = ()
    per_chain: tuple[float, ...] = ()
    quantity: str = field(default="log marginal likelihood", compare=False)
    data: ObservedData | None = field(default=None, compare=False)

    _title = "log Z"

    @property
    def se(self) -> float:
        """The whole error, ``mc_se + shortfall``."""
        return self.mc_se + self.shortfall

    @property
    def log_z(self) -> float:
        """Log of the integral of ``exp(model.logp())``: ``value + log_prior_mass``."""
        return self.value + self.log_prior_mass

    def exp(self) -> Exponential:
        """Return Z on its natural scale, as ``np.exp`` does."""
        return Exponential(self)

    def __sub__(self, other: Any) -> LogBayesFactor:
        """Compare with another model's estimate of the same data, or with an exact log Z."""
        if isinstance(other, Real | LogZEstimate):
            return self.bayes_factor(_exact(other) if isinstance(other, Real) else other).log
        if hasattr(other, "coords"):  # of a result, which would subtract its draws from the estimate
            raise TypeError(
                f"A log Bayes factor is of two estimates of log Z; got {type(other).__name__}. Pass "
                "pymc_hais.log_marginal_likelihood(idata)."
            )
        return NotImplemented

    def __rsub__(self, other: Any) -> LogBayesFactor:
        """Compare an exact log Z with this."""
        return _exact(other) - self if isinstance(other, Real) else NotImplemented

    def bayes_factor(self, other: Self | float, *, check_data: bool = True) -> BayesFactor:
        """Compare with another model's estimate: how many times likelier the data are under this model.

        Parameters
        ----------
        other : LogZEstimate or float
            Of the second model; a number is an exact log Z.
        check_data : bool, default True
            Whether the data of both, where they are known, must be the same; False as in :func:`compare`.

        Returns
        -------
        BayesFactor
            ``value`` with its 95% interval ``lower`` to ``upper``; ``log`` is the same in nats.

        Raises
        ------
        ValueError
            If the two estimates are of different data.
        """
        second = _exact(other) if isinstance(other, Real) else other
        if not isinstance(second, LogZEstimate):
            raise ValueError(
                f"A Bayes factor is of two estimates of log Z; got {type(other).__name__}. Pass "
                "pymc_hais.log_marginal_likelihood(idata), or a number."
            )
        if check_data and self.data is not None and second.data is not None and self.data.differs(second.data):
            raise ValueError(
                f"These are estimates of different data ({self.data.description}; {second.data.description}): a Bayes "
                "factor compares models of the same data, on the same scale. If they are the same in another form, "
                "call first.bayes_factor(second, check_data=False)."
            )
        value = self.value - second.value
        below = math.hypot(self.value - self.lower, second.upper - second.value)
        above = math.hypot(self.upper - self.value, second.value - second.lower)
        findings = (*self.findings, *second.findings)
        se = math.hypot(self.se, second.se)
        return BayesFactor(LogBayesFactor(value, se, value - below, value + above, findings))


def _exact(value: Real) -> LogZEstimate:
    return LogZEstimate(float(value), 0.0, float(value), float(value))
