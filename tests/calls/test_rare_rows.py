"""Rows of data that few draws of the prior make possible: annealed with the others, or refused in a sentence."""

import json

import numpy as np
import pymc as pm
import pytest

import pymc_hais
from pymc_hais.density.rows import check_rows
from pymc_hais.planning.choose import choose_rows
from pymc_hais.planning.learning import NoStartError, run_pilots
from pymc_hais.problem.building import build_problem
from pymc_hais.runner.ledger import PILOT
from tests.rows import held_out
from tests.runs import call_of

LIKELY = [0.1, 0.2, 0.3, 0.4]


def below_a_bound():
    with pm.Model() as model:
        a = pm.Uniform("a", 0.0, 1.0)
        pm.Uniform("x", 0.0, a, observed=0.5)
    return model


def exact(x):
    """Log of the integral of 1 / a over a from x to 1: of -log(x)."""
    return np.log(-np.log(np.asarray(x)))


def rows_of(x, seed=1):
    call = call_of(below_a_bound(), draws=200, chains=1, target_se=0.1, random_seed=seed)
    data = check_rows(below_a_bound(), {"x": np.asarray(x)})
    return build_problem(below_a_bound(), "prior", call.compiler, call.seeds, data), call


def test_a_rare_row_is_no_pilot_and_stops_no_other():
    """At 0.995 about 60% of looks at 100 draws, and 1 in 20,000 at 2,000, see no possible one."""
    problem, _ = rows_of([*LIKELY, 0.995])
    for seed in range(10):
        own = call_of(problem.model, draws=200, chains=1, target_se=0.1, random_seed=seed)
        assert 4 not in choose_rows(problem, own)


def test_where_all_rows_are_rare_the_most_frequent_has_the_pilot():
    problem, call = rows_of([0.999, 0.95, 0.999])
    assert choose_rows(problem, call) == [1]
    assert call.ledger.gradients[PILOT] > 3 * 100


def test_rows_that_no_draw_makes_possible_are_refused_by_number():
    problem, call = rows_of([0.3, 1.2, 0.5])
    with pytest.raises(ValueError, match=r"at any of 2,000 draws of the prior for 1 of 3 rows \(row 1\)"):
        choose_rows(problem, call)


def test_a_pilot_without_a_particle_is_refused_in_a_sentence():
    problem, call = rows_of([0.3, 1.2, 0.5])
    with pytest.raises(NoStartError, match="None of the 500 particles of a pilot for row 1 started where"):
        run_pilots(problem, [1], 0, call)


@pytest.mark.slow
def test_a_rare_row_is_reported_beside_the_others():
    """In a run with a target for the error, with scouting and a fit on offer."""
    result = held_out(below_a_bound(), {"x": [*LIKELY, 0.99]}, draws=100)
    value, se = result["value"].values, result["se"].values
    assert np.all(np.abs(value - exact([*LIKELY, 0.99]))[:4] < 4.5 * se[:4])
    assert value[4] < exact(0.99) + 4.5 * se[4]
    assert not np.isnan([result["mean"], result["mcse"], result["sem"]]).any()


def test_rare_rows_are_unbiased_and_those_without_weight_are_named():
    """Each of 60 rows has 100 draws, of which 1/2 is possible on average: the mean of Z is right, zeros included.

    The mean of 60 ratios of standard deviation sqrt(2) has one of 0.18; without the zeros it would be 2.5.
    """
    rare = 0.995
    x = [*LIKELY, *[rare] * 60]
    tree = pymc_hais.log_likelihood(
        below_a_bound(), {"x": x}, reference="prior", draws=100, target_se=None, random_seed=2, progressbar=False
    )
    value = tree["held_out"]["value"].values[4:]
    assert 10 < np.isneginf(value).sum() < 50
    assert np.exp(value - exact(rare)).mean() == pytest.approx(1.0, abs=4.0 * 0.18)
    assert tree["held_out"]["mean"] == -np.inf
    assert tree["held_out"]["mcse"] == tree["held_out"]["sem"] == np.inf
    findings = json.loads(tree["held_out"].attrs["findings"])
    (dead,) = (finding for finding in findings if "ended with weight zero" in finding["message"])
    assert (dead["name"], dead["severity"]) == ("weight_degeneracy", "error")
    assert f"{np.isneginf(value).sum()} of 64 rows" in dead["message"]
