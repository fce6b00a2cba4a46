"""What is said of a fit that ended early."""

from collections.abc import Iterator

from pymc_hais.estimators import Finding
from pymc_hais.results.findings import say


def check_convergence(reason: str, excess: float, tolerance: float, n_steps: int) -> Iterator[Finding]:
    """Say that a fit has not converged, and why, if it has not."""
    if reason != "tolerance":
        yield say(f"not_converged: {reason}", excess=excess, tolerance=tolerance, n_steps=n_steps)
