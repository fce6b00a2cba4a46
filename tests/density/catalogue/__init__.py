"""Small models, one per thing that a PyMC model can contain; each function returns a ``pm.Model``."""

from inspect import isfunction

from tests.density.catalogue import processes, structures, variables
from tests.density.catalogue.observations import Y

__all__ = ["MODELS", "Y"]

MODELS = {
    name: build
    for kind in (variables, structures, processes)
    for name, build in vars(kind).items()
    if isfunction(build) and build.__module__ == kind.__name__
}
