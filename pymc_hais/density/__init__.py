"""The only place that touches PyTensor graphs."""

from pymc.model import Model

from pymc_hais.density.checks import check_model, find_model, is_model, refuse_periodic
from pymc_hais.density.containers import Preparation, read_containers, refuse_frozen, varying_containers
from pymc_hais.density.coordinates.chart import Chart, Sites, build_chart, has_normal_fields
from pymc_hais.density.density import DensityGraph, build_density, build_parameter_density
from pymc_hais.density.evaluation import (
    WrittenLogp,
    build_written_logp,
    check_joint_logp,
    check_state,
    compile_written,
    has_huge_data,
    measure_terms,
)
from pymc_hais.density.facts import (
    custom_names,
    discrete_names,
    find_cuts,
    has_known_density,
    improper_priors,
    is_unnormalised,
    known_log_mass,
    log_count,
    log_share_of_orders,
    periodic_names,
    unnormalised_densities,
    unnormalised_priors,
)
from pymc_hais.density.identity.identity import ModelIdentity, identify, identify_as_written
from pymc_hais.density.identity.walk import Walk
from pymc_hais.density.layout import Layout, build_layout
from pymc_hais.density.outputs import build_outputs, build_pointwise, build_unconstrain, evaluate_tables
from pymc_hais.density.proofs.concavity import is_concave_in, is_log_concave
from pymc_hais.density.rows import build_row_logp, observe_first, with_table
from pymc_hais.density.sites.conditionals import Meetings, summable
from pymc_hais.density.sites.lookups import warn_of_lookups
from pymc_hais.density.sites.variables import FlatDiscrete, SiteVariable
