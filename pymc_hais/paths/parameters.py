"""The path that interpolates a parameter instead of the energy: theta(beta) = (1 - beta) theta_0 + beta theta_N.

``ParameterInterpolate`` in the code of Sohl-Dickstein & Culpepper (2012).  The log density f_beta is not linear in
beta, so a change of beta costs one evaluation, and what it adds to a log weight is the exact difference of two values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pymc_hais.types import ParticleState, PathFunctions

__all__ = ["Parameters"]


@dataclass(frozen=True)
class Parameters:
    """See :class:`pymc_hais.types.Path`; the density is ``(position, beta, data) -> f, df / dbeta, grad f, zeros``.

    The state holds f - beta df/dbeta and df/dbeta, the tangent at the beta of its last evaluation, from which the pilot
    chooses the next temperature; the gradient is all in ``grad_reference``.
    """

    name: ClassVar[str] = "parameters"
    n_evaluations: ClassVar[int] = 1
    n_inputs: ClassVar[int] = 0
    arrays: ClassVar[tuple] = ()

    def build(self, xp: Any, density: Any, jit: Any = lambda f: f, jit_density: Any = None) -> PathFunctions:
        """Build the path's functions of one particle."""

        @(jit_density or jit)
        def evaluate(position, beta, data):
            value, slope, gradient, zeros = density(position, beta, data[1])
            return value - beta * slope, slope, gradient, zeros

        @jit
        def log_density(reference, ratio, beta):
            return reference + beta * ratio

        @jit
        def gradient(grad_reference, grad_ratio, beta):
            return grad_reference

        @(jit_density or jit)
        def arrive(state, before, beta, data):
            value = log_density(state.log_reference, state.log_ratio, before)
            log_reference, log_ratio, grad_reference, grad_ratio = evaluate(state.position, beta, data)
            increment = log_density(log_reference, log_ratio, beta) - value
            # A particle of probability zero keeps it: the difference of two infinities is no number.
            increment = xp.where(value == -xp.inf, -xp.inf, increment)
            values = (log_reference, log_ratio, grad_reference, grad_ratio)
            return ParticleState(state.position, state.momentum, *values), increment

        return PathFunctions(evaluate, log_density, gradient, arrive)
