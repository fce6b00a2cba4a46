"""Variables on which no data depend: which they are, that log Z is without them, and how they are drawn."""

import logging
import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.stats import kstest, norm, t

import pymc_hais
from pymc_hais.density.facts import find_leaves
from pymc_hais.problem.kept import find_integrated
from pymc_hais.problem.leaves import take_leaves

RNG = np.random.default_rng(1)
N = 40
X = RNG.normal(size=N)
MISSING = np.arange(N) % 4 == 0


def observe(values):
    """Leave a quarter of the data out."""
    return np.where(MISSING, np.nan, np.asarray(values, dtype=float))


def regression(likelihood, data):
    def build():
        with warnings.catch_warnings(), pm.Model() as model:
            warnings.simplefilter("ignore")  # of PyMC: values are imputed
            likelihood(pm.Normal("a") + pm.Normal("b") * X, observed=observe(data))
        return model

    return build


def new_group(has_new=True):
    """Effects of groups and of one without data, and what would be observed of it."""
    with pm.Model() as model:
        mean, spread = pm.Normal("mean"), pm.HalfCauchy("spread", 1.0)
        effect = pm.Normal("effect", mean, spread, shape=8)
        pm.Normal("y", effect, [15, 10, 16, 11, 9, 11, 10, 18], observed=[28, 8, -3, 7, -1, 1, 18, 12])
        if has_new:
            pm.Poisson("count", pt.exp(pt.clip(pm.Normal("new", mean, spread), -3.0, 3.0)))
    return model


def process():
    """A Gaussian process at new places."""
    with pm.Model() as model:
        length = pm.InverseGamma("length", 5.0, 5.0)
        gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, length))
        gp.marginal_likelihood("y", X[:20, None], np.sin(X[:20]), pm.HalfNormal("noise"))
        gp.conditional("f", np.linspace(-3.0, 3.0, 30)[:, None])
    return model


def unused():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a"), observed=X)
        pm.Uniform("u", shape=3)
        pm.Dirichlet("d", np.ones(4))
        pm.Gamma("g", 1e-3, 1.0)
    return model


def label():
    """A discrete variable of the data, and one that nothing but it steers."""
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.3, shape=4)
        pm.Normal("y", pm.Normal("m", 0.0, 2.0, shape=2)[z], 1.0, observed=X[:4])
        pm.Bernoulli("next", 0.1 + 0.8 * z[0])
    return model


def forecast():
    with pm.Model() as model:
        noise, start = pm.HalfNormal("noise"), pm.Normal.dist(0.0, 1.0)
        walk = pm.GaussianRandomWalk("walk", noise, init_dist=start, shape=N)
        pm.Normal("y", walk, 0.5, observed=np.cumsum(X))
        pm.GaussianRandomWalk("future", noise, init_dist=pm.Normal.dist(walk[-1], noise), shape=10)
    return model


COUNTS, CLASSES = RNG.poisson(2.0, size=N), RNG.integers(0, 3, size=N)
#: Name -> model, and names of its leaves.
MODELS = {
    "counts": (regression(lambda eta, observed: pm.Poisson("y", pt.exp(eta), observed=observed), COUNTS), {"y"}),
    "binary": (regression(lambda eta, observed: pm.Bernoulli("y", logit_p=eta, observed=observed), X > 0.0), {"y"}),
    "robust": (regression(lambda eta, observed: pm.StudentT("y", 3, mu=eta, observed=observed), X), {"y"}),
    "positive": (regression(lambda eta, observed: pm.Gamma("y", 2.0, pt.exp(eta), observed=observed), X**2), {"y"}),
    "classes": (
        regression(lambda eta, observed: pm.OrderedLogistic("y", eta, [-1.0, 1.0], observed=observed), CLASSES),
        {"y"},
    ),
    "new group": (new_group, {"new", "count"}),
    "process": (process, {"f"}),
    "unused": (unused, {"u", "d", "g"}),
    "label": (label, {"next"}),
    "forecast": (forecast, {"future"}),
}


@pytest.mark.every(3)
@pytest.mark.few(4)
@pytest.mark.parametrize("name", MODELS)
def test_the_density_is_that_of_all_others(name):
    build, expected = MODELS[name]
    model = build()
    found = take_leaves(model)
    assert {owner.removesuffix("_unobserved") for owner in found.owners} == expected
    assert found.solution.sampler.batch_size > 1
    drawn = found.complete(np.zeros((3, found.layout.n_dims)), np.random.default_rng(2))
    assert np.isfinite(drawn).all()
    joint, of_leaves, rest = (
        one.compile_logp(chosen, mode="FAST_COMPILE")
        for one, chosen in ((model, None), (model, [model[owner] for owner in found.owners]), (found.model, None))
    )
    for one in drawn:
        values = {
            name: np.asarray(value, model[owner].dtype if owner in found.owners or "z" in name else float)
            for (name, value), owner in zip(found.whole.unflatten(one).items(), found.whole.owners, strict=True)
        }
        others = {name: values[name] for name in found.layout.names}
        np.testing.assert_allclose(rest(others), joint(values) - of_leaves(values), rtol=1e-9)


def test_draws_follow_the_prior_given_the_others():
    """Each row has its own mean and scale, and more rows than are drawn at a time."""
    with pm.Model() as model:
        mean, log_scale = pm.Normal("mean"), pm.Normal("log_scale")
        pm.Normal("y", mean, pt.exp(log_scale), observed=X)
        pm.StudentT("robust", 3.0, mu=mean, sigma=pt.exp(log_scale), shape=3)
        pm.LogNormal("size", mean, pt.exp(log_scale))
    found = take_leaves(model)
    flat = np.random.default_rng(3).normal(size=(1234, 2))
    drawn = found.complete(flat, np.random.default_rng(4))
    values, given = found.whole.unflatten(drawn), found.layout.unflatten(flat)
    np.testing.assert_array_equal([values["mean"], values["log_scale"]], [given["mean"], given["log_scale"]])
    x = np.column_stack([values["robust"], values["size_log__"]])
    z = (x - given["mean"][:, None]) / np.exp(given["log_scale"][:, None])
    assert kstest(z[:, :3].ravel(), t(3).cdf).pvalue > 1e-4
    assert kstest(z[:, 3], norm.cdf).pvalue > 1e-4
    assert abs(np.corrcoef(z.T.clip(-3.0, 3.0)) - np.eye(4)).max() < 4.5 / np.sqrt(1234)
    np.testing.assert_array_equal(found.complete(flat, np.random.default_rng(4)), drawn)


def test_pytensor_says_nothing_of_its_own_rewrites(caplog):
    """They fail on the triangular systems of many draws, and PyTensor goes on without them."""
    assert take_leaves(process()).owners == ("f",)
    assert "Rewrite failure" not in caplog.text


def test_a_call_has_the_log_z_of_the_model_without_them():
    idata = pm.sample_hais(model=new_group(), random_seed=1, quiet=True)
    other = pm.sample_hais(model=new_group(has_new=False), random_seed=1, quiet=True)
    first, second = map(pymc_hais.log_marginal_likelihood, (idata, other))
    assert abs(first.value - second.value) < 4.5 * np.hypot(first.se, second.se)
    assert first.se < 0.02
    posterior = idata["posterior"]
    assert posterior.attrs["integrated_out"] == "new, count"
    assert posterior["count"].dtype.kind == "i"
    z = (posterior["new"] - posterior["mean"]) / posterior["spread"]
    assert abs(float((z**2).mean()) - 1.0) < 4.5 * np.sqrt(2.0 / z.size)


def test_discrete_leaves_leave_a_model_that_others_are_integrated_out_of():
    with pm.Model() as model:
        effect = pm.Normal("effect", 0.0, pm.HalfNormal("scale"), shape=12)
        pm.Normal("y", effect, 1.0, observed=X[:12])
        pm.Poisson("count", pt.exp(effect))
    found = next(find_integrated(model))
    assert found.owners == ("count", "effect")
    drawn = found.complete(np.zeros((5, 1)), np.random.default_rng(5))
    assert drawn.shape == (5, 25)
    np.testing.assert_array_equal(drawn[:, 13:], np.round(drawn[:, 13:]))


def test_what_data_or_potentials_depend_on_stays():
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Potential("p", -((pm.Normal("b", a) - 1.0) ** 2))
        pm.Normal("y", a, observed=X)
    assert not find_leaves(model)
    assert take_leaves(model) is None


def test_a_model_without_data_stays():
    with pm.Model() as model:
        pm.Normal("x", pm.Normal("m"))
    assert not find_leaves(model)


DOUBTFUL = {
    "user's own density": lambda a: pm.CustomDist("x", a, logp=lambda x, a: -((x - a) ** 2)),
    "a part of a distribution": lambda a: pm.Normal("x", a, transform=pm.distributions.transforms.log, initval=1.0),
    "no distribution": lambda a: pm.Flat("x") + a,
    "no discrete distribution": lambda a: pymc_hais.FlatDiscrete("x", 0, 1) + a,
    "period": lambda a: pm.VonMises("x", a, 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", DOUBTFUL)
def test_priors_that_may_not_be_normalised_stay(name):
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Normal("y", a, observed=X)
        parent = pm.Normal("parent", a)
        pm.Normal("child", DOUBTFUL[name](parent))
    assert "x" in take_leaves(model).layout.owners


def test_data_with_one_density_for_what_is_missing_stay():
    """PyMC has no density of the observed part alone."""
    build = regression(lambda eta, observed: pm.ZeroInflatedPoisson("y", 0.7, pt.exp(eta), observed=observed), COUNTS)
    model = build()
    assert not find_leaves(model)


def rare(shift):
    """Counts that are too large to be drawn, everywhere or in some places."""
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Normal("y", a, observed=X)
        pm.Poisson("count", pt.exp(shift + 5.0 * a), shape=2)
    return model


DRAWS = np.random.default_rng(2).normal(size=(100, 1))


def test_draws_that_pymc_cannot_make_are_marked(caplog):
    found = take_leaves(rare(30.0))
    with caplog.at_level(logging.WARNING):
        drawn = found.complete(np.array([[0.0], [3.0], [-1.0], [4.0]]), np.random.default_rng(1))
    np.testing.assert_array_equal((drawn[:, 1:] == 2.0**53).all(axis=1), [False, True, False, True])
    assert "could not draw `count` for 2 of 4 draws" in caplog.text
    assert found.holds(DRAWS)
    assert not take_leaves(rare(60.0)).holds(DRAWS)


def test_rows_are_drawn_one_by_one_where_another_one_cannot_be():
    """A loop that draws random numbers is given numbers of its own, not those of NumPy's scalars."""
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.HalfNormal("b")
        pm.Normal("y", a, b, observed=X)
        pm.GARCH11("volatile", omega=b, alpha_1=0.1, beta_1=0.2, initial_vol=b, steps=5)
        pm.Poisson("count", pt.exp(8.0 * a))
    found = take_leaves(model)
    flat = np.zeros((501, 2))
    flat[3, found.layout.names.index("a")] = 6.0
    drawn = found.whole.unflatten(found.complete(flat, np.random.default_rng(1)))
    assert np.flatnonzero(drawn["count"] == 2.0**53).tolist() == [3]
    assert np.flatnonzero(np.isnan(drawn["volatile"]).any(axis=1)).tolist() == [3]


BEYOND = {
    "no mean": lambda a: pm.Normal("x", pt.log(1.0 + a)),
    "a negative scale": lambda a: pm.Normal("x", 0.0, sigma=a),
    "draws that a transform cannot take": lambda a: pm.Dirichlet("x", 0.02 * pt.exp(0.0 * a) * np.ones(3)),
}


@pytest.mark.parametrize("name", BEYOND)
def test_variables_without_a_density_or_draws_stay_and_others_are_integrated_out(name):
    """Where a parameter is outside its domain the density is zero: it is not that of the model without the variable."""
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Normal("y", a, observed=X)
        BEYOND[name](a)
        pm.Normal("z", pm.Normal("effect", 0.0, 1.0 + a**2, shape=12), 1.0, observed=X[:12])
    leaves, *_, others = find_integrated(model)
    assert leaves.owners == ("x", "effect")
    assert not leaves.holds(DRAWS)
    assert others.owners == ("effect",)


def test_a_mode_has_the_mean_of_its_leaves():
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 5.0)
        pm.Normal("y", a, observed=X)
        pm.Normal("x", a, shape=2)
        pm.Poisson("count", 9.0)
    (middle,) = take_leaves(model).complete(np.array([[3.0]]))
    assert np.abs(middle[1:3] - 3.0).max() < 4.5 / np.sqrt(200)
    assert middle[3] == 9.0


def test_large_leaves_are_drawn_a_few_at_a_time():
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Normal("y", a, observed=X)
        pm.MvNormal("x", a * np.ones(300), cov=np.eye(300) * pt.exp(a))
    sampler = take_leaves(model).solution.sampler
    assert 1 < sampler.batch_size < 40
