"""Where beta = 0 starts: a distribution that can be sampled."""

from pymc_hais.references.audit import check_prior_draws
from pymc_hais.references.prior import PriorReference, build_prior

__all__ = ["PriorReference", "build_prior", "check_prior_draws"]
