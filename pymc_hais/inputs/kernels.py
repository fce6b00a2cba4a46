"""``kernel=`` and ``constraints=`` -> the kernels of continuous dimensions and of discrete ones."""

from types import SimpleNamespace
from typing import Any

from pymc_hais.core.protocols import Kernel
from pymc_hais.density import Model, build_layout, discrete_names
from pymc_hais.kernels import Gibbs, Hamiltonian
from pymc_hais.problem.constraints import build_constraints, with_walls


def read_kernels(model: Model, asked: SimpleNamespace, estimators: tuple[str, ...]) -> tuple[Kernel, Gibbs | None]:
    """Return the kernel of the continuous dimensions, with the constraints, and that of discrete sites if given.

    Raises ValueError or NotImplementedError for what the model, or another method, does not take.
    """
    kernel, sites = _read_pair(asked.kernel)
    if asked.constraints is not None:
        if kernel.constraints is not None:
            raise ValueError("`kernel` has constraints of its own beside `constraints`: pass all of them in one place.")
        kernel = with_walls(kernel, build_constraints(asked.constraints, build_layout(model)))
    if estimators and kernel.constraints is not None:
        raise ValueError(
            f"`estimators` takes no constraints; got {list(estimators)}. Restrict the model by bounded priors instead."
        )
    if "bridge" in estimators and asked.chains < 2:
        raise ValueError(
            'estimators="bridge" fits a density to some chains for the draws of the others: pass at least 2 chains.'
        )
    _check_sites(model, kernel, sites, estimators)
    _refuse_idle_kernel(model, asked.kernel, sites)
    return kernel, sites


def _read_pair(given: Any) -> tuple[Kernel, Gibbs | None]:
    """Return the kernels of the continuous dimensions, and of discrete sites if the user passes one."""
    kernels = list(given) if isinstance(given, tuple | list) else [] if given is None else [given]
    of_sites = [one for one in kernels if isinstance(one, Gibbs)]
    others = [one for one in kernels if one not in of_sites]
    is_known = all(hasattr(one, "build") and not isinstance(one, type) for one in kernels)
    is_empty = not kernels and given is not None
    if is_empty or not is_known or len(of_sites) > 1 or len(others) > 1:
        raise ValueError(
            "`kernel` must be a pymc_hais.Hamiltonian(...) or pymc_hais.RandomWalk(...), for discrete variables a "
            f"pymc_hais.Gibbs(), a pair of one of each, or None; got {given!r}."
        )
    return (others or [Hamiltonian()])[0], next(iter(of_sites), None)


def _check_sites(model: Model, kernel: Kernel, sites: Gibbs | None, estimators: tuple[str, ...]) -> None:
    """Refuse kernels and options that need discrete variables, or that need a model without them."""
    if sites is None and kernel.constraints is None and not estimators:
        return
    discrete = discrete_names(model)
    if not discrete:
        if sites is not None:
            raise ValueError(f"`kernel` has {sites!r}, but the model has no discrete free variable: leave it out.")
        return
    if kernel.constraints is not None:
        raise NotImplementedError(
            f"Constraints are for models of continuous variables, and `{discrete[0]}` is discrete: give the bounded "
            "variables a bounded prior instead."
        )
    if refused := [name for name in estimators if name != "bidirectional"]:
        raise NotImplementedError(
            f"estimators={refused} is not for models with discrete variables such as `{discrete[0]}`, whose moves are "
            "not reversible: pass some of ['bidirectional'], or leave it out."
        )


def _refuse_idle_kernel(model: Model, given: Any, sites: Gibbs | None) -> None:
    """Refuse a kernel of continuous variables for a model that has none."""
    kernels = list(given) if isinstance(given, tuple | list) else [] if given is None else [given]
    idle = [one for one in kernels if one is not sites]
    if idle and model.free_RVs and len(discrete_names(model)) == len(model.free_RVs):
        raise ValueError(
            f"`kernel` has {idle[0]!r}, which moves continuous variables, and the model has none: leave it out, or "
            "pass pymc_hais.Gibbs()."
        )
