"""Graphs -> machine code: how one particle's step becomes many."""

from __future__ import annotations

from pymc_hais.engines.base import renew
from pymc_hais.engines.choice import BACKENDS, compile_engine, resolve_backend

__all__ = ["BACKENDS", "compile_engine", "renew", "resolve_backend"]
