"""Whether the draws of a reference follow its log density.

First a screening by Stein's identity, which is powerful and costs one gradient a draw, but may be mistaken where the
density jumps or the tails are heavy.  Then an exact test, with fresh draws, of the variables that it suspects.  Only
the second refuses a reference: a right one with probability 1e-6 at most, whatever it is.  Discrete variables have no
gradient to be screened by: those that PyMC does not draw itself are all suspected.
"""

from typing import NamedTuple, NoReturn

import numpy as np
from scipy.special import ndtri

from pymc_hais.core.messages import quoted
from pymc_hais.core.records import ParticleState
from pymc_hais.density import Model
from pymc_hais.density.compat import release_with_lkj
from pymc_hais.density.evaluation import evaluate_terms
from pymc_hais.density.layout import Layout
from pymc_hais.density.sites.variables import distribution_of
from pymc_hais.goodness_of_fit.draws import blocks_of
from pymc_hais.goodness_of_fit.exchange import Ruler, p_value
from pymc_hais.goodness_of_fit.limits import LIMITS
from pymc_hais.goodness_of_fit.stein import Suspect, find_suspects
from pymc_hais.kernels import Composed
from pymc_hais.problem.problem import Problem
from pymc_hais.references.base import BoundReference, Evaluate, UnusablePriorError
from pymc_hais.references.bound import Independent, Prior
from pymc_hais.references.box import Box
from pymc_hais.references.density import Density, build_reference_density
from pymc_hais.references.gaussian import Gaussian, StudentT
from pymc_hais.references.mixture import Mixed
from pymc_hais.references.model import AnnealedModel
from pymc_hais.references.variables import Product, draws_itself


class _Sizes(NamedTuple):
    """How many draws are screened and tested, and when they are refused without a test."""

    screened: int = 4000  # draws of the screening
    chunk: int = 500  # evaluated at a time, as many as the checks before, so that nothing compiles twice
    tested: tuple[int, int] = (4000, 16_000)  # draws of the exact test, and of its repetition where it leaves a doubt
    fewest: int = 500  # the same where they are costly
    elements: int = 4_000_000  # of an array of draws, at most
    unknown: int = 3  # coordinates that are tested of a variable without known structure
    least_variance: float = 10.0  # of a count from which on its law is normal enough
    ties: int = 5  # so many equal draws are no coincidence
    inner: float = 30.0  # except outside this distance from the origin
    impossible: float = 0.01  # share of draws of density zero that rounding does not explain
    examined: int = 20  # how many of them are examined


_SIZES = _Sizes()

_CUSTOM = "For a pm.CustomDist, make `random` draw from the density that `logp` computes (or pass `dist=` alone)"


def check_draws(
    model: Model,
    layout: Layout,
    reference: BoundReference,
    seeds: np.random.SeedSequence,
    evaluate: Evaluate | None = None,
) -> None:
    """Refuse a reference whose draws do not follow its log density.

    The parts of a mixture are checked one by one.  The package's own references are right by its tests, and the draws
    of an annealed model show their error in the spread of the chains.  Where there is nothing that evaluates with
    gradients of the reference, a graph of the reference alone is compiled.

    Raises ValueError if a variable has point masses, draws of density zero, or draws of another density; naming it.
    """
    if isinstance(reference, Mixed):
        for part, one in zip(reference.parts, seeds.spawn(len(reference.parts)), strict=True):
            check_draws(model, layout, part, one)
        return
    is_own = isinstance(reference, Independent) and isinstance(reference.reference, Gaussian | StudentT | Box)
    if is_own or isinstance(reference, AnnealedModel):
        return
    if names := find_mismatches(model, layout, reference, seeds, evaluate):
        refuse_mismatch(model, names, reference)


def find_mismatches(
    model: Model,
    layout: Layout,
    reference: BoundReference,
    seeds: np.random.SeedSequence,
    evaluate: Evaluate | None = None,
) -> list[str]:
    """Name the variables whose draws do not follow the log density, as in :func:`check_draws`.

    The first is surely wrong; the others may only be parents of a wrong one.
    """
    screening, testing = seeds.spawn(2)
    positions, clipped, *_ = reference.draw(_n_screened(layout, reference), screening)
    refuse_point_masses(layout, positions[: _SIZES.chunk][~clipped[: _SIZES.chunk]], reference)
    density = None
    if evaluate is None:
        density = build_reference_density(model, layout, reference, positions[:5], with_gradients=True)
        screened, log_density = positions, density.values(positions)
        gradient = None if density.gradients is None else density.gradients(positions)
    else:
        states = [evaluate(positions[i : i + _SIZES.chunk]) for i in range(0, len(positions), _SIZES.chunk)]
        # The identity holds in any coordinates.
        parts = ("position", "log_reference", "grad_reference")
        screened, log_density, gradient = (np.concatenate([getattr(one, part) for one in states]) for part in parts)
    clean = positions[~clipped]
    refuse_impossible(model, layout, clean, log_density[~clipped], reference)
    suspects, blocks = _sites(model, layout, reference), blocks_of(layout)
    if gradient is None:
        suspects += [_suspect(layout, int(i)) for i in np.unique(blocks)[::-1] if i >= 0]
    else:
        suspects += find_suspects(screened[~clipped], gradient[~clipped], blocks, LIMITS.suspicion)
    if not suspects:
        return []
    sites = layout.sites if any(suspect.is_discrete for suspect in suspects) else ()
    ruler = Ruler.of(clean, not clipped.any(), sites)
    density = density or build_reference_density(model, layout, reference, positions[:5])
    return _confirm(layout, reference, density, suspects, ruler, testing)


def _n_screened(layout: Layout, reference: BoundReference) -> int:
    if not layout.n_continuous:  # nothing to screen but draws of density zero
        return _SIZES.chunk
    is_drawn_singly = isinstance(reference, Prior | Product) and reference.sampler.batch_size == 1
    most = _SIZES.screened // 2 if is_drawn_singly else _SIZES.screened
    return _SIZES.chunk * int(np.clip(_SIZES.elements // (layout.n_dims * _SIZES.chunk), 1, most // _SIZES.chunk))


def _sites(model: Model, layout: Layout, reference: BoundReference) -> list[Suspect]:
    """Suspect every discrete variable whose draws are not PyMC's own."""
    own = reference.model if isinstance(reference, Product) else model if reference.is_prior else None
    names = [site.name for site in reversed(layout.sites) if site.stop > site.start]
    doubtful = [name for name in names if own is None or not draws_itself(own[name])]
    return [_suspect(layout, layout.owners.index(name)) for name in doubtful]


def _suspect(layout: Layout, variable: int) -> Suspect:
    chosen = np.linspace(layout.offsets[variable], layout.offsets[variable + 1] - 1, _SIZES.unknown)
    coordinates = tuple(int(dim) for dim in np.unique(chosen.round().astype(int)))
    return Suspect(variable, coordinates, coordinates[1:] + coordinates[:1], 1.0, coordinates[0] >= layout.n_continuous)


def _confirm(
    layout: Layout,
    reference: BoundReference,
    density: Density,
    suspects: list[Suspect],
    ruler: Ruler,
    seeds: np.random.SeedSequence,
) -> list[str]:
    """Test suspects until one is surely wrong; return its name, and those of others as suspicious."""
    level = LIMITS.false_alarm / (len(suspects) * len(_SIZES.tested))
    drawing, *walking = seeds.spawn(1 + len(suspects))
    drawings = drawing.spawn(len(_SIZES.tested))
    # What is repeated for every position costs a call, and is linear algebra as a rule.
    elements = layout.n_dims + density.n_loops * (50 + layout.n_dims**2 // 5)
    sizes = [max(_SIZES.fewest, min(n, _SIZES.elements // elements)) for n in _SIZES.tested]

    def is_wrong(suspect: Suspect, rng: np.random.Generator) -> bool:
        dims = np.arange(layout.offsets[suspect.variable], layout.offsets[suspect.variable + 1])
        for n, one in zip(sizes, drawings, strict=True):
            draws, clipped, *_ = reference.draw(n, one)
            p = p_value(draws[~clipped], density.values, suspect, dims, ruler, rng)
            if p <= level or p > LIMITS.doubt:
                return p <= level
        return False

    for suspect, one in zip(suspects, walking, strict=True):
        if is_wrong(suspect, np.random.default_rng(one)):
            others = [other for other in suspects if other is not suspect and other.excess >= suspect.excess / 3]
            return [layout.owners[each.variable] for each in (suspect, *others)]
    return []


def check_odds(problem: Problem, state: ParticleState) -> None:
    """Refuse a reference whose draws of binary sites do not follow its own odds: a test of one mean for each site."""
    kernel = problem.engine.kernel
    blocks = kernel.site_blocks if isinstance(kernel, Composed) else ()
    for block in (block for block in blocks if block.rule == "gradient"):
        own = slice(block.start, block.stop)
        with np.errstate(over="ignore"):
            p = 1.0 / (1.0 + np.exp(-state.grad_reference[:, own]))
        variance = np.sum(p * (1.0 - p), axis=0)
        excess = np.abs(np.sum(state.position[:, own] - p, axis=0))
        limit = -ndtri(LIMITS.false_alarm / (2 * problem.layout.n_sites)) * np.sqrt(variance)
        if np.any((variance > _SIZES.least_variance) & (excess > limit)):
            refuse_mismatch(problem.model, [problem.layout.owner_of(block.start)], problem.reference)


def refuse_point_masses(layout: Layout, positions: np.ndarray, reference: BoundReference) -> None:
    """Refuse a variable with one value that many of the draws (P, D) repeat, within the range of floating point."""
    for i, column in enumerate(np.asarray(positions, float)[:, : layout.n_continuous].T):
        values, counts = np.unique(column, return_counts=True)
        # Near one, a transformed probability has few floating-point values left: ties mean nothing there.
        inner = np.ones(len(values), bool) if layout.is_identity(i) else np.abs(values) < _SIZES.inner
        if counts[inner].max(initial=0) >= _SIZES.ties:
            repeated = values[inner][counts[inner].argmax()]
            draws = "Prior draws" if reference.is_prior else "Draws of the reference"
            raise ValueError(
                f"{draws} of `{layout.owner_of(i)}` repeat the value {repeated:.6g}: it has point masses "
                "(pm.Censored, or a pm.Mixture with pm.DiracDelta), which gradients cannot anneal. Use it for observed "
                "data only, or write the model with a continuous latent variable."
            )


def refuse_impossible(
    model: Model, layout: Layout, positions: np.ndarray, log_density: np.ndarray, reference: BoundReference
) -> None:
    """Refuse a reference with draws (P, D), in the range of floating point, where its own log density (P,) is -inf."""
    impossible = np.isneginf(log_density)
    if not len(positions) or impossible.mean() <= _SIZES.impossible:
        return
    own = reference.model if isinstance(reference, Product) else model if reference.is_prior else None
    terms = {} if own is None else evaluate_terms(own, layout, positions[impossible][: _SIZES.examined], own.free_RVs)
    names = [name for name, values in terms.items() if np.isneginf(values).any()]
    named = quoted(names)
    raise ValueError(
        f"{int(impossible.sum())} of {len(positions)} draws of {reference.label}{' of ' + named if names else ''} lie "
        "where its log density is -inf, so log Z would be wrong: make the draws and the density have one support. "
        f"{_CUSTOM}."
    )


def refuse_mismatch(model: Model, names: list[str], reference: BoundReference) -> NoReturn:
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
    advice = (
        f"PyMC {release} mends them: install it"
        if release
        else f"{_CUSTOM}; for a distribution of PyMC, write it in another way (for example pm.CAR as a pm.MvNormal "
        "with the same precision)"
    )
    if any(kind.__name__ == "MarginalRV" for kind in type(distribution_of(model[names[0]])).__mro__):
        advice = (
            "pymc_extras.marginalize has summed a discrete variable out of the density of missing values, and their "
            "draws are not of that density: leave the missing values out of the data, or marginalise nothing"
        )
    message = (
        f"The {draws} of `{names[0]}`{also} do not follow its log density, so log Z {start}would be wrong. {advice}, "
        'or pass reference="gaussian", which draws nothing from the prior.'
    )
    raise UnusablePriorError(message, names) if reference.is_prior else ValueError(message)
