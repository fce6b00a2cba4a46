"""What a user may ask of fit wrongly: one clear error each, before anything is compiled."""

import numpy as np
import pymc as pm
import pytest
from pymc.model.transform.optimization import freeze_dims_and_data

import pymc_hais
from pymc_hais import learning
from pymc_hais.learning.optimisers import lbfgs, stochastic
from tests.learning import densities

ROWS = np.random.default_rng(0).normal(size=(50, 3))
BITS = (ROWS > 0).astype(int)


@pytest.fixture(autouse=True)
def nothing_is_compiled(monkeypatch):
    def refuse(*args):
        raise AssertionError("compiled before the error")

    for module in (lbfgs, stochastic):
        monkeypatch.setattr(module, "build_program", refuse)


def faulty():
    with pm.Model() as model:
        a = pm.Data("A", np.eye(3))
        pm.Data("whole", np.arange(3))
        pm.Data("unused", np.zeros(3))
        broken = pm.Data("broken", np.ones(2))
        x = pm.Flat("x", shape=3)
        pm.Potential("energy", -(pm.math.dot(a, x).sum() ** 2))
        pm.Deterministic("d", x.sum())
    broken.set_value(np.array([np.nan, 1.0]))
    return model


def hidden():
    with pm.Model() as model:
        a = pm.Data("A", np.eye(3))
        h = pm.Normal("h", shape=3)
        pm.Normal("y", pm.math.dot(a, h), 1.0, observed=np.zeros(3))
    return model


def positive():
    with pm.Model() as model:
        a = pm.Data("A", np.ones(3))
        pm.Gamma("x", a, 1.0, shape=3)
    return model


def counts():
    with pm.Model() as model:
        a = pm.Data("A", np.ones(3))
        pm.Poisson("x", a, shape=3)
    return model


def fit(model=None, data=None, parameters=("A",), method=None, **kwargs):
    model = faulty() if model is None else model
    data = {"x": ROWS} if data is None else data
    method = learning.ScoreMatching() if method is None else method
    return pymc_hais.fit(model, data, parameters, method, progressbar=False, **kwargs)


BITS_MODEL = ({"s": BITS}, ["W"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": 3}, "must be a pm.Model"),
        ({"data": ROWS}, "must be a dictionary"),
        ({"data": {"z": ROWS}}, "not in the model"),
        ({"data": {"d": ROWS}}, "a Deterministic"),
        ({"data": {"x": ROWS[:, :2]}}, r"got \(50, 2\)"),
        ({"data": {"x": ROWS[0]}}, r"x\[None\]"),
        ({"data": {"x": ROWS[:0]}}, "got"),
        ({"data": {"x": np.where(ROWS > 2, np.nan, ROWS)}}, "missing or infinite"),
        ({"data": {"x": ROWS.astype(str)}}, "must be numbers"),
        ({"parameters": "A"}, r"pass \['A'\]"),
        ({"parameters": []}, "list of names"),
        ({"parameters": None}, "list of names"),
        ({"parameters": ["A", "A"]}, "twice"),
        ({"parameters": ["B"]}, "'B', which is not in the model"),
        ({"parameters": ["x"]}, r"no pm.Data.*pm.Data\('x'"),
        ({"parameters": ["whole"]}, "`whole` holds int"),
        ({"parameters": ["unused"]}, "does not depend on the parameter `unused`"),
        ({"parameters": ["broken"]}, "missing"),
        ({"parameters": {"A": "negative"}}, "constraint of `A`.*got 'negative'"),
        ({"parameters": {"A": "positive"}}, '`A` is to be "positive"'),
        ({"parameters": {"A": "non_positive"}}, "non_positive"),
        ({"parameters": {"A": lambda a: a[0]}, "batch_size": 5}, "must keep its shape"),
        ({"method": "score matching"}, r"such as ScoreMatching\(\)"),
        ({"method": learning.ScoreMatching}, r"Pass ScoreMatching\(\)"),
        ({"method": learning.Pseudolikelihood()}, "`x` is real.*ScoreMatching"),
        ({"model": freeze_dims_and_data(faulty())}, "`A` is frozen.*before freeze_dims_and_data"),
        ({"model": hidden(), "data": {"y": ROWS}}, "`h` would have to be integrated out"),
        ({"model": positive(), "data": {"x": np.exp(ROWS)}}, "restricted.*NoiseContrastive"),
        (
            {"model": positive(), "data": {"x": np.exp(ROWS)}, "method": learning.NoiseContrastive()},
            "no default noise for restricted",
        ),
        ({"model": counts(), "data": {"x": BITS}, "method": learning.Pseudolikelihood()}, "`x` is count"),
        ({"optimizer": "adam"}, 'must be "lbfgs", or one such as pm.adam'),
        ({"optimizer": "lbfgs", "batch_size": 5}, "takes all rows"),
        ({"optimizer": "lbfgs", "parameters": {"A": np.abs}}, "the projection of `A`"),
        ({"optimizer": lambda gradients, parameters: {}}, "no update of `A`"),
        ({"optimizer": lambda: None}, "must be one of PyMC's"),
        ({"n_steps": 0}, "`n_steps`.*at least 1; got 0"),
        ({"n_steps": 2.5}, "`n_steps`.*whole number"),
        ({"batch_size": 0}, "`batch_size`.*at least 1"),
        ({"batch_size": 51}, "`batch_size` is 51, and there are 50 rows"),
        ({"tolerance": 0}, "`tolerance`"),
        ({"tolerance": None}, "`tolerance`"),
        ({"max_seconds": -1}, "`max_seconds`"),
        ({"random_seed": "one"}, "`random_seed`"),
        ({"backend": "torch"}, "Unknown backend"),
        ({"callbacks": [3]}, "`callbacks`"),
    ],
)
def test_one_error_says_what_was_given(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit(**arguments)


def test_methods_that_are_named_can_be_passed():
    with pytest.raises(ValueError, match="Methods that take it") as caught:
        fit(method=learning.Pseudolikelihood())
    named = str(caught.value).split("take it: ")[1].rstrip(".").split(", ")
    assert {"StochasticMaximumLikelihood", "ScoreMatching"} <= set(named)
    assert not {"Sampled", "Persistent", "_OneFlip"} & set(named)


def test_bits_are_not_for_score_matching():
    model = densities.boltzmann(np.zeros((3, 3)), np.zeros(3))
    with pytest.raises(ValueError, match=r"`s` is binary.*Methods that take it.*Pseudolikelihood"):
        fit(model, *BITS_MODEL)
    with pytest.raises(ValueError, match="whole numbers"):
        fit(model, {"s": BITS + 0.5}, ["W"], learning.RatioMatching())
    with pytest.raises(ValueError, match="elements 0 to 2"):
        fit(model, *BITS_MODEL, learning.Pseudolikelihood([[0, 3]]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: learning.ScoreMatching(sliced=1), "`sliced`"),
        (lambda: learning.ScoreMatching(sliced=True, n_projections=0), "`n_projections`"),
        (lambda: learning.MinimumProbabilityFlow(0), "`n_neighbours`"),
        (lambda: learning.MinimumProbabilityFlow(scale=-1.0), "`scale`"),
        (lambda: learning.Pseudolikelihood(0), "`blocks`"),
        (lambda: learning.Pseudolikelihood([[]]), "`blocks`"),
        (lambda: learning.DenoisingScoreMatching(0.0), "`sigma`"),
        (lambda: learning.DenoisingScoreMatching(n_draws=0), "`n_draws`"),
        (lambda: learning.DenoisingScoreMatching(-1), "positive number of the variables' units, or None.*; got -1"),
        (lambda: learning.NoiseContrastive(noise=3), "`noise` must have"),
        (lambda: learning.NoiseContrastive(ratio=0), "`ratio`"),
    ],
)
def test_settings_of_methods(make, message):
    with pytest.raises(ValueError, match=message):
        make()
