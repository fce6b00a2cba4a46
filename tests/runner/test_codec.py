"""Records come back as they were, and nothing comes back that was not named."""

import itertools
import json
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_hais.core import files
from pymc_hais.runner.codec import Codec


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


def is_same(one, other):
    """Whether two values are equal in everything: types, shapes and bits."""
    if isinstance(one, np.ndarray):
        is_alike = isinstance(other, np.ndarray) and (one.dtype, one.shape) == (other.dtype, other.shape)
        return is_alike and one.tobytes() == other.tobytes()
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(is_same, one.values(), other.values()))
    if is_dataclass(one):
        return all(is_same(getattr(one, part.name), getattr(other, part.name)) for part in fields(one))
    return one == other


#: Few arrays, so that many have one shape and type, and some are in several places.
ARRAYS = [
    *(np.full(2, value) for value in (1.0, 2.0, 3.0)),
    *(np.full((1, 3), value) for value in (4, 5)),
    *(np.array(value) for value in (6.5, 7.5)),
    *(np.arange(2, dtype=kind) for kind in (">f8", ">f8", "float32", "uint8")),
    np.arange(6.0).reshape(2, 3).T,
    np.zeros((0, 2)),
]
#: Names of members that meet those of others where dots or endings are not told from the rest.
NAMES = st.sampled_from(["", "0", "1", "0.1", "1_", "a", "a.b", "b", "a/b", "a\\b", "a.npy", "npy", "facts", "file"])
LEAVES = st.sampled_from(ARRAYS) | st.sampled_from([None, True, 1, 0.5, "text", np.float32(0.1), np.int64(3)])
VALUES = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        st.lists(parts, max_size=6).map(tuple),
        st.dictionaries(NAMES | st.text(max_size=3), parts, max_size=4),
        st.builds(Point, parts, st.text(max_size=3)),
        st.builds(Stage, st.just(0.5), parts, st.lists(parts, max_size=3).map(tuple), parts),
    ),
    max_leaves=20,
)


@given(VALUES)
def test_any_record_comes_back_equal_through_a_file(value):
    arrays, facts = CODEC.encode(value)
    assert is_same(value, CODEC.decode(*files.decode(files.encode(arrays, facts))))


@pytest.mark.parametrize("shapes", list(itertools.product([(), (2,), (2, 3)], repeat=5))[::3])
def test_every_tuple_of_five_arrays_of_three_shapes_comes_back_equal(shapes):
    value = tuple(np.full(shape, float(i)) for i, shape in enumerate(shapes))
    assert is_same(value, again(value))


def test_arrays_that_exist_only_while_they_are_written_are_not_taken_for_each_other():
    class Made(dict):
        """Makes its arrays as it is asked."""

        def items(self):
            return ((name, (np.full(3, number), np.full(3, -number))) for name, number in super().items())

    back = again(Made({str(i): float(i) for i in range(20)}))
    assert all(is_same(pair, (np.full(3, float(i)), np.full(3, -float(i)))) for i, pair in enumerate(back.values()))


class Other(NamedTuple):
    """Not named to the codec."""

    x: float = 0.0


@pytest.mark.parametrize(
    "value",
    [
        *(object(), {1, 2}, len, b"bytes", 1j, Other(), {1: "a"}),
        *(np.datetime64(1, "s"), np.array([None]), np.longdouble(0.1), np.ma.masked_less([1.0, 2.0], 1.5)),
    ],
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


def test_a_class_that_went_is_named():
    with pytest.raises(ValueError, match="has no Gone: make the run again"):
        CODEC.decode({}, {"record": ["Stage", {"nothing": {"record": ["Gone", {}]}}]})
