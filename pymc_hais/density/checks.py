"""Refusals that cost nothing: what cannot be annealed is named before any long work."""

from typing import Any

import pymc as pm
from pymc.distributions.distribution import PartialObservedRV
from pymc.distributions.simulator import SimulatorRV
from pymc.model import Model, modelcontext
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors, applys_between, graph_inputs
from pytensor.scalar import Add
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType
from scipy.sparse import issparse

from pymc_hais.core.messages import shown
from pymc_hais.density.compat import MinibatchOp, MinibatchRandomVariable, release_with_lkj
from pymc_hais.density.containers import refuse_gaps
from pymc_hais.density.facts import improper_priors, periodic_names
from pymc_hais.density.sites.variables import distribution_of, refuse_joint_sites


def find_model(model: pm.Model | None = None, draws: object = None) -> Any:
    """Return the model that was given, or the one of the ``with`` block around the call."""
    if is_model(draws):
        raise ValueError("The first argument is `draws`; got a pm.Model: pass it by name, sample_hais(model=model).")
    if model is not None and not is_model(model):
        raise ValueError(f"`model` must be a pm.Model; got {shown(model)}.{_hint(model)}")
    found = modelcontext(model)
    for term in found.potentials:
        if any(term is rv for rv in found.basic_RVs):  # to which PyMC has then given the potential's name
            first = next(name for name, variable in found.named_vars.items() if variable is term)
            raise ValueError(
                f"The pm.Potential `{term.name}` is the variable `{first}` itself, which PyMC has renamed: make "
                f'it an expression, as in pm.Potential("{term.name}", 1.0 * {first}).'
            )
    return found


def _hint(thing: object) -> str:
    """Return a sentence that says which attribute of another object is its model."""
    if is_model(getattr(thing, "model", None)):
        return " Pass its `.model`."
    if hasattr(thing, "backend") and hasattr(thing, "build"):  # Bambi's
        return " Of a Bambi model call build(), and pass its `.backend.model`."
    return " Results come after the model: (model, idata)." if hasattr(thing, "children") else ""


def is_model(thing: object) -> bool:
    """Whether something is a PyMC model."""
    return isinstance(thing, Model)


def check_model(model: pm.Model, from_prior: bool = True, may_be_fixed: bool = False) -> None:
    """Raise one clear error for a model that cannot be annealed from the prior, or from another reference.

    Raises ValueError for a model without free variables (unless it ``may_be_fixed``), minibatches, data in
    ``pytensor.shared`` variables or sparse ``pm.Data``, a start from an improper prior, or a periodic variable with
    another start.  Raises NotImplementedError for discrete free variables whose elements cannot change one at a time, a
    ``pm.Simulator``, vectors observed in part, or a ``pm.LKJCorr`` of three dimensions or more in PyMC 6.3, which
    computes another density.
    """
    if not model.free_RVs and not may_be_fixed:
        raise ValueError(
            "The model has no free random variables, so there is nothing to integrate over: its log marginal "
            "likelihood is model.logp() itself, which sample_hais returns."
        )
    refuse_joint_sites(model)
    for rv in model.basic_RVs:
        _refuse_distribution(rv)
    _refuse_unknown_data(model)
    if not from_prior:
        refuse_periodic(model)
    for name, kind in improper_priors(model).items() if from_prior else ():
        proper = {
            "pm.Flat": f'pm.Normal("{name}", 0, 10)',
            "pm.HalfFlat": f'pm.HalfNormal("{name}", 10)',
            "pm.ICAR": f'scale * pm.ICAR("{name}", W), where every area can be reached from every other one',
        }[kind]
        raise ValueError(
            f"The prior of `{name}` is improper ({kind}), so there are no prior draws to start from and the "
            f"marginal likelihood is defined only up to a constant. Give it a proper prior, for example {proper}; "
            'or, if log of the integral of exp(model.logp()) is what you want, pass reference="gaussian" or another '
            "reference that can be sampled."
        )


def _refuse_distribution(rv: Any) -> None:
    """Refuse a variable that has no log density in PyMC, or a wrong one."""
    op = distribution_of(rv)
    if type(op).__name__ == "LKJCorrRV" and (release := release_with_lkj(op)) and rv.type.shape[-1] != 2:
        raise NotImplementedError(
            f"In PyMC {pm.__version__} the density of `{rv.name}` is not that of pm.LKJCorr, which PyMC {release} "
            "mends: install it, or use pm.LKJCholeskyCov."
        )
    if isinstance(op, SimulatorRV):
        raise NotImplementedError(
            f"`{rv.name}` is a pm.Simulator, which has no log-likelihood to anneal. Give the model an "
            "explicit likelihood, or use pm.sample_smc for approximate Bayesian computation."
        )
    if isinstance(op, PartialObservedRV) and op.ndim_supp > 0:
        name = rv.name.removesuffix("_unobserved")
        raise NotImplementedError(
            f"Vectors of `{name}` are observed in part, and PyMC gives no density of the elements that are "
            "missing: leave incomplete vectors out of the data, or write each with the elements that it has."
        )
    if isinstance(op, MinibatchRandomVariable):
        raise ValueError(
            f"`{rv.name}` was given `total_size`. A minibatch estimate of the likelihood makes log Z "
            "inconsistent: pass the full data without `total_size`."
        )


def _refuse_unknown_data(model: pm.Model) -> None:
    """Refuse data that are missing, drawn anew each time, or that could change without the model's knowledge."""
    refuse_gaps(model)
    for data in model.data_vars:
        # In a model whose data are frozen, containers are constants.
        if isinstance(data, SharedVariable) and issparse(data.get_value(borrow=True)):
            raise ValueError(
                f"`{data.name}` is a pm.Data container of a sparse matrix, whose numbers cannot be kept with a result: "
                "use the matrix itself, as in pytensor.sparse.dot(matrix, x), or a dense one."
            )
    known = {*model.data_vars, *model.dim_lengths.values()}
    for term in (*model.basic_RVs, *model.potentials):
        for variable in ancestors([term, model.rvs_to_values.get(term, term)]):
            if variable.owner is not None and isinstance(variable.owner.op, MinibatchOp):
                raise ValueError(
                    f"`{term.name}` depends on a pm.Minibatch, which gives other rows at each evaluation, so that "
                    "log Z is not defined: pass the full data."
                )
            is_shared = isinstance(variable, SharedVariable) and not isinstance(variable.type, RandomType)
            if is_shared and variable not in known:
                name = f"`{variable.name}`" if variable.name else "one without a name"
                raise ValueError(
                    f"`{term.name}` depends on a pytensor.shared variable, {name}, whose numbers could change without "
                    "the model's knowledge: give them to the model as pm.Data(name, values), or pass the array itself."
                )


def refuse_periodic(model: pm.Model) -> None:
    """Refuse a periodic variable, which only prior draws suit."""
    for name in periodic_names(model):
        raise ValueError(
            f"`{name}` is periodic: its unconstrained density repeats for ever and has no finite integral, so only the "
            'prior can be the reference. Pass reference="prior".'
        )


def refuse_shapes(model: pm.Model) -> None:
    """Refuse a variable whose parameters do not fit its shape, as far as shapes are known: of a frozen model, all."""
    for rv in model.basic_RVs:
        op = rv.owner.op
        if not isinstance(op, RandomVariable):
            continue
        own = rv.type.shape[: rv.type.ndim - op.ndim_supp]
        for parameter, n_core in zip(op.dist_params(rv.owner), op.ndims_params, strict=True):
            given = parameter.type.shape[: parameter.type.ndim - n_core]
            pairs = zip(reversed(given), reversed(own), strict=False)
            if any(None not in pair and pair[0] not in (1, pair[1]) for pair in pairs):
                whose = " of its data" if rv in model.observed_RVs else ""
                raise ValueError(
                    f"`{rv.name}` has the shape {rv.type.shape}{whose}, and a parameter of its distribution the shape "
                    f"{parameter.type.shape}: make them fit."
                )


def refuse_sums_of_conditions(outputs: list[Any]) -> None:
    """Refuse a density that adds conditions: two true ones are 1 on some of PyTensor's backends, and 2 on others."""
    node: Any
    for node in applys_between(graph_inputs(outputs), outputs):
        is_sum = isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Add)
        if is_sum and node.outputs[0].dtype == "bool":
            raise ValueError(
                f"The model adds conditions ({node.inputs[0]} + {node.inputs[1]}): two true ones count as 1 or as 2, "
                'depending on the backend of PyTensor. Make them numbers first, as in pt.cast(a, "int64") + '
                'pt.cast(b, "int64"), or join them by pt.or_.'
            )
