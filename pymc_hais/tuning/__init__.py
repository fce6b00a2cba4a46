"""The pilot and the plan: all adaptation happens here, before the particles of an estimate are drawn."""

from pymc_hais.tuning.fit import DEFENCE, fit_reference, fit_sites, log_densities, log_near, unit_triangle
from pymc_hais.tuning.ladder import (
    CONSTANT_SPEED,
    FINAL_MOVES,
    Recipe,
    build_ladder,
    merge,
    next_length,
    refine,
    suggest_length,
    suggest_particles,
    untuned_ladder,
)
from pymc_hais.tuning.metric import particles_for_dense
from pymc_hais.tuning.pilot import PILOT_PARTICLES, EndlessPilotError, Pilot, Stopwatch, run_pilot
