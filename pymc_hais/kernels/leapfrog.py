"""Leapfrog steps in whitened coordinates, kick-drift-kick or drift-kick-drift."""

from typing import Any

from pymc_hais.core.records import Jit, Loop, ParticleState, PathFunctions, Xp
from pymc_hais.kernels.metropolis import build_repeat, identity, plain_loop
from pymc_hais.kernels.reflection import LinearConstraints, build_reflecting_drift

#: Dimensions up to which a dense metric costs so little that a pilot learns one wherever its particles suffice.
CHEAP_DENSE = 125


def build_metric(jit: Jit = identity) -> tuple[Any, Any]:
    """Build ``push(metric, vector)``, the product L v, and ``pull(metric, vector)``, L' v."""

    @jit
    def push(metric, vector):
        if metric.ndim == 1:
            return metric * vector
        return metric @ vector

    @jit
    def pull(metric, vector):
        if metric.ndim == 1:
            return metric * vector
        return metric.T @ vector

    return push, pull


def build_leapfrog(
    xp: Xp,
    path: PathFunctions,
    integrator: str = "kick-drift-kick",
    n_leapfrog: int = 1,
    constraints: LinearConstraints | None = None,
    jit: Jit = identity,
    jit_density: Jit | None = None,
    loop: Loop = plain_loop,
) -> Any:
    """Build ``leapfrog(state, beta, step_size, metric, data) -> ParticleState``.

    With L the metric's factor and u the whitened momentum, a kick moves u by eps L' g and a drift moves x
    by eps L u.  At walls every drift reflects.
    """
    push, pull = build_metric(jit)

    def drift(position, momentum, time, metric):
        return position + time * push(metric, momentum), momentum

    if constraints is not None:
        drift = build_reflecting_drift(xp, constraints, push, pull, jit, loop)
    drift = jit(drift)
    return INTEGRATORS[integrator](xp, path, pull, drift, n_leapfrog, jit, jit_density or jit, loop)


def _build_kick_drift_kick(xp, path, pull, drift, n_leapfrog, jit, jit_density, loop):
    """One evaluation a step, since the gradients at its start are carried in the state."""
    evaluate, gradient_at = path.evaluate, path.gradient

    def step(state, beta, step_size, metric, data):
        gradient = gradient_at(state.grad_reference, state.grad_ratio, beta)
        momentum = state.momentum + 0.5 * step_size * pull(metric, gradient)
        position, momentum = drift(state.position, momentum, step_size, metric)
        log_reference, log_ratio, grad_reference, grad_ratio = evaluate(position, beta, data)
        momentum = momentum + 0.5 * step_size * pull(metric, gradient_at(grad_reference, grad_ratio, beta))
        return ParticleState(position, momentum, log_reference, log_ratio, grad_reference, grad_ratio)

    if n_leapfrog == 1:
        return step
    compiled_step = jit_density(step)

    def one_more(carry, constants):
        n_done, state = carry
        beta, step_size, metric, data = constants
        return n_done + 1, compiled_step(state, beta, step_size, metric, data)

    run = build_repeat(n_leapfrog, one_more, jit, jit_density, loop)

    def leapfrog(state, beta, step_size, metric, data):
        return run((0, state), (beta, step_size, metric, data))[1]

    return leapfrog


def _build_drift_kick_drift(xp, path, pull, drift, n_leapfrog, jit, jit_density, loop):
    """Sohl-Dickstein & Culpepper (2012), arXiv:1205.1925, section 3: gradients midway, an energy at the end.

    n steps cost n + 1 evaluations; XLA leaves out the energies and the gradient of them that nothing reads.  The half
    drifts between steps are joined.  The state's gradients stay as they are: no step reads them.
    """
    evaluate, gradient_at = path.evaluate, path.gradient

    def one_more(carry, constants):
        n_done, position, momentum = carry
        beta, step_size, metric, data = constants
        _, _, grad_reference, grad_ratio = evaluate(position, beta, data)
        momentum = momentum + step_size * pull(metric, gradient_at(grad_reference, grad_ratio, beta))
        share = xp.where(n_done < n_leapfrog - 1, 1.0, 0.5)
        position, momentum = drift(position, momentum, share * step_size, metric)
        return n_done + 1, position, momentum

    run = build_repeat(n_leapfrog, one_more, jit, jit_density, loop)

    def leapfrog(state, beta, step_size, metric, data):
        position, momentum = drift(state.position, state.momentum, 0.5 * step_size, metric)
        _, position, momentum = run((0, position, momentum), (beta, step_size, metric, data))
        log_reference, log_ratio, _, _ = evaluate(position, beta, data)
        return ParticleState(position, momentum, log_reference, log_ratio, state.grad_reference, state.grad_ratio)

    return leapfrog


INTEGRATORS = {"kick-drift-kick": _build_kick_drift_kick, "drift-kick-drift": _build_drift_kick_drift}
