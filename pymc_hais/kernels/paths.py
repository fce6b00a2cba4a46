"""Paths from the reference to the target: geometric, or along a parameter of the model.

On the geometric path the log density is log q + beta (log p - log q), linear in beta: value and gradient of both ends
are kept apart in the state, so a change of beta costs nothing and is exact.

The path that interpolates a parameter instead of the energy: theta(beta) = (1 - beta) theta_0 + beta theta_N.

``ParameterInterpolate`` in the code of Sohl-Dickstein & Culpepper (2012).  The log density f_beta is not linear in
beta, so a change of beta costs one evaluation; the log weight grows by the exact difference of two values.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from pymc_hais.core.records import Compiled, Jit, ParticleState, PathFunctions, Xp


def build_linear(jit: Jit) -> tuple[Any, Any]:
    """Build ``at(reference, ratio, beta)`` and ``arrive`` of a path on which the log density is linear in beta."""

    @jit
    def at(reference, ratio, beta):
        return reference + beta * ratio

    @jit
    def arrive(state, before, beta, data):
        return state, (beta - before) * state.log_ratio

    return at, arrive


@dataclass(frozen=True)
class Geometric:
    """See :class:`pymc_hais.core.protocols.Path`; the density is ``(position, data) -> values``."""

    name: ClassVar[str] = "geometric"
    n_evaluations: ClassVar[int] = 0
    n_inputs: ClassVar[int] = 0
    arrays: ClassVar[tuple] = ()

    def build(self, xp: Xp, density: Compiled, jit: Jit = lambda f: f, jit_density: Jit | None = None) -> PathFunctions:
        """Build the path's functions of one particle."""

        @(jit_density or jit)
        def evaluate(position, beta, data):
            return density(position, data[1])

        at, arrive = build_linear(jit)
        return PathFunctions(evaluate, at, at, arrive)


@dataclass(frozen=True)
class Parameters:
    """See :class:`pymc_hais.core.protocols.Path`.

    The density is ``(position, beta, data) -> f, df / dbeta, grad f, zeros``.

    The state holds f - beta df/dbeta and df/dbeta, the tangent at the beta of its last evaluation, from which the pilot
    chooses the next temperature; the gradient is all in ``grad_reference``.
    """

    name: ClassVar[str] = "parameters"
    n_evaluations: ClassVar[int] = 1
    n_inputs: ClassVar[int] = 0
    arrays: ClassVar[tuple] = ()

    def build(self, xp: Xp, density: Compiled, jit: Jit = lambda f: f, jit_density: Jit | None = None) -> PathFunctions:
        """Build the path's functions of one particle."""

        @(jit_density or jit)
        def evaluate(position, beta, data):
            value, slope, gradient, zeros = density(position, beta, data[1])
            return value - beta * slope, slope, gradient, zeros

        log_density, _ = build_linear(jit)

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
