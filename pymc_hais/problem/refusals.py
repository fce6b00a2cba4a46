"""What is said of a reference whose draws do not follow its log density."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from pymc_hais.core.messages import quoted
from pymc_hais.model.compat import release_with_lkj
from pymc_hais.model.evaluation import evaluate_terms
from pymc_hais.model.layout import Layout
from pymc_hais.model.sites.sites import distribution_of
from pymc_hais.references.base import BoundReference, UnusablePriorError
from pymc_hais.references.variables import Product

#: So many equal draws are no coincidence, except outside this distance from the origin.
_TIES = 5
_INNER = 30.0
#: Share of draws of density zero that rounding does not explain, and how many of them are looked at.
_IMPOSSIBLE, _EXAMINED = 0.01, 20
_CUSTOM = "For a pm.CustomDist, make `random` draw from the density that `logp` computes (or pass `dist=` alone)"
_REWRITE = (
    f"{_CUSTOM}; for a distribution of PyMC, write it in another way (for example pm.CAR as a pm.MvNormal with the "
    "same precision)"
)


def refuse_point_masses(layout: Layout, positions: np.ndarray, reference: BoundReference) -> None:
    """Refuse a variable of which one value comes again and again in draws (P, D) in the range of floating point."""
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
    """Refuse a reference of which :func:`pymc_hais.problem.audit.find_mismatches` named variables.

    Raises
    ------
    UnusablePriorError
        If it is the prior; of another a ValueError.
    """
    if not reference.is_prior and not isinstance(reference, Product):
        raise ValueError(
            f"The draws of {reference.label} do not follow its own log density, so log Z would be wrong: make the "
            "reference's sample(n, rng) draw from the density that its logp(x) computes."
        )
    also = f" (also affected: {', '.join(f'`{name}`' for name in names[1:])})" if names[1:] else ""
    draws, start = ("forward draws", "from prior draws ") if reference.is_prior else ("draws of the reference", "")
    release = release_with_lkj(distribution_of(model[names[0]])) if reference.is_prior else ""
    message = (
        f"The {draws} of `{names[0]}`{also} do not follow its log density, so log Z {start}would be wrong. "
        f"{f'PyMC {release} mends them: install it' if release else _REWRITE}, "
        'or pass reference="gaussian", which draws nothing from the prior.'
    )
    raise UnusablePriorError(message, names) if reference.is_prior else ValueError(message)
