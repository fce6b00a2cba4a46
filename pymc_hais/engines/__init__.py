"""Graphs -> machine code: how one particle's step becomes many."""

from pymc_hais.engines.base import keep_threads, renew
from pymc_hais.engines.choice import BACKENDS, available_backends, compile_engine, resolve_backend
