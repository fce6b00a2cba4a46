"""JAX's compiled programs, and their cache on disk, so that another process need not compile them again."""

import contextlib
import logging
import os
import threading
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache
from platformdirs import user_cache_path

from pymc_hais.core.files import digest
from pymc_hais.core.process import without_collection

_log = logging.getLogger("pymc.hais")

#: Environment variable that names the folder, or turns the cache off.
CACHE_VARIABLE = "PYMC_HAIS_CACHE"
_OFF = ("0", "off", "false", "no")
#: JAX's settings are the process's own: one compilation at a time changes them.
_configuring = threading.Lock()
#: Bytes of compiled programs that are kept on disk; the least recently used are dropped beyond.
_LARGEST_CACHE = 2**30
#: The level of optimisation of XLA, the first on a CPU: a seventh less compiling than at its default, the third.
#: Programs are as fast.
_LEVEL = "xla_backend_optimization_level"


@without_collection
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


def cache_folder() -> Path | None:
    """Return the folder for compiled programs; None if the cache is off or the folder cannot be written.

    ``PYMC_HAIS_CACHE`` names it; ``off`` (or 0, false, no) turns the cache off.  By default it is ``pymc_hais`` in the
    user's own folder for caches.
    """
    given = os.environ.get(CACHE_VARIABLE, "")
    if given.lower() in _OFF:
        return None
    folder = Path(given).expanduser() if given else user_cache_path("pymc_hais", appauthor=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


class CheckedCache:
    """JAX's cache of compiled programs, whose entries end with their digest.

    JAX writes its files in place, so that a process that is killed leaves a part of one.  JAX would warn of it in every
    later process, and never write it again.  Here a damaged entry counts as none, and the next program replaces it.

    Parameters
    ----------
    cache : jax._src.lru_cache.LRUCache
        With ``get(key)`` and ``put(key, value)``.
    folder : Path
        Its folder, with a file ``{key}-cache`` for each entry.
    """

    def __init__(self, cache: Any, folder: Path) -> None:
        self._cache, self._folder = cache, folder
        self._path = str(folder)  # JAX logs it

    def get(self, key: str) -> bytes | None:
        """Return an entry, or None where there is none that can be read."""
        try:
            content = self._cache.get(key)
        except OSError as error:
            _log.debug("An entry of the cache of programs cannot be read: %s", error)
            return None
        if content is None:
            return None
        size = len(digest(b""))
        return content[:-size] if content[-size:] == digest(content[:-size]) else None

    def put(self, key: str, value: bytes) -> None:
        """Write an entry, in place of an older one that :meth:`get` or JAX could not read.

        A folder that cannot be written, or is full, leaves the program out of the cache.
        """
        try:
            (self._folder / f"{key}-cache").unlink(missing_ok=True)
            self._cache.put(key, value + digest(value))
        except OSError as error:
            _log.debug("A program is not kept in the cache: %s", error)
            with contextlib.suppress(OSError):
                (self._folder / f"{key}-cache").unlink(missing_ok=True)
