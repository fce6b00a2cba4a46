"""A run that ends at any moment goes on where it was, to the same bits; another one is told what differs."""

import errno
import logging
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.op import Op

import pymc_hais
from tests import bits
from tests.bits import SMALL, Y, same_bits
from tests.core.test_files import Bomb
from tests.quick import interrupt
from tests.runner.test_workers import threads_left
from tests.toys import HAS_JAX

pytestmark = pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")

#: Two rounds of three jobs each, and a pilot.
CALL = {**SMALL, "draws": 400, "target_se": 1e-4, "max_temperatures": 64, "n_temperatures": 16, "random_seed": 1}


@pytest.fixture(scope="module")
def model():
    return bits.regression()


def sample(model, **given):
    return pymc_hais.sample_hais(model=model, **{**CALL, **given})


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return sample(model, checkpoint=folder), folder


@pytest.fixture
def folder(whole, tmp_path):
    """A copy of what a run has kept."""
    return Path(shutil.copytree(whole[1], tmp_path / "copy"))


def jobs(folder):
    return sorted(folder.glob("*rows*.npz"))


def test_the_checkpoint_changes_nothing_and_holds_every_job(model, whole):
    idata, folder = whole
    same_bits(idata, sample(model))
    names = [path.name for path in jobs(folder)]
    assert len([name for name in names if name.startswith("round_1")]) == 3  # one of each chain
    assert len([name for name in names if name.startswith("round_2")]) == 3
    assert len([name for name in names if name.startswith("pilot")]) >= 1
    assert not list(folder.glob("*.part"))


@pytest.mark.few(2)
@pytest.mark.parametrize("kept", [[], ["pilot"], ["pilot", "round_1"], ["pilot", "chains-0"], ["round_2"]])
def test_whatever_is_there_is_gone_on_from(model, whole, folder, kept):
    for path in jobs(folder):
        if not any(one in path.name for one in kept):
            path.unlink()
    (folder / ".round_1.npz.0000.part").write_bytes(b"half")
    same_bits(whole[0], sample(model, checkpoint=folder))
    assert len(jobs(folder)) == len(jobs(whole[1]))


@pytest.mark.every(2)
@pytest.mark.few(3)
@pytest.mark.parametrize(
    "given",
    [
        {"cores": 1},
        {"var_names": ["w"]},
        {"random_seed": None},
        {"idata_kwargs": {"include_transformed": True}},
        {"progressbar": "combined"},
        {"draws": np.int64(400)},
    ],
)
def test_what_changes_no_number_may_change(model, whole, folder, given):
    again = sample(model, checkpoint=str(folder), **given)
    np.testing.assert_array_equal(again["posterior"]["w"], whole[0]["posterior"]["w"])
    np.testing.assert_array_equal(
        again["sample_stats"]["log_marginal_likelihood"], whole[0]["sample_stats"]["log_marginal_likelihood"]
    )


def test_what_is_found_is_said(model, whole, folder, caplog):
    left = [path for path in jobs(folder) if path.name.startswith("round_2")]
    left[-1].unlink()
    with caplog.at_level("INFO", "pymc.hais"):
        same_bits(whole[0], sample(model, checkpoint=folder))
    assert "2 of 3 tiles were finished before: 1 are left" in caplog.messages


def test_another_executor_may_go_on(model, whole, folder):
    for path in jobs(folder)[::2]:
        path.unlink()
    with ThreadPoolExecutor(2) as pool:
        same_bits(whole[0], sample(model, checkpoint=folder, executor=pool))


def test_a_model_that_is_built_again_is_the_same(whole, folder):
    same_bits(whole[0], sample(bits.regression(), checkpoint=folder))


def other_data():
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 1.0, shape=3)
        s = pm.HalfNormal("s", 1.0)
        pm.Normal("y", bits.DESIGN @ w, s, observed=np.where(np.arange(12) == 7, Y + 1e-9, Y))
    return model


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"random_seed": 2}, "`random_seed` was another one: leave it out"),
        ({"draws": 500}, "`draws` was 400, and is 500 now"),
        ({"chains": 2}, "`chains` was 3, and is 2 now"),
        ({"target_se": None}, "`target_se` was 0.0001, and is None now"),
        (
            {"kernel": pymc_hais.Hamiltonian(n_leapfrog=2)},
            r"`kernel` was None, and is Hamiltonian\(.*n_leapfrog=2",
        ),
        ({"kernel": pymc_hais.RandomWalk()}, "`kernel` was None"),
        ({"reference": "prior"}, "`reference` was 'auto', and is 'prior' now"),
        ({"reference": pymc_hais.Gaussian()}, "`reference` was .*Gaussian"),
        ({"reference": pm.Normal.dist(0.0, 2.0, shape=4)}, "`reference` was "),
        ({"schedule": "linear"}, "`schedule` was .*linear"),
        ({"schedule": np.linspace(0.0, 1.0, 17)}, "`schedule` was .*float64"),
        ({"n_temperatures": 17}, "`n_temperatures` was 16, and is 17 now"),
        ({"max_temperatures": 65}, "`max_temperatures` was 64, and is 65 now"),
        ({"resample": False}, "`resample` was True, and is False now"),
        ({"estimators": ("linked",)}, r"`estimators` was \[\], and is .*linked"),
        ({"constraints": {"w": (-50.0, 50.0)}}, "`constraints` was None"),
        ({"compile_kwargs": {"on_unused_input": "ignore"}}, "`compile_kwargs` was None"),
        ({"model": other_data()}, "the data of its `y` are others"),
        ({"model": bits.one_row()}, "The model is another one: "),
    ],
)
def test_another_call_is_refused_before_any_work(model, folder, given, told, monkeypatch):
    monkeypatch.setattr("pymc_hais.calls.sample.compile_integrated", lambda *_: pytest.fail("work has begun"))
    with pytest.raises(ValueError, match=rf"(?s)is of another call, and cannot go on with this one\..*{told}"):
        sample(given.pop("model", model), checkpoint=folder, **given)


def test_another_function_or_version_is_refused(model, folder, monkeypatch):
    with pytest.raises(ValueError, match="`function` was 'sample_hais', and is 'validate' now"):
        pymc_hais.validate(model, 2, random_seed=1, progressbar=False, checkpoint=folder)
    monkeypatch.setattr("pymc_hais.runner.checkpoint.installed", lambda: {"pymc": "0.0"})
    with pytest.raises(ValueError, match=r"`versions\.pymc` was .*, and is '0\.0' now"):
        sample(model, checkpoint=folder)


class Sim(Op):
    """PyMC's older recipe: no `__props__`."""

    itypes, otypes = (pt.dscalar,), (pt.dscalar,)

    def __init__(self, data):
        self.data = data

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(-0.5 * np.sum((self.data - inputs[0]) ** 2))


def boxed(data):
    with pm.Model() as boxed:
        pm.Potential("sim", Sim(data)(pm.Normal("mu")))
    return boxed


@pytest.mark.slow
def test_other_data_within_an_operation_are_another_model(tmp_path):
    call = {"kernel": pymc_hais.RandomWalk(), "backend": "c", "target_se": None, "n_temperatures": 8, "draws": 100}
    before = sample(boxed(np.array([0.5, 1.0])), checkpoint=tmp_path, **call)
    same_bits(before, sample(boxed(np.array([0.5, 1.0])), checkpoint=tmp_path, **call))
    with pytest.raises(ValueError, match="model is another one: its `sim` is computed in another way"):
        sample(boxed(np.array([0.5, 9.0])), checkpoint=tmp_path, **call)
    with pytest.raises(ValueError, match=r"Op `Sim`: a TextIOWrapper.*`__props__`"):
        sample(boxed(sys.__stdout__), checkpoint=tmp_path / "other", **call)


@pytest.mark.slow
def test_choices_of_a_compiled_model_are_part_of_a_call(model, folder):
    for choice in ({"constraints": {"w": (-50.0, 50.0)}}, {"kernel": pymc_hais.RandomWalk()}):
        compiled = pymc_hais.compile(model, backend=CALL["backend"], **choice)
        with pytest.raises(ValueError, match=f"`{next(iter(choice))}.*` was None"):
            sample(model=compiled, checkpoint=folder)


def cut_short(path, folder):
    path.write_bytes(path.read_bytes()[:-100])


def flip(path, folder):
    content = bytearray(path.read_bytes())
    content[-1000] ^= 4
    path.write_bytes(bytes(content))


def plant(path, folder):
    path.write_bytes(pickle.dumps(Bomb(folder / "marker")))


def swap(path, folder):
    shutil.copy(next(one for one in jobs(folder) if "round_2" in one.name), path)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (cut_short, "is damaged: it was cut short"),
        (flip, "is damaged"),
        (plant, "is damaged"),
        (swap, "is of another call, plan or seed than this call's"),
    ],
)
@pytest.mark.parametrize("job", ["pilot_0", "round_1"])
def test_a_damaged_job_is_one_error_that_names_it(model, folder, damage, told, job):
    path = next(one for one in jobs(folder) if one.name.startswith(job))
    damage(path, folder)
    with pytest.raises(ValueError, match=f"{path.name}' {told}"):
        sample(model, checkpoint=folder)
    assert not (folder / "marker").exists()


@pytest.mark.slow
def test_a_job_of_a_run_on_other_data_is_not_taken(model, folder, tmp_path):
    sample(other_data(), checkpoint=tmp_path / "other")
    for path in jobs(tmp_path / "other"):
        if path.name.startswith("pilot"):
            shutil.copy(path, folder / path.name)
    with pytest.raises(ValueError, match=r"pilot_\d.*is of another call, plan or seed"):
        sample(model, checkpoint=folder)


@pytest.mark.slow
def test_a_disk_that_fills_is_one_error_and_the_call_goes_on_when_there_is_room(model, whole, tmp_path, monkeypatch):
    replace, n_written = os.replace, []

    def fill(*args):
        n_written.append(args)
        if len(n_written) == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(*args)

    monkeypatch.setattr("pymc_hais.core.files.os.replace", fill)
    with pytest.raises(OSError, match=r"cannot be written to the folder .*No space left on device.*: give it room"):
        sample(model, checkpoint=tmp_path)
    monkeypatch.undo()
    assert not threads_left()
    assert len(jobs(tmp_path)) == 2
    same_bits(whole[0], sample(model, checkpoint=tmp_path))


@pytest.mark.parametrize("phase", ["Pilot", "Round 1"])
def test_an_interrupt_says_how_to_go_on_and_the_same_call_does(model, whole, tmp_path, monkeypatch, caplog, phase):
    interrupt(monkeypatch, phase)
    with caplog.at_level(logging.INFO, logger="pymc"), pytest.raises(KeyboardInterrupt):
        sample(model, checkpoint=tmp_path)
    monkeypatch.undo()
    assert f"the same call with checkpoint={str(tmp_path)!r} goes on from here" in caplog.text
    assert not threads_left()
    same_bits(whole[0], sample(model, checkpoint=tmp_path))


def test_an_interrupt_of_a_later_round_keeps_the_earlier_ones_and_the_call_goes_on(model, whole, tmp_path, monkeypatch):
    interrupt(monkeypatch, "Round 2")
    early = sample(model, checkpoint=tmp_path)
    assert early["posterior"].attrs["stopped_by"] == "interrupt"
    monkeypatch.undo()
    same_bits(whole[0], sample(model, checkpoint=tmp_path))


#: Long enough to be killed on the way.
KILLED = {**CALL, "max_temperatures": 2000}
SCRIPT = """
import sys
import pymc_hais
from tests import bits
from tests.calls.test_checkpoint import KILLED
pymc_hais.sample_hais(model=bits.regression(), checkpoint=sys.argv[1], **KILLED)
"""


@pytest.mark.slow
def test_a_run_that_is_killed_at_a_random_moment_goes_on_to_the_same_bits(model, tmp_path):
    """It is killed in a process of its own, a moment after a random one of its files; this process goes on."""
    whole = sample(model, checkpoint=tmp_path / "whole", **KILLED)
    n_files, rng, folder = len(jobs(tmp_path / "whole")), np.random.default_rng(1), tmp_path / "killed"
    n_kept = rng.integers(1, n_files)
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(folder)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stderr=subprocess.DEVNULL) as process:
        while len(jobs(folder)) < n_kept and process.poll() is None:
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.05))
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert n_kept <= len(jobs(folder)) < n_files
    same_bits(whole, sample(model, checkpoint=folder, **KILLED))
