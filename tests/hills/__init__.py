"""Random models with several modes whose log Z is known by construction.

``hilly_model(seed)`` is model number ``seed``.  It has 2 to 6 hills, or labels that can be switched, or the phase of a
wave; beside it may stand a regression, a random walk of unknown scale, or discrete sites.  Each hill holds 1 to 60% of
Z, and at least 1% of the prior draws lie where it is the likeliest one: nothing is hidden from a careful search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm

from tests.hills.company import COMPANY
from tests.hills.scenes import SCENES

__all__ = ["HillyModel", "hilly_model"]


@dataclass(frozen=True, eq=False)
class HillyModel:
    """A model, its parts in words, and its exact log Z in nats."""

    model: pm.Model
    parts: tuple[str, ...]
    log_z: float


def hilly_model(seed: int) -> HillyModel:
    """Return model number ``seed``."""
    rng = np.random.default_rng([seed, 45])
    scene, company = _pick(rng, SCENES), _pick(rng, COMPANY)
    with pm.Model() as model:
        words, log_z = scene(rng)
        others, log_other = company(rng)
    return HillyModel(model, (words, *([others] if others else [])), log_z + log_other)


def _pick(rng: np.random.Generator, table: dict[Callable[[np.random.Generator], Any], float]) -> Any:
    shares = np.array(list(table.values()))
    return list(table)[rng.choice(len(shares), p=shares / shares.sum())]
