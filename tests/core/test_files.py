"""Files of arrays: whole or not there, never a program, and one plain error for anything else."""

import errno
import hashlib
import io
import os
import pickle
import stat
from pathlib import Path

import numpy as np
import pytest

from pymc_hais.core.files import decode, encode, read_record, replacing, write_bytes, write_record

RNG = np.random.default_rng(0)
ARRAYS = {
    "float64": RNG.normal(size=(3, 4, 2)),
    "float32": RNG.normal(size=5).astype(np.float32),
    "float16": np.array([0.5, -np.inf], dtype=np.float16),
    "special": np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324]),
    "int64": np.array([[-(2**63), 2**63 - 1]]),
    "int32": np.arange(3, dtype=np.int32),
    "uint32": np.array([0, 2**32 - 1], dtype=np.uint32),
    "uint8": np.array([0, 255], dtype=np.uint8),
    "bool": np.array([True, False]),
    "scalar": np.array(2.5),
    "empty": np.zeros((0, 3), dtype=np.int64),
    "reversed": np.arange(6.0)[::-1].reshape(2, 3).T,
}
FACTS = {"text": "log Z ≥ 0", "numbers": [1, 2.5, None, True], "nested": {"a": {"b": -1e-300}}}


class Bomb:
    """What a pickle does to its reader."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_arrays_and_facts_come_back_to_the_bit(tmp_path):
    write_record(tmp_path / "a.npz", ARRAYS, FACTS)
    arrays, facts = read_record(tmp_path / "a.npz")
    assert facts == FACTS
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        assert arrays[name].tobytes() == array.tobytes()
        assert arrays[name].flags.writeable
    assert os.listdir(tmp_path) == ["a.npz"]


def test_what_json_cannot_hold_is_not_written():
    with pytest.raises(TypeError):
        encode({}, {"object": object()})


@pytest.mark.parametrize("name", ["facts", "file", "allow_pickle", "a.npy", ""])
def test_arrays_have_any_name(name):
    arrays, facts = decode(encode({"a": np.zeros(1), name: np.ones(2), "facts_": np.ones(3)}, FACTS))
    assert facts == FACTS
    assert {one: len(array) for one, array in arrays.items()} == {"a": 1, name: 2, "facts_": 3}


def test_numpy_reads_it_without_this_package(tmp_path):
    write_record(tmp_path / "a.npz", ARRAYS, FACTS)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["float64"], ARRAYS["float64"])


def test_a_file_cut_short_anywhere_is_damaged():
    content = encode(ARRAYS, FACTS)
    for length in [*range(0, len(content), 37), len(content) - 1]:
        with pytest.raises(Exception):  # noqa: B017, PT011
            decode(content[:length])


def test_any_flipped_byte_is_seen():
    content = encode({name: ARRAYS[name] for name in ("float64", "bool", "int64")}, FACTS)
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << int(RNG.integers(8))
        with pytest.raises(ValueError, match="does not have its digest"):
            decode(bytes(changed))


def test_a_file_that_was_changed_names_itself_and_the_way_out(tmp_path):
    path = tmp_path / "a.npz"
    write_record(path, ARRAYS, FACTS)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match=r"a\.npz' is damaged: it was cut short or changed .* restore it from a copy"):
        read_record(path)
    with pytest.raises(OSError, match=r"none\.npz' cannot be read \(No such file or directory\): check that it exists"):
        read_record(tmp_path / "none.npz")


def whole(**arrays):
    """A file that has its digest, with whatever in it."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    content = buffer.getvalue()[:-2] + bytes([16, 0])
    return content + hashlib.blake2b(content, digest_size=16).digest()


@pytest.mark.parametrize("kind", ["file", "array", "facts", "text"])
def test_a_planted_program_is_not_run(tmp_path, kind):
    marker = tmp_path / "marker"
    program = pickle.dumps(Bomb(marker), protocol=0)
    bombs, text = np.array([Bomb(marker)]), np.frombuffer(program, np.uint8)
    content = {
        "file": program,
        "array": whole(facts=np.frombuffer(b"{}", np.uint8), a=bombs),
        "facts": whole(facts=bombs),
        "text": whole(facts=text),
    }[kind]
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match="is damaged"):
        read_record(tmp_path / "a.npz")
    assert not marker.exists()
    pickle.loads(program)  # it would have been seen
    assert marker.exists()


@pytest.mark.parametrize("step", ["open", "write", "fsync", "replace", "replaced"])
@pytest.mark.parametrize("death", [KeyboardInterrupt, SystemExit])
def test_whoever_dies_while_writing_leaves_the_old_file_or_the_new_one(tmp_path, monkeypatch, step, death):
    path = tmp_path / "a.npz"
    write_record(path, {"a": np.zeros(3)}, {})
    old, new = path.read_bytes(), encode({"a": np.ones(3)}, {})
    die_at(monkeypatch, step, death)
    with pytest.raises(death):
        write_bytes(path, new)
    monkeypatch.undo()
    assert path.read_bytes() == (new if step == "replaced" else old)
    assert os.listdir(tmp_path) == ["a.npz"]


def test_what_is_written_through_a_link_goes_into_its_file(tmp_path):
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "a.npz", tmp_path / "link.npz"
    link.symlink_to(target)
    for content in (b"first", b"second"):  # the target is made, then replaced
        write_bytes(link, content)
        assert link.is_symlink()
        assert target.read_bytes() == content
    assert sorted(os.listdir(tmp_path)) == ["link.npz", "real"]
    assert os.listdir(tmp_path / "real") == ["a.npz"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o666])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path, mode, monkeypatch):
    path, replace, seen = tmp_path / "a.npz", os.replace, []
    path.write_bytes(b"before")
    path.chmod(mode)

    def look(temporary, to):
        seen.append(stat.S_IMODE(os.stat(temporary).st_mode))
        replace(temporary, to)

    monkeypatch.setattr("pymc_hais.core.files.os.replace", look)
    write_bytes(path, b"after")
    assert seen == [mode]
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert path.read_bytes() == b"after"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_nobody_else_reads_a_private_file_while_it_is_written(tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(b"before")
    path.chmod(0o600)
    with replacing(path) as temporary:
        temporary.write_bytes(b"after")
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["a" * 250, "é" * 125, "a" * 255])
def test_a_name_is_as_long_as_the_file_system_takes(tmp_path, name):
    write_bytes(tmp_path / name, b"content")
    assert os.listdir(tmp_path) == [name]


def die_at(monkeypatch, step, death):
    """Raise at one step of a write; half of the bytes are written before."""
    replace = os.replace

    def die(*_):
        raise death

    def die_after(*args):
        replace(*args)
        raise death

    if step in ("open", "write"):
        opened = Path.open

        def opening(path, mode):
            if step == "open":
                raise death
            file = opened(path, mode)
            return HalfWriting(file, death)

        monkeypatch.setattr("pathlib.Path.open", opening)
    else:
        name = {"replaced": "replace"}.get(step, step)
        monkeypatch.setattr(f"pymc_hais.core.files.os.{name}", die_after if step == "replaced" else die)


class HalfWriting:
    """A file whose writer dies in the middle."""

    def __init__(self, file, death):
        self._file, self._death = file, death

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def write(self, content):
        self._file.write(content[: len(content) // 2])
        raise self._death


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied"), "Permission denied"),
        (OSError(errno.EROFS, "Read-only file system"), "Read-only file system"),
    ],
)
@pytest.mark.parametrize("step", ["open", "write", "fsync", "replace"])
def test_a_full_or_closed_disk_says_what_to_do(tmp_path, monkeypatch, step, error, message):
    path = tmp_path / "a.npz"
    path.write_bytes(b"before")
    die_at(monkeypatch, step, error)
    with pytest.raises(OSError, match=rf"'a\.npz' cannot be written to .*\({message}\): give it room") as caught:
        write_bytes(path, b"after")
    monkeypatch.undo()
    assert caught.value.errno == error.errno
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["a.npz"]


def test_a_path_under_a_file_is_said(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match=r"'a\.npz' cannot be written to the folder"):
        write_bytes(tmp_path / "file" / "a.npz", b"")
    with pytest.raises(OSError, match=r"\(No such file or directory\): make that folder first, or pass another path"):
        write_bytes(tmp_path / "none" / "a.npz", b"")
