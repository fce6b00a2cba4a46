"""What follows the rounds: whatever fails there, and whenever Ctrl-C is pressed, a finished run comes back."""

import functools
import importlib
import logging

import numpy as np
import pytest

import pymc_hais
from pymc_hais.results.diagnose import unfinished
from pymc_hais.results.findings.finding import CHECKS
from pymc_hais.runner.progress import CallProgress
from tests.quick import QUICK, TRUTH, one_mean
from tests.runs import call_of
from tests.toys import HAS_JAX

pytestmark = pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")

OPTIONS = {**QUICK, "random_seed": 1}
#: Asked for where a test is about them.
OTHERS = {"estimators": "all"}
DENSITIES = {"idata_kwargs": {"log_likelihood": True, "log_prior": True}}

#: Every function that makes something after the rounds, and what the finding calls it.
STAGES = {
    "opinions.opinions.bridge_particles": "log Z by bridge",
    "opinions.opinions.anneal_linked": "log Z by linked",
    "opinions.opinions.anneal_back": "log Z by bidirectional",
    "run.modes.search.climb": "the search for modes",
    "run.modes.search._compare": "the search for modes",
    "run.posterior.move": "the moves that part copies",
    "run.evidence.Origin": "the plan",
    "results.datatree.modes_group": "the group `modes`",
    "results.datatree.plan_group": "the group `plan`",
    "results.datatree.find_observations": "the group `observed_data`",
    "results.datatree.find_constants": "the group `constant_data`",
    "results.datatree.compute_log_likelihood": "the group `log_likelihood`",
    "results.datatree.compute_log_prior": "the group `log_prior`",
}
#: All checks are called alike.
CHECKED = ("the diagnosis of the weights", "the diagnosis of the plan", "the comparison with modes")
STAGES |= {what: what for what in CHECKED}
#: Short ones that nothing stands in for: they are done again after Ctrl-C.
REPEATED = [
    "calls.sample.draw_posterior",
    "results.datatree.with_findings",
    "results.datatree.log_outcome",
    "results.datatree.attributes",
    "results.datatree.as_dataset",
    "results.datatree.annealing_group",
    "results.datatree.evidence_group",
    "results.datatree.build_tree",
]


@pytest.fixture(scope="module")
def model():
    return one_mean()


@pytest.fixture(scope="module")
def whole(model):
    """A run with nothing missing, and what it had when its rounds had ended."""
    kept = {}
    with pytest.MonkeyPatch.context() as patch:
        for module, name in (("sample", "choose"), ("stages", "run_rounds")):
            function = getattr(importlib.import_module(f"pymc_hais.calls.{module}"), name)

            def keep(*args, name=name, function=function):
                kept[name] = function(*args)
                return kept[name]

            patch.setattr(f"pymc_hais.calls.{module}.{name}", keep)
        idata = pymc_hais.sample_hais(model=model, **OPTIONS)
    return idata, kept


@pytest.fixture
def after_rounds(model, whole, monkeypatch):
    """A call that takes a moment: planning and rounds are those of another one."""
    monkeypatch.setattr("pymc_hais.calls.sample.check_labels", lambda *_: None)  # before the rounds, as it were
    planned, annealed = (whole[1][name] for name in ("choose", "run_rounds"))

    def pay(problem, plan, runner):
        runner.pay("rounds", 2 * 200 * 65)  # of which the search for modes takes a share
        return annealed

    monkeypatch.setattr("pymc_hais.calls.sample.choose", lambda *_: planned)
    monkeypatch.setattr("pymc_hais.calls.stages.run_rounds", pay)
    return lambda **given: pymc_hais.sample_hais(model=model, **{**OPTIONS, **given})


def inject(monkeypatch, place, error):
    """Let a function, or a check, fail each time; or press Ctrl-C when it is called first."""
    if place in CHECKS:
        calls, check = [], CHECKS[place]
        monkeypatch.setitem(CHECKS, place, check._replace(function=failing(check.function, calls, error)))
        return calls
    module, name = place.rsplit(".", 1)
    function, calls = getattr(importlib.import_module(f"pymc_hais.{module}"), name), []
    monkeypatch.setattr(f"pymc_hais.{module}.{name}", failing(function, calls, error))
    return calls


def failing(function, calls, error):
    @functools.wraps(function)
    def fail(*args, **kwargs):
        calls.append(args)
        if error is KeyboardInterrupt and len(calls) > 1:
            return function(*args, **kwargs)
        raise error("injected") if error is not KeyboardInterrupt else error

    return fail


def estimate(idata):
    return pymc_hais.log_marginal_likelihood(idata)


def missing(idata):
    return next((one for one in estimate(idata).findings if one.name == "unfinished"), None)


@pytest.mark.slow
def test_a_run_with_nothing_missing_says_nothing(whole):
    assert estimate(whole[0]).findings == ()
    assert abs(estimate(whole[0]).value - TRUTH) < 4.0 * estimate(whole[0]).se + 1e-6


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("place", "error"), [(place, (RuntimeError, KeyboardInterrupt)[i % 2]) for i, place in enumerate(STAGES)]
)
def test_a_stage_that_does_not_end_costs_itself_and_is_said(place, error, after_rounds, whole, monkeypatch, caplog):
    calls = inject(monkeypatch, place, error)
    with caplog.at_level(logging.WARNING, logger="pymc.hais"):
        idata = after_rounds(**(OTHERS if "opinions" in place else DENSITIES if "compute" in place else {}))
    assert calls
    ours, theirs = estimate(idata), estimate(whole[0])
    assert (ours.value, ours.mc_se, ours.per_chain) == (theirs.value, theirs.mc_se, theirs.per_chain)
    assert idata["posterior"]["mu"].shape == whole[0]["posterior"]["mu"].shape
    finding, why = missing(idata), "interrupted" if error is KeyboardInterrupt else "RuntimeError: injected"
    assert f"{STAGES[place]}" in finding.message
    assert f"({why})" in finding.message
    assert f"({why})" in caplog.text
    assert "unfinished" in idata.attrs["findings"]
    assert finding.severity == ("error" if place in CHECKS else "warning")
    lost = {name for name in whole[0].children if f"the group `{name}`" == STAGES[place]}
    if STAGES[place] == "the search for modes":
        lost = {"modes"}
    elif STAGES[place] == "the plan":
        lost = {"plan"}
    assert set(whole[0].children) - set(idata.children) <= lost


@pytest.mark.parametrize("place", REPEATED)
def test_what_nothing_stands_in_for_is_done_again_after_an_interrupt(place, after_rounds, whole, monkeypatch):
    calls = inject(monkeypatch, place, KeyboardInterrupt)
    idata = after_rounds()
    assert len(calls) > 1
    assert estimate(idata).value == estimate(whole[0]).value
    np.testing.assert_array_equal(idata["posterior"]["mu"], whole[0]["posterior"]["mu"])


def test_draws_that_cannot_be_named_are_kept_in_the_unconstrained_space(after_rounds, whole, monkeypatch):
    def fail(positions):
        if positions.size > 1:  # a single draw shows the labels before the run
            raise ZeroDivisionError("an Op that does not take all values")
        return {"mu": positions[..., 0]}

    monkeypatch.setattr("pymc_hais.calls.compile.build_outputs", lambda *_: fail)
    idata = after_rounds()
    np.testing.assert_array_equal(idata["posterior"]["mu"], whole[0]["posterior"]["mu"])  # a normal is its own
    assert "in the unconstrained one) (ZeroDivisionError: an Op" in missing(idata).message


def test_after_an_interrupt_nobody_waits_for_what_takes_long(after_rounds, monkeypatch):
    inject(monkeypatch, "run.modes.search.climb", KeyboardInterrupt)
    others = [
        inject(monkeypatch, f"opinions.opinions.{place}", RuntimeError) for place in ("anneal_linked", "anneal_back")
    ]
    idata = after_rounds(**OTHERS)
    assert others == [[], []]
    message = missing(idata).message
    for what in ("linked (interrupted before)", "bidirectional (interrupted before)"):
        assert what in message


@pytest.mark.parametrize(("error", "is_kept"), [(RuntimeError, True), (KeyboardInterrupt, False)])
def test_the_folder_of_a_run_has_a_result_unless_it_was_interrupted(
    error, is_kept, after_rounds, monkeypatch, tmp_path
):
    inject(monkeypatch, "results.datatree.compute_log_likelihood", error)
    idata = after_rounds(**DENSITIES, checkpoint=tmp_path)
    assert "log_likelihood" not in idata.children
    assert (tmp_path / "result.nc").exists() == is_kept


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_result_that_cannot_be_written_is_returned(error, after_rounds, whole, monkeypatch, tmp_path, caplog):
    inject(monkeypatch, "results.datatree.replacing", error)
    idata = after_rounds(checkpoint=tmp_path)
    assert estimate(idata).value == estimate(whole[0]).value
    assert f"The result will lack its file {str(tmp_path / 'result.nc')!r} (" in caplog.text
    assert not list(tmp_path.glob("*.nc"))


def test_a_later_round_that_fails_leaves_the_ones_before(model, monkeypatch, tmp_path):
    module = importlib.import_module("pymc_hais.run.rounds")
    anneal, numbers = module.anneal_rows, []

    def fail(*args):
        numbers.append(args)
        if len(numbers) > 1:
            raise RuntimeError("The workers of a tile were lost 4 times")
        return anneal(*args)

    options = {**QUICK, "target_se": 1e-4, "n_temperatures": 16, "random_seed": 1}
    first = pymc_hais.sample_hais(model=model, **options | {"max_temperatures": 16})
    monkeypatch.setattr(module, "anneal_rows", fail)
    idata = pymc_hais.sample_hais(model=model, **options)
    assert idata["posterior"].attrs["stopped_by"] == "failure"
    assert estimate(idata).value == estimate(first).value
    assert "round 2 (RuntimeError: The workers of a tile were lost 4 times)" in missing(idata).message
    assert (
        "The next round failed" in next(one for one in estimate(idata).findings if one.name == "standard_error").message
    )
    numbers[:] = [None]
    with pytest.raises(RuntimeError, match="were lost 4 times"):  # of the first round there is nothing to keep
        pymc_hais.sample_hais(model=model, **options)
    numbers.clear()
    with pytest.raises(RuntimeError, match="were lost 4 times"):  # the same call goes on from the folder
        pymc_hais.sample_hais(model=model, **options, checkpoint=tmp_path)
    assert list(tmp_path.glob("round_1*"))


def test_an_error_that_a_system_raises_without_words_is_named():
    runner = call_of(one_mean())
    assert runner.attempt("that", lambda: (_ for _ in ()).throw(MemoryError()), 3) == 3
    (finding,) = unfinished(runner.ledger)
    assert finding.message == "Missing from this result: that (MemoryError)."
    with pytest.raises(ZeroDivisionError):
        runner.finish(lambda: 1 / 0)
    with pytest.raises(SystemExit):
        runner.attempt("that", lambda: (_ for _ in ()).throw(SystemExit()), 3)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_bar_of_a_call_that_ctrl_c_ended_is_not_filled(error, after_rounds, monkeypatch):
    ends, leave = [], CallProgress.__exit__

    def record(self, *exception):
        ends.append(self.is_cut)
        return leave(self, *exception)

    monkeypatch.setattr(CallProgress, "__exit__", record)
    inject(monkeypatch, "run.modes.search.climb", error)
    after_rounds()
    assert ends == [error is KeyboardInterrupt]
