"""Plots of a validation: bounds about their middle, and ranks that leave the envelope only where they should."""

import numpy as np
import pytest
from xarray import Dataset, DataTree

from pymc_hais import plots
from pymc_hais.results.plots.bounds import _difference, _envelope
from tests.results.plots.drawn import BACKENDS, close, ends, needs, numbers

PLOTS = (plots.plot_bounds, plots.plot_calibration)
LOWER, UPPER = np.array([-40.1, -20.0, -30.5]), np.array([-39.9, -20.0, -30.1])
LOWER_SE, UPPER_SE = np.array([0.01, 0.02, 0.05]), np.array([0.1, 0.02, 0.03])
N = 60


def bounds(**changes):
    values = {"lower": LOWER, "lower_se": LOWER_SE, "upper": UPPER, "upper_se": UPPER_SE} | changes
    return DataTree.from_dict({"/bounds": Dataset({name: ("data_set", one) for name, one in values.items()})})


def ranks(**values):
    dims = ("data_set", "school")
    arrays = {name: (dims[: np.ndim(one)], one) for name, one in values.items()}
    return DataTree.from_dict({"/ranks": Dataset(arrays)})


EVEN = (np.arange(N) + 0.5) / N


@pytest.fixture(params=BACKENDS)
def backend(request):
    needs(request.param)
    yield request.param
    close()


def test_bounds_relative_to_their_middle(backend):
    collection = plots.plot_bounds(bounds(), backend=backend)
    for side, sign, se in (("lower", -1.0, LOWER_SE), ("upper", 1.0, UPPER_SE)):
        expected = sign * np.array([0.1, 0.0, 0.2])
        x, y = numbers(collection, "value", "bounds", bound=side)
        np.testing.assert_allclose(y, expected, atol=1e-12)
        np.testing.assert_allclose(np.round(x), [0, 1, 2])
        drawn, position = ends(collection, "interval", "bounds", upright=True, bound=side)
        np.testing.assert_allclose(drawn, [expected - 1.96 * se, expected + 1.96 * se], atol=1e-12)
        np.testing.assert_allclose(position, x)


def test_a_bound_that_is_not_known_reaches_the_edge(backend):
    tree = bounds(lower=np.array([-np.inf, -20.0, np.nan]), lower_se=np.array([np.inf, 0.02, np.nan]))
    collection = plots.plot_bounds(tree, backend=backend)
    _, upper = numbers(collection, "value", "bounds", bound="upper")
    np.testing.assert_allclose(upper, 0.0, atol=1e-12)  # the middle is the bound that is known


def test_ranks_that_are_even_lie_in_the_envelope(backend):
    collection = plots.plot_calibration(ranks(mu=EVEN, tau=EVEN**3), backend=backend)
    x, y = numbers(collection, "lines", "mu")
    assert np.abs(y).max() <= 0.5 / N + 1e-12
    assert (x[0], x[-1]) == (0.0, 1.0)
    x, y = numbers(collection, "flagged_lines", "tau")
    assert y[N // 2] == pytest.approx(np.mean(x[N // 2] >= EVEN**3) - x[N // 2])
    for name, variable in (("flagged_lines", "mu"), ("lines", "tau")):  # each is drawn in one of the two colours
        assert collection.get_viz(name, variable) is None


def test_the_envelope_is_drawn_about_zero():
    drawn = plots.plot_calibration(ranks(mu=EVEN), backend="none").get_viz("envelope", "mu")
    lower, upper = np.asarray(drawn["y_bottom"]), np.asarray(drawn["y_top"])
    np.testing.assert_allclose((lower[[0, -1]], upper[[0, -1]]), 0.0, atol=1e-12)
    assert (lower[1:-1] < 0.0).all()
    # Massart's bound on the largest difference holds with at least 0.99; the envelope is narrower, and not by much.
    assert 0.5 < upper.max() / np.sqrt(np.log(2 / 0.01) / (2 * N)) < 1.1


def test_a_true_value_below_all_draws_is_no_alarm_by_itself():
    even = EVEN.copy()
    even[0], even[-1] = 0.0, 1.0
    assert plots.plot_calibration(ranks(mu=even), backend="none").get_viz("flagged_lines", "mu") is None


def test_the_envelope_holds_uniform_ranks_as_often_as_it_says():
    """400 sets of uniform ranks: with probability 0.9 each stays inside, within 4 standard errors and the noise of 1000
    simulated envelopes."""
    uniform = np.random.default_rng(1).uniform(size=(N, 400))
    tree = ranks(mu=uniform)
    points, lower, upper = _envelope(tree["ranks"].to_dataset(), 0.9)
    y = _difference(tree["ranks"]["mu"], points).sel(plot_axis="y")
    inside = float(((y >= lower) & (y <= upper)).all("point").mean())
    assert 0.84 < inside < 0.96


def test_each_element_has_its_own_plot_and_a_parameter_can_be_chosen(backend):
    tree = ranks(mu=EVEN, z=np.stack([EVEN, EVEN**3], axis=1))
    collection = plots.plot_calibration(tree, var_names="z", backend=backend)
    assert list(collection.viz["plot"].data_vars) == ["z"]
    assert collection.viz["plot"]["z"].shape == (2,)
    numbers(collection, "lines", "z", school=0)
    numbers(collection, "flagged_lines", "z", school=1)


def test_a_data_set_without_a_rank_does_not_count(backend):
    some = EVEN.copy()
    some[::10] = np.nan
    x, y = numbers(plots.plot_calibration(ranks(mu=some), backend=backend), "lines", "mu")
    assert len(x) == N - N // 10 + 1
    assert y[-1] == 0.0


@pytest.mark.every(2)
@pytest.mark.few(5)
@pytest.mark.parametrize("plot", PLOTS)
def test_visuals_can_be_left_out_and_drawn_into_again(plot, backend):
    tree = bounds() if plot is plots.plot_bounds else ranks(mu=EVEN)
    collection = plot(tree, backend=backend, visuals={"title": False})
    assert "title" not in collection.viz.children
    assert plot(tree, plot_collection=collection) is collection


@pytest.mark.parametrize("plot", PLOTS)
def test_what_is_no_validation_is_refused(plot):
    with pytest.raises(ValueError, match=r"Expected the DataTree that pymc_hais\.validate returns.*got a Dataset\.$"):
        plot(Dataset())
    with pytest.raises(ValueError, match=r"with a group `\w+`; got a DataTree with groups: none\.$"):
        plot(DataTree())
    with pytest.raises(ValueError, match=r"with a group `\w+` that holds"):
        plot(DataTree.from_dict({"/bounds": Dataset(), "/ranks": Dataset()}))


def test_every_panel_of_ranks_has_numbers_below_it():
    needs("matplotlib")
    collection = plots.plot_calibration(ranks(z=np.stack([EVEN] * 3, axis=1), mu=EVEN), backend="matplotlib")
    for axes in collection.viz["figure"].item().axes:
        assert axes.xaxis.get_tick_params()["labelbottom"]
    close()


def test_ranks_of_one_data_set_or_of_no_such_parameter_are_refused():
    with pytest.raises(ValueError, match="at least two data sets; got 1"):
        plots.plot_calibration(ranks(mu=EVEN[:1]))
    with pytest.raises(ValueError, match="that holds `theta`; `theta` not found"):
        plots.plot_calibration(ranks(mu=EVEN), var_names=["theta"])
