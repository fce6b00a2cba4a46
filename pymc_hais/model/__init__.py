"""The only place that touches PyTensor graphs."""

from pymc_hais.model.checks import check_model, find_model, is_model, refuse_periodic
from pymc_hais.model.containers import Preparation, read_containers, varying_containers
from pymc_hais.model.coordinates.chart import Chart, Sites, build_chart, has_normal_fields
from pymc_hais.model.density import DensityGraph, build_density, build_parameter_density
from pymc_hais.model.evaluation import (
    WrittenLogp,
    build_written_logp,
    check_joint_logp,
    check_state,
    compile_written,
    has_huge_data,
    measure_terms,
)
from pymc_hais.model.facts import (
    custom_names,
    discrete_names,
    improper_priors,
    is_unnormalised,
    known_log_mass,
    log_count,
    periodic_names,
    unnormalised_densities,
    unnormalised_priors,
)
from pymc_hais.model.identity.identity import ModelIdentity, identify, identify_as_written
from pymc_hais.model.identity.walk import Walk
from pymc_hais.model.layout import Layout, build_layout
from pymc_hais.model.outputs import build_outputs, build_pointwise, build_unconstrain, evaluate_tables
from pymc_hais.model.proofs.concavity import is_concave_in, is_log_concave
from pymc_hais.model.rows import build_row_logp, observe_first, with_table
from pymc_hais.model.sites.conditionals import summable
from pymc_hais.model.sites.flat_discrete import FlatDiscrete
from pymc_hais.model.sites.interactions import Meetings
from pymc_hais.model.sites.lookups import warn_of_lookups
from pymc_hais.model.sites.sites import SiteVariable
