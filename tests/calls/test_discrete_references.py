"""Where models with discrete variables may start, and how they may move: log Z is the same.

Estimates are held to four of their standard errors: a false alarm in 16,000 a test where the errors are normal.
"""

from functools import cache

import numpy as np
import pymc as pm
import pytest

import pymc_hais
from examples import ising, rbm
from pymc_hais import Gaussian, Gibbs, Hamiltonian, Mixture, RandomWalk, StudentT
from tests import discrete_truth as truth
from tests.discrete_sums import sum_states
from tests.front_door import assert_right, estimate
from tests.marks import slow_but

SHARP = {"draws": 1000, "chains": 4, "n_temperatures": 100, "target_se": None}


@cache
def mixed(shift=0.0, p=(0.2, 0.3, 0.5)):
    """One continuous, three binary and one categorical variable."""
    with pm.Model() as model:
        a = pm.Normal("a", shift, 1.0)
        z = pm.Bernoulli("z", 0.3, shape=3)
        kind = pm.Categorical("kind", p=p)
        pm.Normal("y", a + 2.0 * z + kind, 1.0, observed=[0.2, 1.0, 3.5])
    return model


@pytest.fixture(scope="module")
def exact():
    return sum_states(mixed(), a=np.linspace(-7.0, 7.0, 141), z=[0, 1], kind=[0, 1, 2])


class Own:
    """A reference of a user's own, of all dimensions: the continuous ones first."""

    def sample(self, n, rng):
        return np.column_stack([1.5 * rng.normal(size=n), rng.integers(0, 2, (n, 3)), rng.integers(0, 3, n)])

    def logp(self, x):
        return -0.5 * (x[0] / 1.5) ** 2 - 0.5 * np.log(2.0 * np.pi * 1.5**2) - 3.0 * np.log(2.0) - np.log(3.0)


def distributions():
    return {
        "kind": pm.Categorical.dist(p=np.ones(3) / 3),
        "a": pm.StudentT.dist(nu=5.0, mu=0.5, sigma=1.5),
        "z": pm.Bernoulli.dist(p=[0.1, 0.3, 0.6]),
    }


@pytest.mark.every(7)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("reference", "label"),
    slow_but(
        {("dict", "StudentT x Bernoulli x Categorical")},
        [
            ("fitted", "a Gaussian and independent margins"),
            ("dict", "StudentT x Bernoulli x Categorical"),
            ("gaussian", "a Gaussian and independent margins"),
            ("Student-t", "a Student-t with 4 degrees of freedom and independent margins"),
            ("mixture", "the prior (50%) and a Gaussian and independent margins (50%)"),
            ("own", "Own"),
            ("model", "the reference model"),
        ],
    ),
)
def test_log_z_does_not_depend_on_the_reference(reference, label, exact):
    given = {
        "dict": distributions(),
        "Student-t": StudentT(4.0, scale=2.0),
        "mixture": Mixture(["prior", Gaussian(scale=2.0)]),
        "own": Own(),
        # Of priors alone, which integrate to one.
        "model": priors(),
    }.get(reference, reference)
    found, idata = estimate(mixed(), reference=given, **SHARP)
    assert_right(found, exact.log_z)
    assert found.se <= 0.05
    posterior = idata["posterior"]
    assert label in posterior.attrs["reference"]
    for name, mean in exact.means.items():
        spread = posterior[name].std(("chain", "draw")).values
        assert np.all(np.abs(posterior[name].mean(("chain", "draw")) - mean) <= 0.1 * spread)


def priors():
    with pm.Model() as model:
        pm.Normal("a", 0.5, 1.5)
        pm.Bernoulli("z", 0.5, shape=3)
        pm.Categorical("kind", p=[0.4, 0.3, 0.3])
    return model


@pytest.mark.exhaustive
def test_a_fit_to_the_draws_of_a_run(exact):
    found, idata = estimate(mixed(), reference="prior")
    assert_right(found, exact.log_z)
    again, other = estimate(mixed(), reference=idata, random_seed=2, **SHARP)
    assert_right(again, exact.log_z)
    assert other["posterior"].attrs["reference"] == "a Gaussian and independent margins"
    assert again.se < 0.02


@pytest.mark.exhaustive
def test_a_fit_knows_no_interaction_that_the_draws_do_not_show():
    """The kind changes the likelihood of sites that are on; fitted margins leave two of them off."""
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.3, shape=4)
        kind = pm.Categorical("kind", p=[0.2, 0.3, 0.5])
        pm.Normal("y", 2.0 * z * kind, 1.0, observed=[0.2, 1.0, 2.0, 3.0])
    found, _ = estimate(model, reference="fitted", **SHARP)
    assert_right(found, sum_states(model, z=[0, 1], kind=[0, 1, 2]).log_z)


# Sites alone ---------------------------------------------------------------------------------------------


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize("hidden", rbm.HIDDEN)
def test_base_rates_of_a_boltzmann_machine(hidden):
    rng = np.random.default_rng(2)
    parameters = rbm.Parameters(rng.normal(size=(12, 6)), rng.normal(size=12), rng.normal(size=6))
    data = (rng.random((50, 12)) < 0.6).astype(float)
    reference = rbm.base_rate_reference(data, 6 if hidden == "explicit" else None)
    found, idata = estimate(rbm.build_model(parameters, hidden), reference=reference, **SHARP)
    assert_right(found, rbm.exact_log_z(parameters))
    assert idata["posterior"].attrs["quantity"] == "log partition function"


@pytest.mark.exhaustive
@pytest.mark.parametrize("reference", ["fitted", "gaussian", "dict"])
def test_margins_of_a_chain(reference):
    """Three values a site: a fit is a table of each site's."""
    y = np.array([0.3, -1.0, 2.0, 2.5, 0.0, -2.2])
    settings = np.array([0.2, 0.5, 0.3]), 0.2 + 0.4 * np.eye(3), np.array([-2.0, 0.5, 3.0]), 0.9
    given = {"z": pm.Categorical.dist(p=[0.3, 0.3, 0.4], shape=6)} if reference == "dict" else reference
    found, _ = estimate(truth.build_chain(y, *settings), reference=given, **SHARP)
    assert_right(found, truth.log_evidence_chain(y, *settings))


@pytest.mark.exhaustive
def test_the_ratio_of_two_lattices():
    found, idata = estimate(ising.build_model(4, 0.5), reference=ising.build_model(4, 0.2), **SHARP)
    assert_right(found, ising.exact_log_z(4, 0.5) - ising.exact_log_z(4, 0.2))
    assert idata["posterior"].attrs["quantity"] == "log ratio of partition functions"


@pytest.mark.exhaustive
def test_a_reference_model_whose_sites_interact_where_those_of_the_model_do_not():
    def build(bends):
        with pm.Model() as model:
            z = pm.Bernoulli("z", 0.4, shape=5)
            pm.Potential("bent", pm.math.exp(0.5 * z.sum()) if bends else 0.7 * z.sum())
        return model

    found, _ = estimate(build(False), reference=build(True), **SHARP)
    assert_right(found, sum_states(build(False), z=[0, 1]).log_z - sum_states(build(True), z=[0, 1]).log_z)


@pytest.mark.exhaustive
def test_counts_from_another_law():
    with pm.Model() as model:
        n = pm.Poisson("n", 3.0, shape=2)
        pm.Normal("y", n, 1.0, observed=[0.5, 6.0])
    found, _ = estimate(model, reference={"n": pm.NegativeBinomial.dist(mu=4.0, alpha=2.0, shape=2)}, **SHARP)
    assert_right(found, sum_states(model, n=np.arange(40)).log_z)


@pytest.mark.exhaustive
def test_a_law_that_ends_where_the_counts_hardly_go_is_good_enough():
    """The prior puts 1e-14 beyond the end."""
    with pm.Model() as model:
        n = pm.Poisson("n", 2.0)
        pm.Normal("y", n, 1.0, observed=1.0)
    found, _ = estimate(model, reference={"n": pm.DiscreteUniform.dist(0, 20)}, **SHARP)
    assert_right(found, sum_states(model, n=np.arange(40)).log_z)
    assert not found.findings


@pytest.mark.exhaustive
def test_a_long_run_of_counts_starts_from_the_prior():
    """Margins without an end are no reason to refuse what was not asked for."""
    with pm.Model() as model:
        n = pm.Poisson("n", 3.0, shape=2)
        pm.Normal("y", n, 1.0, observed=[0.5, 6.0])
    found, idata = estimate(model)
    assert_right(found, sum_states(model, n=np.arange(40)).log_z)
    assert idata["posterior"].attrs["reference"] == "the prior"


@pytest.mark.exhaustive
@pytest.mark.parametrize(("reference", "start"), [("auto", "the prior"), ("fitted", "independent margins")])
def test_a_long_run_starts_from_margins_where_asked_to(reference, start):
    rng = np.random.default_rng(4)
    y = rng.choice([-2.0, 0.5, 3.0], size=150) + rng.normal(size=150)
    settings = np.array([0.2, 0.5, 0.3]), 0.1 + 0.7 * np.eye(3), np.array([-2.0, 0.5, 3.0]), 0.9
    found, idata = estimate(truth.build_chain(y, *settings), draws=2000, chains=4, reference=reference)
    assert_right(found, truth.log_evidence_chain(y, *settings))
    assert idata["posterior"].attrs["reference"] == start


# Kernels -------------------------------------------------------------------------------------------------


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(Gibbs(), marks=pytest.mark.exhaustive),
        pytest.param([Gibbs(), RandomWalk()], marks=pytest.mark.slow),
        pytest.param(Hamiltonian("drift-kick-drift", 2), marks=pytest.mark.slow),
        pytest.param([Hamiltonian(n_leapfrog=3), Gibbs()], marks=pytest.mark.exhaustive),
        pytest.param(RandomWalk(), marks=pytest.mark.exhaustive),
        pytest.param((RandomWalk(), Gibbs()), marks=pytest.mark.exhaustive),
    ],
    ids=str,
)
def test_kernels_of_both_kinds_of_variables(kernel):
    with pm.Model() as model:
        z = pm.Bernoulli("z", [0.1, 0.3, 0.6, 0.9])
        a = pm.Normal("a")
        pm.Normal("y", a + 2.0 * z - 1.5 * z[0] * z[3], 0.7, observed=[0.2, 1.0, 2.0, 3.0])
    exact = sum_states(model, z=[0, 1], a=np.linspace(-6.0, 6.0, 121))
    found, idata = estimate(model, kernel=kernel, **SHARP)
    assert_right(found, exact.log_z)
    error = np.abs(idata["posterior"]["z"].mean(("chain", "draw")).values - exact.means["z"])
    assert np.all(error <= 0.05)  # four standard errors of a half, at 1,600 independent draws


@pytest.mark.slow
def test_a_kernel_of_sites_alone():
    rng = np.random.default_rng(3)
    basis = rng.normal(size=(6, 8))
    y = basis @ [1, 0, 0, 1, 0, 0, 1, 0]
    model = truth.build_sparse_coding(y, basis, 0.2, 0.4)
    found, idata = estimate(model, kernel=Gibbs(), **SHARP)
    assert_right(found, truth.log_evidence_sparse_coding(y, basis, 0.2, 0.4))
    assert "Gibbs" in idata["posterior"].attrs["kernel"]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "sigmoid", "n_temperatures": 60},
        {"resample": False},
        {"n_temperatures": 0, "draws": 5000},
        pymc_hais.paper_settings(200),
        {"kernel": Hamiltonian(step_size=0.3), "schedule": "linear", "n_temperatures": 200},
        {"max_seconds": 20.0},
    ],
    ids=lambda options: next(iter(options)),
)
def test_schedules_and_limits(options, exact):
    found, _ = estimate(mixed(), **{"draws": 1000, "target_se": None, **options})
    assert_right(found, exact.log_z)
