"""What is read from graphs of sites, against all states of them: random graphs, and each operation that has a rule."""

import itertools

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pymc_hais.density.compiling import compile_interpreted
from pymc_hais.density.outputs import batch_over_rows
from pymc_hais.density.sites.conditionals import colour
from pymc_hais.density.sites.dependence import Dependence
from pymc_hais.density.sites.multilinear import extend
from pymc_hais.density.sites.terms import open_conditions, split_terms
from pymc_hais.density.sites.variables import SiteVariable
from tests.marks import seeds

N = 4
TABLE = np.array([[0.3, -1.0], [0.0, 2.0]])
W = np.array([[0.0, 1.5, 0.0, -0.3], [0.0, 0.0, 0.7, 0.0], [0.0, 0.0, 0.0, 1.1], [0.0, 0.0, 0.0, 0.0]])
PERMUTATION = np.array([2, 0, 3, 1])


def reached(build, n_values=2):
    """Return what is read from a function of sites and two real numbers, and its values at all states, (n, *shape)."""
    position = pt.vector("position", shape=(2 + N,))
    output = build(position[2:].astype("int64"), position[:2])
    reach = Dependence(position, N)(output)
    states = np.array(list(itertools.product(range(n_values), repeat=N)), dtype=float)
    x = np.array([[0.4, -1.3], [2.0, 0.6]])
    rows = np.array([np.concatenate([one, state]) for one in x for state in states])
    function = compile_interpreted([position], [output])
    values = [function(row)[0] for row in rows]
    shape = (len(x), *(n_values,) * N, -1)
    return reach, np.asarray(values, float).reshape(shape), output


def changes(values):
    """Whether each element changes with each site, (elements, S)."""
    axes = range(1, 1 + N)
    with np.errstate(invalid="ignore"):
        return np.stack(
            [(np.abs(values - np.take(values, [0], axis)) > 1e-12).any(axis=tuple(range(N + 1))) for axis in axes],
            axis=1,
        )


#: One function for each rule, and for what has none.
OPERATIONS = {
    "elementwise": lambda s, x: pt.exp(s[1:] * x[0]) + s[:-1],
    "columns and rows": lambda s, x: s[:, None] * TABLE[:, :1].T + s[None, :2],
    "constant zeros": lambda s, x: W * s[:, None] * s[None, :],
    "switch": lambda s, x: pt.switch(x[0] > s[0], s[1:], x[1]),
    "sum of an axis": lambda s, x: s.reshape((2, 2)).sum(axis=1),
    "largest of an axis": lambda s, x: s.reshape((2, 2)).max(axis=0),
    "sums so far": lambda s, x: pt.cumsum(s[::-1]),
    "products so far": lambda s, x: pt.cumprod(1 + s.reshape((2, 2)), axis=1),
    "matrix and vector": lambda s, x: pt.dot(W, s),
    "matrix product": lambda s, x: s.reshape((2, 2)) @ TABLE,
    "quadratic form": lambda s, x: s @ W @ s,
    "batched product": lambda s, x: pt.matmul(s.reshape((2, 1, 2)), np.stack([TABLE, TABLE.T])),
    "transposed": lambda s, x: s.reshape((2, 2)).T.ravel()[1:],
    "permuted": lambda s, x: s[PERMUTATION] * x[0],
    "some of it": lambda s, x: s[np.array([True, False, True, True])],
    "diagonal": lambda s, x: pt.diag(s[:, None] * s[None, ::-1]),
    "joined": lambda s, x: pt.concatenate([s[2:], x, s[:1]]),
    "stacked": lambda s, x: pt.stack([s[:2], s[2:]], axis=1),
    "vector of numbers": lambda s, x: pt.stack([s[3], x[0], s[0] * s[1]]),
    "broadcast": lambda s, x: pt.alloc(s[:2], 3, 2),
    "set in part": lambda s, x: pt.set_subtensor(pt.zeros(5)[1:4], s[1:]),
    "set by numbers": lambda s, x: pt.set_subtensor((1.0 * s)[np.array([3, 0])], x),
    "added in part": lambda s, x: pt.inc_subtensor(pt.zeros(3)[np.array([0, 2, 2, 0])], s),
    "set where a site says": lambda s, x: pt.set_subtensor(pt.zeros(2)[s[0]], s[1]),
    "table": lambda s, x: pt.as_tensor(TABLE[0])[s],
    "table of two": lambda s, x: pt.as_tensor(TABLE)[s[1:], s[:-1]],
    "row of a table": lambda s, x: pt.as_tensor(TABLE)[s[:2]],
    "element of each row": lambda s, x: pt.stack([s, 1 - s], axis=1)[np.arange(N), s[PERMUTATION]],
    "table of sites": lambda s, x: s[s[:2] + 1],
    "table by a real number": lambda s, x: s[pt.cast(pt.abs(x[:1]), "int64")],
    "softmax": lambda s, x: pm.math.softmax(1.0 * s.reshape((2, 2)), axis=1),
    "log of summed exponentials": lambda s, x: pm.math.logsumexp(s.reshape((2, 2)) * x[0], axis=0),
    "sorted": lambda s, x: pt.sort(s),
    "a loop": lambda s, x: pytensor.scan(
        lambda one, so_far: so_far * 0.5 + one, s, [pt.constant(0.0, dtype="float64")], return_updates=False
    ),
    "checked": lambda s, x: pm.logp(pm.Normal.dist(s, 1.0 + s), np.arange(4.0)),
    "as many as a site says": lambda s, x: pt.ones((s[0] + 1,)).sum() * s[1],
    "shape that a site decides": lambda s, x: pt.arange(s[0] + s[1]).shape[0] + s[2:],
    "filled as a site says": lambda s, x: pt.full_like(pt.arange(s[3] + 1), 2).sum(),
    "shape alone": lambda s, x: pt.zeros_like(s) + s.shape[0],
}
#: Those of which every element is known to depend on just what it does.
EXACT = set(OPERATIONS) - {
    "table by a real number", "sorted", "a loop", "checked", "set where a site says", "table of sites",
    "element of each row", "constant zeros", "as many as a site says", "shape that a site decides",
    "filled as a site says",
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_element_depends_on_no_site_but_those_that_are_read(name):
    reach, values, output = reached(OPERATIONS[name])
    found = changes(values)
    if reach is None:
        assert not found.any()
        return
    read = np.broadcast_to(reach.sites.toarray(), found.shape)
    assert not (found & ~read).any()
    if name in EXACT:
        np.testing.assert_array_equal(read, found)
        assert reach.n_rows == np.prod(output.type.shape, dtype=int)


# Random graphs -------------------------------------------------------------------------------------------


def draw_array(rng, s, x, depth):
    """Draw a function of sites and real numbers, as an array (n,)."""
    if depth == 0:
        start = rng.integers(0, N - 1)
        leaf = rng.integers(5)
        if leaf == 0:
            return s[start : start + 2]
        if leaf == 1:
            return s[rng.permutation(N)]
        if leaf == 2:
            return pt.as_tensor(rng.normal(size=2))[s[start:]]
        return s if leaf == 3 else s[[start]] * x
    one = draw_array(rng, s, x, depth - 1)
    other = draw_array(rng, s, x, rng.integers(0, depth))
    n, m = one.type.shape[0], other.type.shape[0]
    other = other[rng.integers(0, m, n)]
    kind = rng.integers(12)
    if kind == 0:
        return one + other
    if kind == 1:
        return one * other
    if kind == 2:
        return pt.switch(pt.gt(one, other), other, x[0])
    if kind == 3:
        return pt.dot(rng.normal(size=(3, n)) * (rng.uniform(size=(3, n)) < 0.5), one)
    if kind == 4:
        return pt.exp(0.3 * one)
    if kind == 5:
        return pt.cumsum(one)
    if kind == 6:
        return pt.concatenate([one[1:], other[:1], one.sum()[None]])
    if kind == 7:
        return pt.switch(pt.eq(s[rng.integers(0, N, n)], 1), one, other)
    if kind == 8:
        return one / (1.5 + pt.sin(other))
    if kind == 9:
        return rng.normal(size=n) * one - other
    if kind == 10:
        return pt.set_subtensor((1.0 * one)[0], other[-1])
    return pt.as_tensor(rng.normal(size=(2, 2)))[s[rng.integers(0, N, n)], s[rng.integers(0, N, n)]] * one


def draw_density(rng, s, x):
    total = 0.3 * draw_array(rng, s, x, rng.integers(0, 4)).sum()
    for _ in range(rng.integers(0, 3)):
        total = total + rng.normal() * draw_array(rng, s, x, rng.integers(0, 3)).sum()
    if rng.uniform() < 0.5:
        wall = pt.lt(draw_array(rng, s, x, 1), rng.normal() + 1.0)
        total = (
            pt.switch(pt.all(wall), total, -np.inf) if rng.uniform() < 0.5 else total + pt.switch(wall, 0.0, -2.0).sum()
        )
    return total


@settings(max_examples=3, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_random_graphs_are_no_more_than_what_is_read_from_them(seed):
    rng = np.random.default_rng(seed)
    check_density(lambda s, x: draw_density(rng, s, x))


@pytest.mark.every(10)
@pytest.mark.parametrize("seed", seeds(0, 30, 150))
def test_many_random_graphs_are_no_more_than_what_is_read_from_them(seed):
    rng = np.random.default_rng(seed)
    check_density(lambda s, x: draw_density(rng, s, x))


def check_density(build):
    """Compare slopes, meetings and terms that are read from a density with its values at all states."""
    position = pt.vector("position", shape=(2 + N,))
    output = build(position[2:].astype("int64"), position[:2])
    opened = open_conditions(output, position)
    (smooth,), interpolated = extend([opened], position, [SiteVariable("s", 2, 2 + N, 0, 2)])
    span = range(0, N)
    walk = Dependence(position, N, interpolated, [span])
    reach = walk(smooth)
    terms = split_terms(opened, position)
    members = [(one, Dependence(position, N)(one)) for one in terms]
    slope = pytensor.grad(smooth, position, disconnected_inputs="ignore")
    graphs = [output, smooth, slope, *terms]
    function = batch_over_rows(position, graphs, compile_interpreted([position], graphs))
    states = np.array(list(itertools.product((0.0, 1.0), repeat=N)))
    with np.errstate(all="ignore"):
        values, real, slopes, *of_terms = function(np.hstack([np.tile([0.4, -1.3], (len(states), 1)), states]))
    np.testing.assert_allclose(
        np.nan_to_num(real, nan=-np.inf), np.nan_to_num(values, nan=-np.inf), rtol=1e-6, atol=1e-6
    )
    cube = np.asarray(values).reshape((2,) * N)
    slopes = np.asarray(slopes)[:, 2:].reshape((*(2,) * N, N))
    links = walk.links(span)[0].toarray() if reach else np.zeros((N, N), bool)
    bent = reach.bent.toarray()[0] if reach else np.zeros(N, bool)
    for site in range(N):
        zero, one = (np.take(cube, end, axis=site) for end in (0, 1))
        with np.errstate(invalid="ignore"):
            gain, own = one - zero, np.take(slopes[..., site], 0, axis=site)
        known = np.isfinite(zero) & np.isfinite(one)
        if not bent[site]:
            np.testing.assert_allclose(own[known], gain[known], rtol=1e-5, atol=1e-5)
            assert np.all(own[np.isfinite(zero) & np.isneginf(one)] < -1e15)
        for other in range(N):
            if other == site or links[site, other] or bent[site]:
                continue
            axis = other if other < site else other - 1
            pair = np.stack([np.take(gain, end, axis=axis) for end in (0, 1)])
            pair = pair[:, np.isfinite(pair).all(axis=0)]
            np.testing.assert_allclose(pair[0], pair[1], rtol=1e-5, atol=1e-5)
    for (term, read), found in zip(members, of_terms, strict=True):
        found = np.asarray(found, float).reshape((1, *(2,) * N, -1))
        with np.errstate(invalid="ignore"):
            moved = np.nan_to_num(found, nan=-1e9, neginf=-1e9, posinf=1e9)
        sites = np.zeros((term.type.shape[0], N), bool) if read is None else read.sites.toarray()
        assert not (changes(moved) & ~np.broadcast_to(sites, changes(moved).shape)).any()
    total = sum(np.asarray(found, float).reshape(len(states), -1).sum(axis=1) for found in of_terms)
    difference = (np.nan_to_num(values, nan=-np.inf) - total)[np.isfinite(total)]
    assert np.ptp(difference) < 1e-6 if difference.size else True


def test_conditions_on_a_whole_array_become_one_term_for_each_element():
    position = pt.vector("position", shape=(2 + N,))
    s = position[2:].astype("int64")
    for condition in (
        pt.switch(pt.any(pt.eq(s[1:], s[:-1])), -np.inf, 0.0),
        pt.switch(pt.all(pt.neq(s[1:], s[:-1])), 0.0, -np.inf),
        pm.logp(pm.Normal.dist(0.0, pt.abs(s[1:] - s[:-1])), 0.3).sum(),
    ):
        opened = open_conditions(condition, position)
        walk = Dependence(position, N)
        reached_by = [walk(term) for term in split_terms(opened, position)]
        assert max(reach.sites.sum(axis=1).max() for reach in reached_by if reach) == 2


def test_what_grows_beyond_memory_is_taken_to_meet():
    n = 6000
    position = pt.vector("position", shape=(n,))
    span = range(0, n)
    walk = Dependence(position, n, {}, [span])
    reach = walk(pt.exp(position - position.mean()).sum())
    assert reach.sites.nnz == n
    links, is_crowded = walk.links(span)
    assert is_crowded.all()
    np.testing.assert_array_equal(np.sort(colour(links, is_crowded)), np.arange(n))
