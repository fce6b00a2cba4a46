"""What a call is: any change of its numbers shows, and nothing else does, in whichever process it is written."""

import functools
import json
import os

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.sparse
import xarray as xr
from pytensor.compile.mode import Mode

import pymc_hais
from pymc_hais.runner.checkpoint import describe, take_identity
from tests import bits
from tests.bits import DESIGN, Y
from tests.processes import run_apart

ONE = np.float64(1.0)


def of(model):
    return take_identity("f", model, (1,), {})


def built(build):
    with pm.Model() as model:
        build()
    return model


def linear(scale=1.0, data=Y, operation=pm.math.exp, prior=pm.Normal, name="w", design=DESIGN):
    def build():
        w = prior(name, 0.0, scale, shape=3)
        pm.Normal("y", operation(design @ w), 1.0, observed=data)

    return built(build)


def custom(factor=1.0):
    def build():
        s = pm.HalfNormal("s")
        pm.CustomDist("c", s, logp=lambda value, s: -factor * abs(value) / s - pt.log(2.0 * s), observed=Y)
        pm.CustomDist("d", dist=lambda size: pm.Normal.dist(0.0, factor, size=size) + 1.0)

    return built(build)


def looped(turned=False):
    def step(x, before, a, b):
        return (b - a) * before + x if turned else (a - b) * before + x

    def build():
        a, b = pm.Normal("a"), pm.Normal("b")
        sums = pytensor.scan(step, Y, pt.as_tensor(0.0 * ONE), [a, b], return_updates=False)
        pm.Normal("y", sums, 1.0, observed=Y)

    return built(build)


def series():
    r = pm.Normal("r", 0.0, 0.5, shape=2)
    pm.AR("y", r, sigma=1.0, constant=True, init_dist=pm.Normal.dist(0.0, 1.0), observed=Y)


def process():
    length = pm.Gamma("length", 2.0, 1.0)
    gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, length))
    gp.marginal_likelihood("y", X=DESIGN[:, :1], y=Y, sigma=0.3)


def counts():
    k, z = pm.Poisson("k", 3.0), pm.Bernoulli("z", 0.3, shape=3)
    pm.Normal("y", k + z.sum(), 1.0, observed=Y)


def cut():
    mu = pm.Normal("mu")
    pm.Censored("y", pm.Normal.dist(mu, 1.0), lower=-1.0, upper=1.0, observed=np.clip(Y, -1.0, 1.0))
    pm.Truncated("t", pm.Normal.dist(mu, 1.0), lower=0.0)


def missing():
    pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.where(Y > 1.0, np.nan, Y))


def fed():
    data = pm.Data("design", DESIGN)
    w = pm.ZeroSumNormal("w", shape=3)
    pm.StudentT("y", 4.0, mu=data @ w, sigma=pm.Uniform("s", 0.0, 2.0), observed=Y)


MODELS = {
    "custom": custom,
    "loop": looped,
    "series": lambda: built(series),
    "process": lambda: built(process),
    "counts": lambda: built(counts),
    "censored": lambda: built(cut),
    "missing": lambda: built(missing),
    "data": lambda: built(fed),
    "mixture": bits.ordered,
    "correlated": bits.correlated,
    "sum": bits.ring,
    "energy": bits.energy,
}


class Own:
    """A reference of a user's own."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def sample(self, n, rng):
        return self.scale * rng.normal(size=(n, 3))

    def logp(self, x):
        return pm.logp(pm.Normal.dist(0.0, self.scale), x).sum()


class Changed(Own):
    def sample(self, n, rng):
        return self.scale * rng.normal(size=(n, 3)) + 0.0


Changed.__qualname__ = "Own"


def tree(value=0.0):
    return xr.DataTree.from_dict({"posterior": xr.Dataset({"a": (("chain", "draw"), np.full((2, 3), value))})})


def lambda_with(number):
    return lambda x: x + number


def shared(value):
    return pytensor.shared(np.full(3, value))


#: Two values each that are not the same, which a call may be given.
PAIRS = {
    "number": (1, 2),
    "kernel": (pymc_hais.Hamiltonian(), pymc_hais.Hamiltonian(n_leapfrog=2)),
    "other kernel": (pymc_hais.RandomWalk(), pymc_hais.Hamiltonian()),
    "sites": (pymc_hais.Gibbs(), pymc_hais.RandomWalk()),
    "constraints": (
        pymc_hais.LinearConstraints(np.eye(3), np.ones(3)),
        pymc_hais.LinearConstraints(np.eye(3), np.zeros(3)),
    ),
    "walls": ({"x": (-1.0, np.inf)}, {"x": (-1.0, 5.0)}),
    "gaussian": (pymc_hais.Gaussian(0.0, 1.0), pymc_hais.Gaussian(0.0, 2.0)),
    "student": (pymc_hais.StudentT(4.0), pymc_hais.StudentT(5.0)),
    "box": (pymc_hais.Box(-1.0, 1.0), pymc_hais.Box(-1.0, 2.0)),
    "distribution": (pm.Normal.dist(0.0, 2.0, shape=3), pm.Normal.dist(0.0, 1.0, shape=3)),
    "kind of distribution": (pm.Laplace.dist(0.0, 2.0, shape=3), pm.Normal.dist(0.0, 2.0, shape=3)),
    "shared": (pm.Normal.dist(shared(0.0), 1.0), pm.Normal.dist(shared(1.0), 1.0)),
    "dict": ({"a": pm.Normal.dist(0.0, 2.0)}, {"a": pm.Normal.dist(1.0, 2.0)}),
    "own": (Own(), Own(2.0)),
    "own method": (Own(), Changed()),
    "method": (Own().sample, Own(2.0).sample),
    "program": (lambda x: x + 1, lambda x: x + 2),
    "closure": (lambda_with(1), lambda_with(2)),
    "default": (lambda x, k=1: x, lambda x, k=2: x),
    "partial": (functools.partial(max, 1), functools.partial(max, 2)),
    "builtin": (max, min),
    "ufunc": (np.exp, np.log),
    "schedule": (np.linspace(0.0, 1.0, 30), np.linspace(0.0, 1.0, 30) ** 2),
    "list": ([0.0, 0.5, 1.0], [0.0, 0.4, 1.0]),
    "long list": ([*np.linspace(0.0, 1.0, 30)], [*np.linspace(0.0, 1.0, 30) ** 2]),
    "shape": (np.zeros((2, 3)), np.zeros((3, 2))),
    "precision": (np.zeros(2), np.zeros(2, np.float32)),
    "table": (pd.DataFrame({"a": [1.0, 2.0]}), pd.DataFrame({"a": [1.0, 3.0]})),
    "sparse": (scipy.sparse.csr_matrix(np.eye(3)), scipy.sparse.csr_matrix(2.0 * np.eye(3))),
    "labelled": (xr.DataArray([1.0]), xr.DataArray([2.0])),
    "objects": (np.array(["a", None], dtype=object), np.array(["b", None], dtype=object)),
    "draws": (tree(), tree(1.0)),
    "mode": (Mode("cvm", "fast_run"), Mode("py", "fast_compile")),
    "set": ({"a", "b", "c"}, {"a", "b", "d"}),
    "estimators": (("linked",), ("bridge",)),
    "model": (bits.regression(), bits.other_regression()),
}


@pytest.mark.parametrize("name", PAIRS)
def test_two_values_that_differ_are_told_apart_and_the_same_one_is_not(name):
    one, other = PAIRS[name]
    assert json.dumps(describe(one)) == json.dumps(describe(one))
    assert describe(one) != describe(other)


def test_numbers_are_the_same_in_numpy_and_python():
    assert describe(np.int64(3)) == describe(3)
    assert describe(np.float64(0.1)) == describe(0.1)
    assert describe({"b": 1, "a": 2}) == describe({"a": 2, "b": 1})


def test_a_file_is_its_content(tmp_path):
    path = tmp_path / "plan.nc"
    path.write_bytes(b"one")
    before = describe(path)
    path.write_bytes(b"two")
    assert describe(path) != before
    path.write_bytes(b"one")
    assert describe(path) == before


def test_what_an_object_has_computed_for_itself_does_not_count():
    class Lazy(Own):
        @functools.cached_property
        def large(self):
            return np.zeros(3)

    lazy = Lazy()
    before = describe(lazy)
    assert lazy.large.sum() == 0.0
    assert describe(lazy) == before


@pytest.mark.parametrize(
    "other",
    [
        {"scale": 1.0 + 1e-15},
        {"data": Y + 1e-15 * (np.arange(len(Y)) == 3)},
        {"operation": pm.math.log},
        {"operation": lambda x: -x},
        {"prior": pm.Laplace},
        {"name": "v"},
        {"design": DESIGN[:, ::-1]},
    ],
)
def test_any_change_of_a_model_shows(other):
    assert of(linear()) == of(linear())
    assert of(linear(**other)) != of(linear())


def test_changes_within_programs_and_loops_show():
    assert of(custom()) != of(custom(2.0))
    assert of(looped()) == of(looped())
    assert of(looped()) != of(looped(turned=True))


def test_data_that_are_set_show_and_what_is_computed_from_draws_does_not():
    model = built(fed)
    before = of(model)
    with model:
        pm.Deterministic("twice", 2.0 * model["w"])
    assert of(model) == before
    with model:
        pm.set_data({"design": 2.0 * DESIGN})
    assert of(model) != before


def test_a_draw_from_the_prior_changes_nothing():
    model = built(fed)
    before = of(model)
    pm.draw(model["w"], random_seed=1)
    model.initial_point()
    assert of(model) == before


@pytest.mark.slow
def test_what_others_import_changes_nothing():
    """Drawing imports forms in Numba of PyMC's own classes; the class of a `pm.CustomDist` is derived from these."""
    program = (
        "import sys\n"
        "import pymc as pm\n"
        "from tests.runner.test_identity import custom, of\n"
        "before = of(custom())\n"
        "assert 'pytensor.link.numba.dispatch.basic' not in sys.modules\n"
        "pm.draw(pm.ZeroSumNormal.dist(shape=3))\n"
        "assert 'pytensor.link.numba.dispatch.basic' in sys.modules\n"
        "assert of(custom()) == before\n"
    )
    run_apart(program, timeout=300)


def test_precision_shows():
    before = of(linear())
    with pytensor.config.change_flags(floatX="float32"):
        assert of(linear()) != before


@pytest.mark.slow
def test_two_processes_write_the_same():
    """With hashes of their own, which order sets, and addresses of their own."""
    script = (
        "import json\n"
        "from tests.runner.test_identity import MODELS, PAIRS, describe, of\n"
        "told = {name: of(build()) for name, build in MODELS.items()}\n"
        "told |= {f'pair {name}': [describe(one) for one in pair] for name, pair in PAIRS.items()}\n"
        "print(json.dumps(told, sort_keys=True))"
    )
    one, other = (
        json.loads(run_apart(script, timeout=300, env={**os.environ, "PYTHONHASHSEED": seed})) for seed in ("1", "77")
    )
    assert len(one) == len(MODELS) + len(PAIRS)
    assert one == other
