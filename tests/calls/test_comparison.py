"""compare: probabilities and their errors against formulas and simulation, and what is not compared."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import pymc_hais

Y = np.array([1.0, 2.5, np.nan])


def result(value, se=0.05, observed=Y, name="y", findings=(), shortfall=0.0):
    """Build the groups of a result that a comparison reads."""
    numbers = {"value": value, "mc_se": se, "shortfall": shortfall, "lower": value - 2 * se, "upper": value + 2 * se}
    group = xr.Dataset({key: ((), number) for key, number in (numbers | {"log_prior_mass": 0.0}).items()})
    group["per_chain"] = ("chain", [value, value])
    group.attrs = {
        "chains": 2,
        "estimator": "annealed",
        "findings": json.dumps([{"name": one, "severity": "error", "message": "", "advice": ""} for one in findings]),
    }
    groups = {"/log_marginal_likelihood": group}
    if observed is not None:
        groups["/observed_data"] = xr.Dataset({name: ("i", observed)})
    return xr.DataTree.from_dict(groups)


def test_a_table_with_the_most_probable_model_first():
    table = pymc_hais.compare({"a": result(-3.0), "b": result(-1.0, 0.1), "c": result(-9.0)})
    assert list(table.index) == ["b", "a", "c"]
    assert list(table["rank"]) == [0, 1, 2]
    np.testing.assert_array_equal(table["log_z"], [-1.0, -3.0, -9.0])
    np.testing.assert_array_equal(table["log_bayes_factor"], [0.0, -2.0, -8.0])
    np.testing.assert_allclose(table["se_bayes_factor"], [0.0, np.hypot(0.1, 0.05), np.hypot(0.1, 0.05)])
    z = np.exp([-1.0, -3.0, -9.0])
    np.testing.assert_allclose(table["probability"], z / z.sum())
    assert not table["warning"].any()


def test_prior_probabilities_count():
    results = {"a": result(-3.0), "b": result(-1.0)}
    table = pymc_hais.compare(results, {"b": 1.0, "a": 9.0})
    np.testing.assert_allclose(table.loc["a", "probability"], 9.0 / (9.0 + np.exp(2.0)))
    assert list(table.index) == ["a", "b"]
    np.testing.assert_allclose(pymc_hais.compare(results, {"a": 0.9, "b": 0.1})["probability"], table["probability"])


def test_the_error_of_a_probability_is_that_of_the_logistic_map():
    """For two models and small errors the probability p has the error p (1 - p) times that of the difference."""
    table = pymc_hais.compare({"a": result(0.0, 0.03), "b": result(0.5, 0.04)})
    p = 1.0 / (1.0 + np.exp(0.5))
    np.testing.assert_allclose(table["se_probability"], p * (1.0 - p) * 0.05, rtol=0.05)
    exact = pymc_hais.compare({"a": result(0.0, 0.0), "b": result(0.5, 0.0)})
    np.testing.assert_allclose(exact["se_probability"], 0.0, atol=1e-12)


def test_names_of_data_do_not_matter_and_a_potential_has_none():
    both = {"a": result(0.0), "b": result(0.5, name="flow"), "c": result(0.5, observed=None)}
    assert len(pymc_hais.compare(both)) == 3


def test_models_far_below_the_best_keep_their_ranks():
    table = pymc_hais.compare({"b": result(-6000.0), "a": result(-5000.0), "c": result(-1000.0)})
    assert list(table.index) == ["c", "a", "b"]
    assert list(table["probability"]) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("quantity", ["log partition function", "log ratio of partition functions"])
def test_other_quantities_are_not_compared(quantity):
    other = result(0.5)
    other["log_marginal_likelihood"].attrs["quantity"] = quantity
    with pytest.raises(ValueError, match=f"log Z of 'b' is a {quantity}"):
        pymc_hais.compare({"a": result(0.0), "b": other})


@pytest.mark.parametrize("other", [np.log(np.abs(Y)), Y[:2], Y + 1e-6])
def test_other_data_are_not_compared(other):
    with pytest.raises(ValueError, match=r"'a' and 'b' have different observed data .* with mean"):
        pymc_hais.compare({"a": result(0.0), "b": result(0.5, observed=other)})


def test_results_that_should_not_be_trusted_are_refused_unless_allowed():
    bad = {"a": result(0.0), "b": result(0.5, findings=["weight_degeneracy"]), "c": result(0.1, shortfall=np.inf)}
    with pytest.raises(ValueError, match=r"'b': weight_degeneracy; 'c': an infinite error.*allow_errors=True"):
        pymc_hais.compare(bad)
    table = pymc_hais.compare(bad, allow_errors=True)
    assert list(table.loc[["a", "b", "c"], "warning"]) == [False, True, True]


def test_an_infinite_error_leaves_the_other_models_their_probabilities():
    known = {"a": result(0.0), "b": result(0.5, findings=["weight_degeneracy"])}
    unknown = {"low": result(9.0, shortfall=np.inf), "dead": result(-np.inf, np.inf, findings=["weight_degeneracy"])}
    table = pymc_hais.compare({**unknown, **known}, allow_errors=True)
    assert list(table.index) == ["b", "a", "low", "dead"]
    pd.testing.assert_frame_equal(table.iloc[:2], pymc_hais.compare(known, allow_errors=True))
    assert table.loc[["low", "dead"], ["probability", "se_probability"]].isna().all(axis=None)
    assert np.isinf(table.loc["low", "se_bayes_factor"])
    alone = pymc_hais.compare({"a": known["a"], "low": unknown["low"]}, allow_errors=True)
    assert list(alone.index) == ["a", "low"]
    assert alone["probability"].isna().all()


def test_the_check_of_the_data_can_be_left_out():
    other_order = {"a": result(0.0), "b": result(0.5, observed=Y[::-1])}
    with pytest.raises(ValueError, match="check_data=False"):
        pymc_hais.compare(other_order)
    assert len(pymc_hais.compare(other_order, check_data=False)) == 2


def test_a_result_of_another_sampler_is_told_where_log_z_comes_from():
    draws = xr.DataTree.from_dict({"/posterior": xr.Dataset({"x": (("chain", "draw"), np.zeros((2, 5)))})})
    with pytest.raises(ValueError, match=r"'b' has posterior draws but no log Z.*pm.sample_hais.*pymc_hais.bridge"):
        pymc_hais.compare({"a": result(0.0), "b": draws})

    class InferenceData:  # as ArviZ had it
        def groups(self):
            return ["posterior", "sample_stats"]

    with pytest.raises(ValueError, match="'b' has posterior draws but no log Z"):
        pymc_hais.compare({"a": result(0.0), "b": InferenceData()})


@pytest.mark.parametrize(("given", "shown"), [([3], r"\[3\]"), (xr.DataTree(), "a DataTree")])
def test_what_is_no_result_is_named(given, shown):
    with pytest.raises(ValueError, match=f"The result of 'b' must be the whole DataTree .*; got {shown}"):
        pymc_hais.compare({"a": pymc_hais.LogZEstimate(-1.0, 0.1, -1.2, -0.8), "b": given})


def test_a_part_of_a_result_is_told_to_be_whole():
    with pytest.raises(ValueError, match=r"as a whole, with a `log_marginal_likelihood` group; .* groups: none\."):
        pymc_hais.log_marginal_likelihood(xr.DataTree())


@pytest.mark.parametrize(
    ("results", "prior", "message"),
    [
        ({"a": result(0.0)}, None, "at least two results"),
        ([result(0.0), result(1.0)], None, r"must be a dictionary that names the models, \{'a': ..., 'b': ...\}"),
        (result(0.0), None, "must be a dictionary of at least two results .* got DataTree"),
        ({"a": result(0.0), "b": xr.DataTree()}, None, "DataTree that sample_hais returns"),
        ({"a": result(0.0), "b": result(1.0)}, {"a": 1.0}, r"`prior` must be a dictionary .* \['a', 'b'\]"),
        ({"a": result(0.0), "b": result(1.0)}, {"a": 1.0, "b": 0.0}, "must be positive"),
        ({"a": result(0.0), "b": result(1.0)}, {"a": "x", "b": 1.0}, "must be positive numbers; got {'a': 'x'"),
        ({"a": result(0.0), "b": result(1.0)}, [0.5, 0.5], "`prior` must be a dictionary"),
    ],
)
def test_what_cannot_be_compared_is_named(results, prior, message):
    with pytest.raises(ValueError, match=message):
        pymc_hais.compare(results, prior)


@pytest.mark.parametrize("flag", ["allow_errors", "check_data"])
def test_a_switch_is_true_or_false(flag):
    for function in (pymc_hais.compare, pymc_hais.average, pymc_hais.inclusion_probabilities):
        with pytest.raises(ValueError, match=f"`{flag}` must be True or False; got 'yes'"):
            function({"a": result(0.0), "b": result(1.0)}, **{flag: "yes"})


def test_a_bayes_factor_formats_value_and_interval_alike():
    factor = pymc_hais.LogZEstimate(math.log(3.0), 0.0, math.log(2.0), math.log(4.0)).bayes_factor(0.0)
    assert f"{factor:.1f}" == "3.0 (2.0 to 4.0)"
    assert f"{factor}" == str(factor)


def seeded(value, seed, **options):
    idata = result(value, **options)
    idata["posterior"] = xr.DataTree(xr.Dataset(attrs={"random_seed": json.dumps([seed, seed + 1])}))
    return idata


def test_estimates_of_different_data_have_no_bayes_factor():
    first, second = (pymc_hais.log_marginal_likelihood(result(0.0, observed=data)) for data in (Y, Y + 1e-6))
    with pytest.raises(ValueError, match=r"estimates of different data .*with mean 1.75.*check_data=False"):
        first - second
    with pytest.raises(ValueError, match="estimates of different data"):
        first.bayes_factor(second)
    assert first.bayes_factor(second, check_data=False).value == 1.0
    # Under another name, in another type, or without any data there is nothing to say.
    for other in (result(1.0, name="flow"), result(1.0, observed=None), result(1.0, observed=Y.astype(np.float32))):
        assert float(first - pymc_hais.log_marginal_likelihood(other)) == -1.0
    plain = pymc_hais.LogZEstimate(1.0, 0.1, 0.8, 1.2)
    assert float(plain - first) == float(plain - 0.0) == 1.0


def test_a_single_number_is_data():
    results = [result(0.0), result(1.0), result(1.0)]
    for idata, value in zip(results, (2.0, 2, 2.5), strict=True):
        idata["observed_data"] = xr.DataTree(xr.Dataset({"y": ((), value)}))
    one, same, other = map(pymc_hais.log_marginal_likelihood, results)
    assert float(one - same) == -1.0
    with pytest.raises(ValueError, match=r"different data \(`y` \(\) with mean 2; `y` \(\) with mean 2.5\)"):
        one - other


def test_a_bayes_factor_on_its_natural_scale():
    first, second = (pymc_hais.log_marginal_likelihood(result(value, 0.1)) for value in (-1.0, -3.0))
    factor, log = first.bayes_factor(second), first - second
    assert isinstance(factor, pymc_hais.BayesFactor)
    np.testing.assert_allclose((factor.value, factor.lower, factor.upper), np.exp([log.value, log.lower, log.upper]))
    assert factor == np.exp(log)
    assert float(factor) == factor.value
    assert repr(factor) == "Bayes factor = 7.39 (95% interval 5.57 to 9.8)"
    assert repr(factor) in factor._repr_html_()
    large = first.bayes_factor(-2001.0)
    # exp(2000) is 10 to the power of 2000 / ln 10 = 868.589.
    assert repr(large).startswith("Bayes factor = 3.88e+868")
    assert repr(np.exp(-large.log)).startswith("Bayes factor = 2.58e-869")
    with pytest.raises(ValueError, match="of two estimates of log Z; got DataTree"):
        first.bayes_factor(result(0.0))


def test_plain_estimates_are_compared(caplog):
    plain = pymc_hais.LogZEstimate(-1.0, 0.1, -1.2, -0.8)
    bridged = pymc_hais.log_marginal_likelihood(result(-2.0))
    table = pymc_hais.compare({"a": result(-3.0), "b": plain, "c": bridged})
    assert list(table.index) == ["b", "c", "a"]
    assert "`b` has no observed data" in caplog.text
    caplog.clear()
    pymc_hais.compare({"a": result(-3.0), "b": plain}, check_data=False)
    assert not caplog.records
    with pytest.raises(ValueError, match=r"`b` has an estimate of log Z and no draws"):
        pymc_hais.average({"a": result(-3.0), "b": plain})


def test_one_result_twice_and_a_shared_seed_are_named(caplog):
    caplog.set_level("INFO", "pymc.hais")
    pymc_hais.compare({"a": seeded(-3.0, 1), "b": seeded(-1.0, 5), "c": seeded(-2.0, 9)})
    assert not caplog.records
    one = seeded(-3.0, 1)
    pymc_hais.compare({"a": one, "b": seeded(-1.0, 1), "c": one.copy()})
    assert [record.message.partition(",")[0] for record in caplog.records] == [
        "'a' and 'c' are one result: their difference is 0 and its error says nothing. Pass the result of each model.",
        "The results `a`",
    ]
    assert "`a`, `b` have the same random seed" in caplog.messages[1]
    caplog.clear()
    pymc_hais.compare({name: seeded(value, 1) for name, value in {"a": -3.0, "b": -1.0, "c": -2.0, "d": 0.0}.items()})
    (said,) = caplog.messages
    assert "`a`, `b`, `c`, `d`" in said


def test_a_printed_table_shows_every_bayes_factor_in_80_columns():
    results = {"complete pooling": result(-3.25), "hierarchical": result(-1.0, 0.1), "no pooling": result(-1234.5)}
    table = pymc_hais.compare(results)
    text = str(table)
    assert max(map(len, text.splitlines())) <= 80
    assert list(table.columns[:3]) == ["rank", "log_z", "se"]
    for name in ("log_bayes_factor", "probability", "log_z"):
        assert name in text
    # -3.25 + 1, and its error.
    assert f"-2.250 ± {table.loc['complete pooling', 'se_bayes_factor']:.3f}" in text
    assert "-1233.500 ± " in text
    assert "warning" not in text
    marked = table.assign(warning=[False, True, False], exact=[1.0, 2.0, 3.0])
    assert str(marked).count(" yes") == 1
    assert "exact" in str(marked)
    assert str(table[["log_z", "se"]]) == str(pd.DataFrame(table[["log_z", "se"]]))


def with_variables(value, *names, seed=0):
    idata = seeded(value, seed)
    idata["posterior"] = xr.DataTree(xr.Dataset({name: (("chain", "draw"), np.zeros((2, 5))) for name in names}))
    return idata


def test_inclusion_probabilities_sum_over_the_models_of_a_term():
    results = {
        "none": with_variables(0.0, "a", seed=1),
        "x": with_variables(1.0, "a", "x", seed=3),
        "z": with_variables(-1.0, "a", "z", seed=5),
        "both": with_variables(2.0, "a", "x", "z", seed=7),
    }
    prior = {"none": 1.0, "x": 2.0, "z": 1.0, "both": 1.0}
    table = pymc_hais.inclusion_probabilities(results, prior=prior)
    mass = np.exp([0.0, 1.0, -1.0, 2.0]) * [1.0, 2.0, 1.0, 1.0]
    p = mass / mass.sum()
    assert list(table.index) == ["x", "z"]
    np.testing.assert_allclose(table["prior"], [0.6, 0.4])
    np.testing.assert_allclose(table["probability"], [p[1] + p[3], p[2] + p[3]])
    odds = table["probability"] / (1.0 - table["probability"])
    np.testing.assert_allclose(table["bayes_factor"], odds / [1.5, 2.0 / 3.0])
    assert np.all(table["se_probability"] > 0.0)
    named = pymc_hais.inclusion_probabilities(results, {"slope": ["x", "both"]}, prior)
    np.testing.assert_allclose(named.loc["slope"], table.loc["x"])
    # The error of a sum of two of two models is that of one of them.
    pair = {name: results[name] for name in ("none", "x")}
    row = pymc_hais.inclusion_probabilities(pair, {"x": ["x"]}).loc["x"]
    np.testing.assert_allclose(row["se_probability"], pymc_hais.compare(pair).loc["x", "se_probability"])


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({}, "`terms` must be a dictionary"),
        (["x"], "`terms` must be a dictionary"),
        ({"x": ["w"]}, r"Term 'x' of `terms` names `w`, which `results` does not have: the models are \['a', 'b'\]\.$"),
        ({"x": ["a", "b"]}, "must name some of the models, and not all"),
        ({"x": []}, "must name some of the models"),
        (None, "All models have the same variables"),
    ],
)
def test_terms_that_tell_nothing(terms, message):
    results = {"a": with_variables(0.0, "u"), "b": with_variables(1.0, "u")}
    with pytest.raises(ValueError, match=message):
        pymc_hais.inclusion_probabilities(results, terms)


def test_files_and_numbers_are_compared_beside_results(tmp_path):
    given = {"tree": result(-3.0), "file": result(-1.0), "zarr": result(-2.0)}
    given["file"].to_netcdf(tmp_path / "run.nc")
    given["zarr"].to_zarr(tmp_path / "run.zarr")
    mixed = {"tree": given["tree"], "file": str(tmp_path / "run.nc"), "zarr": tmp_path / "run.zarr"}
    pd.testing.assert_frame_equal(pymc_hais.compare(mixed), pymc_hais.compare(given))
    table = pymc_hais.compare({"a": result(-3.0), "exact": np.float64(-1.0), "array": np.array(-2), "rough": (-4, 0.5)})
    assert list(table.index) == ["exact", "array", "a", "rough"]
    np.testing.assert_array_equal(table["se"], [0.0, 0.0, 0.05, 0.5])
    np.testing.assert_array_equal(table["log_z"], [-1.0, -2.0, -3.0, -4.0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.nan, "log Z of 'b' must be a number; got nan"),
        ((-1.0, -0.1), "standard error of log Z of 'b' must be a number of at least 0; got -0.1"),
        ((-1.0, None), "standard error of log Z of 'b' must be a number of at least 0; got None"),
        ((None, -1.0), r"pair of 'b' must be \(log Z, its standard error\) or \(posterior draws, log Z\); got \(None"),
        (True, "result of 'b' must be the whole DataTree .* got True"),
        ("no such file.nc", "There is no file 'no such file.nc'"),
    ],
)
def test_what_is_no_log_z_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        pymc_hais.compare({"a": -3.0, "b": given})


def test_a_misspelt_argument_is_answered():
    for function in (pymc_hais.compare, pymc_hais.average, pymc_hais.inclusion_probabilities):
        with pytest.raises(TypeError, match=r"has no argument `prior_probabilities`: did you mean `prior`\?"):
            function({"a": -3.0, "b": -1.0}, prior_probabilities={"a": 0.5, "b": 0.5})
