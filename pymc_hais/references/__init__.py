"""References, the distributions at beta = 0, which can be sampled."""

from pymc_hais.references.base import BoundReference, Draws, UnusablePriorError
from pymc_hais.references.bound import Independent, InsidePrior, Prior, bind, uses_prior, with_data
from pymc_hais.references.box import Box
from pymc_hais.references.gaussian import Gaussian, Gaussians, StudentT
from pymc_hais.references.margins import Enumerated, Margins, StateGroup, state_group, uniform_margins
from pymc_hais.references.mixture import Fitted, Mixed, Mixture, join_parts, share_draws
from pymc_hais.references.model import AnnealedModel, check_same_variables, integrate_cuts, prior_alone
from pymc_hais.references.prior import build_prior
