"""Errors for a reference whose draws do not follow its log density, and for a density without a finite integral."""

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from pymc_hais.core.messages import quoted
from pymc_hais.core.records import ParticleState
from pymc_hais.density import improper_priors
from pymc_hais.density.compat import release_with_lkj
from pymc_hais.density.evaluation import evaluate_terms
from pymc_hais.density.layout import Layout
from pymc_hais.density.sites.variables import distribution_of
from pymc_hais.problem.problem import Problem
from pymc_hais.references.base import BoundReference, UnusablePriorError
from pymc_hais.references.variables import Product
from pymc_hais.tuning import EndlessPilotError

#: So many equal draws are no coincidence, except outside this distance from the origin.
_TIES = 5
_INNER = 30.0
#: Share of draws of density zero that rounding does not explain, and how many of them are examined.
_IMPOSSIBLE, _EXAMINED = 0.01, 20
#: How far a density is followed along a direction: of a variable itself, and of one that has been transformed.
_FAR, _FAR_TRANSFORMED = (1e4, 1e6, 1e8), (30.0, 100.0, 300.0)
#: Directions that are followed, at most, and draws from which.
_FOLLOWED, _FOLLOWED_FROM = 20, 3
#: Standard deviations of a reference that the particles of a pilot do not come away from it, as a rule.
_AWAY = 10.0
#: Nats by which a density may fall there and still have no integral.
_FALL = 0.1
_CUSTOM = "For a pm.CustomDist, make `random` draw from the density that `logp` computes (or pass `dist=` alone)"
_SIGN = (
    "A pm.Potential is added to the log density, so that it is minus the energy: see whether its sign is right, as in "
    "pm.Potential(name, -energy)."
)
_REWRITE = (
    f"{_CUSTOM}; for a distribution of PyMC, write it in another way (for example pm.CAR as a pm.MvNormal with the "
    "same precision)"
)


_MARGINAL = (
    "pymc_extras.marginalize has summed a discrete variable out of the density of missing values, and their draws are "
    "not of that density: leave the missing values out of the data, or marginalise nothing"
)


def refuse_point_masses(layout: Layout, positions: np.ndarray, reference: BoundReference) -> None:
    """Refuse a variable with one value that many of the draws (P, D) repeat, within the range of floating point."""
    for i, column in enumerate(np.asarray(positions, float)[:, : layout.n_continuous].T):
        values, counts = np.unique(column, return_counts=True)
        # Near one, a transformed probability has few floating-point values left: ties mean nothing there.
        inner = np.ones(len(values), bool) if layout.is_identity(i) else np.abs(values) < _INNER
        if counts[inner].max(initial=0) >= _TIES:
            repeated = values[inner][counts[inner].argmax()]
            draws = "Prior draws" if reference.is_prior else "Draws of the reference"
            raise ValueError(
                f"{draws} of `{layout.owner_of(i)}` repeat the value {repeated:.6g}: it has point masses "
                "(pm.Censored, or a pm.Mixture with pm.DiracDelta), which gradients cannot anneal. Use it for observed "
                "data only, or write the model with a continuous latent variable."
            )


def refuse_impossible(
    model: Any, layout: Layout, positions: np.ndarray, log_density: np.ndarray, reference: BoundReference
) -> None:
    """Refuse a reference with draws (P, D), in the range of floating point, where its own log density (P,) is -inf."""
    impossible = np.isneginf(log_density)
    if not len(positions) or impossible.mean() <= _IMPOSSIBLE:
        return
    own = reference.model if isinstance(reference, Product) else model if reference.is_prior else None
    terms = {} if own is None else evaluate_terms(own, layout, positions[impossible][:_EXAMINED], own.free_RVs)
    names = [name for name, values in terms.items() if np.isneginf(values).any()]
    named = quoted(names)
    raise ValueError(
        f"{int(impossible.sum())} of {len(positions)} draws of {reference.label}{' of ' + named if names else ''} lie "
        "where its log density is -inf, so log Z would be wrong: make the draws and the density have one support. "
        f"{_CUSTOM}."
    )


def refuse_mismatch(model: Any, names: list[str], reference: BoundReference) -> NoReturn:
    """Refuse a reference in which :func:`pymc_hais.problem.audit.find_mismatches` found variables.

    Raises UnusablePriorError for the prior, and ValueError for another reference.
    """
    if not reference.is_prior and not isinstance(reference, Product):
        raise ValueError(
            f"The draws of {reference.label} do not follow its own log density, so log Z would be wrong: make the "
            "reference's sample(n, rng) draw from the density that its logp(x) computes."
        )
    also = f" (also affected: {', '.join(f'`{name}`' for name in names[1:])})" if names[1:] else ""
    draws, start = ("forward draws", "from prior draws ") if reference.is_prior else ("draws of the reference", "")
    release = release_with_lkj(distribution_of(model[names[0]])) if reference.is_prior else ""
    advice = f"PyMC {release} mends them: install it" if release else _REWRITE
    if any(kind.__name__ == "MarginalRV" for kind in type(distribution_of(model[names[0]])).__mro__):
        advice = _MARGINAL
    message = (
        f"The {draws} of `{names[0]}`{also} do not follow its log density, so log Z {start}would be wrong. {advice}, "
        'or pass reference="gaussian", which draws nothing from the prior.'
    )
    raise UnusablePriorError(message, names) if reference.is_prior else ValueError(message)


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
    starts = np.asarray(positions, float)[finite][:_FOLLOWED_FROM]
    for direction in _directions(layout, own, positions, state, finite)[:_FOLLOWED]:
        along = np.flatnonzero(direction)
        steps = _FAR if all(layout.is_identity(int(i)) for i in along) else _FAR_TRANSFORMED
        values = np.array([[written(start + step * direction) for step in (0.0, *steps)] for start in starts])
        if np.isfinite(values).all() and (np.diff(values, axis=1)[:, 1:] >= -_FALL).all():
            names = list(dict.fromkeys(layout.owner_of(int(i)) for i in along))
            what = quoted(names) if len(names) == 1 else f"a direction of {quoted(names, ' and ')}"
            # Of a transformed variable the slope of the transform rises, too.
            rises = steps is _FAR and (np.diff(values, axis=1)[:, 1:] > _FALL).all()
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


def refuse_distance(problem: Problem, error: EndlessPilotError) -> NoReturn:
    """Raise an error with advice after a pilot that ended far from the target."""
    layout, label, is_prior = problem.layout, problem.label, problem.is_prior
    farthest = int(error.distances.argmax())
    name, distance = layout.owner_of(farthest), float(error.distances[farthest])
    modes = "" if layout.n_sites or not is_prior else ", or pass a point of the target as `modes`"
    where, advice = "", f"Rescale the model, or pass a `reference` that is wider or nearer{modes}."
    if distance > _AWAY:
        where = f": by then `{name}` was {distance:,.0f} standard deviations of {label} away from it"
    if distance > _AWAY and is_prior:
        advice = f"Standardise the data, give `{name}` a wider prior or one that is nearer{modes}."
    sign = f" {_SIGN}" if problem.model.potentials else ""
    raise RuntimeError(f"{error}{where}. The target is too far from {label}. {advice}{sign}") from None
