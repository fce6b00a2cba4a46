"""Coordinates in which a latent chain is a standard normal: a Gaussian of its own for each value of everything else.

Given all other variables, theta, a random walk or an autoregression x has a conditional density whose Hessian is
tridiagonal, A(theta) = -d^2 log p / dx^2 at a point, as far as each observation looks at one element.  One Newton step
from there and the Cholesky factor A = L L' make x = point + A^-1 g + L^-T z, where g is the gradient at the point: z is
standard normal where the data are normal, for every theta, and nearly so where the point is near the mode (Rue, Martino
& Chopin 2009, J. R. Stat. Soc. B 71, 319-392, equation 3).  What is left of the density is that of theta with the chain
integrated out.  The coordinates are right whatever A and g are, as they depend on theta alone: the Jacobian is exact.
With no share of the data in A and g the chain is non-centred.

Coefficients whose linear predictor moves with a few other variables are integrated out likewise, by a dense matrix,
and areas with neighbours by a banded one.

Innovations that the model adds up, such as ``cumsum(z) * scale``, give a chain as well: their running sums.  The change
from innovations to sums has a Jacobian of one.  The innovations may have weights in these sums, which are taken
relative to their geometric mean.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.timeseries import AutoRegressiveRV, RandomWalkRV
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Mul, TrueDiv
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.random.basic import CauchyRV, LogisticRV, NormalRV, StudentTRV
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compat import rewrite_pregrad
from pymc_hais.density.layout import Layout, values_at
from pymc_hais.density.markov.markov import Markov, find_couplings, find_markov
from pymc_hais.density.proofs.predictors import Predictor, find_predictor
from pymc_hais.density.rewrites.graphs import behind_dims, count, scalar_op
from pymc_hais.density.rewrites.simplification import simplify_values
from pymc_hais.latent.banded import Banded
from pymc_hais.latent.dense import Dense, read_design
from pymc_hais.latent.precisions import NODES, Nearby, Precision
from pymc_hais.latent.tridiagonal import Tridiagonal

#: Elements of a chain, at least.
_SHORTEST = 8
#: Elements from which on a chain is a field whatever its likelihood and its prior: coordinates of its own are worth
#: about 7 s of compiling.
_LONG = 64
#: Other variables, at most, beside fields that are integrated out: a Gaussian around their mode is weighed.
_MOST_BESIDE = 10
#: Elements of fields behind linear predictors: fewer gain little, and a dense factor takes the cube of their number.
_SIZES = range(16, 161)
#: Elements of one variable, at most, that data couple as those of a group, such as its intercept and slopes.
_WIDEST = 6
#: Entries of the matrix of a linear predictor, at most.
_MOST_ENTRIES = 1_000_000
_TRIDIAGONAL = Tridiagonal()


@dataclass(frozen=True, eq=False)
class Field:
    """Variables that are nearly normal given all others, and the kind of matrix that is their precision.

    One variable that is a chain, has several chains in a row, or the differences of one; a Gaussian Markov random
    field; or all normal variables behind a linear predictor.
    """

    owners: tuple[str, ...]  # one, but for normals behind a linear predictor
    part: slice | np.ndarray  # its place in the flat vector
    length: int
    weights: np.ndarray | None = None  # (length,) in the sums that are its chain; None if it is one itself
    precision: Precision = _TRIDIAGONAL

    @property
    def is_summed(self) -> bool:
        """Whether it has the differences of a chain."""
        return self.weights is not None

    @property
    def is_long(self) -> bool:
        """Whether its coordinates are worth compiling even if it is not integrated out."""
        return self.fixes_predictor or self.length >= _LONG

    @property
    def is_dense(self) -> bool:
        """Whether its matrix is a dense one."""
        return isinstance(self.precision, Dense)

    @property
    def fixes_predictor(self) -> bool:
        """Whether its point is one for all variables, and its prior moves no variable's coordinates."""
        return not isinstance(self.precision, Tridiagonal)

    def differences(self, xp: Any, chains: Any) -> Any:
        """Return what the variable has (..., K) of chains, or of displacements between two."""
        if self.weights is None:
            return chains
        rows = chains.reshape((*chains.shape[:-1], -1, self.length))
        steps = xp.concatenate([rows[..., :1], rows[..., 1:] - rows[..., :-1]], axis=-1)
        return (steps / self.weights).astype(chains.dtype).reshape(chains.shape)

    def sums(self, own: Any) -> Any:
        """Return the chains (..., K) of values of the variable, or their displacements of its displacements."""
        if self.weights is None:
            return own
        rows = own.reshape((*own.shape[:-1], -1, self.length))
        return (self.weights * rows).cumsum(axis=-1).astype(own.dtype).reshape(own.shape)


def find_fields(frozen: pm.Model, layout: Layout, normals: bool = False) -> list[Field]:
    """Find random walks, autoregressions of the first order, and normal variables used only as running sums.

    Parameters
    ----------
    normals : bool
        Whether independent normal variables are fields, too, where scales or slopes are variables; and Gaussian Markov
        random fields.
    """
    long = [i for i, shape in enumerate(layout.shapes) if shape and shape[-1] >= _SHORTEST]
    summed = find_summed(frozen, {layout.owners[i]: layout.shapes[i][-1] for i in long})
    chains = []
    for i in long:
        owner = layout.owners[i]
        if owner in summed or _is_chain(frozen, frozen[owner]):
            chains.append(Field((owner,), place_of(layout, [i]), layout.shapes[i][-1], summed.get(owner)))
    chains = [one for one in chains if one.is_long or _needs_coordinates(frozen, frozen[one.owners[0]])]
    if not normals:
        return chains
    taken = {one.owners[0] for one in chains}
    free = [i for i, owner in enumerate(layout.owners) if owner not in taken]
    for found in _find_predicted(frozen, layout, free):
        fields = chains + found
        n_beside = layout.n_dims - sum(np.arange(layout.n_dims)[one.part].size for one in fields)
        if len(fields) > len(chains) and n_beside <= _MOST_BESIDE:
            return fields
    return chains


def place_of(layout: Layout, which: Sequence[int]) -> slice | np.ndarray:
    """Return the place of some variables in the flat vector."""
    offsets = layout.offsets  # of int64, as slices are to be: what PyTensor makes of a small integer overflows later
    if len(which) == 1:
        return slice(offsets[which[0]], offsets[which[0] + 1])
    return np.concatenate([np.arange(offsets[i], offsets[i + 1]) for i in which])


def _needs_coordinates(frozen: pm.Model, rv: TensorVariable) -> bool:
    """Whether few moves reach small scales of a short chain in the model's coordinates, and those of a field help.

    Its prior has parameters: log Z of 20 to 30 steps with counts came out 0.2 too low, with errors of 0.07.  Where
    normal data have an unknown scale, runs from the prior were worse with these coordinates (log Z 0.3 too low, and
    0.1 without them).  Most chains with normal data are integrated out exactly, and need none.
    """
    if set(frozen.free_RVs).isdisjoint(ancestors(rv.owner.inputs)):
        return False
    data = [one for one in frozen.observed_RVs if rv in ancestors([one])]
    return not (data and all(_is_level_of(rv, one) for one in data))


def _is_level_of(rv: TensorVariable, data: TensorVariable) -> bool:
    """Whether data are normal, and a variable has no part in their scale."""
    if not isinstance(data.owner.op, NormalRV):
        return False
    _, sigma = data.owner.op.dist_params(data.owner)
    return rv not in ancestors([sigma])


class _Candidates(NamedTuple):
    """Normal variables, and Markov random fields, that no other variable depends on; and the log likelihood of them."""

    points: dict[int, TensorVariable]  # in place of their value variables
    markovs: dict[int, Markov | None]  # None for independent normals
    log_rest: TensorVariable

    @classmethod
    def of(cls, frozen: pm.Model, layout: Layout, which: Sequence[int]) -> Self | None:
        """Write the log likelihood as a graph of these variables, among those whose numbers are given; None for few."""
        parents = set(ancestors([one for rv in frozen.free_RVs for one in rv.owner.inputs]))
        points, markovs, values = {}, {}, {}
        for i in which:
            rv = frozen[layout.owners[i]]
            markov = find_markov(rv)
            is_normal = markov is not None or isinstance(rv.owner.op, NormalRV)
            if is_normal and rv not in parents and frozen.rvs_to_transforms[rv] is None:
                own = frozen.rvs_to_values[rv]
                markovs[i], points[i] = markov, own.type.clone(shape=layout.shapes[i])("point")
                values[own] = points[i]
        if sum(layout.sizes[i] for i in points) < _SIZES.start:
            return None
        (log_rest,) = rewrite_pregrad([clone_replace(frozen.datalogp, values, rebuild_strict=False)])
        return cls(points, markovs, log_rest)

    def predictor(self, which: Sequence[int]) -> Predictor | None:
        """Find the linear predictor of some of them."""
        return find_predictor(self.log_rest, [self.points[i] for i in which])

    def leads(self, i: int) -> bool:
        """Whether the data couple many of a variable's elements, or look at a field whose precision is a number."""
        markov = self.markovs[i]
        if markov is not None:
            return markov.tau is not None
        predictor, size = self.predictor([i]), count(self.points[i])
        if predictor is None or not predictor.is_mixed or size <= _WIDEST:
            return False
        if size * (count(predictor.end) or 0) > _MOST_ENTRIES:
            return True  # there will be no field: the matrix is too large to be read
        design = read_design(predictor, [self.points[i]])
        return design is None or design.widest > _WIDEST

    def moves(self, frozen: pm.Model, layout: Layout, which: Sequence[int], predictor: Predictor) -> bool:
        """Whether a predictor, or the prior of its variables, depends on other variables."""
        own = [frozen[layout.owners[i]] for i in which]
        parameters = frozen.replace_rvs_by_values([one for rv in own for one in rv.owner.op.dist_params(rv.owner)])
        others = [*frozen.value_vars, *(point for i, point in self.points.items() if i not in which)]
        return not set(ancestors([predictor.end, *parameters])).isdisjoint(others)


def _find_predicted(frozen: pm.Model, layout: Layout, which: Sequence[int]) -> Iterator[list[Field]]:
    """Yield large Markov random fields, each alone; and all normals and such fields behind one linear predictor."""
    candidates = _Candidates.of(frozen, layout, which)
    if candidates is None:
        return
    alone = []
    for i, markov in candidates.markovs.items():
        predictor = candidates.predictor([i]) if markov and layout.sizes[i] >= _SIZES.start else None
        # The data look at single elements, so that the matrix has few entries.
        if markov and predictor and not predictor.is_mixed and candidates.moves(frozen, layout, [i], predictor):
            alone.append(Field((layout.owners[i],), place_of(layout, [i]), layout.sizes[i], precision=Banded(markov)))
    yield alone
    yield _find_joint(frozen, layout, candidates)


def _find_joint(frozen: pm.Model, layout: Layout, candidates: _Candidates) -> list[Field]:
    """Find the normals, and Markov random fields, behind one linear predictor, if that or their priors move.

    At least one of them leads.  Effects of groups alone, also of several kinds beside a few common coefficients, are no
    field: pilots need less time for them.
    """
    chosen: list[int] = []
    predictor = None
    leads = [i for i in candidates.points if candidates.leads(i)]
    for i in sorted(candidates.points if leads else [], key=lambda i: (i not in leads, -layout.sizes[i])):
        if (one := candidates.predictor(sorted([*chosen, i]))) is not None:
            predictor, chosen = one, sorted([*chosen, i])
    size = sum(layout.sizes[i] for i in chosen)
    if predictor is None or not predictor.is_mixed or size not in _SIZES:
        return []
    n_entries = size * (count(predictor.end) or 0)
    if n_entries > _MOST_ENTRIES or not candidates.moves(frozen, layout, chosen, predictor):
        return []
    owners = tuple(layout.owners[i] for i in chosen)
    return [
        Field(owners, place_of(layout, chosen), size, precision=Dense(tuple(candidates.markovs[i] for i in chosen)))
    ]


def _is_chain(frozen: pm.Model, rv: TensorVariable) -> bool:
    op = rv.owner and rv.owner.op
    if frozen.rvs_to_transforms[rv] is not None or getattr(op, "ndim_supp", None) != 1:  # a walk of vectors
        return False
    if isinstance(op, RandomWalkRV):
        # These innovations give every element a precision; that of a Laplace or exponential one is zero.
        curved = NormalRV | StudentTRV | LogisticRV | CauchyRV
        return isinstance(getattr(rv.owner.inputs[1].owner, "op", None), curved)
    return isinstance(op, AutoRegressiveRV) and op.ar_order == 1


def find_summed(frozen: pm.Model, lengths: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Find the normal variables that a model uses only as running sums of their elements, scaled or not.

    ``lengths`` are those of the variables' last axes.  Returns the weight of each element in these sums, relative to
    the others; it is the same in all sums of a variable.
    """
    normals = {frozen[owner]: owner for owner in lengths if isinstance(frozen[owner].owner.op, NormalRV)}
    if not normals:
        return {}
    ends = [*frozen.observed_RVs, *frozen.potentials, *(rv for rv in frozen.free_RVs if rv not in normals)]
    sums = _sums_in(ends)
    others = set(ancestors(ends, blockers=[one for one, (rv, _) in sums.items() if rv in normals]))
    found: dict[Any, list[np.ndarray]] = {}
    for rv, weights in sums.values():
        if rv in normals:
            found.setdefault(rv, []).append(np.broadcast_to(weights, lengths[normals[rv]]))
    return {
        owner: found[rv][0]
        for rv, owner in normals.items()
        if rv in found and rv not in others and frozen.rvs_to_transforms[rv] is None
        if all(np.array_equal(one, found[rv][0]) for one in found[rv])
    }


def _sums_in(graphs: Sequence[Any]) -> dict[Any, tuple[Any, np.ndarray]]:
    """Map each running sum along the last axis in the graphs to the variable that it adds up, and to its weights."""
    found = {}
    for one in ancestors(graphs):
        op = one.owner and one.owner.op
        is_sum = isinstance(op, CumOp) and op.mode == "add" and op.axis == one.type.ndim - 1
        if is_sum and (source := _source(one.owner.inputs[0])):
            found[one] = source
    return found


def _source(added: TensorVariable) -> tuple[Any, np.ndarray] | None:
    """Return the variable that is added up, and its weights; None if more than scalars and constants multiply it.

    The scalars do not depend on the variable.  The weights are the constants, all of them positive, along the last
    axis, divided by their geometric mean.
    """
    scalars: list[Any] = []
    log_weights = np.zeros(1)
    while isinstance(op := scalar_op(added), Mul | TrueDiv):
        factors = [one for one in added.owner.inputs if not all(one.type.broadcastable)]
        constants = [one for one in factors if _is_along_last_axis(one)]
        rest = [one for one in factors if one not in constants]
        if len(rest) != 1 or (isinstance(op, TrueDiv) and rest[0] is not added.owner.inputs[0]):
            break
        with np.errstate(all="ignore"):
            logs = sum((np.log(behind_dims(one).data.ravel()) for one in constants), np.zeros(1))
        log_weights = log_weights - logs if isinstance(op, TrueDiv) else log_weights + logs
        scalars += [one for one in added.owner.inputs if one not in factors]
        (added,) = rest
    if added in set(ancestors(scalars)) or not np.isfinite(log_weights).all():
        return None
    return added, np.exp(log_weights - log_weights.mean())


def _is_along_last_axis(variable: TensorVariable) -> bool:
    """Whether a variable is a constant with all its elements along the last axis."""
    inner = behind_dims(variable)
    return isinstance(inner, Constant) and inner.data.size == variable.type.shape[-1]


def open_sums(
    frozen: pm.Model, fields: Sequence[Field], terms: list[Any], values: Mapping[Any, Any]
) -> tuple[list[Any], dict[Field, list[Any]], dict[Any, Any]]:
    """Write the chain itself where a graph of value variables has the sums of a field's differences.

    Returns the graphs; for each field the variable that is its chain, the value variables where those are the field;
    and the values of the value variables with those of the chains.
    """
    chains, values = {}, dict(values)
    for field in fields:
        chains[field] = own = value_vars(frozen, field)
        if field.is_summed:
            (own,) = own
            chain = own.type(f"{own.name}_sums")
            chains[field] = [chain]
            terms = write_chain(terms, field, own, chain)
            values[chain] = field.sums(values[own].ravel()).reshape(values[own].type.shape)
    return terms, chains, values


def value_vars(frozen: pm.Model, field: Field) -> list[Any]:
    """Return the value variables of a field."""
    return [frozen.rvs_to_values[frozen[owner]] for owner in field.owners]


def split(flat: TensorVariable, like: Sequence[TensorVariable]) -> list[Any]:
    """Cut a vector (K,) into variables with the shapes, and of the types, of others."""
    ends = np.cumsum([0, *map(count, like)])
    parts = [flat[ends[i] : ends[i + 1]].reshape(one.type.shape).astype(one.dtype) for i, one in enumerate(like)]
    return [one.type.filter_variable(part) for one, part in zip(like, parts, strict=True)]


def write_chain(terms: list[Any], field: Field, own: Any, chain: Any) -> list[Any]:
    """Write a chain where graphs have the running sums of a field's differences, ``own``."""
    opened = {
        one: one.type.filter_variable(clone_replace(one.owner.inputs[0], {own: (chain / weights).astype(own.dtype)}))
        for one, (source, weights) in _sums_in(terms).items()
        if source is own
    }
    return list(clone_replace(terms, opened, rebuild_strict=False))


def at_points(frozen: pm.Model, layout: Layout, fields: Sequence[Field], shift: TensorVariable) -> dict[Any, Any]:
    """Return where all value variables and chains are at the point, a flat vector that the sites have."""
    *_, points = open_sums(frozen, fields, [], values_at(frozen, layout, [shift] * len(layout.owners)))
    return points


def expand(
    frozen: pm.Model,
    field: Field,
    terms: list[Any],
    values: Mapping[Any, Any],
    points: Mapping[Any, Any],
    chains: Sequence[TensorVariable],
    precision: TensorVariable,
) -> list[Any]:
    """Expand log prior + log likelihood in a field around a point, given everything else.

    Parameters
    ----------
    terms : list of variable
        Log prior and the rest, as graphs of value variables and chains.
    values, points : dict
        These variables -> what they are, of the field the point; and where all of them are at the point.
    chains : sequence of variable
        The field's.
    precision : variable
        Of the normal around the point over which the likelihood is averaged (K,): infinite for the point alone, zero
        for a likelihood without a share.
    """
    here = [values[one].type("point") for one in chains]  # variables alone: clone_replace would copy graphs
    given = {one: value.type() for one, value in values.items()}
    at_here = dict(zip(chains, here, strict=True))
    if field.is_summed:
        (own,) = value_vars(frozen, field)
        at_here[own] = field.differences(pt, here[0].ravel()).reshape(here[0].type.shape)
    simple = rewrite_pregrad if field.fixes_predictor else simplify_values
    couplings = [find_couplings(frozen[owner]) for owner in field.owners]
    flat = frozen.replace_rvs_by_values([one for pair in couplings for one in pair])
    log_prior, log_rest, *flat = simple(clone_replace([*terms, *flat], {**given, **at_here}, rebuild_strict=False))
    numbers = iter(flat)
    couplings = [[next(numbers) for _ in pair] for pair in couplings]
    has_share = precision > 0.0
    widths = split(pt.switch(has_share, 1.0 / pt.sqrt(precision), 0.0), here)

    def put_in(graphs: Any, there: Mapping[Any, Any], sds: float = 0.0) -> Any:
        replaced = {one: there[value_var] for value_var, one in given.items()}
        for chain, point, width in zip(chains, here, widths, strict=True):
            replaced[point] = there[chain] + sds * width if sds else there[chain]
        return clone_replace(graphs, replaced, rebuild_strict=False)

    there = points if field.fixes_predictor else {**given, **at_here}
    nodes = (0.0,) if field.is_dense else NODES  # the width of a linear predictor is none of its elements
    around = [functools.partial(put_in, there=there, sds=sds) for sds in nodes]
    share = has_share[0].astype(here[0].dtype)
    arrays = field.precision.expand(Nearby(log_prior, log_rest, here, share, around, couplings))
    return list(put_in(list(arrays), values))
