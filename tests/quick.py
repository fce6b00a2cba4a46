"""Two small PyMC models, one of them with a known log Z, and settings that sample them in a moment."""

import numpy as np
import pymc as pm

from tests.truth import log_evidence_normal

EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools():
    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        error = pm.Data("error", ERROR, dims="school")
        mu = pm.Normal("mu", 0.0, 5.0)
        tau = pm.HalfNormal("tau", 5.0)
        z = pm.Normal("z", 0.0, 1.0, dims="school")
        theta = pm.Deterministic("theta", mu + tau * z, dims="school")
        pm.Normal("y", theta, error, observed=EFFECT, dims="school")
    return model


def one_mean():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 3.0)
        pm.Normal("y", mu, 1.0, observed=[1.2, 0.3, 2.5])
    return model


TRUTH = log_evidence_normal([1.2, 0.3, 2.5], 0.0, 3.0, 1.0)
QUICK = {"draws": 200, "chains": 2, "target_se": None, "max_temperatures": 64, "progressbar": False}
