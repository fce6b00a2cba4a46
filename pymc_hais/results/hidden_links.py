"""The finding that sites which are drawn together are not independent, as they were found to be before the run."""

from __future__ import annotations

import numpy as np

from pymc_hais.core.weights import pool
from pymc_hais.estimators import Finding
from pymc_hais.kernels import Composed, SiteBlock
from pymc_hais.run.problem import CHUNK, Problem, in_chunks
from pymc_hais.types import AnnealingRun

__all__ = ["hidden_links"]

#: Sites that are changed together, at most.
_TOGETHER = 8


def hidden_links(problem: Problem, run: AnnealingRun) -> tuple[Finding, ...]:
    """Change sites of one colour together and alone, at final particles: the log density tells whether they interact.

    An interaction may show in rare states only, which random ones before the run did not meet.
    """
    kernel = problem.engine.kernel
    if not isinstance(kernel, Composed) or problem.n_rows > 1 or not np.isfinite(run.log_z).any():
        return ()
    weights = np.exp(pool(run.log_weights, run.log_z)).ravel()
    positions = np.asarray(run.state.position, np.float64).reshape(weights.size, -1)
    rng = np.random.default_rng(0)
    picked = positions[rng.choice(weights.size, CHUNK, p=weights / weights.sum())]
    blocks = [block for block in kernel.site_blocks if block.rule != "slope" and not block.is_single]
    linked = [problem.layout.owner_of(block.start) for block in blocks if _is_linked(problem, block, picked, rng)]
    if not linked:
        return ()
    names = ", ".join(f"`{name}`" for name in dict.fromkeys(linked))
    return (
        Finding(
            "hidden_links",
            "error",
            f"Elements of {names} that are drawn together, because they were independent of one another at random "
            "states before the run, are not at the particles that it ended with: log Z may be wrong.",
            "Write the rare interaction so that PyMC sees it in every state, or report it; for variables of 0 and 1, "
            "kernel=pymc_hais.LocallyBalanced() needs no independence.",
        ),
    )


def _is_linked(problem: Problem, block: SiteBlock, positions: np.ndarray, rng: np.random.Generator) -> bool:
    """Compare one change of several sites of a colour with the sum of the changes of each."""
    shared = [np.flatnonzero(colour) for colour in block.colours if colour.sum() > 1]
    n_states = CHUNK // (_TOGETHER + 2)
    rows, sizes = [], []
    for state, other in zip(positions[:n_states], positions[n_states:], strict=False):
        colour = shared[rng.integers(len(shared))]
        chosen = block.start + rng.choice(colour, min(_TOGETHER, colour.size), replace=False)
        values = 1.0 - state[chosen] if block.is_binary else other[chosen]
        changed = np.repeat(state[None], chosen.size + 2, axis=0)
        changed[np.arange(chosen.size), chosen] = values
        changed[-2, chosen] = values
        rows.append(changed)
        sizes.append(chosen.size)
    every = np.concatenate(rows)
    states = [problem.evaluate_first(chunk) for chunk in in_chunks(every)]
    # Each end of the path on its own: at other temperatures both count.
    ends = np.concatenate([np.stack([state.log_reference, state.log_ratio], axis=1) for state in states])
    rounding = 10.0 * np.sqrt(np.finfo(problem.layout.dtype).eps)
    first = 0
    for size in sizes:
        alone, together, here = np.split(ends[first : first + size + 2], [size, size + 1])
        first += size + 2
        with np.errstate(invalid="ignore"):
            gap = np.abs((together - here)[0] - np.sum(alone - here, axis=0))
            scale = 1.0 + np.abs(here[0]) + np.abs(alone - here).sum(axis=0)
        is_impossible = np.isfinite(alone).all(axis=0) & ~np.isfinite(together[0])
        if np.any(is_impossible | (np.isfinite(gap) & (gap > rounding * scale))):
            return True
    return False
