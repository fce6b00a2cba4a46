"""Plots of a run draw the numbers of the run, on every backend."""

import numpy as np
import pytest
from xarray import Dataset, DataTree

import pymc_hais
from pymc_hais import plots
from tests.quick import QUICK, one_mean, shared
from tests.results.plots.drawn import BACKENDS, close, ends, needs, numbers

PLOTS = (plots.plot_log_weights, plots.plot_path, plots.plot_rounds, plots.plot_schedule)


@pytest.fixture(scope="module")
def idata():
    options = {**QUICK, "target_se": 0.003, "max_temperatures": 512}
    return pymc_hais.sample_hais(model=shared(one_mean), random_seed=1, **options)


@pytest.fixture(params=BACKENDS)
def backend(request):
    needs(request.param)
    yield request.param
    close()


def changed(idata, group, **values):
    """Return the result with other numbers in a group."""
    copy = idata.copy()
    copy[group] = DataTree(idata[group].to_dataset().assign(values))
    return copy


def without_defence(idata):
    return changed(idata, "annealing", ancestor_part=0 * idata["annealing"]["ancestor_part"])


def test_log_weights_are_counted_about_their_average(idata, backend):
    idata = without_defence(idata)
    collection = plots.plot_log_weights(idata, backend=backend)
    weights = np.exp(idata["annealing"]["final_log_weight"].values)
    for chain in range(2):
        edges, counts = numbers(collection, "hist", "log_weight", chain=chain)
        assert counts[:-1].sum() == weights.shape[1]
        middle = (edges[:-1] + edges[1:]) / 2
        mean = (np.exp(middle) * counts[:-1]).sum() / weights.shape[1]
        assert mean == pytest.approx(1.0, abs=0.05)  # a log weight of 0 is the average


def test_the_edge_is_explained_where_something_lies_there(idata):
    needs("matplotlib")
    log_weights = idata["annealing"]["final_log_weight"]
    for lowest, said in ((0.0, False), (-1000.0, True)):
        even = np.full(log_weights.shape, -np.log(log_weights.shape[1]))
        even[0, 0] += lowest
        tree = changed(without_defence(idata), "annealing", final_log_weight=log_weights.copy(data=even))
        axes = plots.plot_log_weights(tree, backend="matplotlib").get_target("log_weight", {})
        assert ("-6: or less" in axes.get_xlabel()) is said
    close()


def test_hopeless_particles_are_drawn_at_the_edge(idata):
    log_weights = idata["annealing"]["final_log_weight"].copy()
    log_weights[0, :50] = -1000.0
    log_weights[0, 50:60] = -np.inf
    edges, counts = numbers(
        plots.plot_log_weights(
            changed(without_defence(idata), "annealing", final_log_weight=log_weights), backend="none"
        ),
        "hist",
        "log_weight",
        chain=0,
    )
    assert edges[1] == -6.0
    np.testing.assert_array_equal(counts[:2], [0, 60])


def test_the_path_of_each_chain(idata, backend):
    collection, path = plots.plot_path(idata, backend=backend), idata["annealing"]
    for chain in range(2):
        for name, scale in (("ess", 200.0), ("acceptance_rate", 1.0), ("log_z", 1.0)):
            x, y = numbers(collection, "lines", name, chain=chain)
            np.testing.assert_allclose(y * scale, path[name].values[chain])
            np.testing.assert_array_equal(x, path["temperature"].values)


def test_one_temperature_has_a_marker_and_its_number(idata, backend):
    one = idata.copy()
    one["annealing"] = DataTree(idata["annealing"].to_dataset().isel(temperature=[0]))
    collection = plots.plot_path(one, backend=backend)
    for name, scale in (("ess", 200.0), ("acceptance_rate", 1.0), ("log_z", 1.0)):
        x, y = numbers(collection, "points", name, chain=1)
        np.testing.assert_array_equal(x, [1.0])
        np.testing.assert_allclose(y * scale, idata["annealing"][name].values[1, :1])
    if backend == "matplotlib":
        for axes in collection.viz["figure"].item().axes:
            assert (axes.get_xlim(), list(axes.get_xticks())) == ((0.5, 1.5), [1.0])
    assert "points" not in plots.plot_path(idata, backend=backend).viz.children  # a line says enough


def test_the_path_ends_at_each_chains_own_log_z(idata):
    mass = changed(idata, "log_marginal_likelihood", log_prior_mass=((), 0.7))
    collection = plots.plot_path(mass, backend="none")
    for chain, log_z in enumerate(idata["sample_stats"]["log_marginal_likelihood"].values):
        assert numbers(collection, "lines", "log_z", chain=chain)[1][-1] == pytest.approx(log_z - 0.7)


def test_the_barrier_is_the_sum_of_the_square_roots_of_the_discrepancies(idata, backend):
    collection = plots.plot_schedule(idata, backend=backend)
    path = idata["annealing"]
    betas, barrier = numbers(collection, "lines", "barrier")
    np.testing.assert_allclose(betas, [0.0, *path["beta"].values[0]])
    total = sum(float(np.sqrt(one)) for one in path["discrepancy"].mean("chain"))
    assert barrier[0] == 0.0
    assert barrier[-1] == pytest.approx(total)
    temperature, drawn = numbers(collection, "points", "schedule")
    np.testing.assert_allclose(drawn, betas[temperature.astype(int)])


def known_path(betas, discrepancies):
    dims = ("chain", "temperature")
    return DataTree.from_dict({"/annealing": Dataset({"beta": (dims, betas), "discrepancy": (dims, discrepancies)})})


def test_the_barrier_of_a_path_that_is_known():
    """Steps of discrepancy 0.01 and 0.04, whose square roots add up to 0.3."""
    tree = known_path(np.tile([0.5, 1.0], (2, 1)), np.array([[0.005, 0.05], [0.015, 0.03]]))
    _, barrier = numbers(plots.plot_schedule(tree, backend="none"), "lines", "barrier")
    np.testing.assert_allclose(barrier, [0.0, 0.1, 0.3])


def test_a_long_path_has_a_point_every_so_many_temperatures():
    tree = known_path(np.arange(1, 151)[None] / 150, np.full((1, 150), 0.01))
    collection = plots.plot_schedule(tree, backend="none")
    np.testing.assert_array_equal(numbers(collection, "points", "schedule")[0], np.arange(0, 151, 3))
    np.testing.assert_allclose(np.diff(numbers(collection, "points", "barrier")[1]), 0.3)
    assert len(numbers(collection, "lines", "schedule")[0]) == 151


def test_each_round_with_its_interval(idata, backend):
    collection, group = plots.plot_rounds(idata, backend=backend), idata["log_marginal_likelihood"]
    assert group.sizes["round"] > 1
    value, se = group["round_value"].values, group["round_mc_se"].values
    np.testing.assert_allclose(numbers(collection, "value", "log_z")[1], value)
    drawn, position = ends(collection, "interval", "log_z", upright=True)
    np.testing.assert_allclose(drawn, [value - 1.96 * se, value + 1.96 * se])
    np.testing.assert_array_equal(position, np.arange(len(value)) + 1)


def test_rounds_are_drawn_after_the_division_by_the_mass_of_the_prior(idata):
    group = idata["log_marginal_likelihood"]
    shifted = {name: group[name] - 2.0 for name in ("value", "lower", "upper")}
    mass = changed(idata, "log_marginal_likelihood", log_prior_mass=((), 2.0), **shifted)
    collection = plots.plot_rounds(mass, backend="none")
    np.testing.assert_allclose(numbers(collection, "value", "log_z")[1], group["round_value"].values - 2.0)
    assert collection.get_viz("estimate", "log_z")["y"] == pytest.approx(float(group["value"]) - 2.0)
    band = collection.get_viz("band", "log_z")
    assert (band["ymin"], band["ymax"]) == pytest.approx((float(group["lower"]) - 2.0, float(group["upper"]) - 2.0))


def test_an_infinite_error_reaches_the_edge(idata):
    infinite = idata["log_marginal_likelihood"]["round_mc_se"] * np.inf
    tree = changed(idata, "log_marginal_likelihood", round_mc_se=infinite, upper=((), np.inf))
    needs("matplotlib")
    collection = plots.plot_rounds(tree, backend="matplotlib")
    drawn, _ = ends(collection, "interval", "log_z", upright=True)
    low, high = collection.get_target("log_z", {}).get_ylim()
    np.testing.assert_allclose(drawn, np.array([[low], [high]]).repeat(drawn.shape[1], axis=1))
    close()


@pytest.mark.every(4)
@pytest.mark.few(5)
@pytest.mark.parametrize("plot", PLOTS)
def test_visuals_can_be_changed_left_out_and_drawn_into_again(plot, idata, backend):
    first = plot(idata, backend=backend, visuals={"title": False})
    assert "title" not in first.viz.children
    assert "xlabel" in first.viz.children
    again = plot(idata, plot_collection=first)
    assert again is first
    with pytest.raises(ValueError, match=r"Found keys \['colour'\] but valid keys are"):
        plot(idata, backend=backend, visuals={"colour": "red"})
    with pytest.raises(ValueError, match=r"`visuals` must be a dictionary, such as .*; got 'x'"):
        plot(idata, backend=backend, visuals="x")


def test_a_figure_is_as_large_as_asked_for(idata):
    needs("matplotlib")
    collection = plots.plot_rounds(idata, backend="matplotlib", figure_kwargs={"figsize": (5.0, 3.0)})
    assert tuple(collection.viz["figure"].item().get_size_inches()) == (5.0, 3.0)
    close()


def test_the_legend_names_every_chain(idata):
    needs("matplotlib")
    figure = plots.plot_path(idata, backend="matplotlib").viz["figure"].item()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["0", "1"]
    close()


@pytest.mark.parametrize("plot", PLOTS)
def test_what_is_no_result_of_a_run_is_refused(plot, idata):
    with pytest.raises(ValueError, match=r"Expected the DataTree that pm\.sample_hais returns.*got a dict\.$"):
        plot({"posterior": 1})
    posterior = DataTree.from_dict({"/posterior": idata["posterior"].to_dataset()})
    with pytest.raises(ValueError, match=r"with a group `\w+`; got a DataTree with groups: posterior\.$"):
        plot(posterior)
    groups = {f"/{name}": group.to_dataset() for name, group in idata.children.items()}
    for name in ("/annealing", "/log_marginal_likelihood"):
        groups[name] = groups[name][[]]
    with pytest.raises(ValueError, match=r"that holds `.*not found in this one\.$"):
        plot(DataTree.from_dict(groups))


def test_the_defensive_share_is_drawn_apart(idata, backend):
    """A tenth of the particles of each chain come from the first part of the reference, the prior."""
    parts = np.where(np.arange(idata["annealing"].sizes["particle"]) % 10 == 0, 1, 2)
    log_weights = idata["annealing"]["final_log_weight"]
    log_weights = log_weights.copy(data=np.where(parts == 1, -1000.0, log_weights.values))
    mixed = changed(
        idata,
        "annealing",
        final_log_weight=log_weights,
        ancestor_part=log_weights.copy(data=np.broadcast_to(parts, log_weights.shape)),
    )
    collection = plots.plot_log_weights(mixed, backend=backend)
    edges, counts = numbers(collection, "defensive", "log_weight", chain=0)
    assert edges[1] == -6.0
    assert counts[1] == np.sum(parts == 1) == counts[:-1].sum()
    _, rest = numbers(collection, "hist", "log_weight", chain=0)
    assert rest[1] == 0
    assert rest[:-1].sum() == np.sum(parts == 2)
    # Two equal parts of a user's own mixture have nothing to defend.
    halves = log_weights.copy(data=np.broadcast_to(1 + np.arange(len(parts)) % 2, log_weights.shape))
    both = plots.plot_log_weights(changed(mixed, "annealing", ancestor_part=halves), backend=backend)
    _, every = numbers(both, "hist", "log_weight", chain=0)
    assert every[:-1].sum() == len(parts)
