"""The only place that touches PyTensor graphs."""

from pymc_hais.model.checks import check_model, improper_priors, unnormalised_priors
from pymc_hais.model.density import DensityGraph, build_density, build_parameter_density
from pymc_hais.model.evaluation import check_joint_logp, check_state
from pymc_hais.model.layout import Layout, build_layout
from pymc_hais.model.outputs import build_outputs

__all__ = [
    "DensityGraph",
    "Layout",
    "build_density",
    "build_layout",
    "build_outputs",
    "build_parameter_density",
    "check_joint_logp",
    "check_model",
    "check_state",
    "improper_priors",
    "unnormalised_priors",
]
