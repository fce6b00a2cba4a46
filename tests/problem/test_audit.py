"""The audit of whole models: silent on right priors, loud on wrong draws, and the variable is named."""

from __future__ import annotations

from functools import partial

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.distributions import transforms
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from pymc_hais import Box, Gaussian, Hamiltonian, Mixture, RandomWalk, StudentT
from pymc_hais.core.seeds import Seeds
from pymc_hais.density import build_layout
from pymc_hais.density.markov import markov
from pymc_hais.problem.audit import check_draws, find_mismatches
from pymc_hais.problem.building import build_problem
from pymc_hais.problem.problem import Compiler
from pymc_hais.references import Prior, bind, build_prior
from pymc_hais.references.density import build_reference_density
from pymc_hais.references.variables import draws_itself
from tests.density.catalogue import MODELS
from tests.marks import slow_but

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


def modelled(build):
    with pm.Model() as model:
        build()
    return model


def audit(model, seed=1, reference="prior"):
    sampler = build_prior(model)
    layout = build_layout(model, [value[0] for value in sampler.sample(1, seed)[0]])
    bound = bind(reference, layout, Prior(layout, sampler), model)
    return check_draws(model, layout, bound, np.random.SeedSequence(seed))


def custom(draw, logp, shape=(), transform=None):
    """Build a CustomDist `x` from ``draw(rng, size)`` and ``logp(value)``."""
    return lambda: pm.CustomDist(
        "x", logp=logp, random=lambda rng=None, size=None: draw(rng, size), shape=shape, transform=transform
    )


def normal(value):
    return -0.5 * value**2


def student(df):
    return lambda value: -0.5 * (df + 1) * pt.log1p(value**2 / df)


def correlated(drawn, computed):
    covariance, precision = np.array([[1.0, drawn], [drawn, 1.0]]), np.linalg.inv([[1.0, computed], [computed, 1.0]])

    def logp(value, mean):
        return -0.5 * ((value - mean) @ precision * (value - mean)).sum(axis=-1)

    def random(mean, rng=None, size=None):
        return rng.multivariate_normal(mean, covariance, size=size)

    return lambda: pm.CustomDist("x", np.zeros(2), logp=logp, random=random, signature="(n)->(n)")


def correlation_cholesky(rng, n, eta):
    """Draw the Cholesky factor of an LKJ correlation matrix, row by row (Lewandowski et al. 2009, the onion method)."""
    factor, beta = np.eye(n), eta + 0.5 * (n - 2)
    factor[1, 0] = 2 * rng.beta(beta, beta) - 1
    factor[1, 1] = np.sqrt(1 - factor[1, 0] ** 2)
    for m in range(2, n):
        beta -= 0.5
        y, z = rng.beta(0.5 * m, beta), rng.normal(size=m)
        factor[m, :m] = np.sqrt(y) * z / np.linalg.norm(z)
        factor[m, m] = np.sqrt(1 - y)
    return factor


def lkj(n, eta, has_jacobian):
    """LKJ with log density sum_i (2 eta - 2 + n - i) log L_ii; without n - i, as PyMC 6.3 had it, it is wrong."""
    exponents = 2 * eta - 2 + has_jacobian * (n - np.arange(1, n + 1))

    def logp(value, _):
        return (exponents * pt.log(pt.diagonal(value, axis1=-2, axis2=-1))).sum(axis=-1)

    def random(_, rng=None, size=None):
        return correlation_cholesky(rng, n, eta)

    return lambda: pm.CustomDist(
        "x",
        np.zeros((n, n)),
        logp=logp,
        random=random,
        signature="(n,n)->(n,n)",
        transform=transforms.CholeskyCorrTransform(n=n),
    )


def child(random, logp):
    def build():
        tau = pm.HalfNormal("tau")
        pm.CustomDist("x", tau, logp=logp, random=random, shape=5)

    return build


def normal_child(value, scale):
    return -0.5 * (value / scale) ** 2 - pt.log(scale)


def lognormal(rng, size):
    return np.exp(rng.normal(size=size))


WRONG = {
    "LKJ without its Jacobian": lkj(3, 1.0, False),
    "wider": custom(lambda rng, size: rng.normal(0, 1.2, size=size), normal),
    "narrower": custom(lambda rng, size: rng.normal(0, 1 / 1.2, size=size), normal, 3),
    "one of many": custom(lambda rng, size: rng.normal(size=size) * np.r_[1.3, np.ones(49)], normal, 50),
    "heavier tails": custom(lambda rng, size: rng.standard_t(3, size=size), student(5), 3),
    "lighter tails": custom(lambda rng, size: rng.standard_t(5, size=size), student(3), 3),
    "correlation": correlated(0.3, 0.5),
    "no Jacobian of the logarithm": custom(lognormal, lambda v: -0.5 * pt.log(v) ** 2, (), transforms.log),
    "the Jacobian twice": custom(lognormal, lambda v: -0.5 * pt.log(v) ** 2 - 2 * pt.log(v), (), transforms.log),
    "variance for scale": custom(
        lambda rng, size: np.abs(rng.normal(0, 0.25, size=size)), lambda v: -0.5 * (v / 0.5) ** 2, (), transforms.log
    ),
    "rate for scale": custom(
        lambda rng, size: rng.gamma(2, 2.0, size=size), lambda v: pt.log(v) - 2 * v, (), transforms.log
    ),
    "shape": custom(lambda rng, size: rng.gamma(2, size=size), lambda v: 1.5 * pt.log(v) - v, (), transforms.log),
    "scale of a child": child(lambda t, rng=None, size=None: rng.normal(0, 1.2 * t, size=size), normal_child),
    "variance for scale of a child": child(
        lambda t, rng=None, size=None: rng.normal(0, np.sqrt(t), size=size), normal_child
    ),
    "half is missing": custom(lambda rng, size: np.abs(rng.normal(size=size)), normal),
    "range too short": custom(
        lambda rng, size: rng.uniform(size=size), lambda v: pt.switch((v > 0) & (v < 1.2), 0.0 * v, -np.inf)
    ),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", sorted(set(WRONG) - {"LKJ without its Jacobian"}))  # the longest; over seeds below
def test_wrong_priors_are_refused_by_name(name):
    with pytest.raises(ValueError, match=r"forward draws of `x`.*do not follow its log density.*`random`"):
        audit(modelled(WRONG[name]))


@pytest.mark.every(16)
@pytest.mark.parametrize("n_seeds", slow_but([], [1, 8], [8]))
@pytest.mark.parametrize("name", WRONG)
def test_wrong_priors_are_refused_whatever_the_seed(name, n_seeds):
    model = modelled(WRONG[name])
    for seed in range(n_seeds):
        with pytest.raises(ValueError, match="do not follow its log density"):
            audit(model, seed)


def test_draws_where_the_density_is_zero_are_refused():
    """A sixth of the draws."""
    build = custom(
        lambda rng, size: rng.uniform(0, 1.2, size=size), lambda v: pt.switch((v > 0) & (v < 1), 0.0 * v, -np.inf)
    )
    with pytest.raises(ValueError, match=r"\d+ of 4000 draws of the prior of `x` lie where its log density is -inf"):
        audit(modelled(build))


@pytest.mark.parametrize("kernel", [Hamiltonian(), RandomWalk()], ids=["gradients", "no gradients"])
def test_the_front_door_refuses_them_too(kernel):
    compiler = Compiler(kernel, compile_kwargs={"mode": "FAST_COMPILE"})
    with pytest.raises(ValueError, match=r"forward draws of `x`"):
        build_problem(modelled(WRONG["wider"]), "prior", compiler, Seeds((1,)))


def test_a_wrong_prior_does_not_hide_in_a_mixture():
    with pytest.raises(ValueError, match=r"forward draws of `x`"):
        audit(modelled(WRONG["wider"]), reference=Mixture(["prior", StudentT(3.0)], [0.1, 0.9]))


RIGHT = {
    "custom": custom(lambda rng, size: rng.normal(size=size), normal, 3),
    "up to a constant": custom(lambda rng, size: rng.normal(size=size), lambda v: normal(v) - 17.0, 3),
    "LKJ up to a constant": lkj(3, 2.0, True),
    "LKJ": lambda: pm.LKJCholeskyCov("x", n=3, eta=2.0, sd_dist=pm.Exponential.dist(1.0, shape=3)),
    "no transform": lambda: pm.Exponential("x", 1.0, shape=2, default_transform=None),
    "bounds that depend on a parent": lambda: pm.Uniform(
        "x", 0.0, pm.HalfNormal("top", default_transform=None), default_transform=None
    ),
    "probabilities next to one": lambda: pm.Beta("x", 0.01, 0.01),
    "beyond floating point": lambda: pm.Gamma("x", 0.001, 1.0),
    "heavy": lambda: pm.Cauchy("x", 0.0, pm.HalfCauchy("scale", 1.0), shape=3),
}


@pytest.mark.every(2)
@pytest.mark.parametrize(
    "name", slow_but({"custom", "bounds that depend on a parent", "beyond floating point", "heavy"}, RIGHT)
)
def test_right_priors_pass(name):
    """Each audit raises a false alarm with probability 1e-6, also where the density jumps."""
    audit(modelled(RIGHT[name]))


@pytest.mark.every(8)
@pytest.mark.parametrize("n_seeds", slow_but([], [1, 5], [5]))
@pytest.mark.parametrize("name", [*RIGHT, *MODELS])
def test_right_priors_pass_whatever_the_seed(name, n_seeds):
    model = MODELS[name]() if name in MODELS else modelled(RIGHT[name])
    for seed in range(n_seeds):
        audit(model, seed)


@pytest.mark.exhaustive
def test_car_draws_of_pymc(monkeypatch):
    """PyMC draws pm.CAR with a covariance that is not the inverse of the precision in its density; ours pass."""
    neighbours = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    model = modelled(lambda: pm.CAR("x", mu=np.zeros(3), W=neighbours, alpha=0.8, tau=pm.Gamma("tau", 2.0, 1.0)))
    audit(model)
    audit(modelled(lambda: pm.ICAR("x", W=neighbours.astype(int), sigma=2.0)))
    monkeypatch.setattr(markov, "_RIGHT", {})
    with pytest.raises(ValueError, match=r"forward draws of .*`x`.* do not follow.*pm\.MvNormal"):
        audit(model)


@pytest.mark.parametrize(
    "build",
    [
        lambda: pm.Censored("x", pm.Normal.dist(), lower=0.0, upper=1.0),
        lambda: pm.Mixture("x", w=[0.5, 0.5], comp_dists=[pm.DiracDelta.dist(0.0), pm.Normal.dist()]),
    ],
    ids=["censored", "spike and slab"],
)
def test_point_masses_are_refused(build):
    with pytest.raises(ValueError, match=r"`x` repeat the value 0: it has point masses"):
        audit(modelled(build))


class Ball:
    """A user's reference, uniform on a disc: its density jumps, and not on a box."""

    def __init__(self, drawn=1.0):
        self.drawn = drawn

    def sample(self, n, rng):
        z = rng.normal(size=(n, 2))
        return self.drawn * np.sqrt(rng.uniform(size=(n, 1))) * z / np.linalg.norm(z, axis=1, keepdims=True)

    def logp(self, x):
        return pt.switch((x**2).sum() < 1.0, -np.log(np.pi), -np.inf)


class Spiked:
    """A user's own mixture of a disc and a normal, whose density jumps in its middle."""

    def __init__(self, scale=3.0):
        self.scale = scale

    def sample(self, n, rng):
        normal = self.scale * rng.normal(size=(n, 2))
        return np.where(rng.uniform(size=(n, 1)) < 0.5, Ball().sample(n, rng), normal)

    def logp(self, x):
        return pt.logaddexp(Ball().logp(x), -(x**2).sum() / 18 - np.log(2 * np.pi * 9)) - np.log(2)


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "reference",
    [Ball(), Spiked(), Mixture([Box([-1, -1], [1, 1]), Gaussian(scale=2.0)]), Mixture([Ball(), StudentT(3.0)])],
    ids=["disc", "jump inside", "box and Gaussian", "disc and Student-t"],
)
def test_a_reference_may_jump(reference):
    audit(modelled(lambda: pm.Normal("x", shape=2)), reference=reference)


@pytest.mark.slow
@pytest.mark.parametrize(
    "reference", [Ball(0.9), Spiked(3.6), Mixture([Ball(0.9), StudentT(3.0)])], ids=["disc", "jump inside", "mixture"]
)
def test_and_its_mistakes_are_still_found(reference):
    with pytest.raises(ValueError, match=r"do not follow its own log density.*sample\(n, rng\)"):
        audit(modelled(lambda: pm.Normal("x", shape=2)), reference=reference)


class Absolute(Op):
    """A user's own operation, which knows no gradient."""

    def make_node(self, x):
        x = pt.as_tensor_variable(x)
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.abs(inputs[0])


def test_what_has_no_gradient_is_tested_exactly():
    """No screening is possible then."""
    for scale in (1.0, 1.3):
        draw = partial(lambda scale, rng, size: rng.laplace(0, scale, size=size), scale)
        model = modelled(custom(draw, lambda v: -Absolute()(v), 2))
        layout = build_layout(model)
        start = Prior(layout, build_prior(model))
        assert build_reference_density(model, layout, start, np.ones((1, 2)), with_gradients=True).gradients is None
        assert find_mismatches(model, layout, start, np.random.SeedSequence(1)) == ([] if scale == 1.0 else ["x"])


# Discrete variables --------------------------------------------------------------------------------------


def sites(draw, logp, shape=()):
    """Build a CustomDist `x` of whole numbers from ``draw(rng, size)`` and ``logp(value)``."""

    def build():
        pm.CustomDist("x", logp=logp, random=lambda rng=None, size=None: draw(rng, size), shape=shape, dtype="int64")
        pm.Normal("other")

    return build


def on(support, value, log_probability):
    return pt.switch(pt.and_(value >= support[0], value <= support[1]), log_probability, -np.inf)


def binary(p):
    return lambda value: on((0, 1), value, value * np.log(p) + (1 - value) * np.log1p(-p))


def poisson_counts(rate):
    return lambda value: on((0, np.inf), value, value * np.log(rate) - pt.gammaln(value + 1.0))


def of_a_parent(slope):
    """The log odds of three sites, which are a normal variable's multiple; drawn with slope one."""

    def logp(value, eta):
        return on((0, 1), value, value * slope * eta - pt.softplus(slope * eta))

    def random(eta, rng=None, size=None):
        return rng.binomial(1, 1 / (1 + np.exp(-eta)), size=size)

    return lambda: pm.CustomDist("x", pm.Normal("eta"), logp=logp, random=random, shape=3, dtype="int64")


def with_dist(computed):
    """PyMC draws from ``dist``, and the density is another one."""

    def dist(size):
        return pm.Poisson.dist(3.0, size=size)

    return lambda: pm.CustomDist("x", dist=dist, logp=lambda value: poisson_counts(computed)(value), dtype="int64")


WRONG_SITES = {
    "odds": sites(lambda rng, size: rng.binomial(1, 0.4, size=size), binary(0.5)),
    "many sites": sites(lambda rng, size: rng.binomial(1, 0.35, size=size), binary(0.5), 20),
    "rate": sites(lambda rng, size: rng.poisson(3.0, size=size), poisson_counts(3.5)),
    "shifted": sites(lambda rng, size: rng.poisson(3.0, size=size) + 1, poisson_counts(3.0)),
    "values that are never drawn": sites(
        lambda rng, size: rng.binomial(1, 0.5, size=size), lambda value: on((0, 2), value, 0.0 * value)
    ),
    "no support": sites(lambda rng, size: rng.binomial(1, 0.3, size=size), lambda value: value * np.log(3 / 7)),
    "a parent": of_a_parent(2.0),
    "dist and logp": with_dist(2.5),
}
RIGHT_SITES = {
    "odds": sites(lambda rng, size: rng.binomial(1, 0.4, size=size), binary(0.4)),
    "rare": sites(lambda rng, size: rng.binomial(1, 0.001, size=size), binary(0.001), 5),
    "rate": sites(lambda rng, size: rng.poisson(3.0, size=size), poisson_counts(3.0)),
    "large": sites(lambda rng, size: rng.poisson(300.0, size=size), poisson_counts(300.0), 2),
    "one value": sites(lambda rng, size: np.full(size or (), 7), lambda value: on((7, 7), value, 0.0 * value)),
    "a parent": of_a_parent(1.0),
    "dist and logp": with_dist(3.0),
    "dist": lambda: pm.CustomDist("x", dist=lambda size: pm.Poisson.dist(3.0, size=size)),
    "truncated": lambda: pm.Truncated("x", pm.Poisson.dist(3.0), upper=4),
}


@pytest.mark.few(2)
@pytest.mark.every(3)
@pytest.mark.parametrize("name", WRONG_SITES)
def test_wrong_priors_of_sites_are_refused_by_name(name):
    with pytest.raises(ValueError, match=r"draws of `x`.*do not follow its log density"):
        audit(modelled(WRONG_SITES[name]))


@pytest.mark.few(2)
@pytest.mark.every(3)
@pytest.mark.parametrize("name", RIGHT_SITES)
def test_right_priors_of_sites_pass(name):
    audit(modelled(RIGHT_SITES[name]))


@pytest.mark.exhaustive
def test_sites_are_judged_alike_whatever_the_seed():
    for name, build in {**WRONG_SITES, **RIGHT_SITES}.items():
        model = modelled(build)
        for seed in range(4):
            if WRONG_SITES.get(name) is build:
                with pytest.raises(ValueError, match="do not follow its log density"):
                    audit(model, seed)
            else:
                audit(model, seed)


def test_a_reference_of_sites_is_audited_too():
    with pm.Model() as model:
        pm.Bernoulli("x", 0.5, shape=3)
    wrong = pm.CustomDist.dist(
        logp=binary(0.5), random=lambda rng=None, size=None: rng.binomial(1, 0.4, size=size), shape=3, dtype="int64"
    )
    with pytest.raises(ValueError, match="draws of the reference of `x`"):
        audit(model, reference={"x": wrong})


def test_what_pymc_draws_itself_is_not_suspected():
    with pm.Model():
        z = pm.Bernoulli("z", 0.3, shape=2)
        k = pm.ZeroInflatedPoisson("k", 0.5, 2.0)
        c = pm.CustomDist(
            "c", logp=binary(0.5), random=lambda rng=None, size=None: rng.binomial(1, 0.5, size), dtype="int64"
        )
        t = pm.Truncated("t", pm.CustomDist.dist(dist=lambda size: pm.Poisson.dist(3.0, size=size)), upper=4)
    assert [draws_itself(one) for one in (z, k, c, t)] == [True, True, False, False]
