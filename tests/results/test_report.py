"""What the log says before the rounds: how many temperatures, how long, and for how much of it there is time."""

import logging
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pymc_hais.estimators import LogZEstimate
from pymc_hais.results.report import log_outcome
from pymc_hais.run.rounds import log_start
from tests.quick import one_mean
from tests.runs import call_of, plan_of


def said(caplog, lengths, seconds, compile_seconds=0.0, n_rows=1, **options):
    problem = SimpleNamespace(label="the prior", engine=SimpleNamespace(name="jax"), n_rows=n_rows)
    plan = plan_of(lengths, reason="By the user.")
    runner = call_of(**options)
    runner.compiler.clock.seconds = compile_seconds
    with caplog.at_level(logging.DEBUG, logger="pymc"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("pymc_hais.run.rounds.forecast", lambda *_: seconds)
        log_start(problem, plan, runner)
    return [record.getMessage() for record in caplog.records if record.name == "pymc.hais"]


@pytest.mark.parametrize(
    ("lengths", "seconds", "compiling", "start", "detail"),
    [
        ([18], 0.4, 2.31, "(about 1 s, compiled in 2.3 s)", "18 temperatures (jax). By the user."),
        ([1], None, 0.0, "(already compiled)", "1 temperature (jax). By the user."),
        (
            [64, 1500],
            300.0,
            0.0,
            "(about 5 min, already compiled)",
            "64 to 1,500 temperatures (jax). By the user.",
        ),
    ],
)
def test_the_start_says_how_long_it_takes_and_how_it_is_annealed_at_debug(
    caplog, lengths, seconds, compiling, start, detail
):
    for_user, for_developer = said(caplog, lengths, seconds, compiling)
    assert for_user == f"Sampling 2 chains of 100 draws {start}"
    assert for_developer == f"Annealing 2 x 100 particles from the prior: {detail}"
    assert [record.levelname for record in caplog.records[-2:]] == ["INFO", "DEBUG"]


def test_the_start_names_one_chain_and_several_data_sets(caplog):
    start, _ = said(caplog, [18] * 1200, 9.0, n_rows=1200, chains=1, draws=2000)
    assert start == "Sampling 1 chain of 2,000 draws for each of 1,200 data sets (about 9 s, already compiled)"


def test_importance_sampling_has_no_temperatures(caplog):
    _, detail = said(caplog, [1], None, n_temperatures=0)
    assert detail == "Annealing 2 x 100 particles from the prior: no temperatures (jax). By the user."


def test_the_start_says_when_there_is_too_little_time(caplog):
    start, shortened, _ = said(caplog, [5855], 300.0, max_seconds=40.0)
    assert start == "Sampling 2 chains of 100 draws (about 5 min, already compiled)"
    assert shortened == "The run will be shortened: `max_seconds` leaves 40 s"
    caplog.clear()
    assert "shortened" not in str(said(caplog, [5855], 30.0, max_seconds=40.0))


@pytest.mark.parametrize(("seconds", "told"), [(258.0, "4 min"), (56.2, "56 s")])
def test_the_end_says_what_the_whole_call_has_taken_and_why_it_ended_at_debug(caplog, seconds, told):
    problem = SimpleNamespace(reference=None, model=one_mean())
    rounds = SimpleNamespace(rounds=(1,))
    ladder = SimpleNamespace(n_temperatures=31)
    evidence = SimpleNamespace(stopped_by="single_round", row=rounds, ladder=ladder, problem=problem)
    runner = replace(call_of(), clock=SimpleNamespace(elapsed=seconds, limit=np.inf))
    runner.ledger.seconds["rounds"] = 56.0
    with caplog.at_level(logging.DEBUG, logger="pymc"):
        log_outcome(LogZEstimate(-3.0, 0.1, -3.2, -2.8), evidence, runner)
    assert caplog.messages[-2:] == [
        f"log marginal likelihood -3.000 ± 0.100 ({told})",
        "1 round of 31 temperatures: 56 s; after one round, as asked for",
    ]
