"""Whether a reference is positive wherever the model's density is: otherwise log Z is too low without any sign."""

from collections.abc import Iterator
from typing import NoReturn

import numpy as np

from pymc_hais.density import Model, improper_priors
from pymc_hais.density.layout import Layout
from pymc_hais.problem.problem import Problem
from pymc_hais.references.base import BoundReference
from pymc_hais.references.bound import Independent, Prior
from pymc_hais.references.gaussian import Gaussian, StudentT
from pymc_hais.references.mixture import Mixed
from pymc_hais.references.prior import build_prior


def check_coverage(problem: Problem, positions: np.ndarray, seeds: np.random.SeedSequence) -> None:
    """Refuse a reference whose density is zero where the model's is not: around its draws (P, D), and at prior draws.

    Positions outside the constraints do not count.

    Raises ValueError, saying at how many positions this was seen, and what to pass instead.
    """
    layout, reference, constraints = problem.layout, problem.reference, problem.engine.kernel.constraints
    if _covers_all(reference):
        return
    n_missed = n_probes = 0
    moving: dict[str, None] = {}
    never_drawn: dict[str, None] = {}  # discrete variables that have values there which no draw has
    for probes, moved in _probes(problem.model, layout, positions, seeds):
        inside = np.isfinite(probes).all(axis=1)
        if constraints is not None:
            inside &= constraints.contains(probes)
        # The draws themselves stand in for the others, so that no other shape is compiled.
        state = problem.evaluate(np.where(inside[:, None], probes, positions))
        inside &= np.isfinite(state.position).all(axis=1)
        # The ratio of a positive density to zero is inf, that of two zeros is NaN.
        missed = inside & np.isneginf(state.log_reference) & np.isposinf(state.log_ratio)
        n_missed, n_probes = n_missed + int(missed.sum()), n_probes + int(inside.sum())
        moving.update((layout.owner_of(int(i)), None) for i in np.unique(moved[missed]) if i >= 0)
        for i in range(layout.n_continuous, layout.n_dims):
            if not np.isin(probes[missed, i], positions[:, i]).all():
                never_drawn[layout.owner_of(i)] = None
    if n_missed:
        _refuse(reference, n_missed, n_probes, list(moving), list(never_drawn), constraints is not None)


def _covers_all(reference: BoundReference) -> bool:
    if isinstance(reference, Mixed):
        return any(_covers_all(part) for part in reference.parts)
    return reference.is_prior or (
        isinstance(reference, Independent) and isinstance(reference.reference, Gaussian | StudentT)
    )


def _probes(
    model: Model, layout: Layout, positions: np.ndarray, seeds: np.random.SeedSequence
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield positions (P, D) around draws and at prior draws, and which coordinate (P,) was moved, or -1."""
    moving, drawing = seeds.spawn(2)
    rng = np.random.default_rng(moving)
    n, none = len(positions), np.full(len(positions), -1)
    if n_free := layout.n_continuous:
        low, centre, high = np.quantile(positions[:, :n_free], [0.25, 0.5, 0.75], axis=0)
        # Steps outward, in interquartile ranges: further out densities overflow.
        step = np.clip(rng.standard_cauchy(size=(2, n)), -30.0, 30.0)
        stretched, shifted, mirrored = positions.copy(), positions.copy(), positions.copy()
        stretched[:, :n_free] = centre + (positions[:, :n_free] - centre) * (1.0 + np.abs(step[0]))[:, None]
        yield stretched, none
        rows, chosen = np.arange(n), np.asarray(rng.integers(n_free, size=n))
        shifted[rows, chosen] += step[1] * (high - low)[chosen]
        yield shifted, chosen
        end = np.where(rng.uniform(size=n) < 0.5, positions.min(axis=0)[chosen], positions.max(axis=0)[chosen])
        mirrored[rows, chosen] = 2.0 * end - mirrored[rows, chosen]
        yield mirrored, chosen
    yield rng.permuted(positions, axis=0), none
    if not improper_priors(model):
        try:
            drawn = Prior(layout, build_prior(model)).draw(n, drawing).positions
        except (NotImplementedError, ValueError):  # a prior that cannot be drawn is not probed
            return
        yield drawn, none


def _refuse(
    reference: BoundReference,
    n_missed: int,
    n_probes: int,
    moving: list[str],
    never_drawn: list[str],
    is_constrained: bool,
) -> NoReturn:
    names = " or ".join(f"`{name}`" for name in never_drawn or moving)
    where = f", for one when {names} {'has values that are never drawn' if never_drawn else 'moves'}" if names else ""
    seen = (
        f"The density of {reference.label} is zero at {n_missed} of {n_probes} probed positions"
        f"{' inside the constraints' if is_constrained else ''} where the model's is not{where}: log Z would miss "
        "what lies there, and nothing would show it."
    )
    if is_constrained:
        raise ValueError(
            f"{seen} Pass a reference that covers the whole region, such as pymc_hais.Box with its bounds."
        )
    if never_drawn:
        raise ValueError(
            f"{seen} Pass a reference that gives every value of {names} a positive probability: a dict of such PyMC "
            'distributions, "prior", or a pymc_hais.Mixture of this one with "prior".'
        )
    raise ValueError(
        f"{seen} Pass a reference that covers the unconstrained space: pymc_hais.Gaussian or StudentT, a "
        "pymc_hais.Mixture of this one with one of them, or a dict of PyMC distributions, each on its variable's own "
        "space. If log Z of a part of the space is what you want, state that part with `constraints=`."
    )
