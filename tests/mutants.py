"""Wrong programs that a test must catch, made from the package's own source so that they follow it."""

import inspect
import sys
import types

from pymc_hais.kernels import hamiltonian, leapfrog, metropolis, random_walk, reflection


def mutate(module, *replacements, **replaced_names):
    """Return a copy of a module with pieces of its text, and then names in it, replaced."""
    source = inspect.getsource(module)
    for old, new in replacements:
        assert source.count(old) == 1, f"{module.__name__} no longer holds {old!r} exactly once"
        source = source.replace(old, new)
    mutant = types.ModuleType(f"{module.__name__}_mutant")
    sys.modules[mutant.__name__] = mutant  # dataclasses look their module up
    try:
        exec(compile(source, f"<mutant of {module.__name__}>", "exec"), mutant.__dict__)
    finally:
        del sys.modules[mutant.__name__]
    mutant.__dict__.update(replaced_names)
    return mutant


def _of_leapfrog(*replacements):
    return mutate(hamiltonian, build_leapfrog=mutate(leapfrog, *replacements).build_leapfrog)


def _of_metropolis(*replacements):
    return mutate(hamiltonian, build_accept=mutate(metropolis, *replacements).build_accept)


def _first_half_kick_missing():
    return _of_leapfrog(("state.momentum + 0.5 * step_size * pull(metric, gradient)", "state.momentum"))


def _second_half_kick_missing():
    kick = "momentum + 0.5 * step_size * pull(metric, gradient_at(grad_reference, grad_ratio, beta))"
    return _of_leapfrog((kick, "momentum"))


def _gradient_of_the_wrong_beta():
    # In one half kick: the same wrong gradient in both is still reversible, hence invariant, and only
    # costs acceptance (the energy error's order in the step size shows it).
    return _of_leapfrog(
        ("(state.grad_reference, state.grad_ratio, beta)", "(state.grad_reference, state.grad_ratio, 0.5 * beta)")
    )


def _energy_of_the_wrong_beta():
    energies = (
        ("start.log_ratio, beta)", "start.log_ratio, 0.8 * beta)"),
        ("end.log_ratio, beta)", "end.log_ratio, 0.8 * beta)"),
    )
    return mutate(hamiltonian, *energies)


def _accept_always():
    return _of_metropolis(("uniform < acceptance", "uniform < 2.0"))


def _sign_of_the_energy_error():
    return _of_metropolis(("log_start - log_end", "log_end - log_start"))


def _no_flip_on_rejection():
    return mutate(hamiltonian, ("-momentum, *rest", "momentum, *rest"))


def _refresh_without_the_square_root():
    return mutate(hamiltonian, ("xp.sqrt(1.0 - keep * keep)", "(1.0 - keep * keep)"))


#: Each builds a module with a wrong ``build_hamiltonian``.
HAMILTONIAN_MUTANTS = [
    _accept_always,
    _first_half_kick_missing,
    _second_half_kick_missing,
    _gradient_of_the_wrong_beta,
    _energy_of_the_wrong_beta,
    _sign_of_the_energy_error,
    _no_flip_on_rejection,
    _refresh_without_the_square_root,
]


def _first_half_drift_short():
    return _of_leapfrog(("state.momentum, 0.5 * step_size", "state.momentum, 0.3 * step_size"))


def _last_half_drift_short():
    return _of_leapfrog(("n_leapfrog - 1, 1.0, 0.5)", "n_leapfrog - 1, 1.0, 0.3)"))


def _energy_of_the_start():
    evaluation = "log_reference, log_ratio, _, _ = evaluate("
    return _of_leapfrog((evaluation + "position", evaluation + "state.position"))


#: The same for the drift-kick-drift integrator.
DRIFT_KICK_DRIFT_MUTANTS = [
    _accept_always,
    _energy_of_the_wrong_beta,
    _energy_of_the_start,
    _first_half_drift_short,
    _last_half_drift_short,
    _no_flip_on_rejection,
]


def _walk_that_accepts_always():
    return mutate(random_walk, build_accept=mutate(metropolis, ("uniform < acceptance", "uniform < 2.0")).build_accept)


def _walk_with_the_sign_wrong():
    return mutate(
        random_walk, build_accept=mutate(metropolis, ("log_start - log_end", "log_end - log_start")).build_accept
    )


def _walk_of_the_wrong_beta():
    return mutate(random_walk, ("end.log_ratio, beta), -xp.inf", "end.log_ratio, 0.8 * beta), -xp.inf"))


def _walk_with_a_lopsided_proposal():
    return mutate(random_walk, ("position = state.position +", "position = 0.9 * state.position +"))


#: Each builds a module with a wrong ``RandomWalk``.
RANDOM_WALK_MUTANTS = [
    _walk_that_accepts_always,
    _walk_with_the_sign_wrong,
    _walk_of_the_wrong_beta,
    _walk_with_a_lopsided_proposal,
]


def of_reflection(*replacements, **replaced_names):
    """Return a Hamiltonian module whose walls are wrong."""
    wrong = mutate(reflection, *replacements, **replaced_names)
    of_leapfrog = mutate(leapfrog, build_reflecting_drift=wrong.build_reflecting_drift)
    return mutate(hamiltonian, build_leapfrog=of_leapfrog.build_leapfrog)


def _momentum_not_negated():
    return of_reflection(("position, momentum, _, remaining", "position, _, _, remaining"))


def _euclidean_normal():
    return of_reflection(("pull(metric, normals[nearest])", "normals[nearest]"))


def _build_mirror(xp, constraints, push, pull, jit, loop):
    """Mirror the end of a free drift at the walls that it passed, and leave the momentum."""
    normals, bounds = xp.asarray(constraints.normals), xp.asarray(constraints.bounds)

    def drift(position, momentum, time, metric):
        position = position + time * push(metric, momentum)
        for normal, bound in zip(normals, bounds, strict=True):
            excess = xp.maximum(xp.sum(normal * position) - bound, 0.0) / xp.sum(normal * normal)
            position = position - 2.0 * excess * normal
        return position, momentum

    return drift


def _position_only_mirrored():
    return mutate(hamiltonian, build_leapfrog=mutate(leapfrog, build_reflecting_drift=_build_mirror).build_leapfrog)


def _build_mirror_of_both(xp, constraints, push, pull, jit, loop):
    """Mirror position and momentum at the walls that the end passed, each wall once: right with one wall only."""
    normals, bounds = xp.asarray(constraints.normals), xp.asarray(constraints.bounds)

    def drift(position, momentum, time, metric):
        position = position + time * push(metric, momentum)
        for row, bound in zip(normals, bounds, strict=True):
            normal = pull(metric, row)
            excess = xp.maximum(xp.sum(row * position) - bound, 0.0)
            length = xp.sum(normal * normal)
            position = position - 2.0 * excess / length * push(metric, normal)
            turn = xp.where(excess > 0.0, 2.0 * xp.sum(normal * momentum) / length, 0.0)
            momentum = momentum - turn * normal
        return position, momentum

    return drift


def mirrored_at_each_wall_once():
    """Return a Hamiltonian module that mirrors the end of a drift, as if there were one wall."""
    of_leapfrog = mutate(leapfrog, build_reflecting_drift=_build_mirror_of_both)
    return mutate(hamiltonian, build_leapfrog=of_leapfrog.build_leapfrog)


#: Each builds a module with a ``build_hamiltonian`` that reflects wrongly, under a correlated metric at least.
REFLECTION_MUTANTS = [_momentum_not_negated, _euclidean_normal, _position_only_mirrored]


def walk_that_ignores_the_walls():
    """Return a module with a ``RandomWalk`` that accepts what lies outside."""
    return mutate(random_walk, ("xp.where(is_inside(position), ", "xp.where(True, "))
