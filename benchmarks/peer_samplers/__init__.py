"""Ways to estimate log Z of a PyMC model, each as a careful user would call it: name -> :class:`Method`."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from peer_samplers import annealed, bridge, nested
from peer_samplers.estimate import Estimate


class Method(NamedTuple):
    """How to estimate log Z."""

    run: Callable[..., Estimate]
    #: What is to be imported before the clock starts.
    package: str
    #: Whether it integrates ``exp(model.logp())``, also where PyMC's prior does not integrate to one.
    integrates_logp: bool = False


METHODS = {
    "sample_hais": Method(annealed.hais, "pymc_hais"),
    "sample_smc IMH": Method(partial(annealed.pymc_smc, kernel=annealed.CountingIMH), "pymc"),
    "sample_smc MH": Method(partial(annealed.pymc_smc, kernel=annealed.CountingMH), "pymc"),
    "blackjax SMC": Method(annealed.blackjax_smc, "blackjax"),
    "pocoMC": Method(annealed.pocomc, "pocomc", integrates_logp=True),
    "nautilus": Method(nested.nautilus, "nautilus"),
    "dynesty": Method(nested.dynesty, "dynesty"),
    "NUTS + bridge": Method(bridge.bridge, "nutpie", integrates_logp=True),
}
