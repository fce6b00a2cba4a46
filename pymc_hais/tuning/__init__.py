"""The pilot learns, the plan keeps: no adaptation leaks into an estimate."""

from pymc_hais.tuning.pilot import Pilot, Stage, run_pilot
from pymc_hais.tuning.plan import build_plan, next_length, refine, suggest_length

__all__ = ["Pilot", "Stage", "build_plan", "next_length", "refine", "run_pilot", "suggest_length"]
