"""The observations of most models."""

import numpy as np

Y = np.array([0.3, -1.2, 0.8, 2.1, 0.4])
