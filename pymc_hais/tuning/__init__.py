"""The pilot learns, the plan keeps: no adaptation leaks into an estimate."""

from pymc_hais.tuning.fit import DEFENCE, fit_reference
from pymc_hais.tuning.metric import particles_for_dense
from pymc_hais.tuning.pilot import Pilot, Stage, run_pilot
from pymc_hais.tuning.plan import Recipe, build_plan, next_length, refine, suggest_length, untuned_plan
from pymc_hais.tuning.tail import NO_TAIL, Tail, measure_tail

__all__ = [
    "DEFENCE",
    "NO_TAIL",
    "Pilot",
    "Recipe",
    "Stage",
    "Tail",
    "build_plan",
    "fit_reference",
    "measure_tail",
    "next_length",
    "particles_for_dense",
    "refine",
    "run_pilot",
    "suggest_length",
    "untuned_plan",
]
