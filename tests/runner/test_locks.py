"""A folder belongs to one call at a time, and to nobody once that call is gone, however it went."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from pymc_hais.inputs.request import read
from pymc_hais.runner import checkpoint
from pymc_hais.runner.checkpoint import LOCK, locked
from tests.quick import one_mean

HOLDER = """
import fcntl, sys, time
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_call_is_refused_by_name_and_the_next_one_is_not(tmp_path):
    with locked(tmp_path):
        told = rf"is in use by another call \(process {os.getpid()} on .*\): wait"
        with pytest.raises(RuntimeError, match=told), locked(tmp_path):
            pytest.fail("two calls at once")
        with locked_elsewhere(tmp_path):
            pass
    with locked(tmp_path):
        pass


def locked_elsewhere(folder):
    other = folder / "log_z"
    other.mkdir(exist_ok=True)
    return locked(other)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_call_that_ends_in_an_error_leaves_no_lock(tmp_path, error):
    with pytest.raises(error), locked(tmp_path):
        raise error
    with locked(tmp_path):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="The other process locks as POSIX systems do")
def test_a_lock_of_another_process_holds_until_that_is_killed(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path / LOCK], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(RuntimeError, match="is in use by another call"), locked(tmp_path):
            pytest.fail("two calls at once")
        process.send_signal(signal.SIGKILL)
        process.wait()
    with locked(tmp_path):
        assert (tmp_path / LOCK).read_text().startswith(f" process {os.getpid()} on ")


def test_where_there_are_no_locks_a_call_is_warned_and_goes_on(tmp_path, monkeypatch, caplog):
    def refuse(file, blocking):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(checkpoint, "lock_descriptor", refuse)
    with locked(tmp_path), locked(tmp_path):
        assert caplog.text.count("has no locks (No locks available): let no two calls work there at once") == 2


def test_a_folder_that_takes_no_file_is_said(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(checkpoint.os, "open", refuse)
    with (
        pytest.raises(OSError, match=r"cannot be written .Permission denied.: pass another `checkpoint`"),
        locked(tmp_path),
    ):
        pass


def test_a_second_driver_changes_no_header(tmp_path):
    """Before any job is done, a header may be another call's to replace: not while that call works."""
    model = one_mean()

    def begin(draws):
        given = {"draws": draws, "chains": 2, "random_seed": 1, "checkpoint": tmp_path / "run"}
        return read("sample_hais", model, given).runner()

    with begin(200) as call:
        header = (tmp_path / "run" / "checkpoint.json").read_bytes()
        with pytest.raises(RuntimeError, match="is in use by another call"), begin(300):
            pytest.fail("two drivers at once")
        assert (tmp_path / "run" / "checkpoint.json").read_bytes() == header
        assert call.workers.checkpoint.identity["draws"] == 200
    with begin(300) as call:  # nothing was done there
        assert call.workers.checkpoint.identity["draws"] == 300
