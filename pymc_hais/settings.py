"""What a user may ask for, checked before any work."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from pymc_hais.model.compat import seeds_per_chain

__all__ = ["Output", "Seeds", "Settings", "build_settings"]


@dataclass(frozen=True)
class Seeds:
    """One seed a chain; everything random follows from it, the round and the chain."""

    chains: tuple[int, ...]

    def probe(self) -> int:
        """Seed the draws that check the model before any long work."""
        return int(np.random.SeedSequence([*self.chains, 1]).generate_state(1)[0])

    def pilot(self) -> np.random.SeedSequence:
        """Seed the pilot, apart from every round."""
        return np.random.SeedSequence([*self.chains, 0])

    def chain(self, index: int, round_number: int) -> np.random.SeedSequence:
        """Seed one chain of one round; rounds count from 1."""
        return np.random.SeedSequence([self.chains[index], round_number, index])


@dataclass(frozen=True)
class Output:
    """Checked ``idata_kwargs``."""

    coords: dict[str, Any] = field(default_factory=dict)
    dims: dict[str, Any] = field(default_factory=dict)
    log_likelihood: bool | list[str] = False
    log_prior: bool | list[str] = False
    include_transformed: bool = False


@dataclass(frozen=True)
class Settings:
    """Checked arguments of ``sample_hais``."""

    draws: int
    chains: int
    workers: int
    target_se: float | None
    max_temperatures: int
    seeds: Seeds
    output: Output


def build_settings(
    draws: Any,
    chains: Any,
    cores: Any,
    target_se: Any,
    max_temperatures: Any,
    reference: Any,
    random_seed: Any,
    idata_kwargs: dict[str, Any] | None,
    var_names: Iterable[str] | None = None,
) -> Settings:
    """Check the arguments of ``sample_hais``.

    Raises
    ------
    ValueError
        Naming the argument, what was given and what to pass.
    """
    for name, value, least in (
        ("draws", draws, 100),
        ("chains", chains, 1),
        ("max_temperatures", max_temperatures, 2),
        *([("cores", cores, 1)] if cores is not None else []),
    ):
        _check_integer(name, value, least)
    if target_se is not None and not (_is_number(target_se) and 0 < target_se < np.inf):
        raise ValueError(f"`target_se` must be a positive number of nats, or None for one round; got {target_se!r}.")
    if reference != "prior":
        raise ValueError(f'`reference` must be "prior", the only reference so far; got {reference!r}.')
    seeds = tuple(int(seed) for seed in seeds_per_chain(random_state=random_seed, chains=chains))
    workers = min(int(chains), int(cores or os.cpu_count() or 1))
    target = None if target_se is None else float(target_se)
    output = _build_output(idata_kwargs, var_names)
    return Settings(int(draws), int(chains), workers, target, int(max_temperatures), Seeds(seeds), output)


def _build_output(idata_kwargs: dict[str, Any] | None, var_names: Iterable[str] | None) -> Output:
    known = [f.name for f in fields(Output)]
    unknown = sorted(set(idata_kwargs or {}) - set(known))
    if unknown:
        raise ValueError(f"Unknown `idata_kwargs` {unknown}: pass some of {known}.")
    output = Output(**(idata_kwargs or {}))
    if var_names is not None and (output.log_likelihood or output.log_prior):
        raise ValueError(
            "`log_likelihood` and `log_prior` are computed from all variables: leave out `var_names`, or call "
            "pm.compute_log_likelihood on a result with all of them."
        )
    return output


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _check_integer(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise ValueError(f"`{name}` must be a whole number of at least {least}; got {value!r}.")
