"""One bar for a call: where it stands, what it says about log Z and the time left, and messages above it."""

import io
import logging
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

import pymc_hais
from pymc_hais.runner import progress as module
from pymc_hais.runner.progress import CallProgress, Shares, Stopped, part, turned, without_log_z
from tests.quick import QUICK, one_mean


@dataclass
class Recorder:
    """Stands in for the bar: where it is, and the columns."""

    position: float = 0.0
    columns: list = field(default_factory=list)

    def update(self, task_id, advance, failing, stats, is_last):
        self.position = 100.0 if is_last else self.position + advance
        self.columns.append(stats)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    return now


@pytest.fixture
def recorded(clock):
    progress = CallProgress(False, None)
    progress._backend = Recorder()
    return progress, progress._backend


def test_the_bar_of_a_call_goes_on_from_phase_to_phase_and_back_for_another_round(recorded, clock):
    progress, bar = recorded
    with progress:
        assert (bar.position, bar.columns[-1]["phase"]) == (0.0, "Compiling")
        pilot = progress.phase("Pilot")
        pilot(0.5, 1e-4, -3.0)
        assert bar.position == pytest.approx(20.0)
        pilot(1.0, 1.0, -3.0)
        again = progress.phase("Pilot")
        again(1.0, 1.0, -3.0)
        assert bar.position == pytest.approx(64.0)
        clock[0] += 10.0
        # Ten seconds of twenty: half of the bar.
        first = progress.phase("Round 1", 10.0)
        first(0.0, 0.0, np.zeros(2))
        assert bar.position == pytest.approx(50.0)
        first(1.0, 1.0, np.zeros(2))
        assert bar.position == pytest.approx(99.9)  # at 100 Rich would stop the clock
        clock[0] += 10.0
        progress.phase("Round 2", 60.0)(0.5, 0.1, np.zeros(2))
        assert bar.position == pytest.approx(25.0 + 37.45)
    assert bar.position == 100.0
    assert [columns["percent"] for columns in bar.columns] == pytest.approx([0, 20, 40, 64, 50, 99.9, 62.45, 99.9])


def test_the_bar_ends_at_the_estimate_that_is_reported(recorded):
    progress, bar = recorded
    with progress:
        progress.phase("Round 1")(1.0, 1.0, np.log([1.0, 3.0]))
        assert bar.columns[-1]["log_z"] == "0.69 ± 0.50"
        progress.conclude("0.69 ± 0.61")
    assert bar.columns[-1]["log_z"] == "0.69 ± 0.61"


def test_the_time_left_is_the_forecast_and_then_the_pace(recorded, clock):
    progress, bar = recorded
    report = progress.phase("Round 1", 30.0)
    clock[0] += 5.0
    report(0.05, 0.1, 0.0)
    assert bar.columns[-1]["left"] == "25 s"
    report(0.25, 0.1, 0.0)
    assert bar.columns[-1]["left"] == "15 s"
    report(1.0, 1.0, 0.0)
    assert bar.columns[-1]["left"] == "0 s"
    progress.phase("Pilot")(0.5, 0.1, 0.0)
    assert bar.columns[-1]["left"] == ""


def test_log_z_so_far_is_that_of_all_populations_with_the_error_of_their_spread(recorded):
    progress, bar = recorded
    report = progress.phase("Round 1")
    report(0.1, 1.23e-5, np.log([1.0, 3.0]))
    # Mean 2, standard deviation root 2, of two: 1 in 2.
    assert bar.columns[-1]["log_z"] == "0.69 ± 0.50"
    assert bar.columns[-1]["beta"] == "1.2e-05"
    report(0.1, 0.5, -7.0)
    assert bar.columns[-1]["log_z"] == "-7.00"
    report(0.1, 0.5, np.array([-np.inf, 0.0]))
    assert bar.columns[-1]["log_z"] == "-0.69 ± 1.00"
    report(0.1, 0.5, np.array([-np.inf, -np.inf]))
    assert bar.columns[-1]["log_z"] == ""


@pytest.fixture
def notebook(monkeypatch):
    """What Rich and this package see of the surroundings."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    module._ask_for_widgets.cache_clear()
    yield lambda has_widgets: monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: has_widgets or None)
    module._ask_for_widgets.cache_clear()


def test_a_notebook_without_widgets_is_told_so_once(notebook, caplog):
    notebook(has_widgets=False)
    with caplog.at_level(logging.INFO, logger="pymc"):
        for _ in range(2):
            with CallProgress(True, None) as progress:
                progress.phase("Pilot")(0.5, 0.1, -1.0)
    assert [record.message for record in caplog.records] == ["Install ipywidgets for a progress bar in notebooks."]


def test_the_bar_of_a_notebook_fits_into_its_cells(notebook):
    notebook(has_widgets=True)
    assert CallProgress(True, None)._backend._progress.console.width == 80


def test_messages_in_a_notebook_are_written_beside_the_bar(notebook, monkeypatch):
    notebook(has_widgets=True)
    progress = CallProgress(True, None)
    progress._backend = Recorder()
    written = []

    class Cell(io.StringIO):
        def write(self, text):
            written.append((text, progress.lock._is_owned()))

    logger, before = logging.getLogger("pymc"), Cell()
    monkeypatch.setattr(sys, "stderr", before)
    monkeypatch.setattr(logger, "handlers", [logging.StreamHandler(before)])
    monkeypatch.setattr(Recorder, "__enter__", lambda self: setattr(sys, "stderr", io.StringIO()))
    with progress:
        logger.warning("during")
    # The bar is drawn under the same lock: what is written meanwhile would be lost.
    assert written == [("during\n", True)]


def test_a_way_back_is_shown_as_log_z_and_several_data_sets_as_none(recorded):
    progress, bar = recorded
    report = progress.phase("Bidirectional")
    turned(report)(0.5, 0.1, np.array([208.93, 208.93]))
    assert bar.columns[-1]["log_z"] == "-208.93 ± 0.00"
    without_log_z(report)(0.6, 0.1, np.array([-70.0, -390.0]))
    assert bar.columns[-1]["log_z"] == ""


def test_a_part_of_a_phase_reports_its_share():
    told = []
    second = part(lambda *progress: told.append(progress), 0.5, 0.25)
    second(0.0, 0.1, 1.0)
    second(1.0, 0.2, 2.0)
    assert told == [(0.5, 0.1, 1.0), (0.75, 0.2, 2.0)]


def test_messages_appear_above_the_bar_while_it_is_shown(recorded, monkeypatch):
    progress, _ = recorded
    logger, before, above = logging.getLogger("pymc"), io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", before)
    handler = logging.StreamHandler(before)
    monkeypatch.setattr(logger, "handlers", [handler])
    # What Rich does in a terminal, and undoes.
    monkeypatch.setattr(Recorder, "__enter__", lambda self: setattr(sys, "stderr", above))
    with progress:
        logger.warning("during")
    logger.warning("after")
    assert above.getvalue() == "during\n"
    assert before.getvalue() == "after\n"


def test_a_bar_that_is_interrupted_stays_where_it_is(recorded):
    progress, bar = recorded

    def stop():
        with progress:
            progress.phase("Pilot")(0.5, 0.1, -1.0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop()
    assert bar.position == pytest.approx(20.0)


def test_an_exception_of_the_bar_leaves_nothing_behind(recorded, monkeypatch):
    progress, bar = recorded
    logger, before = logging.getLogger("pymc"), io.StringIO()
    handler = logging.StreamHandler(before)
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(sys, "stderr", before)
    closed = []
    monkeypatch.setattr(Recorder, "__enter__", lambda self: setattr(sys, "stderr", io.StringIO()))
    monkeypatch.setattr(Recorder, "__exit__", lambda self, *exception: closed.append(True))

    def breaks(*args, is_last, **kwargs):
        if is_last:
            raise BrokenPipeError

    monkeypatch.setattr(bar, "update", breaks)
    with pytest.raises(BrokenPipeError), progress:
        pass
    assert handler.stream is before
    assert closed


class Tile:
    """What a job gives."""

    log_z = np.array([-3.0, -3.0])


def test_jobs_elsewhere_count_when_they_end_and_those_of_threads_at_each_report():
    heard = []
    shares = Shares(4, lambda *told: heard.append(told))
    shares.tell()
    assert heard[-1][0] == 0.0
    assert np.isnan(heard[-1][1:]).all()
    shares.of(0)(0.5, 0.25, np.array([-5.0, -5.0]))
    shares.of(1)(0.25, 0.125, -4.0)
    shares.finish(3, Tile())
    shares.tell()
    assert heard[-1][:2] == (0.4375, 0.125)
    np.testing.assert_allclose(heard[-1][2], [-5.0, -4.0, -3.0])
    assert shares.n_done == 1
    for number in range(3):
        shares.finish(number, {"without": "log Z"})
    shares.tell()
    assert heard[-1][0] == 1.0
    assert np.isnan(heard[-1][1])
    np.testing.assert_allclose(heard[-1][2], [-5.0, -4.0, -3.0])


def test_threads_stop_when_nobody_listens():
    heard = []
    shares = Shares(4, lambda *told: heard.append(told))
    report = shares.of(3)
    report(2.0, 0.5, -1.0)  # as rounding may have it
    shares.tell()
    assert 0.24 < heard[-1][0] < 0.25
    shares.close()
    with pytest.raises(Stopped):
        report(0.5, 0.5, -1.0)


def test_tiles_elsewhere_show_no_temperature(recorded):
    progress, bar = recorded
    progress.phase("Round 1")(0.5, np.nan, np.nan)
    assert (bar.columns[-1]["beta"], bar.columns[-1]["log_z"]) == ("", "")


def test_the_pace_of_a_resumed_phase_leaves_out_what_was_found(recorded, clock):
    progress, bar = recorded
    with progress:
        shares = Shares(4, progress.phase("Round 1", 400.0))
        for number in (0, 1):
            shares.finish(number, SimpleNamespace(log_z=np.array([-3.0])))
        shares.tell_found()
        assert bar.columns[-1]["left"] == "3 min"  # half of what it takes from the beginning
        clock[0] += 60.0
        shares.finish(2, SimpleNamespace(log_z=np.array([-3.0])))
        shares.tell()
        # One of the two that are left took a minute.
        assert bar.columns[-1]["left"] == "60 s"
        assert bar.columns[-1]["log_z"] == "-3.00 ± 0.00"


def test_a_bar_ends_where_ctrl_c_stopped_it(recorded):
    progress, bar = recorded
    with progress:
        assert bar.columns[-1]["beta"] == ""  # nothing is annealed while a model is compiled
        progress.phase("Round 1")(0.5, 0.2, -3.0)
        progress.is_cut = True
    assert bar.position == pytest.approx(20.0)


@pytest.fixture
def shown(monkeypatch):
    """Collect the phases and values of log Z that a call reports."""
    found, update = [], CallProgress.update

    def recording(self, phase, fraction, beta, log_z):
        found.append((phase.title, float(np.mean(log_z))))
        update(self, phase, fraction, beta, log_z)

    monkeypatch.setattr(CallProgress, "update", recording)
    return found


def test_the_bar_of_a_way_back_ends_at_log_z(shown):
    idata = pymc_hais.sample_hais(model=one_mean(), estimators="bidirectional", random_seed=1, **QUICK)
    found = float(pymc_hais.log_marginal_likelihood(idata))
    assert [log_z for title, log_z in shown if title == "Bidirectional"][-1] == pytest.approx(found, abs=0.5)


@pytest.mark.slow
def test_the_bar_of_several_rows_shows_no_log_z(shown):
    rows = {"y": np.array([[0.1], [2.0], [-3.0]])}
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=[0.0])
    pymc_hais.log_likelihood(model, rows, random_seed=1, **QUICK)
    titles = {title for title, log_z in shown if np.isnan(log_z)}
    assert {"Scouting", "3 rows"} <= titles
    assert not any(np.isfinite(log_z) for title, log_z in shown if title in ("Scouting", "3 rows"))
