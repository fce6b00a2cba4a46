"""How likely are the data under a PyMC model: log Z with an honest error bar.

Importing this package makes ``pm.sample_hais`` available.
"""

import pymc as _pymc
from lazy_loader import attach_stub as _attach_stub

# What public names need takes seconds to load.
_load, _names, __all__ = _attach_stub(__name__, __file__)
__all__.remove("plots")  # which needs Matplotlib
__version__ = "0.3.0"


#: Names of earlier versions, and what takes their place.
_REMOVED = {"LocallyBalanced": "pass `kernel=pymc_hais.Gibbs()`, or leave `kernel` out"}


def __getattr__(name: str) -> object:
    if name in _REMOVED:
        raise AttributeError(f"pymc_hais.{name} was removed: {_REMOVED[name]}.")
    if name not in _names():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pymc_hais.core.process import without_collection

    with without_collection:
        return _load(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_names()})


def _of_pymc(name: str) -> object:
    """Find ``pm.sample_hais``, and what PyMC itself loads where it is asked for."""
    if name != "sample_hais":
        return _found_by_pymc(name)
    setattr(_pymc, name, value := __getattr__(name))
    return value


def _missing(name: str) -> object:
    raise AttributeError(f"module 'pymc' has no attribute {name!r}")


# PyMC has no entry points for samplers.
_found_by_pymc = vars(_pymc).get("__getattr__", _missing)
_pymc.__getattr__ = _of_pymc
_pymc.__dir__ = lambda: sorted({*vars(_pymc), "sample_hais"})
