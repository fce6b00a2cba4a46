"""The pilot and the plan: all adaptation happens here, before the particles of an estimate are drawn."""

from pymc_hais.tuning.fit import DEFENCE, fit_reference, log_densities
from pymc_hais.tuning.metric import particles_for_dense
from pymc_hais.tuning.pace import Stopwatch
from pymc_hais.tuning.pilot import Pilot, Stage, merge, run_pilot
from pymc_hais.tuning.plan import Recipe, build_plan, next_length, refine, suggest_length, untuned_plan
from pymc_hais.tuning.sites import fit_sites

__all__ = [
    "DEFENCE",
    "Pilot",
    "Recipe",
    "Stage",
    "Stopwatch",
    "build_plan",
    "fit_reference",
    "fit_sites",
    "log_densities",
    "merge",
    "next_length",
    "particles_for_dense",
    "refine",
    "run_pilot",
    "suggest_length",
    "untuned_plan",
]
