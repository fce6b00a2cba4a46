"""Draws of a reference model: its own plan, learnt once, and a fresh population for every call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pymc_hais.annealing import anneal
from pymc_hais.model import Layout
from pymc_hais.problem import Compiler, Problem, with_start
from pymc_hais.references import ModelStart
from pymc_hais.rounds import Progress, streams
from pymc_hais.settings import Settings
from pymc_hais.starting import Choice
from pymc_hais.tuning import build_plan, suggest_length

__all__ = ["build_ratio_problem"]

#: Temperatures on the way to the reference model, against what its log Z would need, and at least.
_SLOWER = 4
_SHORTEST = 512
#: Moves at beta = 1 that make a population's draws as good as independent.
_FINAL_MOVES = 100


def build_ratio_problem(
    model: Any, layout: Layout, reference: Choice, compiler: Compiler, settings: Settings, progress: Progress
) -> Problem:
    """Compile the path from one model to another.

    The draws of the reference model are those of annealed populations: right as their number grows, and each chain has
    its own, so that what is left of their error shows in the spread of the chains.

    Parameters
    ----------
    model : pymc.Model
    layout : Layout
        Of both models.
    reference : Choice
        The reference model's own problem and pilot.
    compiler : Compiler
    settings : Settings
    progress : callable
    """
    source, pilot = reference.problem, reference.pilot
    assert pilot is not None
    n_steps = max(_SHORTEST, _SLOWER * suggest_length(pilot, 1, settings.max_temperatures))
    plan = build_plan(pilot, n_steps, replace(settings.recipe, schedule=None, n_final_moves=_FINAL_MOVES))

    def draw(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        first, key, resampling = streams(np.random.SeedSequence([seed, 2]))
        state, _ = source.evaluate(*source.draw(n, first), key)
        with progress("Reference", 1, n_steps) as bars:
            population = anneal(
                source.engine, plan, state, key, np.random.default_rng(resampling), lambda *at: bars.update(0, *at)
            )
        return population.positions, population.families

    start = ModelStart(source.model, layout, draw)
    return with_start(model, layout, start, compiler, settings.seeds.probe())
