"""JAX's compiled programs and their cache."""

import os
import threading
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from pymc_hais.engines.disk import CheckedCache, cache_folder

#: JAX's settings are the process's own: one compilation at a time changes them.
_configuring = threading.Lock()
#: Bytes of compiled programs that are kept on disk; the least recently used are dropped beyond.
_LARGEST_CACHE = 2**30
#: The level of optimisation of XLA, the first on a CPU: a seventh less compiling than at its default, the third.
#: Programs are as fast.
_LEVEL = "xla_backend_optimization_level"


def compile_program(function: Any, args: tuple, device: Any) -> Any:
    """Compile a program for arguments like these, or find it on disk."""
    is_given = _LEVEL in os.environ.get("XLA_FLAGS", "")  # the user's choice
    options = {} if is_given or device.platform != "cpu" else {_LEVEL: 1}
    with jax.default_device(device):
        lowered = jax.jit(function).lower(*args)
    folder = cache_folder()
    if folder is None or jax.config.jax_compilation_cache_dir:  # off, or the user's own cache
        return lowered.compile(compiler_options=options)
    with _configuring:
        ours = {
            "jax_compilation_cache_dir": str(folder),
            "jax_compilation_cache_max_size": _LARGEST_CACHE,
            "jax_persistent_cache_min_compile_time_secs": 0.0,
            "jax_persistent_cache_min_entry_size_bytes": -1,
        }
        before = {name: getattr(jax.config, name) for name in ours}
        _configure(ours)
        try:
            _check_entries(folder)
            return lowered.compile(compiler_options=options)
        finally:
            _configure(before)


def _configure(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # JAX reads the settings once


def _check_entries(folder: Path) -> None:
    """Let JAX read and write the entries of its cache with digests; these names of JAX are private."""
    try:
        from jax._src import compilation_cache as private

        private._initialize_cache()
        if private._cache is not None:
            checked: Any = CheckedCache(private._cache, folder)
            private._cache = checked
    except (AttributeError, ImportError):  # of another version, whose own cache does as well
        pass
