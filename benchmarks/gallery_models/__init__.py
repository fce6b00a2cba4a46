"""Models as users write them, simulated data: name -> function that builds the model, or the model and its log Z.

``MODELS`` are those that the gallery tries by default; ``EVERY`` has larger ones besides.
"""

from .fields import FIELDS
from .latent import LATENT
from .regression import REGRESSION
from .structured import STRUCTURED

MODELS = {**REGRESSION, **LATENT, **STRUCTURED}
EVERY = {**MODELS, **FIELDS}
