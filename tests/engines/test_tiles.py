"""Tiles: one shape whatever the number of populations, everything covered once, and nothing lost on the way back."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pymc_hais.engines.tiles import cut, cut_tiles, merge, tile_shape

sizes = st.tuples(st.integers(1, 9), st.integers(1, 70), st.integers(1, 40))


def counted(tile):
    """Return the places of a tile that count, as (population, particle)."""
    b, p = tile.counted
    return [(row, column) for row in tile.populations[:b].tolist() for column in tile.particles[:p].tolist()]


@given(sizes)
def test_tiles_cover_every_particle_once_and_are_of_one_shape(sizes):
    n_populations, n_particles, most = sizes
    tiles = cut_tiles(n_populations, n_particles, most)
    covered = [place for tile in tiles for place in counted(tile)]
    assert len(covered) == len(set(covered)) == n_populations * n_particles
    assert {(len(tile.populations), len(tile.particles)) for tile in tiles} == {tile_shape(n_particles, most)}
    for tile in tiles:  # what fills a tile up is there
        assert tile.populations.max() < n_populations
        assert tile.particles.max() < n_particles


@given(sizes, st.integers(1, 30))
def test_the_shape_depends_on_the_particles_and_the_device_alone(sizes, more):
    n_populations, n_particles, most = sizes
    one, other = (cut_tiles(n, n_particles, most)[0] for n in (n_populations, n_populations + more))
    assert (len(one.populations), len(one.particles)) == (len(other.populations), len(other.particles))


@given(st.integers(1, 10**6), st.integers(1, 10**5))
def test_a_tile_holds_about_as_many_as_it_may(n_particles, most):
    b, p = tile_shape(n_particles, most)
    assert 1 <= p <= min(n_particles, most)
    assert b * p <= most
    assert 2 * b * p >= min(most, n_particles)  # not much less than it may, or than there are
    n_parts = -(-n_particles // p)
    assert n_parts * p - n_particles < n_parts  # hardly any padding


@given(sizes, st.sampled_from([(), (3,), (2, 2)]))
def test_cut_and_merged_is_what_it_was(sizes, inner):
    n_populations, n_particles, most = sizes
    array = np.arange(n_populations * n_particles * int(np.prod(inner)), dtype=float)
    array = array.reshape(n_populations, n_particles, *inner)
    tiles = cut_tiles(n_populations, n_particles, most)
    parts = [cut(array, tile) for tile in tiles]
    assert {part.shape for part in parts} == {(*tile_shape(n_particles, most), *inner)}
    np.testing.assert_array_equal(merge(parts, tiles, (n_populations, n_particles)), array, strict=True)


@given(sizes, st.integers(1, 5))
def test_merged_along_another_axis_too(sizes, n_steps):
    n_populations, n_particles, most = sizes
    array = np.arange(n_populations * n_steps * n_particles).reshape(n_populations, n_steps, n_particles)
    tiles = cut_tiles(n_populations, n_particles, most)
    parts = [array[np.ix_(tile.populations, np.arange(n_steps), tile.particles)] for tile in tiles]
    np.testing.assert_array_equal(merge(parts, tiles, (n_populations, n_particles), axis=2), array, strict=True)
