"""Findings of the final particles about the target: its tails, its edges, its width and its rounding."""

from collections.abc import Iterator

import numpy as np

from pymc_hais.core.records import AnnealingRun
from pymc_hais.estimators import Finding, LogZEstimate
from pymc_hais.goodness_of_fit.edges import find_edge
from pymc_hais.goodness_of_fit.limits import LIMITS
from pymc_hais.goodness_of_fit.spread import Lag
from pymc_hais.planning.rays import measure_rays, student_t_of
from pymc_hais.problem.problem import Problem
from pymc_hais.results.findings.finding import check
from pymc_hais.run.final_particles import measure, measure_rounding
from pymc_hais.run.row_evidence import final_tail
from pymc_hais.runner.runner import Runner


@check("the diagnosis of the log ratio")
def check_tail(problem: Problem, run: AnnealingRun) -> Iterator[Finding]:
    """Yield a warning if few particles reach the places that the target prefers to the reference most."""
    tail = final_tail(problem, run)
    if not tail.excess <= 2.0 and tail.mass != 0.0:
        yield Finding(
            "heavy_tail",
            "warning",
            f"The log ratio of target and reference has a heavy upper tail: {tail.excess:.1f} nats beyond a normal one "
            "for the highest 0.5% of the draws. Few particles get there, and log Z may be too low.",
            "Pass a `reference` with heavier tails, reparametrise, or see whether log Z rises with a larger "
            "`n_temperatures`.",
        )


@check("the diagnosis of the tails")
def check_rays(problem: Problem, runner: Runner) -> Iterator[Finding]:
    """Yield an error if the target's tails are heavier than those of the Student-t that the run starts from."""
    if (own := student_t_of(problem)) is None:
        return
    rays = measure_rays(problem, runner)
    across, along = rays.shape(own.df), rays.shape_along(own.df)
    if max(across, along) > 0.7:  # their mean then takes too many draws (Vehtari et al. 2024)
        name = problem.layout.labels[rays.axis]
        place = f"Along `{name}`" if along >= across else "In all directions but a few"
        yield Finding(
            "heavy_tail",
            "error",
            f"{place} the density has a heavier tail than the reference, {own}: the variance of the weights is "
            f"infinite (their tail has shape k = {max(across, along):.2f}), and log Z is probably too low.",
            "Pass a `reference` with heavier tails, or reparametrise. If log Z should be finite, check the signs and "
            "exponents of the terms that decrease there.",
        )


@check("the diagnosis of the particles' spread")
def check_lag(lag: Lag | None) -> Iterator[Finding]:
    """Yield a warning if the particles are too narrow for the target; an error if error bars are too small there."""
    if lag is not None and lag.is_harmful:
        yield Finding(
            "underdispersion",
            "error" if lag.share < LIMITS.misleading else "warning",
            f"In some direction the particles have only {lag.share:.0%} of the target's variance before they are "
            f"weighted (a Metropolis rule accepts {lag.up:.0%} of the moves that spread them, and {lag.down:.0%} of "
            "those that draw them together): the moves were too slow for the schedule, and log Z may be too low.",
            "Pass a larger `n_temperatures`, leave kernel and schedule to the pilot (the default), or start from "
            'reference="fitted".',
        )


@check("the diagnosis of the edges")
def check_edge(problem: Problem, run: AnnealingRun, estimate: LogZEstimate, runner: Runner) -> Iterator[Finding]:
    """Yield an error if the target goes on where the particles end, and log Z lacks more than its error bar."""
    edge = measure(find_edge, problem, run, runner)
    if edge is not None and edge.gain > estimate.se:
        side, name = "small" if edge.sign < 0 else "large", problem.layout.labels[edge.dimension]
        yield Finding(
            "unreached",
            "error",
            f"The particles do not reach {side} values of `{name}` that the posterior reaches, as in the neck of a "
            f"funnel. A Metropolis rule accepts {edge.out:.0%} of the moves there, with the other coordinates scaled "
            f"to fit, and {edge.back:.0%} of the moves back. log Z is at least {edge.gain:.2f} nats too low.",
            f"Reparametrise so that no other variable becomes narrow with `{name}` (for example non-centred). More "
            "temperatures help slowly.",
        )


@check("the diagnosis of the precision")
def check_rounding(problem: Problem, run: AnnealingRun, runner: Runner) -> Iterator[Finding]:
    """Yield an error if rounding changes the final log densities by more than log Z may be wrong by.

    Rounding is judged by the spacing of floating-point numbers at the densities, by densities measured around the
    particles, and by the difference of two forms of the density.
    """
    dtype = problem.layout.dtype
    ends = [np.asarray(end, np.float64).ravel() for end in (run.state.log_reference, run.state.log_ratio)]
    sizes = np.abs(ends).max(axis=0)
    sizes = sizes[np.isfinite(sizes)]
    spacing = float(np.finfo(dtype).eps) * float(np.median(sizes)) if sizes.size else 0.0
    rounding = max(spacing, measure_rounding(problem, run, runner), problem.undecided)
    if rounding > LIMITS.rounding or problem.undecided:
        yield Finding(
            "rounding",
            "error",
            f"Terms of the log density are so large, or cancel so far, that {np.dtype(dtype).name} rounds their sum by "
            f"about {rounding:.2g} nats: log Z may be wrong by more than its error.",
            "Compute in double precision (`pytensor.config.floatX = 'float64'`), take large constants off the model's "
            "potentials, and give counts of more than 1e12 a normal likelihood.",
        )
