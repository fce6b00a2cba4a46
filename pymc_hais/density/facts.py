"""Facts of a model: which of its variables are of what kind, and what can be told of their densities without a draw.

Some transforms keep a part of a prior.  An interval cuts it: examples are the imputed values of censored data,
``pm.Normal("x", mu, sigma, transform=Interval(16, None))``.  The prior divided by the mass between its bounds can be
drawn; that mass depends on ``mu`` and ``sigma``.  Of n exchangeable elements ``ordered`` keeps 1/n! of the prior.
"""

import functools
import weakref
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.distributions.custom import CustomDistRV
from pymc.distributions.multivariate import CARRV, ICARRV, LKJCorrRV
from pymc.distributions.transforms import LogExpM1, Ordered
from pytensor.graph.basic import Constant, equal_computations
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import get_underlying_scalar_constant_value
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable
from pytensor.xtensor.shape import Transpose
from scipy.special import gammaln

from pymc_hais.density.compat import (
    IntervalTransform,
    LKJFactor,
    LKJFactorRV,
    LogOddsTransform,
    LogTransform,
    Transform,
    default_transform,
    logccdf,
)
from pymc_hais.density.compiling import compile_interpreted, evaluate_once, untraced
from pymc_hais.density.layout import Layout, is_circular, name_transform, steps_of
from pymc_hais.density.markov.markov import find_log_mass, find_markov
from pymc_hais.density.sites.variables import FlatDiscreteRV, distribution_of, evaluate_without, is_discrete

#: Transforms whose range is all positive numbers: one can stand for another.
_POSITIVE = (LogTransform, LogExpM1)
#: Cache: variable -> its transform, and whether that keeps all of its distribution, which takes graphs to find.
_kept: weakref.WeakKeyDictionary[Any, tuple[Any, bool]] = weakref.WeakKeyDictionary()
_IMPROPER = {FlatRV: "pm.Flat", HalfFlatRV: "pm.HalfFlat", ICARRV: "pm.ICAR"}


def discrete_names(model: pm.Model) -> list[str]:
    """Name the discrete free variables."""
    return [rv.name for rv in model.free_RVs if is_discrete(rv)]


def periodic_names(model: pm.Model) -> list[str]:
    """Name the free variables that go round in a circle."""
    return [rv.name for rv in model.free_RVs if is_circular(name_transform(model.rvs_to_transforms[rv]))]


def improper_priors(model: pm.Model) -> dict[str, str]:
    """Name the free variables whose prior is improper by construction, each with its distribution."""
    kinds = {rv: _IMPROPER.get(type(distribution_of(rv)), "") for rv in model.free_RVs}
    return {rv.name: kind for rv, kind in kinds.items() if kind and find_markov(rv) is None}


def flat_names(model: pm.Model) -> list[str]:
    """Name the free variables without a normalised density."""
    flat = [rv.name for rv in model.free_RVs if isinstance(distribution_of(rv), FlatDiscreteRV)]
    return [*improper_priors(model), *flat]


def is_unnormalised(model: pm.Model) -> bool:
    """Whether log Z of a model is a log partition function: a variable has no normalised density."""
    return bool(flat_names(model))


def custom_names(model: pm.Model) -> list[str]:
    """Name the free variables whose draws and density are the user's own."""
    return [rv.name for rv in model.free_RVs if isinstance(distribution_of(rv), CustomDistRV)]


def unnormalised_priors(model: pm.Model) -> list[str]:
    """Name the free variables whose log density on the unconstrained space may not integrate to one.

    Those of :func:`unnormalised_densities`, and those with a transform that may cut off a part of their distribution:
    ``ordered`` keeps 1/n! of it, ``pm.Normal(..., transform=log)`` the positive half.
    """
    doubtful = set(unnormalised_densities(model))
    values, transforms = model.rvs_to_values, model.rvs_to_transforms
    return [rv.name for rv in model.free_RVs if rv.name in doubtful or not keeps_all(rv, values[rv], transforms[rv])]


def find_leaves(model: pm.Model) -> set[str]:
    """Name the free variables on which no data depend, no potential, and no prior that may not be normalised.

    There are none where no other variable would be left.  Missing outcomes that PyMC gives one density with the
    observed ones (``pm.ZeroInflatedPoisson``) are no leaves.
    """
    data = [*model.observed_RVs, *model.potentials]
    doubtful = {*unnormalised_priors(model), *flat_names(model)}
    stays = [rv for rv in model.free_RVs if rv.name in doubtful or not set(rv.owner.outputs).isdisjoint(data)]
    used = set(ancestors([*data, *stays]))
    leaves = {rv.name for rv in model.free_RVs if rv not in used}
    return leaves if data and len(leaves) < len(model.free_RVs) else set()


def find_cuts(model: pm.Model) -> list[Any]:
    """Return the free variables that a transform cuts off between bounds where their prior has a known mass."""
    values, transforms = model.rvs_to_values, model.rvs_to_transforms
    return [rv for rv in model.free_RVs if is_cut(rv, values[rv], transforms[rv])]


def is_cut(rv: TensorVariable, value: TensorVariable, transform: Transform | None) -> bool:
    """Whether a transform cuts off a variable between bounds where its prior has a known mass."""
    return not keeps_all(rv, value, transform) and is_cuttable(rv, transform)


def find_bounds(rv: Any, transform: Transform | None) -> tuple[Any, Any]:
    """Return the bounds of a transform's range, given a variable's parameters; None for a side without one."""
    if isinstance(transform, IntervalTransform):
        return transform.args_fn(*rv.owner.inputs)
    if isinstance(transform, LogOddsTransform):
        return 0.0, 1.0
    return (0.0 if isinstance(transform, LogTransform | LogExpM1) else None), None


def is_cuttable(rv: Any, transform: Transform | None) -> bool:
    """Whether the prior between the bounds of a transform can be drawn, and its mass computed."""
    op = rv.owner.op
    is_known = isinstance(op, RandomVariable) and op.ndim_supp == 0 and not isinstance(op, CustomDistRV)
    if not is_known or not rv.dtype.startswith("float"):
        return False
    if all(bound is None for bound in find_bounds(rv, transform)):
        return False
    try:
        [function(rv, pt.zeros_like(rv), warn_rvs=False) for function in (pm.logcdf, pm.icdf)]
    except NotImplementedError:
        return False
    return True


def build_log_mass(rv: Any, transform: Transform | None) -> Any:
    """Return the log mass between a variable's bounds, the sum over its elements, as a graph of its parents."""
    rng, _, *parameters = rv.owner.inputs
    bounds = [None if one is None else pt.as_tensor(one) for one in find_bounds(rv, transform)]
    # One element for all that share parameters and bounds.
    own = rv.owner.op.make_node(rng, NoneConst, *parameters).outputs[1]
    shape = pt.broadcast_shape(*parameters, *(one for one in bounds if one is not None))
    lower, upper = (None if one is None else pt.broadcast_to(one.astype(own.dtype), shape) for one in bounds)
    if upper is None:
        mass = logccdf(own, lower, warn_rvs=False)
    elif lower is None:
        mass = pm.logcdf(own, upper, warn_rvs=False)
    else:
        # The difference of the smaller tails, as little is left of ones.
        below = [pm.logcdf(own, bound, warn_rvs=False) for bound in (upper, lower)]
        above = [logccdf(own, bound, warn_rvs=False) for bound in (lower, upper)]
        is_above = pt.gt(below[1], above[0])
        mass = pm.math.logdiffexp(*(pt.switch(is_above, *pair) for pair in zip(above, below, strict=True)))
    n_elements, n_masses = compile_interpreted([], [rv.size, mass.size])()
    return mass.sum() * pt.constant(n_elements / max(n_masses, 1), dtype=mass.dtype)


def unnormalised_densities(model: pm.Model) -> list[str]:
    """Name the free variables whose distribution has a density in PyMC that may not integrate to one.

    The normalisers of the LKJ distributions, of pm.CAR and of pm.ICAR have been wrong in releases of PyMC, the density
    of a periodic variable repeats for ever, and what a pm.CustomDist's ``logp`` leaves out only its author knows.
    """
    known = {*custom_names(model), *periodic_names(model)}
    return [rv.name for rv in model.free_RVs if rv.name in known or _is_doubtful(rv)]


def _is_doubtful(rv: TensorVariable) -> bool:
    op = distribution_of(rv)
    return isinstance(op, CARRV) or find_markov(rv) is not None or "lkj" in type(op).__name__.lower()


def known_log_mass(model: pm.Model) -> float | None:
    """Return log of the integral of the prior's density where that is known without a draw; None where it is not."""
    doubtful = set(unnormalised_priors(model))
    doubted = [rv for rv in model.free_RVs if rv.name in doubtful]
    masses = [_log_mass(rv, model.rvs_to_values[rv], model.rvs_to_transforms[rv]) for rv in doubted]
    known = [one for one in masses if one is not None]
    return None if improper_priors(model) or len(known) < len(masses) else float(sum(known))


def _log_mass(rv: TensorVariable, value: TensorVariable, transform: Transform | None) -> float | None:
    """Return log of the integral of one variable's density; None where it is not known."""
    if transform is None:
        return find_log_mass(rv)
    if is_cut(rv, value, transform):
        mass = build_log_mass(rv, transform)
        has_parents = any(isinstance(one.type, RandomType) for one in ancestors(rv.owner.inputs[1:]))
        return None if has_parents else float(evaluate_once(mass))
    if is_sortable(rv, transform):
        return log_share_of_order(rv) if _keeps_all_in_order(rv, value, transform) else None
    is_correlation = isinstance(rv.owner.op, LKJCorrRV)
    if not (is_correlation or isinstance(rv.owner.op, LKJFactorRV)) or not keeps_all(rv, value, transform):
        return None
    parameters = rv.owner.inputs[2:4] if is_correlation else rv.owner.inputs[1:3]
    try:
        n, eta = (float(get_underlying_scalar_constant_value(one)) for one in parameters)
    except NotScalarConstantError:
        return None
    if is_correlation:
        # Of more dimensions the density is another one in some releases.
        return _lkj_log_mass(2, eta, is_correlation) if n == 2 and rv.ndim == 2 else None
    return _lkj_log_mass(int(n), eta, is_correlation) if rv.ndim == 1 and _is_positive(rv.owner.inputs[3]) else None


def _keeps_all_in_order(rv: TensorVariable, value: TensorVariable, transform: Transform) -> bool:
    """Whether an ordered variable has a known density, and all of its prior in the range before it is ordered."""
    *before, ordered = steps_of(transform)
    if not has_known_density(rv) or ordered.positive or len(before) > 1:
        return False
    return _keeps_all(rv, value, before[0]) if before else default_transform(rv.owner.op, rv) is None


def has_known_density(rv: TensorVariable) -> bool:
    """Whether the distribution is one of PyMC's, whose draws follow its density, which integrates to one."""
    op: Any = distribution_of(rv)
    is_pymc = type(op).__module__.split(".")[0] in ("pymc", "pytensor")
    return is_pymc and not isinstance(op, CustomDistRV) and not _is_doubtful(rv)


def is_sortable(rv: pt.TensorVariable, transform: Transform | None) -> bool:
    """Whether a transform orders elements that are independent and identical, given the parents."""
    op = rv.owner.op
    is_ordered = any(isinstance(step, Ordered) for step in steps_of(transform)[-1:])
    if not is_ordered or not isinstance(op, RandomVariable) or op.ndim_supp != 0 or rv.ndim == 0:
        return False
    parameters: list[Any] = list(op.dist_params(rv.owner))
    varying = [one for one in parameters if one.ndim > 0 and not one.type.broadcastable[-1]]
    return all(isinstance(one, Constant) and bool(np.all(one.data == one.data[..., :1])) for one in varying)


def log_share_of_order(rv: pt.TensorVariable) -> float:
    """Return the log probability that each row of a variable with exchangeable elements is ordered: -log n! a row."""
    shape = evaluate_once(rv.shape)
    return float(-np.prod(shape[:-1]) * gammaln(shape[-1] + 1.0))


def log_share_of_orders(model: pm.Model) -> float:
    """Return the log probability that all variables whose draws are sorted come out in order."""
    transforms = model.rvs_to_transforms
    return sum(log_share_of_order(rv) for rv in model.free_RVs if is_sortable(rv, transforms[rv]))


def _is_positive(sd: TensorVariable) -> bool:
    """Whether a distribution has all of its mass on the positive numbers, element by element."""
    op = sd.owner.op if sd.owner else None
    is_known = op is not None and op.ndim_supp == 0 and not isinstance(op, CustomDistRV)
    return is_known and isinstance(default_transform(op, sd), _POSITIVE)


@functools.lru_cache(maxsize=64)
def _lkj_log_mass(n: int, eta: float, is_correlation: bool) -> float:
    """Return log of the integral of an LKJ density: what this PyMC adds to it, plus log of the integral without it.

    Of a correlation matrix whose Cholesky factor has diagonal r, the density is the product of ``r_i ** (2 eta - 3 +
    n - i)`` for the rows i = 0, ..., n - 1, in the elements below the diagonal (Lewandowski, Kurowicka & Joe 2009).
    Each row is an integral over the unit ball of i dimensions.  At the unit matrix the density is what PyMC adds.
    """
    if is_correlation:
        added = pm.logp(pm.LKJCorr.dist(n=n, eta=eta), np.eye(n))
    else:
        sd = pm.HalfNormal.dist(1.0, shape=n)
        added = (
            pm.logp(LKJFactor.dist(n=n, eta=eta, sd_dist=sd), np.eye(n)[np.tril_indices(n)])
            - pm.logp(sd, np.ones(n)).sum()
        )
    row = np.arange(1, n)
    rest = 0.5 * row * np.log(np.pi) + gammaln(eta + 0.5 * (n - 1 - row)) - gammaln(eta + 0.5 * (n - 1))
    return float(evaluate_once(added.sum()) + rest.sum())


def log_count(model: pm.Model, layout: Layout) -> float:
    """Return the log of how many states the variables have that count each with weight one; 0 without any."""
    total = 0.0
    for rv in model.free_RVs:
        if isinstance(rv.owner.op, FlatDiscreteRV):
            limits = [evaluate_without(one, set(model.free_RVs)) for one in rv.owner.inputs[2:]]
            if any(limit is None for limit in limits):
                raise ValueError(
                    f"The limits of the FlatDiscrete variable `{rv.name}` depend on other free variables, so that the "
                    "number of its states differs: give it numbers, and restrict it by a pm.Potential that is -inf "
                    "outside."
                )
            lower, upper = limits
            shape = layout.shapes[layout.owners.index(rv.name)]
            total += float(np.broadcast_to(np.log(upper - lower + 1.0), shape).sum())
    return total


@untraced
def keeps_all(rv: TensorVariable, value: TensorVariable, transform: Transform | None) -> bool:
    """Whether all of a variable's distribution is known to lie in the range of its transform.

    It does where there is no transform, and where the transform is the one that PyMC gives the distribution by default:
    the two are the same graph back from the unconstrained value.  Any other may cut something off.
    """
    if transform is None:
        return True
    known, answer = _kept.get(rv, (None, False))
    if transform is not known:
        answer = _keeps_all(rv, value, transform)
        _kept[rv] = transform, answer
    return answer


def _keeps_all(rv: TensorVariable, value: TensorVariable, transform: Transform) -> bool:
    if getattr(rv.type, "dims", None) is not None:
        return _is_default_of_dims(rv, transform)
    default = default_transform(rv.owner.op, rv)
    if default is None:
        return False
    if type(default) in _POSITIVE and type(transform) in _POSITIVE:
        return True
    parameters = rv.owner.inputs
    return equal_computations([transform.backward(value, *parameters)], [default.backward(value, *parameters)])


def _is_default_of_dims(rv: TensorVariable, transform: Transform) -> bool:
    """Compare a transform of ``pymc.dims``, which holds what the distribution it was made for was given."""
    from pymc.dims.distributions import transforms  # warns that it is experimental: only for those who use it

    node = rv.owner
    if isinstance(node.op, Transpose):  # the axes in the order that was asked for
        node = node.inputs[0].owner
    default = default_transform(distribution_of(node.outputs[-1]), rv)
    if default is None or default.name != transform.name:
        return False
    if type(transform) is transforms.IntervalTransform:
        parameters = [_plain(one) for one in node.inputs[1 + len(node.op.extra_dims) :]]
        given = zip(default.args_fn(node.inputs[0], None, *parameters), (-np.inf, np.inf), strict=True)
        bounds = [absent if bound is None else getattr(bound, "data", np.nan) for bound, absent in given]
        return all(map(np.array_equal, bounds, (transform.lower.data, transform.upper.data)))
    if type(transform) is transforms.SimplexTransform:
        return node.op.core_dims[1] == (transform.core_dim,)
    if type(transform) is transforms.ZeroSumTransform:
        return set(node.op.core_dims[1]) == set(transform.dims)
    return type(transform) in (transforms.LogTransform, transforms.LogOddsTransform) or transform.name == "circular"


def _plain(parameter: Any) -> Any:
    """Return a labelled constant without its labels."""
    data = getattr(parameter, "data", None)
    return parameter.values if data is None else pt.constant(data)
