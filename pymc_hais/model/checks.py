"""Refusals that cost nothing: what cannot be annealed is named before any long work."""

from __future__ import annotations

from typing import Any

from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.distributions.multivariate import ICARRV
from pymc.distributions.simulator import SimulatorRV
from pymc.variational.minibatch_rv import MinibatchRandomVariable

__all__ = ["check_model"]


def check_model(model: Any) -> None:
    """Raise one clear error for a model that the prior path cannot anneal.

    Raises
    ------
    ValueError
        No free variables, an improper prior, or minibatches (``total_size``).
    NotImplementedError
        Discrete free variables, or a ``pm.Simulator``.
    """
    if not model.free_RVs:
        raise ValueError(
            "The model has no free random variables, so there is nothing to integrate over: its log "
            "marginal likelihood is model.logp() itself."
        )
    _refuse_discrete(model)
    for rv in model.basic_RVs:
        op = _core_op(rv)
        if isinstance(op, SimulatorRV):
            raise NotImplementedError(
                f"`{rv.name}` is a pm.Simulator, which has no log-likelihood to anneal. Give the model an "
                "explicit likelihood, or use pm.sample_smc for approximate Bayesian computation."
            )
        if isinstance(op, MinibatchRandomVariable):
            raise ValueError(
                f"`{rv.name}` was given `total_size`. A minibatch estimate of the likelihood makes log Z "
                "inconsistent: pass the full data without `total_size`."
            )
    for rv in model.free_RVs:
        _refuse_improper(rv)


def _refuse_discrete(model: Any) -> None:
    discrete = [rv.name for rv in model.free_RVs if rv.dtype.startswith(("int", "uint", "bool"))]
    if discrete:
        names = ", ".join(f"`{name}`" for name in discrete)
        raise NotImplementedError(
            f"The free variables {names} are discrete, which sample_hais does not support yet. Sum them "
            "out of the likelihood (for example with pymc_extras.marginalize, pm.Mixture or a "
            "pm.Potential over pt.logsumexp)."
        )


def _core_op(rv: Any) -> Any:
    """Look through the labelled wrapper of ``pymc.dims``."""
    return getattr(rv.owner.op, "core_op", rv.owner.op)


def _refuse_improper(rv: Any) -> None:
    kind = {FlatRV: "pm.Flat", HalfFlatRV: "pm.HalfFlat", ICARRV: "pm.ICAR"}.get(type(_core_op(rv)))
    if kind is None:
        return
    proper = {
        "pm.Flat": f'pm.Normal("{rv.name}", 0, 10)',
        "pm.HalfFlat": f'pm.HalfNormal("{rv.name}", 10)',
        "pm.ICAR": f'pm.MvNormal("{rv.name}", 0, tau=np.diag(W.sum(axis=0)) - 0.99 * W)',
    }[kind]
    raise ValueError(
        f"The prior of `{rv.name}` is improper ({kind}), so there are no prior draws to start from and the "
        f"marginal likelihood is defined only up to a constant. Give it a proper prior, for example {proper}; "
        "if the target is an unnormalised density, subtract that prior's log density in the pm.Potential, "
        "and log Z is then the log partition function."
    )
