"""Small PyMC models, most of them with a known log Z, options that sample them in a moment, and Ctrl-C."""

import functools

import numpy as np
import pymc as pm
from scipy.stats import multivariate_normal

from pymc_hais.runner.progress import CallProgress
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


def hierarchy():
    """Three means around one; y ~ N(1, 11' + (4 + 1) I)."""
    y = np.array([2.0, -1.0, 3.5])
    with pm.Model() as model:
        mu = pm.Normal("mu", 1.0, 1.0)
        x = pm.Normal("x", mu, 2.0, shape=3)
        pm.Normal("y", x, 1.0, observed=y)
    return model, float(multivariate_normal(np.ones(3), np.ones((3, 3)) + 5.0 * np.eye(3)).logpdf(y))


@functools.cache
def shared(build):
    """Return the model that a function builds, the same one each time: a second call compiles nothing."""
    return build()


TRUTH = log_evidence_normal([1.2, 0.3, 2.5], 0.0, 3.0, 1.0)
QUICK = {"draws": 200, "chains": 2, "target_se": None, "max_temperatures": 64, "progressbar": False}


def interrupt(monkeypatch, phase):
    """Press Ctrl-C as soon as the progress bar of a phase moves."""

    class Interrupting(CallProgress):
        def update(self, of, *progress):
            if of.title == phase:
                raise KeyboardInterrupt
            super().update(of, *progress)

    monkeypatch.setattr("pymc_hais.inputs.request.CallProgress", Interrupting)
