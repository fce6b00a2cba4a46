"""Randomness as data: the noise of a step is a pure function of (key, particle, step).

Threefry-2x32 with 13 rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), the
fewest that pass BigCrush, and the Box-Muller transform.  Counter-based: nothing depends on how
particles are divided among workers, and every engine draws the same numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_hais.types import Noise

__all__ = ["INITIAL_STEP", "build_noise"]

#: The step counter of the initial momenta, beyond any annealing step.
INITIAL_STEP = 0xFFFFFFFF

# Both shifts are constants: Numba computes the difference of two 32-bit numbers in 64 bits.
_LEFT = tuple(np.uint32(r) for r in (13, 15, 26, 6, 17, 29, 16, 24))
_RIGHT = tuple(np.uint32(32 - r) for r in (13, 15, 26, 6, 17, 29, 16, 24))
_ROUNDS = 13
_PARITY = np.uint32(0x1BD11BDA)
_UNIT = 2.0**-32


def _threefry(k0, k1, x0, x1):
    """Encrypt the counters (x0, x1) with the key (k0, k1): uint32 arrays in, uint32 arrays out."""
    keys = (k0, k1, k0 ^ k1 ^ _PARITY)
    x0 = x0 + k0
    x1 = x1 + k1
    for r in range(_ROUNDS):
        x0 += x1
        x1 = ((x1 << _LEFT[r % 8]) | (x1 >> _RIGHT[r % 8])) ^ x0
        if r % 4 == 3:
            i = (r + 1) // 4
            x0 += keys[i % 3]
            x1 = x1 + keys[(i + 1) % 3] + np.uint32(i)
    return x0, x1


def build_noise(xp: Any, n_dims: int, jit: Any = lambda f: f) -> Any:
    """Build ``noise(key, particle, step) -> Noise`` for one particle of ``n_dims`` dimensions.

    Parameters
    ----------
    xp : module
        The array namespace (numpy or jax.numpy).
    n_dims : int
        D.
    jit : callable
        Applied to the inner functions (Numba needs them compiled).

    Returns
    -------
    callable
        ``key`` is a uint32 array (2,), ``particle`` a uint32 array (1,), or (P, 1) for the noise of
        many particles at once, ``step`` a uint32 scalar.
    """
    threefry = jit(_threefry)
    half = (n_dims + 1) // 2
    counters = np.arange(half + 1, dtype=np.uint32)
    width = np.uint32(half + 1)

    def noise(key, particle, step):
        second = particle * width + counters
        first = second * np.uint32(0) + step
        bits0, bits1 = threefry(key[0:1], key[1:2], first, second)
        # In (0, 1): the logarithm below never meets zero.
        unit = bits0 * _UNIT + 0.5 * _UNIT
        angle = (bits1[..., :half] * _UNIT + 0.5 * _UNIT) * (2.0 * np.pi)
        radius = xp.sqrt(-2.0 * xp.log(unit[..., :half]))
        normal = xp.concatenate((radius * xp.cos(angle), radius * xp.sin(angle)), -1)
        return Noise(normal[..., :n_dims], unit[..., half])

    return noise
