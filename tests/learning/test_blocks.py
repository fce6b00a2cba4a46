"""Bits that are drawn block by block: their form, their blocks, and the law that they keep."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_hais import FlatDiscrete, Gibbs, learning
from pymc_hais.learning.family import build_family
from pymc_hais.learning.likelihood import blocks, phases
from tests.learning import densities
from tests.mutants import mutate

RNG = np.random.default_rng(12)
SIZES = {"v": 4, "h": 3, "g": 2}
VALUES = {"W": RNG.normal(size=(4, 3)), "U": 2.0 * RNG.normal(size=(3, 2)), "b": RNG.normal(size=4)}
STATES = densities.states(9)
ROWS = {"v": np.array([[0, 1, 0, 0], [1, 0, 1, 1], [0, 0, 1, 0]])}


def deep():
    """A machine of three layers: the upper two are hidden."""
    with pm.Model() as model:
        W, U, b = (pm.Data(name, value) for name, value in VALUES.items())
        v, h, g = (FlatDiscrete(name, 0, 1, shape=size) for name, size in SIZES.items())
        pm.Potential("E", v @ W @ h + h @ U @ g + v @ b - 1.5)
    return model


def build(model, names, rows=ROWS):
    family, table = build_family(model, rows, names)
    found = blocks.find_blocks(family)
    return None if found is None else found.build_chains(table)


def log_p(states):
    v, h, g = np.split(states, [4, 7], axis=-1)
    return ((v @ VALUES["W"]) * h).sum(axis=-1) + ((h @ VALUES["U"]) * g).sum(axis=-1) + v @ VALUES["b"] - 1.5


@pytest.fixture(scope="module")
def chains():
    return build(deep(), list(VALUES))


def test_the_form_is_the_log_density(chains):
    energy = chains[1].density.at(VALUES)
    np.testing.assert_allclose(energy.log_density(STATES), log_p(STATES), atol=1e-12)


def test_layers_are_blocks(chains):
    of_rows, of_model = chains
    assert [len(one) for one in of_model.density.blocks] in ([4, 3, 2], [4, 2, 3])
    assert (of_rows.blocks, of_model.blocks) == (range(1, 3), range(3))


def z_of_means(module, given, n=40_000):
    """Standard errors by which means of products are off, after a sweep that started at the model's own law."""
    of_rows, of_model = given
    rng, p = np.random.default_rng(1), np.exp(log_p(STATES))
    if of_rows is not None:  # of the hidden units given the second row
        p = np.where((STATES[:, :4] == ROWS["v"][1]).all(axis=1), p, 0.0)
    p /= p.sum()
    start = STATES[rng.choice(len(p), size=n, p=p)]
    if of_rows is None:
        moved = module.BlockChains(**vars(of_model)).move(start, 1, VALUES, rng).x
    else:
        given_rows = module.BlockChains(**vars(of_rows))
        moved = start.copy()
        hidden = start[:, of_rows.moved]
        moved[:, of_rows.moved] = given_rows.move(hidden, 1, VALUES, rng, np.ones(n, dtype=int)).x
    upper = np.triu_indices(9)
    found, states = ((one[:, :, None] * one[:, None])[:, *upper] for one in (moved, STATES))
    expected = p @ states
    spread = np.sqrt(p @ (states - expected) ** 2 / n)
    off, varies = found.mean(axis=0) - expected, spread > 1e-12  # the units of a row do not
    assert np.abs(off[~varies]).max(initial=0.0) < 1e-12
    return np.abs(off[varies] / spread[varies]).max()


@pytest.mark.parametrize("is_of_rows", [False, True])
def test_draws_keep_the_law_of_the_model_and_that_given_a_row(chains, is_of_rows):
    given = chains if is_of_rows else (None, chains[1])
    assert z_of_means(blocks, given) < 5.0  # of 45 products: 3e-5
    wrong = mutate(blocks, ("np.float32(beta) * odds + biases", "np.float32(0.5) * odds + biases"))
    assert z_of_means(wrong, given) > 10.0


def test_annealing_finds_log_z(chains):
    points, log_density, log_z = chains[1].draw(20, 200, VALUES, np.random.default_rng(2))
    np.testing.assert_allclose(log_density, log_p(points), atol=1e-12)
    shares = np.exp(log_z - np.logaddexp.reduce(log_p(STATES)))
    assert abs(shares.mean() - 1.0) < 6.0 * shares.std(ddof=1) / np.sqrt(20)  # Student's t with 19 degrees: 1e-5
    assert shares.std(ddof=1) < 0.1


def coupled(graph, n=6, value=None):
    with pm.Model() as model:
        w = pm.Data("w", np.ones((n, n)) if value is None else value)
        s = FlatDiscrete("s", 0, 1, shape=n)
        pm.Potential("E", graph(w, s))
    return model


@pytest.mark.parametrize(
    "model",
    [
        coupled(lambda w, s: s @ pt.triu(w, 1) @ s, n=10),  # too many blocks
        coupled(lambda w, s: s @ w @ s),  # squares
        coupled(lambda w, s: pt.softplus(w @ s).sum()),  # no quadratic form
    ],
    ids=["all", "squares", "softplus"],
)
def test_other_densities_have_no_blocks(model):
    n = model["w"].get_value().shape[0]
    assert build(model, ["w"], {"s": np.eye(n, dtype=int)}) is None


def test_couplings_that_come_later_are_refused():
    """Random parameters have none: it is switched on at five."""
    model = coupled(lambda w, s: pt.maximum(w[0, 0] - 5.0, 0.0) * s[0] * s[1] + s @ w[0], value=np.zeros((6, 6)))
    _, of_model = build(model, ["w"], {"s": np.eye(6, dtype=int)})
    assert len(of_model.density.blocks) == 1
    with pytest.raises(ValueError, match=r"couples units.*`kernel`"):
        of_model.density.at({"w": np.full((6, 6), 6.0)})


def test_a_kernel_or_a_backend_is_taken_at_its_word(monkeypatch):
    monkeypatch.setattr(phases, "build_chains", lambda *_: "compiled")
    model = coupled(lambda w, s: s @ w[0], n=2)
    for settings, backend in (({"kernel": Gibbs()}, None), ({}, "numba")):
        family, rows = build_family(model, {"s": np.eye(2, dtype=int)}, ["w"], backend)
        with pytest.raises(AttributeError, match="'str' object has no attribute 'layout'"):
            learning.ContrastiveDivergence(**settings).begin(family, rows, np.random.default_rng(1))
