"""Settings that every test shares."""

import importlib.util

from hypothesis import settings

if importlib.util.find_spec("jax") is not None:
    import jax

    jax.config.update("jax_enable_x64", True)

# The same examples on every machine: a red suite means a changed package.
settings.register_profile("suite", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("suite")
