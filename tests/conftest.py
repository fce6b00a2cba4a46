"""Settings that every test shares."""

import atexit
import importlib.util
import os
import tempfile

from hypothesis import settings

# Tests build the same small programs again and again: JAX compiles each of them once a session.
_cache = tempfile.TemporaryDirectory(prefix="hais-tests-")
atexit.register(_cache.cleanup)
os.environ |= {
    "JAX_COMPILATION_CACHE_DIR": _cache.name,
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}

if importlib.util.find_spec("jax") is not None:
    import jax

    jax.config.update("jax_enable_x64", True)

# The same examples on every machine: a red suite means a changed package.
settings.register_profile("suite", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("suite")
