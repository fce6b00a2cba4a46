"""Every kind of PyMC model: densities, gradients, prior draws and outputs against PyMC's own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytest
from pytensor.scan.op import Scan
from scipy import special, stats

from pymc_hais.density import (
    build_density,
    build_layout,
    build_outputs,
    check_joint_logp,
    check_model,
    check_state,
)
from pymc_hais.engines import compile_engine
from pymc_hais.goodness_of_fit.draws import blocks_of
from pymc_hais.goodness_of_fit.stein import find_suspects
from pymc_hais.problem.audit import find_mismatches
from pymc_hais.references import Prior, build_prior
from tests.density.catalogue import MODELS
from tests.marks import fast_but, slow_but
from tests.populations import joint_of, state_of

N_DRAWS = 500
#: Shared by all two-sample tests of this file: about 300 coordinates.
FALSE_ALARM = 1e-4 / 300

# pm.draw of these is not a prior draw: their transforms condition the prior on an order or a range.
CONDITIONED = {
    "ordered_exchangeable",
    "ordered_increasing",
    "ordered_descending",
    "ordered_positive",
    "ordered_chained",
    "ordered_likelihood",
    "restricted",
}
#: Where the density of PyMC is wrong.
REFUSED = {"lkj_correlation"} if tuple(map(int, pm.__version__.split(".")[:2])) < (6, 4) else set()
# An older PyTensor hands generators to a loop in another way: these are then drawn one at a time.
WITH_LOOPS = {"lkj_cholesky", "lkj_correlation", "autoregression", "scan_distribution"}
UNBATCHED = set() if hasattr(Scan, "outer_untraced_sit_sot") else WITH_LOOPS

#: The slow ones take seconds to compile, and have relatives among the others.
SLOW = ["autoregression", "censored_and_truncated", "differential_equation", "dims_model", "gp_latent"]
SLOW += ["gp_latent_centred", "gp_marginal", "heavy_tails", "hsgp", "interval_with_random_bounds", "kronecker_normal"]
SLOW += ["lkj_correlation", "matrix_normal", "mixture_prior", "multivariate_random_walk", "ordered_chained"]
SLOW += ["ordered_descending", "ordered_positive", "scan_distribution", "skewed", "stick_breaking"]
SLOW += ["lkj_cholesky", "matrix_of_vectors", "mixture", "ordered_increasing", "ordered_likelihood"]
SLOW += ["zero_sum", "scan_mean", "random_walk", "several_observed", "own_start", "circular", "empty_shape"]
SLOW += ["copied_graph", "custom_logp", "restricted", "positive", "ordered_exchangeable", "multivariate_normal"]
EVERY = fast_but(SLOW, MODELS)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


@dataclass
class Case:
    """A model, draws of its prior, and what its compiled density makes of them."""

    model: Any
    prior: Any
    layout: Any
    positions: np.ndarray
    clipped: np.ndarray
    backend: str | None

    @cached_property
    def state(self):
        """Evaluate all draws; compiled for the tests that read it only."""
        kwargs = {} if self.backend else {"mode": "FAST_COMPILE"}
        engine = compile_engine(build_density(self.model, self.layout), self.backend, kwargs)
        return state_of(engine, self.positions, np.array([1, 2], dtype=np.uint32))


def adapt(model, n=N_DRAWS, seed=3, backend=None):
    check_model(model)
    prior = build_prior(model)
    values, clipped = prior.sample(n, seed)
    layout = build_layout(model, [value[0] for value in values])
    return Case(model, prior, layout, layout.flatten(values), clipped, backend)


@cache
def adapted(name):
    return adapt(MODELS[name]())


def point(case, row):
    values = case.layout.unflatten(np.asarray(case.state.position[row]))
    return {var.name: values[var.name].astype(var.dtype) for var in case.model.value_vars}


def assert_density_is_pymcs(case, rows=4, rtol=1e-8):
    rows = np.flatnonzero(~case.clipped)[:rows]
    model = case.model
    theirs = model.compile_fn([model.logp(), model.dlogp()], inputs=model.value_vars, mode="FAST_COMPILE")
    for row in rows:
        joint = case.state.log_reference[row] + case.state.log_ratio[row]
        gradient = np.asarray(case.state.grad_reference[row] + case.state.grad_ratio[row])
        logp, dlogp = theirs(point(case, row))
        np.testing.assert_allclose(joint, logp, rtol=rtol, atol=rtol)
        np.testing.assert_allclose(gradient, dlogp, rtol=rtol, atol=rtol)


def assert_same_distribution(ours, theirs):
    ours, theirs = ours.reshape(len(ours), -1), theirs.reshape(len(theirs), -1)
    assert ours.shape[1] == theirs.shape[1]
    for a, b in zip(ours.T, theirs.T, strict=True):
        assert stats.ks_2samp(a, b).pvalue > FALSE_ALARM


# The slow tests take the same models, as far as they can: setting one up takes longer than a test of it.
@pytest.mark.every(4, start=1)
@pytest.mark.parametrize("name", EVERY)
def test_density_and_gradient_are_pymcs(name):
    assert_density_is_pymcs(adapted(name))


@pytest.mark.every(4, start=1)
@pytest.mark.parametrize("name", EVERY)
def test_layout_is_that_of_the_value_variables(name):
    case = adapted(name)
    start = case.model.initial_point()
    assert list(case.layout.names) == [var.name for var in case.model.value_vars]
    assert [start[n].shape for n in case.layout.names] == list(case.layout.shapes)
    unflat = case.layout.unflatten(case.positions)
    assert all(unflat[n].shape == (N_DRAWS, *start[n].shape) for n in case.layout.names)
    np.testing.assert_array_equal(case.layout.flatten(list(unflat.values())), case.positions)


@pytest.mark.every(4, start=1)
@pytest.mark.parametrize("name", EVERY)
def test_evaluated_prior_draws_pass_every_check(name):
    """The screening's false-alarm level is 1e-5 a model; what it suspects, the audit clears with one of 1e-6."""
    case = adapted(name)
    assert check_state(case.model, case.layout, case.positions, case.state) == 0
    check_joint_logp(case.model, case.layout, case.state.position, *joint_of(case.state), case.clipped)
    kept = ~case.clipped
    if find_suspects(case.positions[kept], np.asarray(case.state.grad_reference)[kept], blocks_of(case.layout), 1e-5):
        prior = Prior(case.layout, case.prior)
        assert find_mismatches(case.model, case.layout, prior, np.random.SeedSequence(3)) == []


@pytest.mark.every(4, start=1)
@pytest.mark.parametrize("name", EVERY)
def test_outputs_are_pymcs(name):
    case = adapted(name)
    wanted = case.model.unobserved_value_vars
    expected = case.model.compile_fn(wanted, inputs=case.model.value_vars, mode="FAST_COMPILE")
    names = [var.name for var in wanted]
    outputs = build_outputs(case.model, case.layout, include_transformed=True)(case.positions[:6].reshape(2, 3, -1))
    assert set(outputs) == set(names)
    for row in range(6):
        for name_, value in zip(names, expected(point(case, row)), strict=True):
            ours = outputs[name_][row // 3, row % 3]
            assert type(ours) in (np.ndarray, np.float64)
            np.testing.assert_allclose(ours, value, rtol=1e-10, atol=1e-12)


@pytest.mark.every(8)
@pytest.mark.parametrize("name", fast_but(SLOW, sorted(set(MODELS) - CONDITIONED - {"skewed"} - REFUSED)))
def test_prior_draws_are_those_of_pymc(name):
    """Two-sample Kolmogorov-Smirnov tests; joint correctness is the audit's business."""
    case = adapted(name)
    ours = build_outputs(case.model, case.layout, [rv.name for rv in case.model.free_RVs])(case.positions)
    theirs = pm.draw(case.model.free_RVs, N_DRAWS, random_seed=11, mode="FAST_COMPILE")
    for rv, draws in zip(case.model.free_RVs, theirs, strict=True):
        assert_same_distribution(ours[rv.name], draws)


@pytest.mark.every(4, start=1)
@pytest.mark.parametrize("name", EVERY)
def test_draws_are_batched_and_repeatable(name):
    case = adapted(name)
    assert (case.prior.batch_size == 1) == (name in UNBATCHED)
    n = 40 if name in UNBATCHED else 700
    first, second, other = (case.prior.sample(n, seed)[0] for seed in (5, 5, 6))
    for a, b, c in zip(first, second, other, strict=True):
        assert a.shape[0] == n
        np.testing.assert_array_equal(a, b)
        assert a.size == 0 or not np.array_equal(a, c)
        # Anew in every batch; a few are clipped to the same edge.
        assert a.size == 0 or len(np.unique(a.reshape(n, -1), axis=0)) > 0.9 * n


@pytest.mark.every(2)
@pytest.mark.few(3)
@pytest.mark.parametrize("name", ["hierarchical", "random_walk", "gp_latent", "mixture_prior", "zero_sum"])
def test_one_draw_at_a_time_agrees_with_batches(name, monkeypatch):
    monkeypatch.setattr("pymc_hais.references.prior.batch", None)  # calling it fails, as an unknown Op does
    case = adapted(name)
    single = build_prior(case.model)
    assert single.batch_size == 1
    values, _ = single.sample(N_DRAWS, 21)
    assert_same_distribution(case.positions, case.layout.flatten(values))


@pytest.mark.every(2)
@pytest.mark.few(3)
@pytest.mark.parametrize("name", sorted(CONDITIONED - {"restricted"}))
def test_ordered_draws_are_ordered(name):
    case = adapted(name)
    variable = "cut" if name == "ordered_likelihood" else "x"
    draws = build_outputs(case.model, case.layout, [variable])(case.positions)[variable]
    step = np.diff(draws, axis=-1)
    assert np.all(step < 0 if name == "ordered_descending" else step > 0)


def test_ordered_draws_have_the_law_of_the_ordered_prior():
    """Increasing means: draws conditioned on the order, here by an independent rejection in NumPy."""
    x = np.random.default_rng(8).normal([-1.0, 0.0, 2.0], 1.0, size=(4 * N_DRAWS, 3))
    x = x[np.all(np.diff(x, axis=1) > 0, axis=1)]
    case = adapted("ordered_increasing")
    assert_same_distribution(build_outputs(case.model, case.layout, ["x"])(case.positions)["x"], x)
    case = adapted("ordered_exchangeable")
    x = np.sort(np.random.default_rng(9).normal(0.0, 2.0, size=(N_DRAWS, 3)), axis=1)
    assert_same_distribution(build_outputs(case.model, case.layout, ["x"])(case.positions)["x"], x)


def test_a_transform_that_restricts_a_prior_conditions_its_draws():
    case = adapted("restricted")
    draws = build_outputs(case.model, case.layout)(case.positions)["x"]
    expected = stats.truncnorm(-0.5, np.inf, loc=0.5)
    assert stats.kstest(draws, expected.cdf).pvalue > FALSE_ALARM


def test_initval_does_not_influence_prior_draws():
    case = adapted("own_start")
    mu, log_sigma = case.positions.T
    assert stats.kstest(mu, stats.norm.cdf).pvalue > FALSE_ALARM
    assert stats.kstest(np.exp(log_sigma), stats.halfnorm.cdf).pvalue > FALSE_ALARM


def test_sampling_leaves_the_models_generators_alone():
    model = MODELS["positive"]()
    before = pm.draw(model["sigma"], random_seed=4, mode="FAST_COMPILE")
    generators = [rv.owner.inputs[0].get_value().bit_generator.state for rv in model.free_RVs]
    build_prior(model).sample(10, 1)
    assert generators == [rv.owner.inputs[0].get_value().bit_generator.state for rv in model.free_RVs]
    assert before == pm.draw(model["sigma"], random_seed=4, mode="FAST_COMPILE")


def test_periodic_coordinates_are_marked():
    assert adapted("circular").layout.is_periodic == (True,)
    assert adapted("interval").layout.is_periodic == (False, False)
    transforms = pm.distributions.transforms
    with pm.Model() as model:
        pm.VonMises("angle", 0.0, 1.0, shape=2, transform=transforms.ordered, initval=[-1.0, 1.0])
    assert build_layout(model).is_periodic == (True,)


def test_new_data_are_seen_after_set_data():
    model = MODELS["mutable_data"]()
    before = adapt(model, n=5)
    log_ratio = before.state.log_ratio
    with model:
        pm.set_data({"x": np.arange(7.0), "y_data": np.ones(7)})
    after = adapt(model, n=5)
    np.testing.assert_array_equal(before.positions, after.positions)
    assert not np.any(log_ratio == after.state.log_ratio)
    assert_density_is_pymcs(after)


def test_a_constant_potential_is_part_of_the_ratio():
    case = adapted("potential")
    x = case.positions
    np.testing.assert_allclose(case.state.log_ratio, -(x.sum(axis=1) ** 2) - 3.7 - 2.5, rtol=1e-12)


@pytest.mark.parametrize("name", slow_but({"hierarchical"}, ["hierarchical", "simplex", "lkj_correlation"]))
def test_jax_agrees(name):
    pytest.importorskip("jax")
    assert_density_is_pymcs(adapt(MODELS[name](), n=8, backend="jax"), rtol=1e-6)


def test_single_precision():
    with pytensor.config.change_flags(floatX="float32"):
        case = adapt(MODELS["interval"](), n=20)
        assert_density_is_pymcs(case, rtol=1e-4)
        check_joint_logp(case.model, case.layout, case.state.position, *joint_of(case.state), case.clipped)


def test_values_beyond_floating_point_are_marked():
    """P(log x < -700) = exp(-0.001 * 700) / Gamma(1.001) for Gamma(0.001, 1); 5.3 standard errors."""
    with pm.Model() as model:
        pm.Gamma("x", 0.001, 1.0)
    (x,), clipped = build_prior(model).sample(2000, 1)
    p = np.exp(-0.7) / special.gamma(1.001)
    assert clipped.dtype == bool
    assert abs(clipped.mean() - p) < 5.3 * np.sqrt(p * (1 - p) / 2000)
    assert np.all(x[clipped] == -700.0)
    assert np.isfinite(x).all()


def test_what_compilers_take_for_zero_is_marked_and_so_are_children_that_are_no_numbers():
    """Of one precision in two, as of :func:`test_values_beyond_floating_point_are_marked`; 5.3 standard errors."""
    with pm.Model() as model:
        precision = pm.Gamma("precision", 0.001, 0.001)
        pm.Normal("x", pm.Normal("mean", 0.0, tau=1e-6), tau=precision, shape=5)
    case = adapt(model, n=2000)
    p = np.exp(0.001 * np.log(0.001) - 0.7) / special.gamma(1.001)
    assert abs(case.clipped.mean() - p) < 5.3 * np.sqrt(p * (1 - p) / 2000)
    assert np.isfinite(case.positions).all()
    assert np.isfinite(np.asarray(case.state.log_reference)[~case.clipped]).all()


def test_draws_of_an_inverse_gamma_that_are_infinite_are_marked_and_so_are_those_of_its_children():
    """P(log v > 700) = P(g < 0.001 exp(-700)) = exp(0.001 log(0.001) - 0.7) / Gamma(1.001), g ~ Gamma(0.001)."""
    with pm.Model() as model:
        v = pm.InverseGamma("v", 0.001, 0.001)
        pm.Normal("x", 0.0, pm.math.sqrt(v), shape=3)
    prior = build_prior(model)
    assert prior.batch_size > 1
    (log_v, x), clipped = prior.sample(2000, 1)
    p = np.exp(0.001 * np.log(0.001) - 0.7) / special.gamma(1.001)
    assert abs(clipped.mean() - p) < 5.3 * np.sqrt(p * (1 - p) / 2000)
    assert np.isfinite(x).all()
    assert np.all(log_v[clipped] == 700.0)


def test_a_simplex_with_an_empty_element_is_marked():
    with pm.Model() as model:
        pm.Dirichlet("p", np.full(3, 1e-3))
    (p,), clipped = build_prior(model).sample(500, 1)
    assert clipped.any()
    assert np.isfinite(p).all()


def test_a_batch_is_never_as_long_as_a_dimension_of_the_model():
    with pm.Model() as model:
        pm.Normal("x", 0.0, pm.HalfNormal("sigma"), shape=(500, 2))
    prior = build_prior(model)
    (sigma, x), _ = prior.sample(2000, 1)
    assert prior.batch_size == 501
    assert x.shape == (2000, 500, 2)
    scale = x.std(axis=(1, 2))  # of 1000 values each: within 5 standard errors 1/sqrt(2000) of sigma
    np.testing.assert_allclose(scale, np.exp(sigma), rtol=6 / np.sqrt(2000))
