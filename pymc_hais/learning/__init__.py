"""Learning the parameters of densities that may be unnormalised.

:func:`pymc_hais.fit` takes a model and one of the methods here.  :mod:`pymc_hais.learning.protocol` describes methods
and how to write another one: a frozen dataclass that derives from ``Method`` and has an ``objective``.
"""

from pymc_hais.learning.binary.strategies import Enumeration, GibbsSampling, SelectAndSample, Selection, Statistics
from pymc_hais.learning.family import Family
from pymc_hais.learning.likelihood.expectation_maximization import ExpectationMaximization
from pymc_hais.learning.likelihood.maximum_likelihood import (
    ContrastiveDivergence,
    FastPersistentCD,
    MaximumLikelihood,
    StochasticMaximumLikelihood,
)
from pymc_hais.learning.methods.neighbours import (
    GeneralizedScoreMatching,
    MinimumProbabilityFlow,
    Pseudolikelihood,
    RatioMatching,
)
from pymc_hais.learning.methods.noise_contrastive import NoiseContrastive, SelfContrastive
from pymc_hais.learning.methods.score_matching import DenoisingScoreMatching, ScoreMatching
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
