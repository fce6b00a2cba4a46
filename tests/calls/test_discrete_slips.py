"""Slips with discrete variables: each is answered by one message that names the variable or the argument."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz import from_dict

import pymc_hais
from pymc_hais import Box, FlatDiscrete, Gaussian, Gibbs, Hamiltonian, RandomWalk
from tests import discrete_truth as truth
from tests.quick import QUICK, one_mean


def switches():
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.3, shape=3)
        mu = pm.Normal("mu")
        pm.Normal("y", mu + z, 1.0, observed=[0.2, 1.0, 2.0])
    return model


def kinds():
    with pm.Model() as model:
        z = pm.Categorical("z", p=[0.2, 0.5, 0.3], shape=2)
        pm.Normal("y", z, 1.0, observed=[0.2, 1.0])
    return model


def counts():
    with pm.Model() as model:
        n = pm.Poisson("n", 2.0)
        pm.Normal("y", n, 1.0, observed=1.0)
    return model


def sample(model, **options):
    return pymc_hais.sample_hais(model=model, **{**QUICK, **options})


@pytest.fixture
def no_work(monkeypatch):
    """Fail where something is compiled for an engine."""
    monkeypatch.setattr("pymc_hais.problem.building.Compiler.__call__", lambda *_: pytest.fail("work has begun"))


# Settings ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize(
    ("build", "wrong", "message"),
    [
        (one_mean, {"kernel": Gibbs()}, r"`kernel` has Gibbs\(\), but the model has no discrete free variable"),
        (switches, {"kernel": [Gibbs(), Gibbs()]}, "`kernel` must be .* a pair of one of each, or None"),
        (switches, {"kernel": [Hamiltonian(), RandomWalk()]}, "a pair of one of each"),
        (switches, {"kernel": [Gibbs(), Hamiltonian(), Gibbs()]}, "a pair of one of each"),
        (switches, {"kernel": Gibbs}, "`kernel` must be .*got <class"),
        (switches, {"kernel": "gibbs"}, "`kernel` must be .*got 'gibbs'"),
        (
            kinds,
            {"kernel": RandomWalk()},
            r"`kernel` has RandomWalk\(.*moves continuous variables, and the model has none",
        ),
        (kinds, {"kernel": [Gibbs(), Hamiltonian()]}, r"`kernel` has Hamiltonian\(.*moves continuous variables"),
        (switches, {"modes": {"mu": 0.0, "z": [0, 0, 1]}}, "along gradients, and `z` is discrete"),
        (switches, {"path": {"p": (0.0, 1.0)}}, "the model's data containers are"),
    ],
    ids=lambda one: "" if callable(one) else str(one)[:40],
)
def test_settings_that_do_not_go_with_the_variables(build, wrong, message):
    with pytest.raises(ValueError, match=message):
        sample(build(), **wrong)


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"constraints": {"mu": (0.0, None)}}, "continuous variables, and `z` is discrete: give .* a bounded prior"),
        ({"estimators": ["bridge"]}, r"estimators=\['bridge'\] is not for models with discrete variables such as `z`"),
        ({"estimators": ["linked", "bidirectional"]}, r"\['linked'\] is not for .*pass some of \['bidirectional'\]"),
        ({"estimators": "all"}, r"\['bridge', 'linked'\] is not for"),
    ],
    ids=str,
)
def test_what_is_for_continuous_variables_alone(wrong, message):
    with pytest.raises(NotImplementedError, match=message):
        sample(switches(), **wrong)


@pytest.mark.usefixtures("no_work")
def test_a_path_of_parameters():
    with pm.Model() as model:
        p = pm.Data("p", 0.3)
        pm.Bernoulli("z", p, shape=3)
    with pytest.raises(NotImplementedError, match=r"`path` moves parameters .* and `z` is discrete"):
        sample(model, path={"p": (0.5, 0.3)})


# Models --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_work")
def test_elements_that_cannot_change_alone():
    with pm.Model() as model:
        n = pm.Multinomial("n", n=5, p=[0.2, 0.3, 0.5])
        pm.Normal("y", n[0], 1.0, observed=1.0)
    with pytest.raises(NotImplementedError, match=r"`n` is .*depend on one another .*\(Multinomial\).*pm.Categorical"):
        sample(model)


@pytest.mark.usefixtures("no_work")
def test_limits_of_flat_discrete_are_numbers():
    with pm.Model() as model:
        k = pm.DiscreteUniform("k", 0, 3)
        z = FlatDiscrete("z", lower=0, upper=k + 1)
        pm.Potential("energy", 0.1 * z)
    with pytest.raises(ValueError, match="limits of the FlatDiscrete variable `z` depend on other free variables"):
        sample(model)


@pytest.mark.usefixtures("no_work")
def test_limits_of_flat_discrete_are_in_order():
    with pm.Model() as model:
        z = FlatDiscrete("z", lower=3, upper=1)
        pm.Potential("energy", 0.1 * z)
    with pytest.raises(ValueError, match="`z`"):
        sample(model)


def test_a_potential_that_no_state_satisfies():
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.3, shape=3)
        pm.Potential("never", pt.switch(pt.gt(z.sum(), 3), 0.0, -np.inf))
    with pytest.raises(ValueError, match=r"not finite at any of 500 draws of the prior; the -inf comes from `never`"):
        sample(model)


@pytest.mark.slow
def test_a_potential_that_is_no_number():
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.3, shape=3)
        pm.Potential("wrong", pt.log(z.sum() - 5.0))
    with pytest.raises(ValueError, match=r"not finite at any of 500 draws of the prior; the NaN comes from `wrong`"):
        sample(model)


@pytest.mark.slow
def test_no_data():
    with pm.Model() as model:
        pm.Bernoulli("z", 0.3, shape=3)
    estimate = pymc_hais.log_marginal_likelihood(sample(model))
    assert not estimate.is_trustworthy
    assert "no_data" in [finding.name for finding in estimate.findings]
    assert estimate.value == pytest.approx(0.0, abs=1e-12)


@pytest.mark.slow
def test_no_value_is_observed():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1.0, observed=pm.Data("data", np.zeros(0)))
    estimate = pymc_hais.log_marginal_likelihood(sample(model))
    assert not estimate.is_trustworthy
    (finding,) = [one for one in estimate.findings if one.name == "no_data"]
    assert "No value of `y` is observed" in finding.message


# References ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize(
    ("build", "reference", "message"),
    [
        (
            switches,
            {"z": pm.Normal.dist(0, 1, shape=3), "mu": pm.Normal.dist()},
            r"reference of `z` must be a discrete PyMC distribution such as pm.Bernoulli.dist\(0.5\)",
        ),
        (
            switches,
            {"z": pm.Bernoulli.dist(0.3, shape=3), "mu": pm.Poisson.dist(2)},
            r"reference of `mu` must be a continuous PyMC distribution",
        ),
        (switches, {"z": pm.Bernoulli.dist(0.3, shape=3)}, r"names the variables \['z'\], but .* \['mu', 'z'\]"),
        (
            switches,
            {"z": pm.Bernoulli.dist(0.3), "mu": pm.Normal.dist()},
            r"reference of `z` has shape \(\), but the variable has shape \(3,\)",
        ),
        (counts, "gaussian", '`n` out, which has no largest value, or too many: pass reference="prior", or a dict'),
        (counts, pymc_hais.StudentT(3.0), "`n` out, which has no largest value"),
        (switches, Gaussian(loc=np.zeros(4)), "`loc` must be a number or have the model's 1 dimensions"),
        (kinds, {"z": FlatDiscrete.dist(0, 2, shape=2)}, "`z` may not integrate to one"),
        (
            kinds,
            {"z": pm.Categorical.dist(p=np.ones(5) / 5, shape=2)},
            "draws of `z`, which is discrete, are values that it does not have.* whole numbers from 0 to 2 only",
        ),
        (counts, "fitted", r"\"fitted\", or draws, is not for this model: `n` has no largest value.*\"prior\""),
        (switches, pm.Normal.dist(0, 2, shape=4), "`z` is discrete|discrete variables|a dict"),
    ],
    ids=lambda one: "" if callable(one) else str(one)[:40],
)
def test_references_of_the_wrong_kind(build, reference, message):
    with pytest.raises(ValueError, match=message):
        sample(build(), reference=reference)


@pytest.mark.parametrize(
    ("build", "reference", "name"),
    [
        (kinds, {"z": pm.Bernoulli.dist(0.3, shape=2)}, "Bernoulli"),
        pytest.param(
            kinds, {"z": pm.Categorical.dist(p=[0.5, 0.5, 0.0], shape=2)}, "Categorical", marks=pytest.mark.slow
        ),
        pytest.param(counts, {"n": pm.DiscreteUniform.dist(1, 20)}, "DiscreteUniform", marks=pytest.mark.slow),
        pytest.param(counts, {"n": pm.Geometric.dist(0.3)}, "Geometric", marks=pytest.mark.slow),
        (switches, {"mu": pm.Normal.dist(), "z": pm.Bernoulli.dist([0.0, 0.5, 1.0])}, "Normal x Bernoulli"),
        pytest.param(switches, Box(-3.0, 3.0), "a box and independent margins", marks=pytest.mark.slow),
    ],
    ids=["two of three", "a zero", "no zero", "from one on", "never and always", "box"],
)
def test_references_that_miss_values_of_a_variable(build, reference, name):
    # The box covers the values, and leaves out where the continuous variable may be.
    seen, told = ("`mu` moves", "StudentT") if isinstance(reference, Box) else ("values that are never drawn", "every")
    message = f"density of {name} is zero at .* where the model's is not, for one when .*{seen}.* Pass .*{told}"
    with pytest.raises(ValueError, match=message):
        sample(build(), reference=reference)


class Own:
    """A reference of all dimensions of ``switches``: mu, and three sites with probability one half."""

    def sample(self, n, rng):
        return np.column_stack([rng.normal(size=n), rng.integers(0, 2, (n, 3))])

    def logp(self, x):
        return -0.5 * x[0] ** 2 - 0.5 * np.log(2.0 * np.pi) - 3.0 * np.log(2.0)


class Real(Own):
    def sample(self, n, rng):
        return rng.normal(size=(n, 4))

    def logp(self, x):
        return (-0.5 * x**2 - 0.5 * np.log(2.0 * np.pi)).sum()


class Lopsided(Own):
    def logp(self, x):
        return super().logp(x) + (x[1:] * np.log(0.4) + (1.0 - x[1:]) * np.log(1.6)).sum()


class Threes(Own):
    def sample(self, n, rng):
        return np.column_stack([rng.normal(size=n), rng.integers(0, 3, (n, 3))])


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (Real(), "`z`.* whole numbers|whole numbers.*`z`"),
        (Lopsided(), "do not follow its own log density"),
        (Threes(), "`z`"),
    ],
    ids=["real", "lopsided", "three values"],
)
def test_draws_of_an_own_reference_are_values_of_the_variables(reference, message):
    with pytest.raises(ValueError, match=message):
        sample(switches(), reference=reference)


@pytest.mark.usefixtures("no_work")
def test_a_fit_to_draws_of_what_has_no_largest_value():
    posterior = {"n": np.ones((1, 100), dtype=int)}
    with pytest.raises(ValueError, match="or draws, is not for this model: `n` has no largest value"):
        sample(counts(), reference=from_dict({"posterior": posterior}))


# Other functions -----------------------------------------------------------------------------------------


def test_one_fit_is_not_for_many_rows(monkeypatch):
    monkeypatch.setattr("pymc_hais.planning.learning.run_pilots", lambda *_: pytest.fail("a pilot has run"))
    model = truth.build_sparse_coding(np.zeros(3), np.eye(3), 0.3, 0.5)
    with pytest.raises(ValueError, match=r"\"fitted\" is not for this model: each row of data has margins of its own"):
        pymc_hais.log_likelihood(model, {"y": np.eye(3)}, reference="fitted", progressbar=False)


def test_a_bridge_is_a_fit_of_continuous_variables():
    with pytest.raises(NotImplementedError, match="`z` is discrete"):
        pymc_hais.bridge(switches(), None)


def test_gradient_methods_inside_pymc_name_the_variable():
    with switches(), pytest.raises(NotImplementedError, match="`z`"):
        pm.sample_smc(100, kernel=pymc_hais.HAIS, chains=1, cores=1, progressbar=False)
    with switches(), pytest.raises(NotImplementedError, match="`z`"):
        pm.sample(10, tune=10, step=pymc_hais.PersistentHMC(), chains=1, progressbar=False)
