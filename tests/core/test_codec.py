"""Records come back as they were, and nothing comes back that was not named."""

import json
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from pymc_hais.core.codec import Codec


class Point(NamedTuple):
    """A part of a record."""

    x: np.ndarray
    name: str = ""


@dataclass(frozen=True)
class Stage:
    """A part of a record, with a part that follows from the others."""

    beta: float
    metric: np.ndarray
    points: tuple[Point, ...] = ()
    note: Any = None
    doubled: float = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "doubled", 2.0 * self.beta)


CODEC = Codec(Point, Stage)
STAGE = Stage(0.1, np.eye(2), (Point(np.arange(3), "a"), Point(np.zeros((0, 2)))), {"é": [1, None, True, "text"]})


def again(value):
    """Through JSON, as a file does it."""
    arrays, facts = CODEC.encode(value)
    return CODEC.decode(arrays, json.loads(json.dumps(facts)))


def test_a_record_comes_back_as_it_was():
    back = again(STAGE)
    assert isinstance(back, Stage)
    assert isinstance(back.points[1], Point)
    assert (back.beta, back.doubled, back.points[0].name) == (0.1, 0.2, "a")
    assert back.note == {"é": (1, None, True, "text")}
    np.testing.assert_array_equal(back.points[0].x, np.arange(3))
    assert back.points[1].x.shape == (0, 2)


@pytest.mark.parametrize(
    "number", [0.1, -0.0, 1e-320, np.inf, 7, True, np.float32(0.1), np.float64(np.nan), np.int64(2**60), np.bool_(True)]
)
def test_numbers_keep_their_type_and_bits(number):
    back = again((number,))[0]
    assert type(back) is type(number)
    assert np.asarray(back).tobytes() == np.asarray(number).tobytes()


def test_arrays_are_named_by_their_places_and_one_in_two_places_comes_back_as_one():
    arrays, _ = CODEC.encode(STAGE)
    assert list(arrays) == ["metric", "points.0.x", "points.1.x"]
    one, other = again((STAGE, replace(STAGE, beta=1.0)))
    assert one.metric is other.metric  # plans count metrics that are one as one
    flat = again(np.array(2.5))
    assert (flat.shape, flat.item()) == ((), 2.5)


class Other(NamedTuple):
    """Not named to the codec."""

    x: float = 0.0


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, len, b"bytes", 1j, Other(), {1: "a"}, np.datetime64(1, "s"), np.array([None])]
)
def test_what_is_no_part_of_a_record_is_not_written(value):
    with pytest.raises(TypeError, match="is no part of a record"):
        CODEC.encode((1.0, value))


@pytest.mark.parametrize(
    "facts", [{"record": ["Other", {}]}, {"record": ["Stage", {"nothing": 1}]}, {"array": "a9"}, {"program": "x"}, {}]
)
def test_facts_of_no_record_are_refused(facts):
    with pytest.raises((ValueError, KeyError, TypeError)):
        CODEC.decode({}, facts)
