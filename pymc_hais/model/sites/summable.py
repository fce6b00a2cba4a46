"""Which discrete variables could be summed out of the likelihood, one element at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pymc.distributions.discrete import DiscreteUniformRV
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV

from pymc_hais.model.sites.conditionals import SiteRule

__all__ = ["summable"]

#: What pymc_extras sums out.
_KNOWN = (BernoulliRV, CategoricalRV, DiscreteUniformRV)


def summable(model: Any, rules: Sequence[SiteRule]) -> tuple[str, ...]:
    """Name the variables whose elements are independent of one another given everything else.

    Parameters
    ----------
    model : pymc.Model
    rules : sequence of SiteRule
    """
    names = (rule.variable.name for rule in rules if rule.rule in ("gradient", "table") and not rule.colours.any())
    return tuple(name for name in names if isinstance(model[name].owner.op, _KNOWN))
