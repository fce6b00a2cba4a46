"""Models as users write them, simulated data: name -> function that builds the model."""

from gallery_models.latent import LATENT
from gallery_models.regression import REGRESSION
from gallery_models.structured import STRUCTURED

MODELS = {**REGRESSION, **LATENT, **STRUCTURED}
