"""Wrong programs that a test must catch, made from the package's own source so that they follow it."""

import inspect
import sys
import types

from pymc_hais.kernels import hamiltonian, leapfrog, metropolis


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
    kick = "momentum + 0.5 * step_size * pull(metric, grad_reference + beta * grad_ratio)"
    return _of_leapfrog((kick, "momentum"))


def _gradient_of_the_wrong_beta():
    # In one half kick: the same wrong gradient in both is still reversible, hence invariant, and only
    # costs acceptance (the energy error's order in the step size shows it).
    return _of_leapfrog(("beta * state.grad_ratio", "0.5 * beta * state.grad_ratio"))


def _energy_of_the_wrong_beta():
    energies = (
        ("beta * start.log_ratio", "0.8 * beta * start.log_ratio"),
        ("beta * end", "0.8 * beta * end"),
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
