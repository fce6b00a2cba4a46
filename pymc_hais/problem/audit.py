"""Whether the draws of a reference follow its log density.

First a screening by Stein's identity, which is powerful and costs one gradient a draw, but may be mistaken where the
density jumps or the tails are heavy.  Then an exact test, with fresh draws, of the variables that it suspects.  Only
the second refuses a reference: a right one with probability 1e-6 at most, whatever it is.  Discrete variables have no
gradient to be screened by: those that PyMC does not draw itself are all suspected.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.exceptions import AxisError
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.scan.op import Scan
from pytensor.tensor.blockwise import Blockwise

from pymc_hais.density.compat import rewrite_pregrad
from pymc_hais.density.compiling import compile_interpreted, freeze_dims_and_data, lower_xtensor
from pymc_hais.density.layout import Layout, on_position
from pymc_hais.density.sites.lookups import ANY, confine_lookups
from pymc_hais.goodness_of_fit.draws import blocks_of
from pymc_hais.goodness_of_fit.exchange import Ruler, p_value
from pymc_hais.goodness_of_fit.limits import LIMITS
from pymc_hais.goodness_of_fit.stein import Suspect, find_suspects
from pymc_hais.problem.refusals import refuse_impossible, refuse_mismatch, refuse_point_masses
from pymc_hais.references.base import BoundReference, Evaluate
from pymc_hais.references.bound import Independent, Prior
from pymc_hais.references.box import Box
from pymc_hais.references.gaussian import Gaussian
from pymc_hais.references.mixture import Mixed
from pymc_hais.references.model import AnnealedModel
from pymc_hais.references.student_t import StudentT
from pymc_hais.references.variables import Product, draws_itself

type Rows = Callable[[np.ndarray], np.ndarray]

#: What a graph that is called for every position costs, in operations that are repeated for every position.
_CALL = 20
#: Draws of the screening, evaluated as many at a time as the checks before, so that nothing compiles twice.
_SCREENED, _CHUNK = 4000, 500
#: Draws of the exact test and of its repetition where it leaves a doubt; fewer where they are costly.
_TESTED, _FEWEST = (4000, 16_000), 500
#: Elements of an array of draws, at most.
_ELEMENTS = 4_000_000
#: Coordinates that are tested of a variable without known structure.
_UNKNOWN = 3


@dataclass(frozen=True)
class Density:
    """Functions of many positions (P, D)."""

    values: Rows
    gradients: Rows | None  # None if an operation has no gradient, or none was asked for
    n_loops: int  # how many operations are repeated for every position; the others are done once for all


def build_reference_density(
    model: Any, layout: Layout, reference: BoundReference, sample: np.ndarray, with_gradients: bool = False
) -> Density:
    """Compile a reference's log density for PyTensor's NumPy interpreter.

    At the positions of a sample (n, D), many at once and one at a time must agree.
    """
    frozen = freeze_dims_and_data(model)
    # The draws may be moved to where the prior looks past a table.
    (log_prior,), outside = confine_lookups([frozen.varlogp], dict.fromkeys(frozen.discrete_value_vars, ANY))
    position, (log_prior,) = on_position(frozen, layout, [log_prior if outside is None else log_prior + outside])
    value = pt.as_tensor_variable(reference.logp(position, log_prior))
    values, n_loops = _for_rows(position, value, sample)
    return Density(values, _gradients(position, value, sample) if with_gradients else None, n_loops)


def _gradients(position: Any, value: Any, sample: np.ndarray) -> Rows | None:
    try:
        gradient = pytensor.grad(rewrite_pregrad(value), position, disconnected_inputs="ignore")
        return _for_rows(position, gradient, sample)[0]
    except Exception:  # an Op of the user's own may have no gradient
        return None


def _n_loops(op: Any) -> int:
    if not isinstance(op, Blockwise):
        return 0
    return _CALL if isinstance(op.core_op, Scan) else 1


def _for_rows(position: Any, output: Any, sample: np.ndarray) -> tuple[Rows, int]:
    """Compile a function of one position for many; and count the operations that are repeated."""
    (output,) = lower_xtensor([output])
    single = compile_interpreted([position], [output])
    rows = pt.tensor("positions", dtype=position.dtype, shape=(None, position.type.shape[0]))

    def one_by_one(positions: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.array([single(row)[0] for row in positions.astype(position.dtype)], dtype=np.float64)

    try:
        try:
            batched = vectorize_graph(output, {position: rows})
        except AxisError:  # pm.CAR sums a number along an axis that it does not have
            batched = vectorize_graph(rewrite_pregrad(output), {position: rows})
        function = compile_interpreted([rows], [batched])

        def at_once(positions: np.ndarray) -> np.ndarray:
            with np.errstate(all="ignore"):
                return np.asarray(function(positions.astype(position.dtype))[0], dtype=np.float64)

        if np.allclose(at_once(sample), one_by_one(sample), rtol=1e-4, atol=1e-4, equal_nan=True):
            nodes = {variable.owner for variable in ancestors([batched])} - {None}
            return at_once, sum(_n_loops(node.op) for node in nodes)
    except Exception:  # an Op without a rule for many positions: one at a time is always right
        pass
    return one_by_one, _CALL


def check_draws(
    model: Any,
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
    elif not _is_known(reference):
        names = find_mismatches(model, layout, reference, seeds, evaluate)
        if names:
            refuse_mismatch(model, names, reference)


def _is_known(reference: BoundReference) -> bool:
    is_own = isinstance(reference, Independent) and isinstance(reference.reference, Gaussian | StudentT | Box)
    return is_own or isinstance(reference, AnnealedModel)


def find_mismatches(
    model: Any,
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
    refuse_point_masses(layout, positions[:_CHUNK][~clipped[:_CHUNK]], reference)
    density = None
    if evaluate is None:
        density = build_reference_density(model, layout, reference, positions[:5], with_gradients=True)
        screened, log_density = positions, density.values(positions)
        gradient = None if density.gradients is None else density.gradients(positions)
    else:
        screened, log_density, gradient = _evaluate(evaluate, positions)
    clean = positions[~clipped]
    refuse_impossible(model, layout, clean, log_density[~clipped], reference)
    suspects = _sites(model, layout, reference)
    if gradient is None:
        suspects += _everyone(layout)
    else:
        suspects += find_suspects(screened[~clipped], gradient[~clipped], blocks_of(layout), LIMITS.suspicion)
    if not suspects:
        return []
    sites = layout.sites if any(suspect.is_discrete for suspect in suspects) else ()
    ruler = Ruler.of(clean, not clipped.any(), sites)
    density = density or build_reference_density(model, layout, reference, positions[:5])
    return _confirm(layout, reference, density, suspects, ruler, testing)


def _evaluate(evaluate: Evaluate, positions: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return coordinates, log densities and gradients; the identity holds in any coordinates."""
    states = [evaluate(positions[i : i + _CHUNK]) for i in range(0, len(positions), _CHUNK)]
    fields = ("position", "log_reference", "grad_reference")
    return tuple(np.concatenate([getattr(state, name) for state in states]) for name in fields)


def _n_screened(layout: Layout, reference: BoundReference) -> int:
    if not layout.n_continuous:  # nothing to screen but draws of density zero
        return _CHUNK
    is_drawn_singly = isinstance(reference, Prior | Product) and reference.sampler.batch_size == 1
    most = _SCREENED // 2 if is_drawn_singly else _SCREENED
    return _CHUNK * int(np.clip(_ELEMENTS // (layout.n_dims * _CHUNK), 1, most // _CHUNK))


def _everyone(layout: Layout) -> list[Suspect]:
    """Suspect every continuous variable that has coordinates to move."""
    return [_suspect(layout, int(i)) for i in np.unique(blocks_of(layout))[::-1] if i >= 0]


def _sites(model: Any, layout: Layout, reference: BoundReference) -> list[Suspect]:
    """Suspect every discrete variable whose draws are not PyMC's own."""
    own = reference.model if isinstance(reference, Product) else model if reference.is_prior else None
    names = [site.name for site in reversed(layout.sites) if site.stop > site.start]
    doubtful = [name for name in names if own is None or not draws_itself(own[name])]
    return [_suspect(layout, layout.owners.index(name)) for name in doubtful]


def _suspect(layout: Layout, variable: int) -> Suspect:
    chosen = np.linspace(layout.offsets[variable], layout.offsets[variable + 1] - 1, _UNKNOWN)
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
    level = LIMITS.false_alarm / (len(suspects) * len(_TESTED))
    drawing, *walking = seeds.spawn(1 + len(suspects))
    drawings = drawing.spawn(len(_TESTED))
    # What is repeated for every position costs a call, and is linear algebra as a rule.
    elements = layout.n_dims + density.n_loops * (50 + layout.n_dims**2 // 5)
    sizes = [max(_FEWEST, min(n, _ELEMENTS // elements)) for n in _TESTED]

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
