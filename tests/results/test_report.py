"""What the log says before the rounds: how many temperatures, how long, and for how much of it there is time."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest

from pymc_hais.estimators import LogZEstimate
from pymc_hais.results.report import log_outcome, log_start
from tests.quick import one_mean
from tests.runs import call_of


def said(caplog, lengths, seconds, compile_seconds=0.0, **options):
    problem = SimpleNamespace(label="the prior", engine=SimpleNamespace(name="jax"))
    choice = SimpleNamespace(
        problem=problem,
        plan=SimpleNamespace(lengths=np.array(lengths), reason="Chosen by the user."),
        forecast=lambda call: seconds,
        compile_seconds=compile_seconds,
    )
    with caplog.at_level(logging.INFO, logger="pymc"):
        log_start(choice, call_of(**options))
    return caplog.messages[-1]


@pytest.mark.parametrize(
    ("lengths", "seconds", "compiling", "expected"),
    [
        ([18], 0.4, 2.31, "18 temperatures, about 1 s (jax, 2.3 s compiling). Chosen by the user."),
        ([1], None, 0.0, "1 temperature (jax, already compiled). Chosen by the user."),
        ([64, 1500], 300.0, 0.0, "64 to 1,500 temperatures, about 5 min (jax, already compiled). Chosen by the user."),
    ],
)
def test_the_start_says_what_will_happen(caplog, lengths, seconds, compiling, expected):
    assert said(caplog, lengths, seconds, compiling) == f"Annealing 2 x 100 particles from the prior: {expected}"


def test_the_start_says_for_how_much_there_is_time(caplog):
    assert "5,855 temperatures, about 5 min, of which there are 40 s (" in said(caplog, [5855], 300.0, max_seconds=40.0)
    assert "of which" not in said(caplog, [5855], 30.0, max_seconds=40.0)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(258.0, ": 56 s, and 4 min with compiling, the pilot and checks;"), (56.2, ": 56 s;")],
)
def test_the_end_says_what_the_whole_call_has_taken(caplog, seconds, told):
    problem = SimpleNamespace(reference=None, model=one_mean())
    rounds = SimpleNamespace(rounds=(1,))
    ladder = SimpleNamespace(schedule=range(31))
    outcome = SimpleNamespace(stopped_by="single_round", rows=[rounds], ladder=ladder, seconds=56.0)
    with caplog.at_level(logging.INFO, logger="pymc"):
        seen = SimpleNamespace(outcome=outcome, problem=problem, runner=call_of())
        log_outcome(LogZEstimate(-3.0, 0.1, -3.2, -2.8), seen, seconds)
    assert f"(1 round of 31 temperatures{told} after one round, as asked for)" in caplog.messages[-1]
