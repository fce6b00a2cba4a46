"""Whether the draws of a start follow its log density.

First a screening by Stein's identity, which is powerful and costs one gradient a draw, but may be mistaken where the
density jumps or the tails are heavy.  Then an exact test, with fresh draws, of the variables that it suspects.  Only
the second refuses a start: a right one with probability 1e-6 at most, whatever it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_hais.engines import Engine
from pymc_hais.model.layout import Layout
from pymc_hais.references.base import Start
from pymc_hais.references.box import Box
from pymc_hais.references.evaluation import Density, build_start_density
from pymc_hais.references.exchange import Ruler, p_value
from pymc_hais.references.gaussian import Gaussian
from pymc_hais.references.refusals import refuse_impossible, refuse_mismatch, refuse_point_masses
from pymc_hais.references.start import IndependentStart, MixtureStart
from pymc_hais.references.stein import Suspect, find_suspects
from pymc_hais.references.student_t import StudentT

__all__ = ["check_draws", "find_mismatches"]

#: Probability that a right start is refused, over all tests of it together.
_FALSE_ALARM = 1e-6
#: Probability that a right start is tested a second time, where statistics are normal.
_SUSPICION = 1e-2
#: Draws of the screening, evaluated as many at a time as the checks before, so that nothing compiles twice.
_SCREENED, _CHUNK = 4000, 500
#: Draws of the exact test and of its repetition where it leaves a doubt; fewer where they are costly.
_TESTED, _FEWEST = (4000, 16_000), 500
_DOUBT = 0.5
#: Elements of an array of draws, at most.
_ELEMENTS = 4_000_000
#: Coordinates that are tested of a variable of which nothing is known.
_UNKNOWN = 3


def check_draws(model: Any, layout: Layout, start: Start, engine: Engine | None, seed: int) -> None:
    """Refuse a start whose draws do not follow its log density.

    The parts of a mixture are checked one by one.  The package's own references are right by its tests.

    Parameters
    ----------
    model : pymc.Model
    layout : Layout
    start : Start
    engine : Engine, optional
        Compiled for model and start.
    seed : int

    Raises
    ------
    ValueError
        If a variable has point masses, draws of density zero, or draws of another density; naming it.
    """
    if isinstance(start, MixtureStart):
        for i, part in enumerate(start.parts):
            check_draws(model, layout, part, None, seed + i)
    elif not (isinstance(start, IndependentStart) and isinstance(start.reference, Gaussian | StudentT | Box)):
        names = find_mismatches(model, layout, start, engine, seed)
        if names:
            refuse_mismatch(names, start)


def find_mismatches(model: Any, layout: Layout, start: Start, engine: Engine | None, seed: int) -> list[str]:
    """Name the variables whose draws do not follow the log density, in :func:`check_draws`.

    Returns
    -------
    list of str
        The first is surely wrong; the others may only be parents of a wrong one.
    """
    screening, testing = np.random.SeedSequence([seed, 3]).spawn(2)
    positions, clipped = start.sample(_n_screened(layout, start), _number(screening))
    refuse_point_masses(layout, positions[:_CHUNK][~clipped[:_CHUNK]], start)
    density, gradient = None, None
    if engine is not None and engine.kernel.uses_gradients:
        log_density, gradient = _evaluate(engine, positions)
    else:
        density = build_start_density(model, layout, start, positions[:5], with_gradients=True)
        log_density = density.values(positions)
        if density.gradients is not None:
            gradient = density.gradients(positions)
    clean = positions[~clipped]
    refuse_impossible(model, layout, clean, log_density[~clipped], start)
    suspects = _everyone(layout) if gradient is None else find_suspects(layout, clean, gradient[~clipped], _SUSPICION)
    if not suspects:
        return []
    density = density or build_start_density(model, layout, start, positions[:5])
    return _confirm(layout, start, density, suspects, Ruler.of(clean, beyond=not clipped.any()), testing)


def _evaluate(engine: Engine, positions: np.ndarray) -> tuple[np.ndarray, ...]:
    key = np.zeros(2, dtype=np.uint32)
    states = [engine.start(positions[i : i + _CHUNK], key) for i in range(0, len(positions), _CHUNK)]
    return tuple(
        np.concatenate([np.asarray(getattr(state, name)) for state in states])
        for name in ("log_reference", "grad_reference")
    )


def _n_screened(layout: Layout, start: Start) -> int:
    most = _SCREENED // 2 if _is_drawn_singly(start) else _SCREENED
    return _CHUNK * int(np.clip(_ELEMENTS // (layout.n_dims * _CHUNK), 1, most // _CHUNK))


def _is_drawn_singly(start: Start) -> bool:
    return getattr(getattr(start, "prior", None), "batch_size", 2) == 1


def _number(seed: np.random.SeedSequence) -> int:
    return int(seed.generate_state(1)[0])


def _everyone(layout: Layout) -> list[Suspect]:
    """Suspect every variable that has coordinates to move."""
    suspects = []
    for i in np.flatnonzero(~np.array(layout.is_periodic) & (layout.sizes > 0))[::-1]:
        chosen = np.unique(np.linspace(layout.offsets[i], layout.offsets[i + 1] - 1, _UNKNOWN).round().astype(int))
        coordinates = tuple(int(dim) for dim in chosen)
        suspects.append(Suspect(int(i), coordinates, coordinates[1:] + coordinates[:1], 1.0))
    return suspects


def _confirm(
    layout: Layout,
    start: Start,
    density: Density,
    suspects: list[Suspect],
    ruler: Ruler,
    seed: np.random.SeedSequence,
) -> list[str]:
    """Test suspects until one is surely wrong; return its name, and those of others as suspicious."""
    level = _FALSE_ALARM / (len(suspects) * len(_TESTED))
    drawing, *walking = seed.spawn(1 + len(suspects))
    seeds = [_number(one) for one in drawing.spawn(len(_TESTED))]
    # What is repeated for every position costs a call, and is linear algebra as a rule.
    elements = layout.n_dims + density.n_loops * (50 + layout.n_dims**2 // 5)
    sizes = [max(_FEWEST, min(n, _ELEMENTS // elements)) for n in _TESTED]

    def is_wrong(suspect: Suspect, rng: np.random.Generator) -> bool:
        dims = np.arange(layout.offsets[suspect.variable], layout.offsets[suspect.variable + 1])
        for n, one in zip(sizes, seeds, strict=True):
            draws, clipped = start.sample(n, one)
            p = p_value(draws[~clipped], density.values, suspect, dims, ruler, rng)
            if p <= level or p > _DOUBT:
                return p <= level
        return False

    for suspect, one in zip(suspects, walking, strict=True):
        if is_wrong(suspect, np.random.default_rng(one)):
            others = [other for other in suspects if other is not suspect and other.excess >= suspect.excess / 3]
            return [layout.owners[each.variable] for each in (suspect, *others)]
    return []
