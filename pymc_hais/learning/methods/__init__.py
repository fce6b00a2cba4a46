"""Methods of learning, one a file; each says which paper it follows and what it assumes."""

from pymc_hais.learning.methods.minimum_probability_flow import MinimumProbabilityFlow
from pymc_hais.learning.methods.score_matching import ScoreMatching
