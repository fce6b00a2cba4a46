"""Second opinions on log Z of one run: right, with right errors, and heard where they differ."""

import numpy as np
import pymc as pm
import pytest

import pymc_hais
from pymc_hais.estimators import LogZEstimate
from pymc_hais.opinions import opinions
from pymc_hais.results.findings.others import check_opinions
from tests.mutants import mutate
from tests.quick import QUICK, TRUTH, hierarchy, one_mean, shared
from tests.statistical import assert_caught, assert_mean

METHODS = ["annealed", "bridge", "linked", "reverse", "forward and reverse"]


@pytest.fixture(scope="module")
def idata():
    model, _ = hierarchy()
    return pm.sample_hais(
        500, chains=4, estimators="all", target_se=None, random_seed=1, progressbar=False, model=model
    )


def test_every_method_agrees_with_the_truth(idata):
    _, truth = hierarchy()
    table = pymc_hais.estimates(idata)
    assert list(table.index) == METHODS
    # Of four chains alone the spread is known to three degrees of freedom: their intervals are the wider for it.
    half = (table["upper"] - table["lower"]) / 2
    assert (np.abs(table["value"] - truth) < 2.0 * half + 1e-9).all(), table
    assert (table["se"] < 0.2).all()
    assert table["agrees"].all()
    assert not pymc_hais.log_marginal_likelihood(idata).findings


def test_the_first_row_is_the_reported_estimate(idata):
    first, reported = pymc_hais.estimates(idata).iloc[0], pymc_hais.log_marginal_likelihood(idata)
    assert (first["value"], first["se"]) == (reported.value, reported.se)


def test_the_table_survives_a_file(idata, tmp_path):
    import arviz as az

    idata.to_netcdf(tmp_path / "run.nc")
    again = pymc_hais.estimates(az.from_netcdf(tmp_path / "run.nc"))
    np.testing.assert_array_equal(again["value"], pymc_hais.estimates(idata)["value"])


def test_by_default_no_other_method_is_asked():
    idata = pm.sample_hais(**QUICK, random_seed=2, model=shared(one_mean))
    assert list(pymc_hais.estimates(idata).index) == METHODS[:1]


@pytest.mark.slow
def test_the_draws_and_log_z_do_not_depend_on_who_else_is_asked():
    alone = pm.sample_hais(**QUICK, random_seed=2, model=shared(one_mean))
    asked = pm.sample_hais(**QUICK, random_seed=2, model=shared(one_mean), estimators=["linked", "bidirectional"])
    np.testing.assert_array_equal(alone["posterior"]["mu"], asked["posterior"]["mu"])
    values = [pymc_hais.log_marginal_likelihood(one).value for one in (alone, asked)]
    assert values[0] == values[1]


# Unbiased ------------------------------------------------------------------------------------------------


def per_chain(monkeypatch, linked=opinions.anneal_linked):
    found = []

    def keep(*args):
        found.append(linked(*args))
        return found[-1]

    monkeypatch.setattr(opinions, "anneal_linked", keep)
    pm.sample_hais(
        300,
        chains=300,
        n_temperatures=4,
        reference="prior",
        target_se=None,
        estimators=["linked"],
        random_seed=3,
        progressbar=False,
        model=shared(one_mean),
    )
    return np.exp(np.array(found[0].per_chain) - TRUTH)


@pytest.mark.exhaustive
def test_linked_importance_sampling_is_unbiased(monkeypatch):
    assert_mean(per_chain(monkeypatch), 1.0)


@pytest.mark.exhaustive
def test_a_wrong_factor_of_the_links_is_caught(monkeypatch):
    wrong = mutate(opinions, ("log_weights + ahead - link.log_back", "log_weights + ahead - 0.9 * link.log_back"))
    assert_caught(per_chain(monkeypatch, wrong.anneal_linked), 1.0)


# Heard ---------------------------------------------------------------------------------------------------


def one(value, se, name):
    return LogZEstimate(value, se, value - 2 * se, value + 2 * se, estimator=name)


def test_a_method_that_disagrees_is_an_error():
    annealed = one(-10.0, 0.05, "annealed")
    (finding,) = check_opinions(annealed, [one(-10.02, 0.03, "linked"), one(-10.6, 0.04, "bridge")])
    assert (finding.name, finding.severity) == ("estimates_disagree", "error")
    assert "-0.60 nats" in finding.message
    findings = [next(check_opinions(annealed, [one(value, 0.04, "reverse")])) for value in (-9.0, -11.0)]
    assert [(one.name, one.severity) for one in findings] == [
        ("estimates_disagree", "warning"),
        ("estimates_disagree", "error"),
    ]


def test_methods_of_earlier_versions_are_not_heard():
    assert not list(check_opinions(one(-10.0, 0.05, "annealed"), [one(5.0, 0.01, "thermodynamic")]))


@pytest.mark.parametrize("given", ["warp", ["bridge", "thermodynamic"], 3])
def test_an_unknown_estimator_is_refused_by_name(given):
    with pytest.raises(ValueError, match=r'`estimators` must be "all" or some of \[.bridge., .linked.'):
        pm.sample_hais(estimators=given, model=one_mean())


def test_estimates_of_something_else_are_refused():
    with pytest.raises(ValueError, match="Expected the DataTree that sample_hais returns"):
        pymc_hais.estimates({"a": 1})
