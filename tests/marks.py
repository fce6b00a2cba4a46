"""Marks for parameters of a test."""

import pytest


def slow_but(fast, names):
    """Mark all names as slow but a few, which stand for the others in the fast suite."""
    unknown = set(fast) - set(names)
    assert not unknown, f"no such names: {unknown}"
    return [name if name in fast else pytest.param(*as_tuple(name), marks=pytest.mark.slow) for name in names]


def as_tuple(name):
    return name if isinstance(name, tuple) else (name,)


def fast_but(slow, names):
    """Mark a few names as slow."""
    return slow_but(set(names) - set(slow), names)
