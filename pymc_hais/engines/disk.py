"""Where compiled programs are kept, so that another process need not compile them again."""

import os
import sys
from pathlib import Path

#: Environment variable that names the folder, or turns the cache off.
CACHE_VARIABLE = "PYMC_HAIS_CACHE"
_OFF = ("0", "off", "false", "no")


def cache_folder() -> Path | None:
    """Return the folder for compiled programs; None where there is to be none, or it cannot be written.

    ``PYMC_HAIS_CACHE`` names it; ``off`` (or 0, false, no) turns the cache off.  By default it is ``pymc_hais`` in the
    user's own folder for caches.
    """
    given = os.environ.get(CACHE_VARIABLE, "")
    if given.lower() in _OFF:
        return None
    folder = Path(given).expanduser() if given else _user_caches() / "pymc_hais"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def _user_caches() -> Path:
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local"))
    if sys.platform == "darwin":
        return home / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME", home / ".cache"))
