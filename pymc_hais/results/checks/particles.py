"""What the final particles show: places that few of them reach, moves that were too slow, lost digits."""

from collections.abc import Iterator

import numpy as np

from pymc_hais.core.records import AnnealingRun
from pymc_hais.estimators import Finding, Tail
from pymc_hais.estimators.memory import NO_VARIANCE, Lag
from pymc_hais.planning.rays import measure_rays, student_t_of
from pymc_hais.problem.problem import Problem
from pymc_hais.request.call import Call
from pymc_hais.results.findings import say

#: Nats beyond a normal tail of the log ratio that are worth a warning.
_HEAVY_TAIL = 2.0
#: Shape of the weights' tail from which on their mean takes too many draws (Vehtari et al. 2024).
_UNBOUNDED = 0.7
#: Share of the target's variance below which error bars are too small: of runs of 1000 particles that lag in one
#: direction of a normal target about a tenth, and in five directions a fifth, err by more than three standard errors.
_MISLEADING = 0.4
#: Nats that one evaluation may be rounded by: small beside the error that is asked for.
_MOST_ROUNDING = 0.05


def check_tail(tail: Tail) -> Iterator[Finding]:
    """Say that few particles reach the places that the target prefers to the reference most, if so."""
    if not tail.excess <= _HEAVY_TAIL and tail.mass != 0.0:
        yield say("heavy_tail", excess=tail.excess)


def check_rays(problem: Problem, call: Call) -> Iterator[Finding]:
    """Say that the target's tails are seen to be heavier than those of a Student-t that was started from, if so."""
    if (own := student_t_of(problem)) is None:
        return
    rays = measure_rays(problem, call.seeds)
    across, along = rays.shape(own.df), rays.shape_along(own.df)
    if max(across, along) > _UNBOUNDED:
        name = problem.layout.labels[rays.axis]
        place = f"Along `{name}`" if along >= across else "In all directions but a few"
        yield say("heavy_tail: ray", place=place, label=own, k=max(across, along))


def check_lag(lag: Lag) -> Iterator[Finding]:
    """Judge a lag: a warning where the weights it asks for have no variance, an error where that is seen to matter."""
    if not lag.share >= NO_VARIANCE:
        severity = "error" if lag.share < _MISLEADING else "warning"
        yield say("memory", severity, share=lag.share, up=lag.up, down=lag.down)


def check_rounding(problem: Problem, run: AnnealingRun) -> Iterator[Finding]:
    """Compare the spacing of floating-point numbers at the final log densities with a nat."""
    dtype = problem.layout.dtype
    ends = [np.asarray(end, np.float64).ravel() for end in (run.state.log_reference, run.state.log_ratio)]
    sizes = np.abs(ends).max(axis=0)
    sizes = sizes[np.isfinite(sizes)]
    spacing = float(np.finfo(dtype).eps) * float(np.median(sizes)) if sizes.size else 0.0
    if spacing > _MOST_ROUNDING:
        yield say("rounding", dtype=np.dtype(dtype).name, spacing=spacing)
