"""More of the same plan: what is added, how it is merged, and what is refused."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.special import logsumexp

import pymc_hais
from pymc_hais.core.records import AnnealingRun
from pymc_hais.estimators import Tail, estimate_log_z
from pymc_hais.inputs.results import read_plan
from pymc_hais.results.datatree import plan_group
from pymc_hais.run.extending import _widen
from tests.data_sets import DataSets
from tests.quick import schools
from tests.runs import build_run
from tests.statistical import assert_share

QUICK = {"draws": 300, "chains": 2, "progressbar": False, "backend": "jax", "random_seed": 1, "target_se": None}
Y = (1.2, 0.3, 2.5)


@pytest.fixture(autouse=True)
def needs_jax():
    pytest.importorskip("jax")


def sample(model, **options):
    return pymc_hais.sample_hais(model=model, **(QUICK | options))


def extend(idata, model=None, **options):
    return pymc_hais.extend(idata, model=model or MODEL, **({"progressbar": False, "random_seed": 1} | options))


def estimate(idata):
    return pymc_hais.log_marginal_likelihood(idata)


def means(y=Y, sd=3.0, name="mu", kind=pm.Normal):
    with pm.Model() as model:
        mu = pm.Normal(name, 0.0, sd)
        pm.Deterministic("twice", 2.0 * mu)
        kind("y", mu, 1.0, observed=np.asarray(y))
    return model


MODEL = means()


@pytest.fixture(scope="module")
def first():
    pytest.importorskip("jax")
    return sample(MODEL, idata_kwargs={"log_likelihood": True})


@pytest.fixture(scope="module")
def more_chains(first):
    return extend(first, chains=3)


@pytest.fixture(scope="module")
def more_draws(first):
    return extend(first, draws=150)


def mean_of(log_z):
    return float(logsumexp(log_z) - np.log(len(log_z)))


@pytest.mark.slow
def test_more_chains_stand_beside_the_old_ones(first, more_chains):
    before, after = estimate(first), estimate(more_chains)
    assert after.per_chain[:2] == before.per_chain
    assert len(set(after.per_chain)) == 5
    np.testing.assert_allclose(after.value, mean_of(after.per_chain), rtol=1e-12)
    assert after.mc_se < before.mc_se
    assert dict(more_chains["posterior"].sizes) == {"chain": 5, "draw": 300}
    assert dict(more_chains["annealing"].sizes)["chain"] == 5
    xr.testing.assert_equal(more_chains["annealing"].isel(chain=slice(2)).to_dataset(), first["annealing"].to_dataset())


@pytest.mark.slow
def test_more_draws_make_one_population_of_two(first, more_draws):
    before, after = estimate(first), estimate(more_draws)
    assert len(after.per_chain) == 2
    # The new ones are a third of the particles: (300 Z + 150 Z_new) / 450, so Z_new must be positive.
    new = np.exp(after.per_chain) * 450 - 300 * np.exp(before.per_chain)
    assert np.all(new > 0)
    assert dict(more_draws["posterior"].sizes) == {"chain": 2, "draw": 450}
    assert more_draws["annealing"].sizes["particle"] == 450
    assert more_draws["log_marginal_likelihood"]["round_n_particles"].values.tolist() == [900]


def test_an_annealing_of_two_sizes_weighs_as_its_particles_do():
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=(2, 40)), 0.5 + rng.normal(size=(2, 25))
    joined, expected = _widen(build_run(old), build_run(new)), build_run(np.concatenate([old, new], axis=1))
    np.testing.assert_allclose(joined.log_z, expected.log_z, rtol=1e-12)
    np.testing.assert_allclose(joined.log_weights, expected.log_weights, rtol=1e-12)
    np.testing.assert_array_equal(joined.ancestors, expected.ancestors)
    assert estimate_log_z(joined).value == pytest.approx(estimate_log_z(expected).value, rel=1e-12)
    assert estimate_log_z(joined).mc_se == pytest.approx(estimate_log_z(expected).mc_se, rel=1e-12)
    assert joined.temperature["ess"][0, 0] == 200.0  # 100 of each


def test_chains_that_are_joined_are_those_of_one_run():
    log_weights = np.random.default_rng(0).normal(size=(5, 60))
    joined, expected = (
        AnnealingRun.join([build_run(log_weights[:2]), build_run(log_weights[2:])]),
        build_run(log_weights),
    )
    assert estimate_log_z(joined) == estimate_log_z(expected)


def test_draws_are_those_of_both_and_their_statistics_go_with_them(first, more_chains, more_draws):
    for more, axis in ((more_chains, 0), (more_draws, 1)):
        posterior, stats = more["posterior"], more["sample_stats"]
        np.testing.assert_allclose(posterior["twice"].values, 2.0 * posterior["mu"].values)
        assert dict(stats.sizes) == {name: posterior.sizes[name] for name in ("chain", "draw")}
        # An old draw keeps its numbers; nearly all old draws are still there.
        pairs = set(zip(posterior["mu"].values.ravel(), stats["acceptance_rate"].values.ravel(), strict=True))
        old = set(
            zip(
                first["posterior"]["mu"].values.ravel(),
                first["sample_stats"]["acceptance_rate"].values.ravel(),
                strict=True,
            )
        )
        assert len(pairs & old) > 0.8 * len(old)
        assert posterior["mu"].values.shape[axis] > first["posterior"]["mu"].values.shape[axis]


def test_what_was_computed_for_the_draws_is_computed_for_all(first, more_chains):
    assert more_chains["log_likelihood"]["y"].shape == (5, 300, 3)
    mu = more_chains["posterior"]["mu"].values[..., None]
    expected = -0.5 * (np.asarray(Y) - mu) ** 2 - 0.5 * np.log(2.0 * np.pi)
    np.testing.assert_allclose(more_chains["log_likelihood"]["y"].values, expected)


def test_costs_add_up_and_extensions_are_counted(first, more_chains):
    old, new = first["posterior"].attrs, more_chains["posterior"].attrs
    # The same plan for three chains instead of two, and there is no pilot.
    searched = first["modes"].attrs["n_gradients"]
    before, after = (one["n_gradients"] - one["n_gradients_diagnosis"] - searched for one in (old, new))
    assert after == pytest.approx(before * 2.5)
    assert new["n_gradients_diagnosis"] > old["n_gradients_diagnosis"] > 0
    assert new["n_gradients_pilot"] == old["n_gradients_pilot"]
    assert new["total_time"] > old["total_time"]
    assert (new["extensions"], new["chains"]) == (1, 5)
    assert "extensions" not in old


def test_the_same_seed_gives_the_same_extension_and_no_number_twice(first, more_chains):
    assert estimate(extend(first, chains=3)) == estimate(more_chains)
    assert estimate(extend(first, chains=3, random_seed=2)) != estimate(more_chains)
    twice = extend(more_chains, chains=3)
    assert twice["posterior"].attrs["extensions"] == 2
    assert len(set(estimate(twice).per_chain)) == 8


@pytest.mark.slow
def test_an_extended_result_is_extended_in_either_way_and_from_a_file(more_chains, tmp_path):
    more_chains.to_netcdf(tmp_path / "result.nc")
    with xr.open_datatree(tmp_path / "result.nc") as read:
        wider = extend(read, draws=100, model=means())
    assert dict(wider["posterior"].sizes) == {"chain": 5, "draw": 400}
    assert wider["log_marginal_likelihood"]["round_n_particles"].values.tolist() == [2000]
    longer = extend(wider, chains=1)
    assert dict(longer["posterior"].sizes) == {"chain": 6, "draw": 400}
    assert longer["annealing"].sizes["particle"] == 400


@pytest.mark.slow
def test_earlier_rounds_weigh_by_their_particles_and_temperatures():
    rounds = sample(MODEL, reference="prior", n_temperatures=4, target_se=0.03)
    group = extend(rounds, chains=4)["log_marginal_likelihood"].to_dataset()
    costs = group["round_n_temperatures"] * group["round_n_particles"]
    assert group.sizes["round"] > 1
    assert group["round_n_particles"].values.tolist() == [*[600] * (group.sizes["round"] - 1), 1800]
    expected = float(logsumexp(group["round_value"] + np.log(costs / costs.sum())))
    np.testing.assert_allclose(float(group["value"]), expected, rtol=1e-12)
    old = rounds["log_marginal_likelihood"]["round_value"].values
    np.testing.assert_array_equal(group["round_value"].values[:-1], old[:-1])


def test_chains_are_added_until_the_target_is_met(first):
    target = 0.6 * estimate(first).se
    reached = extend(first, target_se=target)
    assert estimate(reached).se <= target
    assert reached["posterior"].attrs["stopped_by"] == "target_se"
    assert 2 < reached["posterior"].sizes["chain"] < 16


def test_nothing_is_added_where_nothing_is_needed(first):
    same = extend(first, target_se=1.0)
    assert estimate(same) == estimate(first)
    assert "extensions" not in same["posterior"].attrs


def test_where_the_shortfall_alone_is_above_the_target_a_longer_plan_is_asked_for(first, caplog):
    short = first.copy()
    plan = read_plan(first, "idata")
    heavy = replace(plan, tail=Tail(9.0, 0.5, 100_000))
    short["plan"] = xr.DataTree(plan_group(heavy))
    with caplog.at_level("WARNING", "pymc.hais"):
        same = extend(short, target_se=0.01)
    assert "Call sample_hais(target_se=0.01)" in caplog.text
    assert same["posterior"].sizes["chain"] == 2


def test_findings_are_made_anew_and_others_are_kept(first):
    found = first.copy()
    names = ("pareto_k", "memory", "missed_mass")  # of an older version
    made = [{"name": name, "severity": "error", "message": "m.", "advice": "a."} for name in names]
    found["log_marginal_likelihood"].attrs = first["log_marginal_likelihood"].attrs | {"findings": json.dumps(made)}
    assert [finding.name for finding in estimate(extend(found, chains=1)).findings] == [
        "underdispersion",
        "missed_mass",
    ]


def test_a_compiled_model_is_extended_without_compiling():
    compiled = pymc_hais.compile(means())
    options = {name: value for name, value in QUICK.items() if name != "backend"}
    idata = pymc_hais.sample_hais(model=compiled, **options)
    longer = extend(idata, compiled, chains=1)
    assert longer["posterior"].sizes["chain"] == 3
    assert longer["posterior"].attrs["compile_time"] == idata["posterior"].attrs["compile_time"]
    assert estimate(pymc_hais.sample_hais(model=compiled, plan=idata, **options)).value == estimate(idata).value


def test_the_result_itself_is_not_changed(first, more_chains):
    assert dict(first["posterior"].sizes) == {"chain": 2, "draw": 300}
    assert "extensions" not in first["posterior"].attrs


@pytest.mark.parametrize("given", [{}, {"draws": 100, "chains": 1}, {"chains": 2, "target_se": 0.1}])
def test_exactly_one_way_is_asked_for(first, given):
    with pytest.raises(ValueError, match="exactly one of `draws`, `chains` and `target_se`; got"):
        extend(first, **given)


def heldout():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1.0, observed=[0.0])
    options = {"draws": 100, "chains": 2, "random_seed": 1, "progressbar": False, "backend": "jax"}
    return pymc_hais.log_likelihood(model, {"y": np.array([[0.1], [0.2]])}, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "model", "message"),
    [
        (lambda idata: idata, means((1.2, 0.3, 2.6)), "other data now than the run"),
        (
            lambda idata: idata,
            means(sd=4.0),
            "its `mu` is computed in another way, or .*Pass the model",
        ),
        (lambda idata: idata, means(name="nu"), "free variables are `nu`, and not `mu`"),
        (lambda idata: idata, means(kind=pm.Laplace), "its `y` is laplace Vector.*and not normal Vector"),
        (
            lambda idata: idata,
            schools(),
            "another one than that of `idata`: its free variables are `mu`, `tau`, `z`, and not `mu`",
        ),
        (lambda idata: idata.isel(chain=[0]), MODEL, "had 2 chains, and its group `posterior` has 1"),
        (lambda idata: idata.isel(draw=slice(10)), MODEL, "had 300 draws, and its group .* has 10"),
        (lambda idata: idata.filter(lambda node: node.name != "plan"), MODEL, "no group `plan`.*earlier version"),
        (lambda idata: idata.filter(lambda node: node.name != "annealing"), MODEL, "lost its group `annealing`"),
        (lambda idata: heldout(), MODEL, "no group `plan`"),
        (lambda idata: 3, MODEL, "must be a result of sample_hais; got int"),
    ],
    ids=[
        "data",
        "constants",
        "names",
        "likelihood",
        "model",
        "chains",
        "draws",
        "old",
        "annealing",
        "heldout",
        "number",
    ],
)
def test_what_cannot_be_extended_is_refused(first, change, model, message):
    with pytest.raises(ValueError, match=message):
        extend(change(first), chains=1, model=model)


def test_a_reference_that_the_result_has_of_its_own(first):
    with pytest.raises(ValueError, match=r"`idata` has a reference of its own, .*: leave out `reference`\.$"):
        extend(first, chains=1, model=MODEL, reference="prior")


@pytest.mark.exhaustive
def test_four_times_the_particles_halve_the_error_and_intervals_cover():
    sets = DataSets(n_dims=5, n=20, seed=5)
    model, truth = sets.model(), sets.log_z(sets.first)
    plan = sample(model, reference="prior", draws=500)
    errors, covered = [], 0
    n = 60
    for seed in range(n):
        short = sample(model, plan=plan, draws=1000, chains=4, random_seed=seed)
        long = extend(short, model, chains=12, random_seed=seed)
        errors.append([estimate(short).value - truth, estimate(long).value - truth])
        covered += estimate(long).lower <= truth <= estimate(long).upper
    rms = np.sqrt(np.mean(np.square(errors), axis=0))
    # The log of a ratio of two root mean squares of correlation 1/2: its variance is about (1 - 1/4) / n.
    assert abs(np.log(rms[1] / rms[0] / 0.5)) < 4.0 * np.sqrt(0.75 / n)
    assert_share(covered, n, 0.93, 0.97)


# From a folder, and elsewhere --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    pytest.importorskip("jax")
    folder = tmp_path_factory.mktemp("runs") / "first"
    return folder, sample(MODEL, checkpoint=folder)


def test_the_folder_of_a_finished_run_is_extended_like_its_result(kept):
    folder, first = kept
    from_folder, from_result = extend(folder, chains=1), extend(first, chains=1)
    assert estimate(from_folder) == estimate(from_result)
    np.testing.assert_array_equal(from_folder["posterior"]["mu"], from_result["posterior"]["mu"])


def test_an_extension_elsewhere_is_the_same(kept, more_chains, first):
    with ThreadPoolExecutor(2) as executor:
        elsewhere = extend(first, chains=3, executor=executor)
    np.testing.assert_array_equal(elsewhere["posterior"]["mu"], more_chains["posterior"]["mu"])


@pytest.mark.slow
def test_an_extension_goes_on_from_its_own_checkpoint(first, more_chains, tmp_path):
    whole = extend(first, chains=3, checkpoint=tmp_path / "more")
    kept = sorted(tmp_path.glob("more/*round*.npz"))
    assert kept
    kept[0].unlink()
    resumed = extend(tmp_path / "more", chains=3, checkpoint=tmp_path / "again")
    again = extend(first, chains=3, checkpoint=tmp_path / "more")
    for one in (whole, again):
        np.testing.assert_array_equal(one["posterior"]["mu"], more_chains["posterior"]["mu"])
    assert resumed.posterior.sizes["chain"] == 8  # more of the extension
    with pytest.raises(ValueError, match="cannot go on with this one"):
        extend(first, chains=2, checkpoint=tmp_path / "more")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.mkdir(), "is not finished: repeat the call that began it"),
        (lambda path: path.write_bytes(b"\x80\x04cos\nsystem\n."), "cannot be read as a result"),
        (lambda path: None, "There is no file '.*run'"),
    ],
)
def test_what_is_no_result_on_disk(make, message, tmp_path):
    make(tmp_path / "run")
    with pytest.raises(ValueError, match=message):
        extend(tmp_path / "run", chains=1)
