"""Engines that travel: the same numbers where they arrive, compiled once, and plain errors for what cannot go."""

import pickle
import sys
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytest

from pymc_hais.engines import compile_engine, transport
from pymc_hais.engines.transport import Parcel, forget, installed, keep, pack, unpack
from tests.engines.models import build_engine, build_graph
from tests.engines.test_choice import Opaque

KEYS = np.arange(4, dtype=np.uint32).reshape(2, 2)


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(transport, "_engines", OrderedDict())
    monkeypatch.setattr(transport, "_programs", OrderedDict())


@pytest.fixture(scope="module")
def engine():
    return build_engine("regression", "c")


def start(engine):
    positions = np.stack([build_graph("regression")[1][:5]] * 2)
    return engine.start(positions, (), KEYS)


def assert_same(one, other):
    """Two compilations of one graph may add in another order: bits are promised of JAX, and tested of its executors."""
    for ours, theirs in zip(one, other, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_an_engine_is_the_same_where_it_arrives_and_compiled_once(engine, monkeypatch):
    compiled, compile_ = [], transport._compile
    monkeypatch.setattr(transport, "_compile", lambda *args: compiled.append(1) or compile_(*args))
    parcel = pickle.loads(pickle.dumps(pack(engine)))
    assert unpack(parcel._replace(content=None)) is None
    arrived = unpack(parcel)
    assert arrived is not engine
    assert_same(start(arrived), start(engine))
    assert unpack(parcel._replace(content=None)) is arrived
    # Other data travel to the same program.
    doubled = engine.along(engine.path, [2.0 * np.asarray(array) for array in engine.data])
    other = unpack(pack(doubled))
    assert_same(start(other), start(doubled))
    assert not np.array_equal(start(other).log_ratio, start(engine).log_ratio)
    assert len(compiled) == 1


def test_a_parcel_has_one_key_for_one_engine(engine):
    assert pack(engine) == pack(engine)
    assert pack(engine).key != pack(build_engine("cliff", "c")).key


def test_what_a_process_knows_already_is_not_compiled(engine, monkeypatch):
    monkeypatch.setattr(transport, "_compile", lambda *_: pytest.fail("compiled"))
    parcel = pack(engine)
    keep(parcel, engine)
    assert unpack(parcel) is engine
    forget(parcel)
    forget(parcel)
    assert unpack(parcel._replace(content=None)) is None


def test_a_process_keeps_few_engines(engine):
    parcels = [Parcel(str(i), installed()) for i in range(20)]
    for parcel in parcels:
        keep(parcel, engine)
        assert unpack(parcels[0]) is engine  # the one in use stays
    assert len(transport._engines) == 8


def test_threads_that_need_the_same_engine_compile_it_once(engine, monkeypatch):
    compiled, compile_ = [], transport._compile
    monkeypatch.setattr(transport, "_compile", lambda *args: compiled.append(1) or compile_(*args))
    parcel = pack(engine)
    with ThreadPoolExecutor(4) as pool:
        arrived = list(pool.map(unpack, [parcel] * 8))
    assert all(one is arrived[0] for one in arrived)
    assert len(compiled) == 1


def test_threads_that_share_an_engine_do_not_disturb_one_another(engine):
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        start_in_threads(engine)
    finally:
        sys.setswitchinterval(before)


def start_in_threads(engine):
    draws = build_graph("regression")[1]
    batches = [np.stack([draws[i : i + 5]] * 2) for i in range(40)]
    alone = [engine.start(batch, (), KEYS) for batch in batches]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            together = list(pool.map(lambda batch: engine.start(batch, (), KEYS), batches))
            for ours, theirs in zip(together, alone, strict=True):
                for one, other in zip(ours, theirs, strict=True):
                    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ({"pymc": "0.0"}, r"A worker has pymc [\d.]+ instead of 0\.0, so that its results would differ"),
        ({"nothing": "1"}, "A worker has nothing none instead of 1"),
    ],
)
def test_other_versions_are_refused(engine, versions, told):
    with pytest.raises(RuntimeError, match=f"{told}.*give the workers the environment of this process"):
        unpack(pack(engine)._replace(versions={**installed(), **versions}))


class Locked(Opaque):
    """With what no other process can have."""

    def __init__(self):
        self.lock = threading.Lock()


def of_op(op):
    from pymc_hais.density import build_density, build_layout

    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("p", op(x))
    return compile_engine(build_density(model, build_layout(model, [np.zeros(())])), "c", {})


def test_a_model_that_cannot_leave_says_why():
    with pytest.raises(ValueError, match=r"cannot be sent to another process: .*lock.* or leave out `executor`"):
        pack(of_op(Locked()))


def test_a_model_whose_parts_a_worker_does_not_have_says_so(engine, monkeypatch):
    def missing(content):
        raise ModuleNotFoundError("No module named 'mine'")

    monkeypatch.setattr(transport.Source, "read", missing)
    with pytest.raises(RuntimeError, match=r"cannot import a part of the model \(No module named 'mine'\)"):
        unpack(pack(engine))
