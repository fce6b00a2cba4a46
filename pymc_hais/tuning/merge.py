"""Pilots of several rows of data -> one that serves all rows."""

import functools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pymc_hais.core.records import Metric
from pymc_hais.estimators import Late
from pymc_hais.tuning.pilot import Pilot


def merge(pilots: Sequence[Pilot]) -> Pilot:
    """Join pilots of several rows of data into one that serves all rows.

    The schedule is that of the most demanding, the step sizes are the smallest, and the metrics are averaged.
    """
    if len(pilots) == 1:
        return pilots[0]
    lead = max(pilots, key=lambda pilot: pilot.barrier[-1])
    knots = [np.log(pilot.betas) for pilot in pilots]
    points, pairs = np.log(lead.betas), list(zip(knots, pilots, strict=True))
    sizes = [np.exp(np.interp(points, k, np.log(one.step_sizes))) for k, one in pairs]
    near = [
        [one.metrics[int(np.argmin(np.abs(k - at)))] for k, one in zip(knots, pilots, strict=True)] for at in points
    ]
    return replace(
        lead,
        step_sizes=np.min(sizes, axis=0),
        metrics=tuple(map(_average, near)),
        n_gradients=sum(pilot.n_gradients for pilot in pilots),
        seconds=sum(pilot.seconds for pilot in pilots),
        is_complete=all(pilot.is_complete for pilot in pilots),
        late=functools.reduce(Late.join, (pilot.late for pilot in pilots)),
    )


def _average(metrics: Sequence[Metric]) -> Metric:
    """Average covariances, given as factors."""
    if any(metric.ndim == 1 for metric in metrics):
        scales = [metric if metric.ndim == 1 else np.sqrt(np.sum(metric**2, axis=1)) for metric in metrics]
        return np.sqrt(np.mean(np.square(scales), axis=0))
    return np.linalg.cholesky(np.mean([metric @ metric.T for metric in metrics], axis=0))
