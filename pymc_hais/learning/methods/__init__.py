"""Methods of learning, one a file; each says which paper it follows and what it assumes."""

from pymc_hais.learning.methods.denoising import DenoisingScoreMatching
from pymc_hais.learning.methods.minimum_probability_flow import MinimumProbabilityFlow
from pymc_hais.learning.methods.noise_contrastive import NoiseContrastive
from pymc_hais.learning.methods.pseudolikelihood import Pseudolikelihood
from pymc_hais.learning.methods.ratio_matching import GeneralizedScoreMatching, RatioMatching
from pymc_hais.learning.methods.score_matching import ScoreMatching
from pymc_hais.learning.methods.self_contrastive import SelfContrastive
