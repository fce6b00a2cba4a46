"""Equal rows of data, computed once: the same density and gradients from fewer rows."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

from pymc_hais.density import build_density, build_layout
from pymc_hais.density.compiling import compile_density
from pymc_hais.density.proofs import tables
from pymc_hais.density.proofs.tables import find_rows
from tests.density.random_models import ROWS, build
from tests.marks import seeds, slow_but

pytestmark = pytest.mark.filterwarnings("ignore")
RNG = np.random.default_rng(8)
N = 400
GROUP, CHOSEN, COUNTS = RNG.integers(0, 4, N), RNG.integers(0, 3, N), RNG.poisson(1.0, N)
DESIGN = RNG.integers(0, 2, (N, 2)).astype(float)


def logistic():
    pm.Bernoulli("y", logit_p=pm.Normal("a") + DESIGN @ pm.Normal("b", shape=2), observed=CHOSEN > 0)


def groups():
    a = pm.Normal("a", 0.0, pm.HalfNormal("s"), shape=4)
    pm.Poisson("y", pm.math.exp(a[GROUP]), observed=COUNTS)


def tables_of_groups():
    a = pm.Normal("a", shape=(4, 3))
    pm.NegativeBinomial("y", mu=pm.math.exp(a[GROUP, CHOSEN]), alpha=pm.Gamma("alpha", 2.0, 1.0), observed=COUNTS)


def mixture():
    w, mu = pm.Dirichlet("w", np.ones(3)), pm.Normal("mu", shape=3)
    pm.NormalMixture("y", w, mu, 1.0, observed=COUNTS.astype(float))


def choices():
    pm.Categorical("y", logit_p=pm.math.dot(DESIGN, pm.Normal("b", shape=(2, 3))), observed=CHOSEN)


def rates_that_may_be_impossible():
    pm.Poisson("y", pm.Normal("a") + DESIGN[:, 0], observed=COUNTS)


def made(build_model):
    with pm.Model() as model:
        build_model()
    return model


def longest(graph):
    return max((max(value.shape, default=0) for value in graph.data_values), default=0)


def both(model, monkeypatch, fewest=2):
    """Evaluate the density and its gradients at a few places, with all rows and with merged rows."""
    layout = build_layout(model)
    positions = np.random.default_rng(1).normal(0.3, 0.5, (4, layout.n_dims))
    found = []
    for n in (10**9, fewest):
        monkeypatch.setattr(tables, "_FEWEST", n)
        graph = build_density(model, layout)
        function = compile_density(graph, mode="FAST_COMPILE")
        found.append([np.concatenate([np.ravel(one) for one in function(x, *graph.data_values)]) for x in positions])
    return *map(np.array, found), graph


def assert_same(whole, merged):
    scale = np.abs(whole[np.isfinite(whole)]).max(initial=1.0)
    np.testing.assert_allclose(merged, whole, rtol=1e-9, atol=1e-10 * scale)


def cutpoints():
    return pm.Normal("c", [-1.0, 0.7], shape=2, transform=pm.distributions.transforms.ordered)


def ordered_logistic():
    pm.OrderedLogistic("y", eta=DESIGN @ pm.Normal("b", shape=2), cutpoints=cutpoints(), observed=CHOSEN)


def ordered_probit():
    pm.OrderedProbit("y", eta=DESIGN[:, 0] * pm.Normal("b"), sigma=0.8, cutpoints=cutpoints(), observed=CHOSEN)


def ordered_groups():
    pm.OrderedLogistic("y", eta=pm.Normal("a", shape=4)[GROUP], cutpoints=cutpoints(), observed=CHOSEN)


def ordered_on_the_line():
    c = pt.concatenate([[0.0], pm.HalfNormal("d", shape=1)])
    pm.OrderedLogistic("y", eta=pm.Normal("a") + DESIGN[:, 1], cutpoints=c, observed=CHOSEN)


def ordered_by_logits():
    pm.OrderedLogistic("y", eta=pm.Normal("a") * DESIGN[:, 1], cutpoints=[-0.5, 0.5], compute_p=False, observed=CHOSEN)


def joined_columns():
    rate = pm.math.sigmoid(pm.Normal("a") + DESIGN[:, 0])[:, None]
    p = pt.concatenate([0.5 * rate, pt.full((N, 1), 0.5), 0.5 - 0.5 * rate], axis=1)
    pm.Categorical("y", p=p, observed=CHOSEN)


def joined_rows_of_columns():
    x = DESIGN[:, 1] * pm.Normal("a")
    pm.Categorical("y", logit_p=pt.stack([pt.zeros(N), x, -2.0 * x]).T, observed=CHOSEN)


def a_column_that_is_set():
    logits = pt.set_subtensor(pt.zeros((N, 3))[:, 1], pm.Normal("a") * DESIGN[:, 0])
    pm.Categorical("y", logit_p=logits, observed=CHOSEN)


def columns_that_are_increased():
    more = pm.Normal("a", shape=2) * DESIGN
    pm.Categorical("y", logit_p=pt.inc_subtensor(pt.as_tensor(DESIGN @ np.eye(2, 3))[:, 1:], more), observed=CHOSEN)


def a_column_that_is_the_same_in_all_rows():
    logits = pt.set_subtensor((DESIGN @ pm.Normal("b", shape=(2, 3)))[:, 2:], pm.Normal("a"))
    pm.Categorical("y", logit_p=logits, observed=CHOSEN)


MERGED = [logistic, groups, tables_of_groups, mixture, choices, rates_that_may_be_impossible]
MERGED += [ordered_logistic, ordered_probit, ordered_groups, ordered_on_the_line, ordered_by_logits, joined_columns]
MERGED += [joined_rows_of_columns, a_column_that_is_set, columns_that_are_increased]
MERGED += [a_column_that_is_the_same_in_all_rows]


@pytest.mark.every(4)
@pytest.mark.parametrize("build_model", slow_but([logistic, mixture, ordered_logistic], MERGED))
def test_the_density_of_different_rows_is_the_same(build_model, monkeypatch):
    whole, merged, graph = both(made(build_model), monkeypatch)
    assert longest(graph) < N / 2
    assert_same(whole, merged)


def test_each_row_counts_as_often_as_it_occurs(monkeypatch):
    model = made(lambda: pm.Poisson("y", pm.math.exp(pm.Normal("a")), observed=COUNTS))
    _, merged, graph = both(model, monkeypatch)
    assert longest(graph) == len(np.unique(COUNTS))
    a = np.random.default_rng(1).normal(0.3, 0.5, (4, 1))
    np.testing.assert_allclose(merged[:, 1], stats.poisson.logpmf(COUNTS, np.exp(a)).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(merged[:, 3], (COUNTS - np.exp(a)).sum(axis=1), rtol=1e-10)


def test_rows_that_differ_in_the_sign_of_zero_or_in_one_table_alone_are_not_equal():
    zeros = np.where(np.arange(N) % 2, 0.0, -0.0)
    first, counts = tables._distinct([zeros, np.repeat([[1, 2]], N, axis=0)])
    assert zeros[first].view("u8").tolist() != [0, 0]
    assert counts.tolist() == [N // 2, N // 2]
    assert len(tables._distinct([zeros, np.arange(N) // 4 % 2])[0]) == 4
    assert tables._distinct([RNG.normal(size=N)]) is None


@pytest.mark.parametrize(
    "build_model",
    [
        lambda: pm.Poisson("y", pm.math.exp(pm.Normal("a", shape=N)), observed=COUNTS),
        lambda: pm.Laplace(
            "y", pm.Normal("a") * np.diff(DESIGN[:, 0], prepend=0.0)[::-1].cumsum(), 1.0, observed=RNG.normal(size=N)
        ),
    ],
    ids=["an effect of each row", "rows that all differ"],
)
def test_densities_of_different_rows_stay_as_they_are(build_model, monkeypatch):
    model = made(build_model)
    whole, merged, graph = both(model, monkeypatch)
    assert longest(graph) == N
    np.testing.assert_array_equal(merged, whole)


MATRIX, COLUMN = pt.matrix("matrix", shape=(N, 3)), pt.vector("column", shape=(N,))
#: Operations on rows whose results for one row depend on others, on its place, or on how many rows there are.
MIXED = {
    "a part of the rows": pt.inc_subtensor(MATRIX[1:], pt.exp(MATRIX)[:-1]),
    "one row": pt.set_subtensor(MATRIX[0], 0.0),
    "other rows": pt.inc_subtensor(MATRIX[::-1], pt.exp(MATRIX)),
    "a number of rows": pt.set_subtensor(pt.exp(MATRIX)[:N], 0.0),
    "rows along another axis": pt.inc_subtensor(pt.ones((N, N))[:, :], COLUMN[None, :] + pt.exp(COLUMN)[:, None]),
    "a column for all rows": pt.inc_subtensor(pt.exp(pt.tensor("t", shape=(N, N)))[:], COLUMN) * COLUMN[:, None],
    "rows after rows": pt.concatenate([MATRIX, MATRIX]),
}


@pytest.mark.parametrize("mixed", MIXED.values(), ids=MIXED)
def test_operations_on_several_rows_at_once_are_refused(mixed):
    assert find_rows([pt.exp(MATRIX).sum()], [MATRIX], 2) is not None
    assert find_rows([mixed.sum()], [MATRIX, COLUMN], 2) is None


@pytest.mark.every(12)
@pytest.mark.parametrize("seed", seeds(1, 30, 220))
def test_random_models_of_merged_rows_are_the_same(seed, monkeypatch):
    monkeypatch.setattr("pymc_hais.density.rewrites.simplification.LIFTED_SIZE", ROWS)
    monkeypatch.setattr(tables, "_LEFT", 2.0)  # also where few are equal: in another order
    whole, merged, _ = both(build(seed, depth=1 if seed < 100 else 2), monkeypatch)
    assert_same(whole, merged)
