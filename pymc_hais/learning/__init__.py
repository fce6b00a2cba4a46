"""Learning the parameters of densities that may be unnormalised.

:func:`pymc_hais.fit` takes a model and one of the methods here.  :mod:`pymc_hais.learning.protocol` describes methods
and how to write another one: a frozen dataclass that derives from ``Method`` and has an ``objective``.
"""

from pymc_hais.learning.binary.statistics import Statistics
from pymc_hais.learning.binary.strategies import Enumeration, GibbsSampling, SelectAndSample, Selection
from pymc_hais.learning.family import Family
from pymc_hais.learning.likelihood.contrastive_divergence import ContrastiveDivergence
from pymc_hais.learning.likelihood.expectation_maximization import ExpectationMaximization
from pymc_hais.learning.likelihood.maximum_likelihood import (
    FastPersistentCD,
    MaximumLikelihood,
    StochasticMaximumLikelihood,
)
from pymc_hais.learning.methods.denoising import DenoisingScoreMatching
from pymc_hais.learning.methods.minimum_probability_flow import MinimumProbabilityFlow
from pymc_hais.learning.methods.noise_contrastive import NoiseContrastive
from pymc_hais.learning.methods.pseudolikelihood import Pseudolikelihood
from pymc_hais.learning.methods.ratio_matching import GeneralizedScoreMatching, RatioMatching
from pymc_hais.learning.methods.score_matching import ScoreMatching
from pymc_hais.learning.methods.self_contrastive import SelfContrastive
from pymc_hais.learning.protocol import Batch, Method

__all__ = [
    "Batch",
    "ContrastiveDivergence",
    "DenoisingScoreMatching",
    "Enumeration",
    "ExpectationMaximization",
    "Family",
    "FastPersistentCD",
    "GeneralizedScoreMatching",
    "GibbsSampling",
    "MaximumLikelihood",
    "Method",
    "MinimumProbabilityFlow",
    "NoiseContrastive",
    "Pseudolikelihood",
    "RatioMatching",
    "ScoreMatching",
    "SelectAndSample",
    "Selection",
    "SelfContrastive",
    "Statistics",
    "StochasticMaximumLikelihood",
]
