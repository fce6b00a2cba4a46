"""Settings of the process come and go without those of other threads, whenever these come and go."""

import gc
import itertools
import os
import subprocess
import sys
import threading
import warnings

import pytest

from pymc_hais.core.process import WhileInside, filtered_warnings, one_thread, without_collection


def heard(*messages):
    with warnings.catch_warnings(record=True) as all_heard:
        for message in messages:
            warnings.warn(message, UserWarning, stacklevel=1)
    return [str(one.message) for one in all_heard]


@pytest.fixture
def filters():
    """Filters of a test's own, that hear everything."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        yield lambda: list(warnings.filters)


def test_warnings_of_these_patterns_are_silent_and_others_are_not(filters):
    before = filters()
    with filtered_warnings("ignore", "The first.*", ".*second"):
        assert heard("The first one", "a second", "first") == ["first"]
        with filtered_warnings("ignore", "The first.*"):
            assert heard("The first one") == []
        assert heard("The first one") == []  # the outer filter is still there
        with filtered_warnings("error", "The first"), pytest.raises(UserWarning, match="The first"):
            warnings.warn("The first", UserWarning, stacklevel=1)
    with filtered_warnings("ignore"):
        assert heard("anything") == []
    assert filters() == before


@pytest.mark.parametrize("error", [None, ZeroDivisionError])
@pytest.mark.parametrize("order", list(itertools.permutations(["we leave", "they leave"])))
@pytest.mark.parametrize("they_come_first", [True, False])
def test_no_filter_of_ours_is_left_where_another_thread_changes_filters_meanwhile(
    filters, order, they_come_first, error
):
    before, ours, theirs = filters(), filtered_warnings("ignore", "ours"), warnings.catch_warnings()
    coming = [theirs.__enter__, ours.__enter__]
    for come in coming if they_come_first else coming[::-1]:
        come()
    for step in order:
        if step == "they leave":
            theirs.__exit__(None, None, None)
        else:
            assert not ours.__exit__(error, error and error(), None)  # the error goes on
    assert filters() == before


def test_filters_come_one_thread_after_the_other():
    is_in, log = threading.Event(), []

    def other():
        is_in.wait(10.0)
        with filtered_warnings("ignore", "other"):
            log.append("other")

    thread = threading.Thread(target=other)
    thread.start()
    with one_thread:
        is_in.set()
        thread.join(0.05)
        log.append("first")
    thread.join()
    assert log == ["first", "other"]


def test_a_setting_is_made_by_the_first_thread_and_taken_back_by_the_last():
    log, is_in, may_leave = [], threading.Event(), threading.Event()
    setting = WhileInside(lambda: log.append("made") or (lambda: log.append("taken back")))

    def stay():
        with setting:
            is_in.set()
            may_leave.wait(10.0)

    other = threading.Thread(target=stay)
    with setting:
        other.start()
        assert is_in.wait(10.0)
    assert log == ["made"]  # the other is still inside
    may_leave.set()
    other.join()
    assert log == ["made", "taken back"]


@pytest.mark.parametrize("was_on", [True, False])
def test_garbage_is_left_alone_inside_and_collected_as_before_after_it(was_on):
    (gc.enable if was_on else gc.disable)()
    try:
        with without_collection, without_collection:
            assert not gc.isenabled()
        assert gc.isenabled() == was_on
    finally:
        gc.enable()


LATE = """
from pymc_hais.core.process import one_blas_thread
with one_blas_thread:
    import scipy.linalg
    from threadpoolctl import threadpool_info
    print(*(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"))
"""


def test_a_library_of_blas_that_is_loaded_later_has_one_thread():
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2", "BLIS_NUM_THREADS": "2"}
    ended = subprocess.run([sys.executable, "-c", LATE], env=environment, capture_output=True, text=True, check=True)
    assert set(ended.stdout.split()) == {"1"}
