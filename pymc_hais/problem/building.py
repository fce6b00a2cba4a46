"""PyMC model -> a problem: compiled, checked before any long work, and kept for the next call on the same model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pymc_hais.core.seeds import Seeds, Use
from pymc_hais.density import (
    Layout,
    Model,
    ModelIdentity,
    WrittenLogp,
    build_chart,
    build_density,
    build_layout,
    check_joint_logp,
    check_model,
    check_state,
    compile_written,
    identify,
    log_count,
    varying_containers,
    warn_of_lookups,
    with_table,
)
from pymc_hais.density.compiling import untraced
from pymc_hais.problem.audit import check_draws, check_odds
from pymc_hais.problem.coverage import check_coverage
from pymc_hais.problem.kept import find_problem, keep_problem
from pymc_hais.problem.problem import CHUNK, Compiler, Problem, are_inside
from pymc_hais.problem.refusals import refuse_unbounded
from pymc_hais.references import BoundReference, Fitted, Prior, bind, build_prior, uses_prior
from pymc_hais.references.base import Draws
from pymc_hais.references.mixture import Mixed
from pymc_hais.tuning import Stopwatch, particles_for_dense

#: Draws that check a model before any long work; as many as the pilot's, so that nothing compiles twice.
CHECK_DRAWS = CHUNK
#: Seconds below which evaluating so many draws is cheap.
_CHEAP = 0.5


def build_problem(
    model: Model,
    reference: Any,
    compiler: Compiler,
    seeds: Seeds,
    rows: Mapping[str, np.ndarray] | None = None,
    takes_fit: bool = False,
    log_prior_mass: float = 0.0,
    containers: Mapping[str, np.ndarray] | None = None,
) -> Problem:
    """Compile a model and refuse, before any long work, models and references that annealing cannot handle.

    The model is of one row, where there are rows.

    ``reference`` is as :func:`pymc_hais.references.bind` takes it.  ``rows`` (R, ...) are observed variables or data
    containers that differ from row to row.  ``takes_fit`` says whether a fit may be mixed with the reference later, in
    the same machine code.  ``log_prior_mass`` normalises a prior that is a part of the reference.  ``containers`` are
    data that may vary, with their present values; they stay fixed beside such a mass.

    Raises ValueError for containers that cannot vary, an improper prior to start from, minibatches, a density of zero
    at every reference draw, a NaN gradient, draws that do not follow the reference's log density, or a reference that
    misses a part of the space.  Raises NotImplementedError for discrete free variables or a ``pm.Simulator``.  Raises
    RuntimeError where the compiled log density differs from ``model.logp()``.
    """
    if fixed := sorted(set(containers or {}) - set(varying_containers(model))):
        raise ValueError(
            f"The numbers of the data container `{fixed[0]}` decide shapes, or which values a discrete variable has: "
            "they cannot vary in one compiled program."
        )
    # What belongs to rows or to a measured mass is not kept: it is not the model's alone.
    is_kept = not rows and not log_prior_mass and containers is None
    identity = None if rows else identify(model)
    if is_kept and identity and (kept := find_problem(model, identity, reference, compiler, takes_fit)):
        return kept
    varying = None if log_prior_mass else containers
    layout, bound = bind_reference(model, reference, seeds, log_prior_mass, list(varying or {}))
    problem = with_reference(model, layout, bound, compiler, seeds, rows, takes_fit, varying, identity)
    if is_kept:
        keep_problem(problem, reference, compiler, takes_fit)
    return problem


def bind_reference(
    model: Model, reference: Any, seeds: Seeds, log_mass: float = 0.0, containers: Sequence[str] = ()
) -> tuple[Layout, BoundReference]:
    """Refuse a model that cannot be annealed from a reference; lay it out, and bind the reference to it."""
    check_model(model, uses_prior(reference))
    if not uses_prior(reference):
        layout = build_layout(model)
        return layout, bind(reference, layout, None, model)
    sampler = build_prior(model, containers)
    seed = int(seeds.of(Use.SHAPES).generate_state(1)[0])
    layout = build_layout(model, [value[0] for value in sampler.sample(1, seed)[0]])
    return layout, bind(reference, layout, Prior(layout, sampler, log_mass + log_count(model, layout)), model)


def with_reference(
    model: Model,
    layout: Layout,
    reference: BoundReference,
    compiler: Compiler,
    seeds: Seeds,
    rows: Mapping[str, np.ndarray] | None = None,
    takes_fit: bool = False,
    containers: Mapping[str, np.ndarray] | None = None,
    identity: ModelIdentity | None = None,
) -> Problem:
    """Compile a model for one bound reference, and check it at the reference's draws; see :func:`build_problem`."""
    kernel = compiler.kernel
    # Walls, and step sizes that the user gave, are those of the model's own flat vector; rows have no sites of theirs.
    is_plain = kernel.constraints or kernel.step_size or rows or layout.n_sites
    # Long tails are those of prior draws, and a Student-t is compared with the density in the model's own coordinates.
    chart = None if is_plain else build_chart(model, layout, containers, compiler.normals, reference.is_prior)
    _check_site_draws(model, layout, reference, seeds)
    drawn = reference.draw(CHECK_DRAWS, seeds.of(Use.DENSITY))
    graph = build_density(
        model,
        layout,
        None if reference.is_prior else reference.logp,
        kernel.uses_gradients,
        rows,
        chart=chart,
        containers=containers,
        walls=_find_walls(reference, drawn),
    )
    engine = compiler(replace(graph, preparation=None))  # an engine may travel, and never changes its data itself
    problem = Problem(
        model,
        layout,
        reference,
        engine,
        chart=chart,
        sites=chart.without_sites() if chart else None,
        rows=rows or {},
        log_z_reference=log_count(model, layout) if reference.is_prior else 0.0,
        meetings=graph.meetings,
        preparation=graph.preparation,
    )
    if takes_fit and not layout.sites:
        is_dense = particles_for_dense(layout.n_continuous) > 0
        problem = problem.with_fit(Fitted.none(problem.n_rows, layout.n_dims, is_dense), problem.sites)
    return _checked(problem, drawn, seeds, identity)


def _checked(problem: Problem, drawn: Draws, seeds: Seeds, identity: ModelIdentity | None) -> Problem:
    """Check a problem at its first row of data; return it with what the check leaves undecided and its identity."""
    model, layout, rows = problem.model, problem.layout, problem.rows
    own = with_table(model, {name: value[0] for name, value in rows.items()}) if rows else model
    with untraced:
        logp = own.logp()
    of_first_row = replace(problem, model=own)
    is_cheap, undecided = _check_values(of_first_row, compile_written(own, layout, logp), drawn, seeds)
    # Where the likelihood is costly, the reference alone is evaluated at the many draws of this check.
    evaluate = of_first_row.evaluate if is_cheap and problem.engine.kernel.uses_gradients else None
    check_draws(own, layout, problem.reference, seeds.of(Use.REFERENCE), evaluate)
    return replace(problem, undecided=undecided, identity=identity and identity.with_density(model, logp))


def _find_walls(reference: BoundReference, drawn: Draws) -> np.ndarray | None:
    """Return the walls around what floating point holds of the prior, where it is the reference or a part of it."""
    parts = reference.parts if isinstance(reference, Mixed) else (reference,)
    prior = next((part for part in parts if isinstance(part, Prior) and part.is_prior), None)
    return None if prior is None else prior.find_walls(drawn)


def _check_site_draws(model: Model, layout: Layout, reference: BoundReference, seeds: Seeds) -> None:
    """Refuse a reference with draws that are no values of discrete variables, and warn of indices beyond a table."""
    if not layout.n_sites:
        return
    # Draws at which values of discrete sites are checked.
    draws = reference.draw(100, seeds.of(Use.SITES)).positions
    for variable in layout.sites:
        own = draws[:, variable.start : variable.stop]
        is_inside = (own >= variable.low) & (own < variable.low + variable.n_values) | (variable.n_values == 0)
        if np.any(own != np.round(own)) or not is_inside.all():
            what = "values that it does not have" if np.all(own == np.round(own)) else "no whole numbers"
            raise ValueError(
                f"The reference's draws of `{variable.name}`, which is discrete, are {what}. It takes "
                f"{variable.support} only: give it a distribution of these alone, and in a reference of your own let "
                f"columns {variable.start} to {variable.stop - 1} of sample(n, rng) be its elements."
            )
    warn_of_lookups(model, layout, draws)


def with_data(
    problem: Problem, model: Model, values: Mapping[str, np.ndarray], written: WrittenLogp, seeds: Seeds
) -> Problem:
    """Return the problem with other data in containers that may vary; refuse data that annealing cannot handle.

    Raises ValueError for a density of zero at every reference draw, a NaN gradient, an index out of range, or a
    reference that misses a part of the space.  Raises RuntimeError where the compiled log density differs from
    ``model.logp()``.
    """
    problem = problem.with_data(model, values)
    try:
        _check_site_draws(model, problem.layout, problem.reference, seeds)
        drawn = problem.reference.draw(CHECK_DRAWS, seeds.of(Use.DENSITY))
        _, undecided = _check_values(problem, lambda position: written(position, values), drawn, seeds)
    except IndexError as error:
        raise ValueError(f"With these data the model cannot be evaluated: {error}") from error
    return replace(problem, undecided=undecided)


def _check_values(
    problem: Problem, written: Callable[[np.ndarray], float], drawn: Draws, seeds: Seeds
) -> tuple[bool, float]:
    """Check the density at draws of the reference, and around them, for the first row of data.

    Returns whether the density is cheap, and by how many nats it differs from what is written, if that is undecided.
    """
    model, layout, reference = problem.model, problem.layout, problem.reference
    constraints = problem.engine.kernel.constraints
    x, clipped, *_ = drawn
    watch = Stopwatch(problem.engine.clock)
    state = problem.evaluate(x)
    is_cheap = watch.elapsed < _CHEAP
    if not are_inside(constraints, state.position).any():
        raise ValueError(
            f"None of {len(x)} draws of {reference.label} lies inside the constraints: pass a reference that "
            "does, such as pymc_hais.Box."
        )
    check_state(model, layout, x, state, reference.label)
    if constraints is None:
        refuse_unbounded(problem, x, state, written)
    check_odds(problem, state)
    joint = state.log_reference + state.log_ratio - problem.log_jacobian(x)
    magnitude = np.abs(state.log_reference) + np.abs(state.log_ratio)
    undecided = check_joint_logp(model, layout, x, joint, magnitude, clipped, written)
    check_coverage(problem, x, seeds.of(Use.COVERAGE))
    return is_cheap, undecided
