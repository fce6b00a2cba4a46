"""What a runner sets while it is open."""

import pymc as pm
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from tests.runs import call_of


def small_model():
    with pm.Model() as model:
        pm.Normal("x")
    return model


def blas_threads():
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_a_call_uses_one_thread_of_blas_and_puts_back_how_many_there_were():
    runner = call_of(small_model())
    with threadpool_limits(2, "blas"):
        with runner:
            assert blas_threads() == {1}
        assert blas_threads() == {2}


def test_threads_are_put_back_where_a_checkpoint_cannot_be_opened(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    runner = call_of(small_model(), checkpoint=tmp_path / "file")
    with threadpool_limits(2, "blas"):
        with pytest.raises((ValueError, OSError, RuntimeError)), runner:
            pass
        assert blas_threads() == {2}
