"""Rows of data in blocks: the same density, of random models and of those that tables of data are used in."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_hais.density import build_density, build_layout
from pymc_hais.engines.choice import compile_engine
from tests.density.random_models import ROWS, build
from tests.engines.models import build_graph
from tests.marks import seeds, slow_but

row_blocks = pytest.importorskip("pymc_hais.density.jax_forms.row_blocks")

pytestmark = pytest.mark.filterwarnings("ignore")
RNG = np.random.default_rng(3)
N = 403
DESIGN, GROUP, VALUES = RNG.normal(size=(N, 4)), RNG.integers(0, 6, N), RNG.normal(size=N)
COUNTS, CHOSEN = RNG.poisson(2.0, N), RNG.integers(0, 3, N)


def logistic():
    b = pm.Normal("b", shape=4)
    pm.Bernoulli("y", logit_p=pm.Normal("a") + DESIGN @ b, observed=CHOSEN > 0)


def groups():
    a = pm.Normal("a", 0.0, pm.HalfNormal("s"), shape=6)
    pm.Poisson("y", pm.math.exp(a[GROUP] + DESIGN @ pm.Normal("b", shape=4)), observed=COUNTS)


def pairs_of_groups():
    a = pm.Normal("a", shape=(6, 3))
    pm.NegativeBinomial("y", mu=pm.math.exp(a[GROUP, CHOSEN]), alpha=pm.Gamma("alpha", 2.0, 1.0), observed=COUNTS)


def heavy_tails():
    nu, b = pm.Gamma("nu", 2.0, 0.1), pm.Normal("b", shape=3)
    pm.StudentT("y", nu=nu, mu=b[0] + b[1] * DESIGN[:, 0] + b[2] * DESIGN[:, 1] ** 2, sigma=2.0, observed=VALUES)


def mixture():
    w, mu = pm.Dirichlet("w", np.ones(3)), pm.Normal("mu", shape=3)
    pm.NormalMixture("y", w, mu, 1.0, observed=VALUES)


def choices():
    pm.Categorical("y", logit_p=pm.math.dot(DESIGN, pm.Normal("b", shape=(4, 3))), observed=CHOSEN)


def cut_off():
    pm.Censored("y", pm.Normal.dist(pm.Normal("mu"), 1.0), lower=None, upper=1.0, observed=np.minimum(VALUES, 1.0))


def against_a_baseline():
    logits = pm.math.concatenate([np.zeros((N, 1)), pm.math.dot(DESIGN, pm.Normal("b", shape=(4, 2)))], axis=1)
    pm.Categorical("y", logit_p=logits, observed=CHOSEN)


CUT = [logistic, groups, pairs_of_groups, heavy_tails, mixture, choices, cut_off, against_a_baseline]


def centred_by_its_mean():
    mean = pm.math.dot(DESIGN, pm.Normal("b", shape=4))
    pm.Laplace("y", mean - mean.mean(), 1.0, observed=VALUES)


def effect_of_each_row():
    pm.Poisson("y", pm.math.exp(pm.Normal("a", shape=N)), observed=COUNTS)


def neighbours():
    mean = pm.math.dot(DESIGN, pm.Normal("b", shape=4))
    pm.Laplace("y", mean[1:] - mean[:-1], 1.0, observed=np.diff(VALUES))


def in_another_order():
    mean = pm.math.dot(DESIGN, pm.Normal("b", shape=4))
    pm.Laplace("y", mean[RNG.permutation(N)], 1.0, observed=VALUES)


def one_table_after_another():
    mean = pm.math.dot(DESIGN, pm.Normal("b", shape=4))
    pm.Laplace("y", pm.math.concatenate([mean, -mean]), 1.0, observed=np.tile(VALUES, 2))


def halves_of_a_table():
    mean = pm.math.dot(DESIGN, pm.Normal("b", shape=4))
    first, second = pt.split(pm.math.concatenate([mean, mean[:1]]), [N // 2, N - N // 2 + 1], axis=-1)
    pm.Laplace("y", pm.math.concatenate([first, -second])[:N], 1.0, observed=VALUES)


def shares_of_all():
    pm.Potential("y", (VALUES * pm.math.softmax(DESIGN @ pm.Normal("b", shape=4), axis=-1)).sum())


NOT_CUT = [
    halves_of_a_table,
    one_table_after_another,
    shares_of_all,
    centred_by_its_mean,
    effect_of_each_row,
    neighbours,
    in_another_order,
]


def made(build_model):
    with pm.Model() as model:
        build_model()
    return model


def both(model, monkeypatch, n_blocks=5):
    """Return the density whole and in blocks, at a few places; and whether it is cut."""
    layout = build_layout(model)
    graph = build_density(model, layout)
    positions = RNG.normal(0.0, 0.5, (1, 3, layout.n_dims))
    found = []
    for fewest in (10**9, 1):
        monkeypatch.setattr(row_blocks, "_FEWEST", fewest)
        monkeypatch.setattr(row_blocks, "_n_blocks", lambda _: n_blocks)
        state = compile_engine(graph, "jax", {}).start(positions, (), np.zeros((1, 2), np.uint32))
        found.append([np.asarray(leaf) for leaf in state])
    return *found, row_blocks.in_blocks(graph)[0] is not graph


def assert_same(whole, cut):
    for one, other in zip(whole, cut, strict=True):
        scale = np.abs(one[np.isfinite(one)]).max(initial=1.0)
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-10 * scale)


@pytest.mark.every(8)
@pytest.mark.parametrize("build_model", slow_but([mixture], CUT))
def test_a_density_in_blocks_of_rows_is_the_same(build_model, monkeypatch):
    whole, cut, is_cut = both(made(build_model), monkeypatch)
    assert is_cut
    assert_same(whole, cut)


@pytest.mark.parametrize("build_model", NOT_CUT)
def test_rows_that_others_have_a_part_in_are_not_cut(build_model, monkeypatch):
    monkeypatch.setattr(row_blocks, "_FEWEST", 1)
    model = made(build_model)
    graph = build_density(model, build_layout(model))
    assert row_blocks.in_blocks(graph)[0] is graph


def test_pairs_of_rows_are_not_cut():
    table, scale = pt.matrix("table", shape=(N, 1)), pt.scalar("scale")
    assert row_blocks.find_rows([pt.exp(scale * table).sum()], [table], 2) is not None
    assert row_blocks.find_rows([pt.exp(scale * (table - table.T) ** 2).sum()], [table], 2) is None


@pytest.mark.every(30)
@pytest.mark.parametrize("seed", seeds(0, 30, 220))
def test_random_models_in_blocks_of_rows_are_the_same(seed, monkeypatch):
    monkeypatch.setattr("pymc_hais.density.rewrites.simplification.LIFTED_SIZE", ROWS)
    whole, cut, _ = both(build(seed, depth=1 if seed < 100 else 2), monkeypatch)
    assert_same(whole, cut)


def test_the_width_of_a_density_grows_with_its_data():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Poisson("y", pm.math.exp(x * np.linspace(-1.0, 1.0, 1234)), observed=np.ones(1234, dtype=int))
    assert row_blocks.in_blocks(build_density(model, build_layout(model)))[1] >= 1234
    assert row_blocks.in_blocks(build_graph("regression")[0])[1] < 10_000


def test_a_matrix_that_all_particles_share_makes_no_density_wider():
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0.0, 1.0, shape=20)
        predictor = np.random.default_rng(0).normal(size=(300, 20)) @ slopes
        pm.Laplace("y", predictor, 1.0, observed=np.zeros(300))
    assert row_blocks.in_blocks(build_density(model, build_layout(model)))[1] == 300


def test_particles_that_go_through_loops_and_factors_go_together_as_far_as_all_arrays_stay_in_the_cache():
    with pm.Model() as model:
        steps = pm.Normal("steps", shape=300)
        pm.Normal("y", steps.cumsum(), 1.0, observed=np.zeros(300))
    elementwise = row_blocks.in_blocks(build_density(model, build_layout(model)))[1]
    with pm.Model() as model:
        points = np.linspace(0.0, 1.0, 300)[:, None]
        gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, pm.HalfNormal("length")))
        gp.marginal_likelihood("y", points, np.zeros(300), sigma=1.0)
    of_factor = row_blocks.in_blocks(build_density(model, build_layout(model)))[1]
    assert elementwise == 300
    assert of_factor >= 2 * 300**2
