"""Errors for a density without a finite integral, and for a target too far from its reference."""

from collections.abc import Callable
from typing import NamedTuple, NoReturn

import numpy as np

from pymc_hais.core.messages import quoted
from pymc_hais.core.records import ParticleState
from pymc_hais.density import improper_priors
from pymc_hais.density.layout import Layout
from pymc_hais.problem.problem import Problem
from pymc_hais.tuning import EndlessPilotError


class _Limits(NamedTuple):
    """How far a density is followed, and when it counts as unbounded or too far away."""

    far: tuple[float, ...] = (1e4, 1e6, 1e8)  # steps along a direction of a variable itself
    far_transformed: tuple[float, ...] = (30.0, 100.0, 300.0)  # the same of a variable that has been transformed
    followed: int = 20  # directions that are followed, at most
    followed_from: int = 3  # draws from which
    #: standard deviations of a reference that the particles of a pilot do not come away from it, as a rule
    away: float = 10.0
    fall: float = 0.1  # nats by which a density may fall there and still have no integral


_LIMITS = _Limits()

_SIGN = (
    "A pm.Potential is added to the log density, so that it is minus the energy: see whether its sign is right, as in "
    "pm.Potential(name, -energy)."
)


def refuse_unbounded(
    problem: Problem, positions: np.ndarray, state: ParticleState, written: Callable[[np.ndarray], float]
) -> None:
    """Refuse a density that falls nowhere along a direction of variables without a proper prior.

    Candidates are told by the gradients of evaluated draws (P, D), and each is followed far away in ``model.logp()``.
    """
    model, layout = problem.model, problem.layout
    improper = improper_priors(model)
    own = [i for i in range(layout.n_continuous) if layout.owner_of(i) in improper]
    if not own:
        return
    finite = np.isfinite(state.log_reference + state.log_ratio)
    starts = np.asarray(positions, float)[finite][: _LIMITS.followed_from]
    for direction in _directions(layout, own, positions, state, finite)[: _LIMITS.followed]:
        along = np.flatnonzero(direction)
        steps = _LIMITS.far if all(layout.is_identity(int(i)) for i in along) else _LIMITS.far_transformed
        values = np.array([[written(start + step * direction) for step in (0.0, *steps)] for start in starts])
        if np.isfinite(values).all() and (np.diff(values, axis=1)[:, 1:] >= -_LIMITS.fall).all():
            names = list(dict.fromkeys(layout.owner_of(int(i)) for i in along))
            what = quoted(names) if len(names) == 1 else f"a direction of {quoted(names, ' and ')}"
            # Of a transformed variable the slope of the transform rises, too.
            rises = steps is _LIMITS.far and (np.diff(values, axis=1)[:, 1:] > _LIMITS.fall).all()
            if rises and model.potentials:
                raise ValueError(
                    f"The log density grows without bound along {what}, so that its integral is infinite and there is "
                    f"no log Z. {_SIGN}"
                )
            raise ValueError(
                f"Nothing bounds {what}: neither a proper prior nor the data make the density fall there, however far "
                f"away, so that its integral is infinite and there is no log Z. Give `{names[0]}` a proper prior, such "
                f'as pm.Normal("{names[0]}", 0, 10), or leave it out.'
            )


def _directions(
    layout: Layout, own: list[int], positions: np.ndarray, state: ParticleState, finite: np.ndarray
) -> list[np.ndarray]:
    """Return unit vectors (D,) along which the density falls at no draw, or rises away from their middle."""
    parts = [np.asarray(one)[finite][:, own] for one in (state.grad_reference, state.grad_ratio)]
    gradient = parts[0] + parts[1]
    tolerance = np.sqrt(np.finfo(layout.dtype).eps) / 10.0
    rounding = tolerance * (np.abs(parts[0]) + np.abs(parts[1]))
    units = np.eye(layout.n_dims)
    rising, falling = (gradient >= -rounding).all(axis=0), (gradient <= rounding).all(axis=0)
    found = [sign * units[i] for sign, which in ((1.0, rising), (-1.0, falling)) for i in np.array(own)[which]]
    # Away from the middle of the draws: where a density rises on both sides, it is no longer one.
    middle = positions[finite][:, own] - np.median(positions[finite][:, own], axis=0)
    outward = (middle * gradient).sum(axis=0) > 0.0
    found += [sign * units[i] for i in np.array(own)[outward & ~rising & ~falling] for sign in (1.0, -1.0)]
    mixed = [k for k, i in enumerate(own) if layout.is_identity(i) and not (rising[k] and falling[k])]
    if not 1 < len(mixed) < len(gradient) or not np.isfinite(gradient).all():
        return found
    scales = np.linalg.norm(gradient[:, mixed], axis=0)
    _, sizes, vectors = np.linalg.svd(gradient[:, mixed] / scales, full_matrices=False)
    for vector in vectors[sizes < tolerance * sizes[0]]:
        direction = np.zeros(layout.n_dims)
        direction[np.array(own)[mixed]] = vector / scales
        # What is rounding is no part of it.
        direction[np.abs(direction) < tolerance * np.abs(direction).max()] = 0.0
        found.append(direction / np.abs(direction).max())
    return found


class TooFarError(RuntimeError):
    """A pilot ended far from the target."""


def refuse_distance(problem: Problem, error: EndlessPilotError) -> NoReturn:
    """Raise an error with advice after a pilot that ended far from the target."""
    layout, label, is_prior = problem.layout, problem.label, problem.is_prior
    farthest = int(error.distances.argmax())
    name, distance = layout.owner_of(farthest), float(error.distances[farthest])
    modes = "" if layout.n_sites or not is_prior else ", or pass a point of the target as `modes`"
    where, advice = "", f"Rescale the model, or pass a `reference` that is wider or nearer{modes}."
    if distance > _LIMITS.away:
        where = f": by then `{name}` was {distance:,.0f} standard deviations of {label} away from it"
    if distance > _LIMITS.away and is_prior:
        advice = f"Standardise the data, give `{name}` a wider prior or one that is nearer{modes}."
    sign = f" {_SIGN}" if problem.model.potentials else ""
    raise TooFarError(f"{error}{where}. The target is too far from {label}. {advice}{sign}") from None
