"""The level of false alarms of the suite, and how many statistical assertions share it.

It imports nothing: the process that shares out the tests reads it, too.
"""

SUITE_LEVEL = 1e-4
N_ASSERTIONS = 800
LEVEL = SUITE_LEVEL / N_ASSERTIONS

_spent = 0


def spend():
    global _spent
    _spent += 1
    assert _spent <= N_ASSERTIONS, "more statistical assertions than share the suite's level: raise N_ASSERTIONS"


def spent():
    """Return how many assertions this process has made."""
    return _spent
