"""Randomness as data: the noise of a step is a pure function of (key, particle, step).

Threefry-2x32 with 13 rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), the
fewest that pass BigCrush, and the Box-Muller transform.  Counter-based: nothing depends on how
particles are divided among workers, and every engine draws the same numbers.
"""

from typing import Any

import numpy as np

from pymc_hais.core.records import Compiled, Jit, Noise, Xp

#: The step counter of the initial momenta, beyond any annealing step.
INITIAL_STEP = 0xFFFFFFFF

# Both shifts are constants: Numba computes the difference of two 32-bit numbers in 64 bits.
_LEFT = tuple(np.uint32(r) for r in (13, 15, 26, 6, 17, 29, 16, 24))
_RIGHT = tuple(np.uint32(32 - r) for r in (13, 15, 26, 6, 17, 29, 16, 24))
_ROUNDS = 13


def check_counters(n_particles: int, n_dims: int, n_uniforms: int = 0) -> None:
    """Refuse populations in which two particles would share random numbers: the counters must fit into 32 bits."""
    width = (n_dims + 1) // 2 + 1 + (n_uniforms + 1) // 2
    if n_particles * width > 2**32:
        raise ValueError(
            f"{n_particles} particles in {n_dims + n_uniforms} dimensions need more random numbers than one population "
            f"can have: pass at most {2**32 // width} draws, and more chains."
        )


def _threefry(k0, k1, x0, x1):
    """Encrypt the counters (x0, x1) with the key (k0, k1): uint32 arrays in, uint32 arrays out."""
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
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


def _quarter_circle(angle):
    """Return cosine and sine of angles in (-pi/4, pi/4): Taylor series with remainders below 1e-16."""
    z = angle * angle
    cosine, sine = z * 0.0 + 1.0, z * 0.0 + 1.0
    for n in range(16, 0, -2):
        cosine = 1.0 - z * cosine * (1.0 / (n * (n - 1)))
        sine = 1.0 - z * sine * (1.0 / (n * (n + 1)))
    return cosine, angle * sine


def build_noise(xp: Xp, n_dims: int, jit: Jit = lambda f: f, log: Compiled | None = None, n_uniforms: int = 0) -> Any:
    """Build ``noise(key, particle, step) -> Noise`` for one particle, with uniform numbers for its discrete sites.

    ``key`` is a uint32 array (2,), ``particle`` a uint32 array (1,), or (P, 1) for many particles at once, ``step`` a
    uint32 scalar.  ``jit`` is applied to the inner functions, which Numba needs compiled; ``log`` is that of ``xp`` by
    default.
    """
    threefry, polar, log = jit(_threefry), jit(_quarter_circle), log or xp.log
    half, of_sites = (n_dims + 1) // 2, (n_uniforms + 1) // 2
    counters = np.arange(half + 1 + of_sites, dtype=np.uint32)
    width = np.uint32(half + 1 + of_sites)
    one, two, cell = np.uint32(1), np.uint32(2), 2.0**-32
    angle = 0.5 * np.pi * 2.0**-30  # the width of a cell when 30 bits divide a quarter of the circle

    def noise(key, particle, step):
        second = particle * width + counters
        first = second * np.uint32(0) + step
        bits0, bits1 = threefry(key[0:1], key[1:2], first, second)
        # In (0, 1): the logarithm below never meets zero.
        unit = bits0 * cell + 0.5 * cell
        word = bits1[..., :half]
        cosine, sine = polar((word >> two) * angle + (0.5 * angle - 0.25 * np.pi))
        # The quarter around the x axis becomes a circle: mirrored at the diagonal or not, and at the origin or not.
        swapped = (word & one) * 1.0
        radius = xp.sqrt(-2.0 * log(unit[..., :half])) * (1.0 - (word & two))
        first = cosine + swapped * (sine - cosine)
        normal = xp.concatenate((radius * first, radius * (cosine + sine - first)), -1)
        # Both words of a counter serve the sites, which take one number each as a rule.
        second_word = bits1[..., half + 1 :] * cell + 0.5 * cell
        sites = xp.concatenate((unit[..., half + 1 :], second_word), -1)
        return Noise(normal[..., :n_dims], unit[..., half], sites[..., :n_uniforms])

    return noise
