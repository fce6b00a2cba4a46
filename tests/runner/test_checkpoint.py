"""The folder of a run: the same call goes on, any other one is refused with what differs, and nothing in it is run."""

import json
import os
import pickle
import time

import numpy as np
import pytest

from pymc_hais.core.files import write_record
from pymc_hais.runner import checkpoint
from pymc_hais.tuning import Pilot
from tests.core.test_files import Bomb

CALL = {"function": "f", "draws": 100, "kernel": {"class": "Hamiltonian", "step_size": None}, "random_seed": [1, 2]}
COLUMNS = (np.array([0.5, 1.0]), np.array([0.1, np.nan]), np.ones(2), np.ones(2))
PILOT = Pilot(*COLUMNS, (np.eye(2),) * 2, -3.5, 1000, np.zeros((4, 2)), 0.25, is_complete=False)


def open_checkpoint(path, call, is_seeded):
    return checkpoint.open_checkpoint(checkpoint.open_folder(path), call, is_seeded)


def begun(folder, call=CALL):
    kept = open_checkpoint(folder, call, is_seeded=True)
    kept.keep("pilot_1", "print", PILOT)
    return kept


@pytest.mark.parametrize(
    "tree",
    [
        {"record": ["os.system", {"command": "touch x"}]},
        {"record": ["Pilot", {"nothing": 1}]},
        {"array": "a9"},
        {"program": "x"},
        {"mapping": {}, "more": 2},
        {"mapping": None},
    ],
)
def test_a_file_that_is_whole_and_no_record_is_refused(tmp_path, tree):
    kept = begun(tmp_path)
    write_record(tmp_path / "pilot_2.npz", {}, {"call": kept._call, "fingerprint": "print", "result": tree})
    with pytest.raises(ValueError, match=r"pilot_2\.npz' is not what a run has kept: .*\. Delete it"):
        kept.find("pilot_2", "print")


def test_the_same_call_finds_what_was_kept(tmp_path):
    begun(tmp_path / "new" / "folder")
    again = open_checkpoint(str(tmp_path / "new" / "folder"), dict(reversed(CALL.items())), is_seeded=True)
    assert again.identity["random_seed"] == [1, 2]
    assert again.find("pilot_1", "print").log_z == -3.5
    assert again.find("pilot_2", "print") is None
    unseeded = open_checkpoint(tmp_path / "new" / "folder", {**CALL, "random_seed": [3, 4]}, is_seeded=False)
    assert unseeded.identity["random_seed"] == [1, 2]
    assert unseeded.find("pilot_1", "print").log_z == -3.5


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"draws": 200}, "`draws` was 100, and is 200 now"),
        ({"kernel": {"class": "Hamiltonian", "step_size": 0.1}}, r"`kernel\.step_size` was None, and is 0\.1 now"),
        ({"random_seed": [1, 3]}, "`random_seed` was another one: leave it out, and the folder's own is taken"),
        ({"chains": 3}, "`chains` was None, and is 3 now"),
        ({"function": "g", "draws": 1}, "`function` was 'f', and is 'g' now; `draws` was 100, and is 1 now"),
        ({"kernel": "x" * 1000}, r"`kernel` was .*, and is 'x{90,97}\.\.\. now"),
    ],
)
def test_another_call_is_refused_with_what_differs(tmp_path, other, told):
    begun(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=rf"of another call, and cannot go on with this one\. {told}\. Make the same"):
        open_checkpoint(tmp_path, {**CALL, **other}, is_seeded=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_number_that_is_none_is_equal_to_itself(tmp_path):
    begun(tmp_path, {**CALL, "x": float("nan")})
    open_checkpoint(tmp_path, {**CALL, "x": float("nan")}, is_seeded=True)


def test_a_call_that_failed_before_its_first_job_leaves_the_folder_to_the_next(tmp_path):
    open_checkpoint(tmp_path, CALL, is_seeded=True)
    kept = open_checkpoint(tmp_path, {**CALL, "draws": 200}, is_seeded=True)
    assert kept.identity["draws"] == 200


@pytest.mark.parametrize("content", ["", "{", "[1]", "3", '"text"', "[" * 100_000, '{"draws": 1}', "\x80pickle"])
def test_a_damaged_header_is_said(tmp_path, content):
    begun(tmp_path)
    (tmp_path / "checkpoint.json").write_text(content)
    with pytest.raises(ValueError, match=r"checkpoint\.json' is damaged, or was edited .*pass another `checkpoint`"):
        open_checkpoint(tmp_path, CALL, is_seeded=True)


def test_an_older_format_is_refused_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("pymc_hais.runner.checkpoint._FORMAT", 3)
    begun(tmp_path, {**CALL, "model": {"numbers": {}}})
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"has format 3, and this version of pymc_hais reads 4: end the run with"):
        open_checkpoint(tmp_path, CALL, is_seeded=True)


def test_an_edited_header_is_seen_also_where_the_call_takes_its_seed(tmp_path):
    begun(tmp_path)
    header = tmp_path / "checkpoint.json"
    content = json.loads(header.read_text())
    header.write_text(json.dumps({**content, "random_seed": [1, 7]}))
    for is_seeded in (True, False):
        with pytest.raises(ValueError, match="was edited"):
            open_checkpoint(tmp_path, {**CALL, "random_seed": [1, 7]}, is_seeded)


def test_a_planted_pickle_is_not_run(tmp_path):
    kept, marker = begun(tmp_path), tmp_path / "marker"
    program = pickle.dumps(Bomb(marker))
    (tmp_path / "round_1.npz").write_bytes(program)
    with pytest.raises(ValueError, match=r"round_1\.npz' is damaged"):
        kept.find("round_1", "print")
    (tmp_path / "checkpoint.json").write_bytes(program)
    with pytest.raises(ValueError, match="is damaged"):
        open_checkpoint(tmp_path, CALL, is_seeded=True)
    assert not marker.exists()


def test_files_under_other_names_and_of_other_calls_are_refused(tmp_path):
    kept = begun(tmp_path / "a")
    kept.keep("pilot_2", "other print", PILOT)
    os.replace(tmp_path / "a" / "pilot_2.npz", tmp_path / "a" / "pilot_1.npz")
    with pytest.raises(ValueError, match=r"pilot_1\.npz' is of another call, plan or seed .*Delete the folder"):
        kept.find("pilot_1", "print")
    other = begun(tmp_path / "b", {**CALL, "data": "other"})
    os.replace(tmp_path / "b" / "pilot_1.npz", tmp_path / "a" / "pilot_1.npz")
    with pytest.raises(ValueError, match="is of another call"):
        kept.find("pilot_1", "print")
    assert other.find("pilot_1", "print") is None


@pytest.mark.parametrize("path", [True, 3, "", None, b"bytes", ["a"], {"path": "a"}])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ValueError, match="`checkpoint` must be the path of a folder; got"):
        open_checkpoint(path, CALL, is_seeded=True)


def test_a_file_and_a_folder_with_other_things_are_refused_and_left_alone(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="is a file: pass the path of a folder"):
        open_checkpoint(tmp_path / "file", CALL, is_seeded=True)
    with pytest.raises(OSError, match=r"cannot be made or read .*: pass another `checkpoint`"):
        open_checkpoint(tmp_path / "file" / "under", CALL, is_seeded=True)
    with pytest.raises(ValueError, match="is a folder with something else in it: pass a new or an empty one"):
        open_checkpoint(tmp_path, CALL, is_seeded=True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_a_killed_writer_left_goes_and_what_another_one_writes_stays(tmp_path):
    begun(tmp_path)
    left, young = tmp_path / ".pilot_2.npz.00.part", tmp_path / ".pilot_3.npz.01.part"
    for path in (left, young):
        path.write_bytes(b"half")
    os.utime(left, (time.time() - 1000.0,) * 2)
    open_checkpoint(tmp_path, CALL, is_seeded=True)
    assert not left.exists()
    assert young.exists()
    only_parts = tmp_path / "other"
    only_parts.mkdir()
    (only_parts / ".checkpoint.json.00.part").write_bytes(b"half")  # killed while it wrote its first file
    open_checkpoint(only_parts, CALL, is_seeded=True)


def test_a_folder_that_cannot_be_written_is_said_before_any_work(tmp_path, monkeypatch):
    begun(tmp_path)

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pymc_hais.core.files.os.replace", refuse)
    with pytest.raises(OSError, match="cannot be written to the folder"):
        open_checkpoint(tmp_path, CALL, is_seeded=True)
