"""Threefry against its published answers; normals, uniforms and their independence."""

import numpy as np
import pytest
from scipy import stats

from pymc_hais.core import noise as noise_module
from pymc_hais.core.noise import build_noise
from tests.statistical import assert_distribution, assert_mean, assert_uncorrelated
from tests.toys import HAS_JAX

# Random123's file kat_vectors, threefry2x32: rounds, counter, key, answer (Salmon et al. 2011).
KNOWN_ANSWERS = """
13 00000000 00000000 00000000 00000000 9d1c5ec6 8bd50731
13 ffffffff ffffffff ffffffff ffffffff fd36d048 2d17272c
13 243f6a88 85a308d3 13198a2e 03707344 ba3e4725 f27d669e
20 00000000 00000000 00000000 00000000 6b200159 99ba4efe
20 ffffffff ffffffff ffffffff ffffffff 1cb996fc bb002be7
20 243f6a88 85a308d3 13198a2e 03707344 c4923a9c 483df7a0
"""
KEY = np.array([0x13198A2E, 0x03707344], dtype=np.uint32)


def column(n):
    return np.arange(n, dtype=np.uint32)[:, None]


@pytest.mark.parametrize("line", KNOWN_ANSWERS.split("\n")[1:-1])
def test_threefry_gives_the_published_answers(line, monkeypatch):
    rounds, *words = line.split()
    x0, x1, k0, k1, *answer = (np.array([int(word, 16)], dtype=np.uint32) for word in words)
    if int(rounds) == 13:
        assert noise_module._ROUNDS == 13
    monkeypatch.setattr(noise_module, "_ROUNDS", int(rounds))
    np.testing.assert_array_equal(noise_module._threefry(k0, k1, x0, x1), answer)


@pytest.fixture(scope="module")
def sample():
    """Normals (steps, particles, dims) and uniforms (steps, particles)."""
    noise = build_noise(np, 3)
    drawn = [noise(KEY, column(20_000), np.uint32(step)) for step in range(5)]
    return np.stack([one.normal for one in drawn]), np.stack([one.uniform for one in drawn])


def test_distributions(sample):
    normal, uniform = sample
    assert_distribution(normal, stats.norm.cdf)
    for dim in range(3):
        assert_distribution(normal[..., dim], stats.norm.cdf)
    assert_distribution(uniform, stats.uniform.cdf)
    assert np.all((uniform > 0) & (uniform < 1))
    powers = normal.reshape(-1, 1) ** np.array([1, 2, 3, 4, 6])
    assert_mean(powers, np.array([0.0, 1.0, 0.0, 3.0, 15.0]))


@pytest.mark.parametrize("transform", [lambda z: z, np.abs], ids=["value", "size"])
def test_independence_across_particles_steps_dimensions_and_kinds(sample, transform):
    normal, uniform = transform(sample[0]), sample[1]
    assert_uncorrelated(normal[:, 1:], normal[:, :-1])
    assert_uncorrelated(normal[1:], normal[:-1])
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert_uncorrelated(normal[..., i], normal[..., j])
        assert_uncorrelated(normal[..., i], uniform)


def test_streams_of_neighbouring_keys_are_independent():
    noise = build_noise(np, 2)
    first = noise(KEY, column(50_000), np.uint32(0)).normal
    for change in ([1, 0], [0, 1]):
        other = noise(KEY + np.array(change, dtype=np.uint32), column(50_000), np.uint32(0)).normal
        assert_uncorrelated(first, other)


def test_no_number_is_used_twice(sample):
    # Of 100,000 draws from 2^64 pairs of words, two agree by chance with probability 3e-10.
    normal, uniform = sample
    assert len(np.unique(normal[..., :2].reshape(-1, 2), axis=0)) == uniform.size
    assert not np.any(np.isin(uniform[0], uniform[1])) or len(np.unique(uniform)) > 0.9999 * uniform.size


@pytest.mark.parametrize("n_dims", [1, 2, 5, 8])
def test_the_noise_of_a_particle_does_not_depend_on_its_company(n_dims):
    noise = build_noise(np, n_dims)
    together = noise(KEY, column(10), np.uint32(3))
    assert together.normal.shape == (10, n_dims)
    assert together.uniform.shape == (10,)
    alone = noise(KEY, np.array([7], dtype=np.uint32), np.uint32(3))
    np.testing.assert_array_equal(alone.normal, together.normal[7])
    assert alone.uniform == together.uniform[7]


@pytest.mark.parametrize("step", [0, 1, 2**32 - 1])
def test_extreme_words_stay_finite(step):
    noise = build_noise(np, 4)
    drawn = noise(np.array([2**32 - 1] * 2, dtype=np.uint32), np.array([2**31], dtype=np.uint32), np.uint32(step))
    assert np.all(np.isfinite(drawn.normal))


@pytest.mark.skipif(not HAS_JAX, reason="needs JAX")
def test_jax_draws_the_same_numbers():
    import jax
    import jax.numpy as jnp

    ours = build_noise(np, 3)(KEY, column(100), np.uint32(9))
    theirs = jax.jit(build_noise(jnp, 3))(KEY, column(100), np.uint32(9))
    np.testing.assert_allclose(theirs.normal, ours.normal, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(theirs.uniform, ours.uniform)
