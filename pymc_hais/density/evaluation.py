"""What evaluated prior draws say about a model: refusals that cost one evaluation."""

import functools
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_hais.core.messages import quoted
from pymc_hais.core.records import ParticleState
from pymc_hais.density.compiling import compile_interpreted, untraced
from pymc_hais.density.containers import arguments_for, freeze_with_inputs
from pymc_hais.density.layout import Layout
from pymc_hais.density.rewrites.graphs import held_value
from pymc_hais.density.rewrites.precise import evaluate_precisely, largest_terms
from pymc_hais.density.rewrites.simplification import simplify_first

#: Draws at which a log density is compared with the model's own, or at which one that is never finite is examined.
_EXAMINED = 20
#: Their ranks from 0, the likeliest, to 1: each falls into the widest gap that those before it leave.
_EXAMINED_RANKS = np.arange(_EXAMINED) * (np.sqrt(1.25) - 0.5) % 1.0
#: The share of the rounding error of double precision that wide numbers may have.
_KEPT = 16.0 * float(np.finfo(np.longdouble).eps / np.finfo(np.float64).eps)
#: ``(flat vector, values of the data containers) -> model.logp()``, as written.
type WrittenLogp = Callable[[np.ndarray, Mapping[str, np.ndarray]], float]


def check_state(
    model: pm.Model, layout: Layout, positions: np.ndarray, state: ParticleState, source: str = "the prior"
) -> int:
    """Refuse a model whose log density or gradient is unusable at every draw (P, D) of the reference, evaluated.

    Returns how many draws have a finite log density and a gradient that is not finite.  Moves from them are rejected,
    which is right but may be slow.  In messages, which name the terms or variables, ``source`` is the reference.
    """
    finite = np.isfinite(np.asarray(state.log_reference) + np.asarray(state.log_ratio))
    if not finite.any():
        _raise_for_terms(model, layout, positions[:_EXAMINED], len(positions), source)
    # What stands at discrete sites may be infinite: the log odds of an impossible value.
    free = np.s_[finite, : layout.n_continuous]
    gradient = np.asarray(state.grad_reference)[free] + np.asarray(state.grad_ratio)[free]
    unusable = ~np.isfinite(gradient)
    dimensions = np.flatnonzero(unusable.all(axis=0))
    if dimensions.size:
        owners = dict.fromkeys(layout.owner_of(int(dimension)) for dimension in dimensions)
        raise ValueError(
            f"The gradient of the log density with respect to {quoted(owners)} is NaN or infinite at every draw of "
            f"{source} although the log density is finite. Look for pt.switch or pt.where with an infinite or NaN "
            "branch, a square root or power at zero, or a custom Op with a wrong gradient."
        )
    return int(unusable.any(axis=1).sum())


def check_joint_logp(
    model: pm.Model,
    layout: Layout,
    positions: np.ndarray,
    joint: np.ndarray,
    magnitude: np.ndarray,
    clipped: np.ndarray | None = None,
    written: Callable[[np.ndarray], float] | None = None,
) -> float:
    """Refuse a compiled log density that differs from ``model.logp()`` at draws of the reference.

    It may by 0.001 nats, or as far as the rounding of the largest terms explains.  Where it differs by more, wide
    numbers decide.  Returns the difference in nats where they do not; 0 where nothing is left to decide.

    A guard against a wrong compilation: a backend's form of a function, or a rewrite.  The likeliest of the draws
    (P, D) is always compared because there rounding is smallest; others follow, from the likely to the unlikely, while
    they cost very little.

    ``joint`` (P,) is the compiled log density, and ``magnitude`` (P,) that of the numbers whose sum it is: rounding is
    in proportion.  Draws that are ``clipped`` (P,), beyond the range of floating point, are not compared.  ``written``
    is ``model.logp()`` at a flat vector, where it has been compiled before.
    """
    usable = np.flatnonzero(np.isfinite(joint) if clipped is None else np.isfinite(joint) & ~clipped)
    if not usable.size:
        return 0.0
    order = (_EXAMINED_RANKS * usable.size).astype(int)
    ranked = usable[np.argsort(-joint[usable], kind="stable")][order]
    eps = float(np.finfo(pytensor.config.floatX).eps)
    tolerance = 0.001 + np.sqrt(eps) * magnitude
    written = written or compile_written(model, layout, untraced(model.logp)())
    expected = _evaluate_some(written, positions, ranked.tolist())
    # NaN never counts as agreement.
    differing = {i: value for i, value in expected.items() if not abs(joint[i] - value) <= tolerance[i]}
    if not differing:
        return 0.0
    logp: Any = untraced(model.logp)()
    measure = measure_terms(model, layout, logp)

    @functools.cache
    @untraced
    def written_anew() -> Any:  # after our own first rewrites
        frozen, _ = freeze_with_inputs(model, [])
        return simplify_first([frozen.logp()])[0]

    undecided = 0.0
    for i, value in differing.items():
        named = _point(model, layout, positions[i])
        forms = logp, written_anew, {variable: named[variable.name] for variable in model.value_vars}
        # 16 roundings: of a few functions in each term, in both forms; and of the position.
        rounding = 16.0 * eps * measure(positions[i]) + _change_by_rounding(written, layout, positions[i], value)
        allowed = tolerance[i] + rounding
        difference = _compare_precisely(*forms, ours=joint[i], value=value, allowed=allowed, magnitude=magnitude[i])
        if i == ranked[0]:  # of an unlikely draw any form may be rounded
            undecided = difference
    return undecided


def _change_by_rounding(
    written: Callable[[np.ndarray], float], layout: Layout, position: np.ndarray, value: float
) -> float:
    """Return by how much a log density changes where 16 roundings change its continuous variables.

    Matrices that are nearly singular magnify these, and have factors of ordinary precision among wide numbers, too.
    """
    nudge = 16.0 * float(np.finfo(pytensor.config.floatX).eps) * (np.arange(layout.n_dims) < layout.n_continuous)
    changes = [abs(written(position * (1.0 + by)) - value) for by in (-nudge, nudge)]
    return max(filter(np.isfinite, changes), default=0.0)


def _evaluate_some(
    written: Callable[[np.ndarray], float], positions: np.ndarray, ranked: list[int]
) -> dict[int, float]:
    """Return ``model.logp()`` for the first draw of a ranking, and for further ones during 0.02 s."""
    found: dict[int, float] = {}
    start = perf_counter()
    for i in dict.fromkeys(ranked):
        if found and perf_counter() - start > 0.02:  # seconds beyond the first draw
            break
        found[i] = written(positions[i])
    return found


def _compare_precisely(
    logp: Any,
    written_anew: Callable[[], Any],
    point: Mapping[Any, np.ndarray],
    *,
    ours: float,
    value: float,
    allowed: float,
    magnitude: float,
) -> float:
    """Return the least difference between our log density and forms of ``model.logp()``; 0 where it is allowed.

    Refuses our log density where wide numbers prove it wrong; ``value`` is ``model.logp()`` in ordinary ones.
    """
    # Wide numbers, as it is written and in its stable form: as written, log(1 - sigmoid(40)) is -inf, and
    # log(1 - sigmoid(36)) has no digits left.
    stable_form = ("canonicalize", "stabilize", "specialize")
    precise = [evaluate_precisely(logp, point, *stages) for stages in ((), stable_form)]
    distances = [abs(ours - one) for one in (value, *precise)]
    if any(distance <= allowed for distance in distances):
        return 0.0
    # Ordered categories and squared distances have forms that this package alone knows.  Likelier draws check them.
    distances.append(abs(ours - evaluate_precisely(written_anew(), point)))
    if distances[-1] <= allowed:
        return 0.0
    is_zero = value == precise[0] == -np.inf and magnitude < 700.0  # no underflow
    is_nan = np.isnan([value, *precise]).all()
    lost = _KEPT * abs(precise[0] - value)  # of the digits that double precision loses, wide numbers lose a share
    distance = abs(ours - precise[0]) - lost
    if is_zero or is_nan or (abs(precise[0] - precise[1]) <= allowed + lost and distance > allowed):
        raise RuntimeError(
            f"At a draw of the reference the compiled log reference + log ratio is {ours:.6f} but "
            f"model.logp() is {precise[0]:.6f}: they differ by {ours - precise[0]:.3g} nats. Either the "
            'backend computes a function of the model wrongly (try backend="c") or this is a bug: please report it.'
        )
    return float(np.nanmin(distances))


def measure_terms(model: pm.Model, layout: Layout, logp: Variable) -> Callable[[np.ndarray], float]:
    """Compile the size of the terms that ``model.logp()`` adds up as a function of a flat vector (D,)."""
    return compile_written(model, layout, largest_terms(logp))


def has_huge_data(model: pm.Model) -> bool:
    """Whether observed values are so large that terms of the log density which cancel may have lost their digits."""
    values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    held = [held_value(one) for one in ancestors(values) if not one.owner]
    numbers = [value for value in map(np.asarray, held) if value.dtype.kind in "iuf" and value.size]
    # Values 100 times larger than this have a nat of rounding.
    return any(np.max(np.abs(value)) > 1e11 for value in numbers)


def compile_written(model: pm.Model, layout: Layout, logp: TensorVariable) -> Callable[[np.ndarray], float]:
    """Compile what PyMC has written as ``model.logp()`` as a function of a flat vector (D,)."""
    evaluate = _compile_at(model, layout, [logp])
    return lambda position: float(evaluate(position)[0])


def build_written_logp(model: pm.Model, layout: Layout, containers: Mapping[str, np.ndarray]) -> WrittenLogp:
    """Compile ``model.logp()`` as it is written, for any values of the data containers that may vary."""
    frozen, targets = freeze_with_inputs(model, list(containers))
    shared = arguments_for(containers)
    logp = clone_replace(frozen.logp(), dict(zip(targets, shared, strict=True)), rebuild_strict=False)
    variables = {variable.name: variable.dtype for variable in frozen.value_vars}
    with model:  # which knows whether bounds are to be checked
        function = compile_interpreted([*frozen.value_vars, *shared], [logp])

    def written(position: np.ndarray, values: Mapping[str, np.ndarray]) -> float:
        point = layout.unflatten(np.asarray(position))
        own = (np.asarray(point[name], dtype) for name, dtype in variables.items())
        return float(function(*own, *(values[name] for name in containers))[0])

    return written


def _point(model: pm.Model, layout: Layout, position: np.ndarray) -> dict[str, np.ndarray]:
    """Name the values of one position (D,), in the order and with the dtypes that ``model`` declares."""
    values = layout.unflatten(np.asarray(position))
    return {var.name: np.asarray(values[var.name], dtype=var.dtype) for var in model.value_vars}


def _raise_for_terms(model: pm.Model, layout: Layout, positions: np.ndarray, n_draws: int, source: str) -> None:
    try:
        terms = evaluate_terms(model, layout, positions, [*model.basic_RVs, *model.potentials])
    except IndexError as error:
        raise ValueError(
            f"The log density is not finite at any of {n_draws} draws of {source}, at which the model looks past the "
            f"end of a table: {str(error).splitlines()[0]}. Make the table longer, or clip the index with pt.clip."
        ) from error
    bad = {name: ~np.isfinite(values) for name, values in terms.items()}
    always = [name for name, rows in bad.items() if rows.all()]
    named = always or sorted((name for name in bad if bad[name].any()), key=lambda name: -bad[name].sum())
    kind = "NaN" if any(np.isnan(terms[name]).any() for name in named) else "-inf"
    where = quoted(named) if named else "the sum of its terms"
    impossible = next(filter(None, (_impossible_value(model, layout, positions, name) for name in always)), "")
    raise ValueError(
        f"The log density is not finite at any of {n_draws} draws of {source}; the {kind} comes from {where}. "
        f"{impossible}"
        "Check the support and the parameters of that term (model.debug() helps), check the data for "
        "missing values, or choose a prior that covers the values under which the data are possible."
    )


@untraced
def _impossible_value(model: pm.Model, layout: Layout, positions: np.ndarray, name: str) -> str:
    """Name an observed value that has density zero at all positions (P, D), if elements have densities of their own."""
    rv = model[name]
    if rv not in model.observed_RVs:
        return ""
    data = np.asarray(model.rvs_to_values[rv].eval())
    evaluate = _compile_at(model, layout, model.logp([rv], sum=False))
    never = np.isneginf([evaluate(position)[0] for position in positions]).all(axis=0)
    if never.shape != data.shape or not never.any():
        return ""
    index = tuple(int(i) for i in np.argwhere(never)[0])
    element = f" (element {', '.join(map(str, index))})" if index else ""
    return (
        f"The observed value {data[index]!s}{element} of `{name}` has density zero at each of them: is it outside of "
        "the support of its distribution? "
    )


def evaluate_terms(model: pm.Model, layout: Layout, positions: np.ndarray, factors: list[Any]) -> dict[str, np.ndarray]:
    """Evaluate the log density of some variables and potentials (P,) at positions (P, D)."""
    terms = [factor.sum() for factor in model.logp(factors, sum=False)]
    rows = np.array([*map(_compile_at(model, layout, terms), positions)], dtype=np.float64)
    return {factor.name: rows[:, i] for i, factor in enumerate(factors)}


def _compile_at(model: pm.Model, layout: Layout, outputs: list[Any]) -> Callable[[np.ndarray], list[np.ndarray]]:
    """Compile graphs of the model's values as functions of a position (D,), as written."""
    with model:  # which knows whether bounds are to be checked
        function = compile_interpreted(model.value_vars, outputs)
    return lambda position: function(*_point(model, layout, position).values())
