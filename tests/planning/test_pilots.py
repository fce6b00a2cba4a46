"""Where the log ratio is read: at a pilot's own data, and where its particles are, whatever their coordinates."""

import pickle
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from pymc_hais.density import Sites
from pymc_hais.density.rows import check_rows
from pymc_hais.planning.learning import decide, log_ratios
from pymc_hais.problem.building import build_problem
from pymc_hais.references import Fitted, Gaussian
from pymc_hais.tuning import EndlessPilotError, pilot
from tests.runs import build_pilot, call_of


def pilots_at(*positions):
    return [replace(build_pilot(), positions=one) for one in positions]


def test_every_pilot_is_read_at_the_data_of_its_own_row():
    with pm.Model() as model:
        a = pm.Normal("a", shape=2)
        pm.Normal("x", a.sum(), 0.5, observed=np.zeros(3))
    call, x = call_of(model), np.array([[0.0, 0.1, -0.1], [3.0, 3.1, 2.9], [9.0, 9.2, 8.8]])
    problem = build_problem(model, "prior", call.compiler, call.seeds, check_rows(model, {"x": x}))
    first, last = (np.random.default_rng(row).normal(x[row].mean(), 0.3, size=(20, 2)) for row in (0, 2))
    found = log_ratios(problem, [0, 2], pilots_at(first, last))
    for row, at, ratio in zip((0, 2), (first, last), found, strict=True):
        likelihood = stats.norm(at.sum(axis=1)[:, None], 0.5).logpdf(x[row]).sum(axis=1)
        np.testing.assert_allclose(ratio, likelihood, rtol=1e-6)


@pytest.fixture(scope="module")
def hierarchy():
    """Four means around none of their own, with an unknown scale, in coordinates that the scale moves."""
    y = np.array([1.3, -0.4, 0.2, 2.1])
    with pm.Model() as model:
        log_tau = pm.Normal("log_tau")
        theta = pm.Normal("theta", 0.0, log_tau.exp(), shape=4)
        pm.Normal("y", theta, 0.5, observed=y)
    call = call_of(model)
    problem = build_problem(model, "prior", call.compiler, call.seeds, takes_fit=True)
    precision = np.array([0.0, 4.0, 4.0, 1.0, 9.0])
    sites = Sites(precision, precision * np.array([0.0, *y]))
    shape = Gaussian(np.zeros(5), np.eye(5))
    near = problem.with_fit(Fitted(shape, np.full((1, 5), 0.2), 0.1), sites)
    return problem, near, y


@pytest.mark.slow
def test_particles_of_an_earlier_pilot_are_read_where_they_are(hierarchy):
    first, near, y = hierarchy
    z = np.random.default_rng(0).normal(size=(30, 5))
    (found,) = log_ratios(near, [0], pilots_at(z), first)
    x = np.column_stack([z[:, 0], z[:, 1:] * np.exp(z[:, :1])])  # without sites: non-centred
    target = stats.norm(0, 1).logpdf(x[:, 0]) + stats.norm(0, np.exp(x[:, :1])).logpdf(x[:, 1:]).sum(axis=1)
    prior, target = target, target + stats.norm(x[:, 1:], 0.5).logpdf(y).sum(axis=1)
    # The fit is a standard normal around 0.2 in the coordinates of its sites: (x - mean) / sd of prior times site.
    own = np.exp(-2.0 * x[:, :1]) + near.sites.precision[1:]
    moved = (x[:, 1:] - near.sites.shift[1:] / own) * np.sqrt(own)
    fit = stats.norm(0.2, 1).logpdf(np.column_stack([x[:, 0], moved])).sum(axis=1) + 0.5 * np.log(own).sum(axis=1)
    np.testing.assert_allclose(found, target - np.logaddexp(np.log(0.1) + prior, np.log(0.9) + fit), rtol=1e-6)
    # In the coordinates of the sites the same numbers are another place.
    assert np.abs(log_ratios(near, [0], pilots_at(z))[0] - found).max() > 1.0


@pytest.mark.slow
def test_the_heaviest_tail_that_was_seen_is_the_choices(hierarchy):
    rng = np.random.default_rng(0)
    normal, heavy = rng.normal(size=2000), rng.exponential(4.0, size=2000)
    lengths, call = np.array([5]), call_of()
    found = [decide(hierarchy[0], [build_pilot()], seen, lengths, call, None) for seen in ([normal], [normal, heavy])]
    short, long = found
    assert short.tail.mass == 0.0
    assert long.tail.mass > 0.01
    assert long.lengths[0] == long.tail.length > short.lengths[0]
    # For an error of a nat, beside which the tail's mass is small, rounds are as short as without it.
    rough = decide(hierarchy[0], [build_pilot()], [normal, heavy], lengths, call_of(target_se=1.0), None)
    assert rough.tail == long.tail
    assert rough.lengths[0] == short.lengths[0]


def far():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1.0, observed=[1e3, 1e3])
    return model


def narrow():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x"), 1.0, observed=[1.0])
    return model


def endless():
    with pm.Model() as model:
        pm.Potential("p", pm.Normal("x") ** 2)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (far, r"`mu` was \d\d standard deviations of the prior away .* Standardise the data, .* `modes`\.$"),
        (narrow, r"`x` was [\d,]{9,} standard deviations of a Gaussian away .* `reference` that is wider or nearer"),
        (
            endless,
            r"pm.Potential is added .* see whether its sign is right, as in pm.Potential\(name, -energy\)\.\nNo start",
        ),
    ],
)
def test_a_pilot_without_an_end_says_how_far_it_came_and_never_asks_for_a_tighter_prior(build, message, monkeypatch):
    monkeypatch.setattr(pilot, "_STAGES", pilot._STAGES._replace(most=80))
    # By default the one hill of `far` would be climbed.
    reference = {narrow: Gaussian(0.0, 1e-9), far: "prior"}.get(build, "auto")
    with pytest.raises(RuntimeError, match=message) as caught:
        pm.sample_hais(model=build(), reference=reference, progressbar=False, random_seed=1)
    assert "tighter" not in str(caught.value)
    assert "made 80 stages" in str(caught.value)


def test_a_pilot_without_an_end_travels_from_a_worker():
    error = pickle.loads(pickle.dumps(EndlessPilotError(0.1, np.array([3.0, 40.0]))))
    assert error.beta == 0.1
    np.testing.assert_array_equal(error.distances, [3.0, 40.0])
