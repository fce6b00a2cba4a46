"""Tables that are looked up at discrete variables: the bounds of an index, and what lies outside a table."""

import math

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import logsumexp
from scipy.stats import norm, poisson

import pymc_hais
from pymc_hais.density.compiling import compile_interpreted
from pymc_hais.density.sites.lookups import confine_lookups

ANY = (-math.inf, math.inf)
TABLE = pt.constant([0.0, 1.0, -1.0, 2.0, 0.5])
GRID = pt.constant(np.arange(12.0).reshape(3, 4))
K = pt.lvector("k")

#: An index that the values 0, 1 and 2 of three sites keep inside a table of five, and one that they do not.
INDICES = {
    "itself": (K, K + 3),
    "affine": (2 * K, 2 * K + 1),
    "from below": (-K - 3, -K - 4),
    "another type": (K.astype("int8"), (100 * K).astype("int8")),
    "a shape": (K.reshape((3, 1)), K.reshape((3, 1)) * 3),
    "some of them": (K[1:], K[1:] + 3),
    "a choice": (pt.switch(K > 1, K, 4), pt.switch(K > 1, K, 5)),
    "a comparison": (K > 1).astype("int64"),
    "another table": (pt.constant([4, 0, 1])[K], pt.constant([5, 0, 1])[K]),
    "joined": (pt.concatenate([K, [4]]), pt.concatenate([K, [5]])),
    "joined to another": (pt.concatenate([[4], K]), pt.concatenate([K + 3, K])),
    "clipped": (pt.clip(7 * K, 0, 4), pt.clip(7 * K, 0, 5)),
    "a rest": ((7 * K) % 5, (7 * K) % 6),
    "halves": ((K + 6) // 2, (K + 8) // 2),
    "written": (pt.set_subtensor(pt.zeros(5, dtype="int64")[:3], K), pt.set_subtensor(pt.full(5, 9)[:3], K)),
    "a sum": (pt.stack([K[:2].sum()]), pt.stack([K.sum()])),
    "a running sum": (pt.cumsum(K[:2]), pt.cumsum(K)),
    "of arrays": (pt.stack([K[0], K[1]]), pt.stack([K[0], 3 * K[1]])),
}
CASES = [(name, pair if isinstance(pair, tuple) else (pair, None)) for name, pair in INDICES.items()]


def fix_shape(index):
    return pytensor.graph.clone_replace([index], {K: pt.specify_shape(K, (3,))}, rebuild_strict=False)[0]


@pytest.mark.parametrize(("name", "pair"), CASES, ids=[name for name, _ in CASES])
def test_an_index_that_is_sure_to_stay_inside_changes_nothing(name, pair):
    inside, beyond = pair
    output = TABLE[fix_shape(inside)].sum()
    confined, outside = confine_lookups([output], {K: (0.0, 2.0)})
    assert confined == [output]
    assert outside is None
    if beyond is not None:
        output = TABLE[fix_shape(beyond)].sum()
        assert confine_lookups([output], {K: (0.0, 2.0)})[1] is not None


def evaluate(output, ks, ranges):
    (confined,), outside = confine_lookups([output], ranges)
    function = compile_interpreted([K], [confined + outside])
    return np.array([function(np.asarray(k))[0] for k in ks])


@pytest.mark.parametrize(
    "build", [lambda: TABLE[K].sum(), lambda: TABLE[K[0]], lambda: pt.set_subtensor(TABLE[K], 3.0)]
)
def test_outside_a_table_the_density_is_zero_and_inside_it_is_what_it_was(build):
    output = build().sum()
    written = compile_interpreted([K], [output])
    for k in range(-8, 9):
        (found,) = evaluate(output, [[k]], {K: ANY})
        expected = written(np.array([k]))[0] if -5 <= k < 5 else -np.inf
        assert found == expected


def test_each_axis_has_its_own_length():
    output = GRID[K[0], K[1]]
    states = [(i, j) for i in range(-5, 6) for j in range(-6, 7)]
    found = evaluate(output, states, {K: ANY})
    values = np.arange(12.0).reshape(3, 4)
    expected = [values[i, j] if -3 <= i < 3 and -4 <= j < 4 else -np.inf for i, j in states]
    np.testing.assert_array_equal(found, expected)


def test_a_table_that_is_found_in_a_table():
    places = pt.constant([1, 7, 0])
    found = evaluate(TABLE[places[K]].sum(), [[0], [1], [2], [3]], {K: ANY})
    np.testing.assert_array_equal(found, [1.0, -np.inf, 0.0, -np.inf])


def loop(index):
    return pytensor.scan(lambda k, table: table[index(k)], sequences=[K], non_sequences=[TABLE], return_updates=False)


def test_within_a_loop_an_index_has_to_be_sure():
    with pytest.raises(NotImplementedError, match="within a loop"):
        confine_lookups([loop(lambda k: k).sum()], {K: ANY})
    for ranges, index in (({K: (0.0, 4.0)}, lambda k: k), ({K: ANY}, lambda k: pt.clip(k, 0, 4))):
        output = loop(index).sum()
        assert confine_lookups([output], ranges) == ([output], None)


# Counts in a model ---------------------------------------------------------------------------------------


def build_counts():
    with pm.Model() as model:
        k = pm.Poisson("k", 3.0)
        pm.Normal("y", TABLE[k], 1.0, observed=0.7)
    return model


@pytest.mark.every(3)
@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "numba", "c"])
def test_log_z_of_a_count_that_chooses_from_a_table(backend):
    # Counts from 5 on are impossible: log Z is a sum over the five others.  P(false alarm) = 6e-5.
    exact = logsumexp(poisson.logpmf(range(5), 3.0) + norm.logpdf(0.7, TABLE.data, 1.0))
    with pytest.warns(UserWarning, match="looks past the end of a table.*`k`"):
        idata = pm.sample_hais(model=build_counts(), random_seed=2, progressbar=False, backend=backend)
    estimate = pymc_hais.log_marginal_likelihood(idata)
    assert abs(estimate.value - exact) <= 4.0 * estimate.se
    assert idata["posterior"]["k"].max() < 5
