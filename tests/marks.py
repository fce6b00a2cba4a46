"""Marks for parameters of a test."""

import pytest


def slow_but(fast, names, further=()):
    """Mark all names as slow but a few, which stand for the others in the fast suite; and ``further`` as exhaustive."""
    unknown = {*fast, *further} - set(names)
    assert not unknown, f"no such names: {unknown}"
    assert not set(fast) & set(further)

    def marked(name):
        mark = pytest.mark.exhaustive if name in further else pytest.mark.slow
        return pytest.param(*as_tuple(name), marks=mark)

    return [name if name in fast else marked(name) for name in names]


def seeds(n_fast, n_slow, n):
    """Return the first n seeds: some for the fast suite, more for the slow one, the others for the exhaustive one."""
    return slow_but(range(n_fast), range(n), range(n_slow, n))


def as_tuple(name):
    return name if isinstance(name, tuple) else (name,)


def fast_but(slow, names):
    """Mark a few names as slow."""
    return slow_but(set(names) - set(slow), names)
