"""Whether the kernel draws discrete sites with the odds that the log density gives them."""

from typing import NamedTuple

import numpy as np

from pymc_hais.problem.problem import CHUNK

#: Particles examined at most: they fill one evaluation with those that are changed.
MOST = 50
#: Sites that are changed together, at most.
_TOGETHER = CHUNK // MOST - 2
#: Share of a change that is rounding, at least.
_RELATIVE = 1e-5
#: Beyond this many nats a difference stands for infinity.
_INFINITE = 1e15
#: How far a site without an end of values is moved, at most.
_FAR = 3


class _Trial(NamedTuple):
    """Sites of one colour that are changed."""

    rows: np.ndarray  # (2 + n, D): the particle, with all of them changed, and with each changed alone
    sites: np.ndarray  # (n,)
    steps: np.ndarray  # (n,)


def wrong_odds(problem, particles, row=0):
    """Return the variables whose log odds in the kernel differ from the change of the log density, at particles (n, D).

    The kernel's odds of a site are those that it takes while all sites of a colour change; the change is that of the
    whole log density when the site changes alone, at either end of the path.
    """
    blocks = problem.engine.kernel.site_blocks
    return [problem.layout.owner_of(block.start) for block in blocks if _is_wrong(problem, row, block, particles)]


def _is_wrong(problem, row, block, particles):
    rng = np.random.default_rng(row)
    trials = [_change(block, particle, rng) for particle in particles[:MOST]]
    rows = np.concatenate([trial.rows for trial in trials])
    # Always as many, so that nothing compiles twice.
    padded = np.concatenate([rows, np.repeat(rows[-1:], CHUNK - len(rows), axis=0)])
    state = problem.evaluate(padded, row)
    first = 0
    for trial in trials:
        own = type(state)(*(np.asarray(leaf)[first : first + len(trial.rows)] for leaf in state))
        first += len(trial.rows)
        if _differs(block, trial, own, problem.layout.dtype):
            return True
    return False


def _change(block, particle, rng):
    """Choose other values for some sites of a colour."""
    shared = np.flatnonzero(block.colours == rng.integers(block.n_colours))
    chosen = block.start + rng.choice(shared, min(_TOGETHER, shared.size), replace=False)
    if block.n_values:
        shift = rng.integers(1, max(2, block.n_values), chosen.size)
        values = block.low + (particle[chosen] - block.low + shift) % block.n_values
    else:
        values = particle[chosen] + rng.choice([-1, 1], chosen.size) * rng.integers(1, _FAR + 1, chosen.size)
    rows = np.repeat(particle[None], chosen.size + 2, axis=0)
    rows[1, chosen] = values
    rows[2 + np.arange(chosen.size), chosen] = values
    return _Trial(rows, chosen, values - particle[chosen])


@np.errstate(invalid="ignore", over="ignore")
def _differs(block, trial, state, dtype):
    """Whether the odds of one of the changed sites are wrong, beyond rounding."""
    eps = float(np.finfo(dtype).eps)
    claimed, changes = [], []
    for value, slope in ((state.log_reference, state.grad_reference), (state.log_ratio, state.grad_ratio)):
        if not np.isfinite(value[0]):
            return False  # a particle without weight tells nothing
        at_sites = slope[:, trial.sites]
        claim = trial.steps * at_sites[0] if block.rule == "gradient" else at_sites[1] - at_sites[0]
        change = value[2:] - value[0]
        # PyTensor keeps some numbers in single precision, also where the density has double.
        relative = max(_RELATIVE, 10.0 * np.sqrt(eps))
        limit = relative * (1.0 + np.abs(change)) + 100.0 * eps * np.abs(value[0])
        if np.any(np.isfinite(change) & ~(np.abs(claim - change) <= limit)):
            return True
        claimed.append(claim)
        changes.append(change)
    # What is impossible has to be so for the kernel, which takes no number for the least.
    is_impossible = ~np.isfinite(np.sum(changes, axis=0))
    return bool(np.any(is_impossible & (np.sum(claimed, axis=0) > -_INFINITE)))
