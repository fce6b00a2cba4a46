"""Where beta = 0 starts: a distribution that can be sampled."""

from pymc_hais.references.audit import check_draws
from pymc_hais.references.base import Reference, Start
from pymc_hais.references.box import Box
from pymc_hais.references.coverage import check_coverage
from pymc_hais.references.gaussian import Gaussian
from pymc_hais.references.mixture import Mixture
from pymc_hais.references.model import ModelStart, check_same_variables
from pymc_hais.references.prior import PriorReference, build_prior
from pymc_hais.references.start import PriorStart, bind, uses_prior
from pymc_hais.references.student_t import StudentT

__all__ = [
    "Box",
    "Gaussian",
    "Mixture",
    "ModelStart",
    "PriorReference",
    "PriorStart",
    "Reference",
    "Start",
    "StudentT",
    "bind",
    "build_prior",
    "check_coverage",
    "check_draws",
    "check_same_variables",
    "uses_prior",
]
