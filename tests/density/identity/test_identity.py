"""What a model is: whatever decides an operation shows, in every process alike, and what cannot be seen is named."""

import json
import logging
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_hais.density import Walk, identify, identify_as_written
from pymc_hais.density.identity.walk import packaged_name
from pymc_hais.density.sites.variables import FlatDiscreteRV
from tests.density.opaque import DIFFERENT, REFUSED, Box, Declared, as_op, model_of, sim


def told(op):
    walk = Walk()
    found = walk.digest(op(pt.dscalar()))
    assert walk.unreadable == []
    return found


@pytest.mark.parametrize("name", DIFFERENT)
def test_operations_that_differ_in_one_thing_are_told_apart_and_equal_ones_are_not(name):
    make = DIFFERENT[name]
    one = told(make(1))
    assert told(make(1)) == one
    assert told(make(2)) != one


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_described_is_named(name):
    make, words = REFUSED[name]
    (said,) = identify(model_of(make())).unreadable
    assert re.search(words, said), said
    assert said.startswith("Op `")


def test_a_distribution_of_the_package_keeps_its_name_where_its_file_moves():
    """Release 0.3 wrote this name into the digests of plans and checkpoints."""
    assert packaged_name(FlatDiscreteRV) == "pymc_hais: pymc_hais.model.sites.flat_discrete.FlatDiscreteRV"


class Scaled(Box):
    """Holds its scale where nobody but the thread can read it."""

    def __init__(self, scale):
        super().__init__(threading.local())
        self.content.scale = scale

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(self.content.scale * inputs[0])


def test_what_cannot_be_described_is_compared_by_its_values():
    one, again, other = (identify_as_written(model_of(Scaled(scale))) for scale in (1.0, 1.0, 1.0 + 1e-6))
    assert len(one.values) == 17  # sixteen points and a draw
    assert one == again
    assert one.graph == other.graph
    assert one.difference(other).startswith("its log density or its draws have other values (Op `Scaled`: a _local ")
    one.refuse_unreadable("checkpoint")


def test_without_values_either_a_model_is_refused():
    identity = identify_as_written(model_of(sim(body="eval('no name')")))
    assert identity.values == ()
    with pytest.raises(ValueError, match=r"checkpoint cannot tell .*calls `eval`.*`__props__`"):
        identity.refuse_unreadable("checkpoint")


def test_by_props_their_author_says_what_decides():
    with open(os.devnull) as file:
        one, again, other = (told(Declared(scale, content)) for scale, content in ((1.0, file), (1.0, 3), (2.0, file)))
        assert one == again
        assert one != other
        Declared(1.0, file).content = None
        assert identify(model_of(Declared(file, 1))).unreadable


def test_what_decides_nothing_is_read_without_its_state():
    lock = [threading.Lock(), threading.RLock(), threading.Condition(), logging.getLogger("pymc")]
    before = told(Box(lock))
    with lock[0]:
        assert told(Box(lock)) == before


def test_a_random_generator_of_a_package_does_not_count():
    """That of ``scipy.stats.norm`` is NumPy's global one, which is another one in every process."""
    import scipy.stats

    box = Box([scipy.stats.norm, np.random.normal])
    before = told(box)
    np.random.normal()  # noqa: NPY002
    assert told(box) == before


def test_running_a_model_does_not_change_what_it_is():
    model = model_of(as_op(2.0))
    before = identify_as_written(model)
    model.compile_logp(mode="FAST_COMPILE")(model.initial_point())
    pm.draw(model["mu"])
    assert identify_as_written(model) == before
    assert before.density
    assert not before.difference(identify_as_written(model_of(as_op(2.0))))


def test_an_operation_that_is_one_object_and_one_that_is_made_twice_are_the_same():
    op = as_op(1.0)

    def twice(first, second):
        with pm.Model() as model:
            mu = pm.Normal("mu")
            pm.Potential("a", first(mu))
            pm.Potential("b", second(mu))
        return identify(model)

    assert twice(op, op) == twice(as_op(1.0), as_op(1.0))
    assert twice(op, op).difference(twice(op, as_op(2.0))).startswith("its `b` is computed in another way")


def normal(name="y", kind=pm.Normal, sd=1.0, y=(0.5, 1.0), scale=1.0, transform=None, extra=False):
    with pm.Model() as model:
        mu = pm.HalfNormal("mu", sd, default_transform=transform or pm.distributions.transforms.log)
        kind(name, mu, scale, observed=np.array(y))
        if extra:
            pm.Potential("more", mu)
    return identify_as_written(model)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({}, ""),
        ({"kind": pm.Laplace}, "its `y` is laplace Vector(float64, shape=(2,)), and not normal Vector"),
        ({"sd": 2.0}, "its `mu` is computed in another way, or from other numbers"),
        ({"scale": 2.0}, "its `y` is computed in another way, or from other numbers"),
        ({"y": (0.5, 2.0)}, "the data of its `y` are others"),
        ({"y": (0.5,)}, "its `y` is normal Vector(float64, shape=(1,))"),
        ({"name": "z"}, "new: `z`; gone: `y`"),
        ({"extra": True}, "new: `more`"),
        ({"transform": pm.distributions.transforms.Interval(0.0, None)}, "its `mu` is computed in another way"),
    ],
)
def test_what_differs_is_said_in_words(other, words):
    said = normal().difference(normal(**other))
    assert words in said
    assert bool(words) == bool(said)


def test_the_functions_of_a_custom_distribution_count():
    def custom(k=1.0, scale=1.0, how="logp"):
        with pm.Model() as model:
            given = {"logp": lambda value: -k * value**2, "random": lambda rng=None, size=None: rng.normal(0, scale)}
            pm.CustomDist("x", **given)
        return identify(model)

    assert custom() == custom()
    assert custom().graph != custom(k=2.0).graph
    assert custom().graph != custom(scale=2.0).graph


SCRIPT = """
import json
import pytensor.tensor as pt
from pymc_hais.density import Walk
from tests.density.opaque import DIFFERENT
told = {}
for name, make in DIFFERENT.items():
    told[name] = Walk().digest(make(2)(pt.dscalar()))
print(json.dumps(told, sort_keys=True))
"""


@pytest.mark.exhaustive
def test_two_processes_say_the_same():
    """With hashes of their own, which order sets, and addresses of their own."""
    root = Path(__file__).parents[3]
    runs = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            cwd=root,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "77")
    ]
    one, other = (json.loads(run.communicate(timeout=300)[0]) for run in runs)
    assert len(one) == len(DIFFERENT)
    assert {name for name in one if one[name] != other[name]} == set()
