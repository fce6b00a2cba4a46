"""Each refusal names the variable and says what to do, on the model that deserves it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import sparse
from pytensor.compile.mode import Mode
from scipy.sparse import csr_matrix
from scipy.special import gammaln
from scipy.stats import norm

from pymc_hais.density import (
    build_density,
    build_layout,
    check_joint_logp,
    check_model,
    check_state,
    find_model,
    measure_terms,
)
from pymc_hais.density.evaluation import evaluate_terms
from pymc_hais.engines import compile_engine
from pymc_hais.references import build_prior
from tests.density.catalogue import MODELS, Y
from tests.populations import joint_of, state_of

# pm.Simulator and pm.DensityDist warn about themselves.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore:total_size not provided:UserWarning",
    "ignore:Data in y contains missing values:pymc.exceptions.ImputationWarning",
)


def evaluated(model, n=30, mode: Any = "FAST_COMPILE"):
    values, clipped = build_prior(model).sample(n, 1)
    layout = build_layout(model, [value[0] for value in values])
    engine = compile_engine(build_density(model, layout), None, {"mode": mode})
    return layout, state_of(engine, layout.flatten(values), np.zeros(2, dtype=np.uint32)), clipped


REFUSED_FIRST = {
    "observed only": (lambda: pm.Normal("y", observed=1.0), ValueError, "no free random variables"),
    "discrete": (
        lambda: (pm.Multinomial("k", 3, np.ones(2) / 2), pm.Bernoulli("b", 0.5), pm.Normal("x")),
        NotImplementedError,
        r"`k` is a discrete variable whose elements depend on one another.*\(Multinomial\)",
    ),
    "flat": (lambda: pm.Flat("x"), ValueError, r"`x` is improper \(pm.Flat\).*pm.Normal\(\"x\", 0, 10\)"),
    "half-flat": (lambda: pm.HalfFlat("x"), ValueError, r"`x` is improper \(pm.HalfFlat\).*pm.HalfNormal"),
    "icar": (
        lambda: pm.ICAR("x", W=np.array([[0, 1], [1, 0]]), sigma=pm.HalfNormal("s")),
        ValueError,
        r"`x` is improper \(pm.ICAR\).*scale \* pm.ICAR\(\"x\", W\), where every area",
    ),
    "minibatch": (
        lambda: pm.Normal("y", pm.Normal("m"), observed=Y, total_size=10),
        ValueError,
        "`y` was given `total_size`.*full data",
    ),
    "minibatch without total_size": (
        lambda: pm.Normal("y", pm.Normal("m"), observed=pm.Minibatch(np.arange(20.0), batch_size=5)),
        ValueError,
        "`y` depends on a pm.Minibatch.*full data",
    ),
    "shared variable": (
        lambda: pm.Normal("y", pm.Normal("m") * pytensor.shared(Y, name="weights"), observed=Y),
        ValueError,
        "`y` depends on a pytensor.shared variable, `weights`.*pm.Data",
    ),
    "observed shared variable": (
        lambda: pm.Normal("y", pm.Normal("m"), observed=pytensor.shared(Y)),
        ValueError,
        "`y` depends on a pytensor.shared variable, one without a name.*pm.Data",
    ),
    "shared variable of a prior": (
        lambda: pm.Normal("x", pytensor.shared(0.0, name="centre")),
        ValueError,
        "`x` depends on a pytensor.shared variable, `centre`.*pm.Data",
    ),
    "sparse data": (
        lambda: pm.Normal("y", sparse.dot(pm.Data("X", csr_matrix(np.eye(2))), pm.Normal("b", shape=(2, 1)))),
        ValueError,
        "`X` is a pm.Data container of a sparse matrix.*sparse.dot",
    ),
    "simulator": (
        lambda: pm.Simulator("s", lambda rng, m, size: rng.normal(m, size=size), pm.Normal("m"), observed=Y),
        NotImplementedError,
        "`s` is a pm.Simulator.*pm.sample_smc",
    ),
    "vectors with gaps": (
        lambda: pm.MvNormal("y", pm.Normal("m", shape=2), np.eye(2), observed=[[1.0, 2.0], [np.nan, 1.0]]),
        NotImplementedError,
        "Vectors of `y` are observed in part.*leave incomplete vectors out",
    ),
}


@pytest.mark.parametrize("give", [lambda _, values: values, pm.Data], ids=["constants", "containers"])
def test_data_that_do_not_fit_are_named_with_both_shapes(give):
    with pm.Model() as model:
        b = pm.Normal("b")
        pm.Normal("y", b * give("x", np.arange(3.0)), 1.0, observed=give("data", np.zeros(2)))
    message = r"`y` has the shape \(2,\) of its data, and a parameter of its distribution the shape \(3,\)"
    with pytest.raises(ValueError, match=message):
        build_density(model, build_layout(model))


@pytest.mark.parametrize("build", [pm.Flat, pm.Normal])
def test_a_potential_that_is_a_variable_is_told_to_be_an_expression(build):
    with pm.Model() as model:
        pm.Potential("p", build("x"))
    with pytest.raises(ValueError, match=r'`p` is the variable `x` itself, .*pm.Potential\("p", 1.0 \* x\)'):
        find_model(model)


def test_data_containers_lengths_and_random_states_are_no_shared_variables_of_their_own():
    with pm.Model(coords={"row": [0, 1]}) as model:
        X = pm.Data("X", np.ones((2, 2)), dims=("row", "column"))
        b = pm.Normal("b", dims="column")
        pm.Normal("y", sparse.dot(csr_matrix(np.eye(2)), (X @ b)[:, None])[:, 0], observed=pm.Data("obs", Y[:2]))
        pm.Deterministic("again", pm.Normal.dist(b.sum()))
    check_model(model)


@pytest.mark.parametrize(("build", "kind", "message"), REFUSED_FIRST.values(), ids=REFUSED_FIRST)
def test_refused_before_any_work(build, kind, message):
    with pm.Model() as model:
        build()
    with pytest.raises(kind, match=message):
        check_model(model)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_improper_in_dims():
    import pymc.dims as pmd

    with pm.Model() as model:
        pmd.Flat("x")
    with pytest.raises(ValueError, match=r"`x` is improper \(pm.Flat\)"):
        check_model(model)


@pytest.mark.parametrize("name", ["circular", "hierarchical", "several_observed"])
def test_accepted(name):
    check_model(MODELS[name]())


NO_DRAWS = {
    "custom": lambda: pm.CustomDist("x", pm.Normal("m"), logp=lambda v, m: -((v - m) ** 2)),
    "density": lambda: pm.DensityDist("x", logp=lambda v: -(v**2)),
    "parent of another": lambda: pm.Normal("z", pm.CustomDist("x", logp=lambda v: -(v**2))),
    "truncated flat": lambda: pm.Truncated("x", pm.Flat.dist(), lower=0.0, upper=1.0),
}


@pytest.mark.parametrize("build", NO_DRAWS.values(), ids=NO_DRAWS)
def test_a_variable_that_cannot_be_drawn_is_named(build):
    with pm.Model() as model:
        build()
    with pytest.raises(NotImplementedError, match=r"cannot draw from the prior of `x`.*`random=`"):
        build_prior(model)


def test_a_parameter_outside_its_domain():
    with pm.Model() as model:
        pm.Normal("x", 0.0, -1.0)
    with pytest.raises(ValueError, match="prior of `x`: scale < 0"):
        build_prior(model)
    with pm.Model() as model:
        pm.Normal("x", 0.0, pm.Normal("s", 3.0, 1.0))
    with pytest.raises(ValueError, match=r"draw from the prior.*scale < 0"):
        build_prior(model).sample(10_000, 1)


def test_an_order_that_the_prior_never_has():
    with pm.Model() as model:
        pm.Normal("m")
        pm.Normal("x", np.array([10.0, 0.0]), 0.1, transform=pm.distributions.transforms.ordered)
    with pytest.raises(ValueError, match=r"only 0 .*most draws of `x` .*ordered"):
        build_prior(model).sample(10, 1)


def test_empty_free_variables():
    with pm.Model() as model:
        pm.Normal("x", shape=(0,))
    values, _ = build_prior(model).sample(3, 1)
    with pytest.raises(ValueError, match="no elements"):
        build_layout(model, [value[0] for value in values])
    with pm.Model() as fixed, pytest.raises(ValueError, match="The model has no free variables"):
        build_layout(fixed)


def test_impossible_data_are_named():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("fine", mu, 1.0, observed=Y)
        pm.Exponential("y", pt.exp(mu), observed=[1.0, -1.0])
    layout, state, _ = evaluated(model)
    with pytest.raises(ValueError, match="any of 30 draws of the prior; the -inf comes from `y`"):
        check_state(model, layout, state.position, state)


def test_an_impossible_potential_is_named():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("p", pt.log(-pt.exp(x)))
    layout, state, _ = evaluated(model)
    with pytest.raises(ValueError, match="the NaN comes from `p`"):
        check_state(model, layout, state.position, state)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_nan_gradient_is_named():
    with pm.Model() as model:
        x = pm.Normal("x")
        z = pm.Normal("z")
        # The derivative of the square root at zero is infinite, and 0 * inf is NaN.
        pm.Normal("y", pt.sqrt(0.0 * x) + z, 1.0, observed=Y)
    layout, state, _ = evaluated(model)
    assert np.isfinite(state.log_ratio).all()
    state = state._replace(grad_ratio=np.where([True, False], np.nan, state.grad_ratio))
    with pytest.raises(ValueError, match="with respect to `x` is NaN or infinite at every"):
        check_state(model, layout, state.position, state)


def test_some_nan_gradients_are_counted():
    model = MODELS["positive"]()
    layout, state, _ = evaluated(model)
    gradient = state.grad_ratio.copy()
    gradient[[2, 7]] = np.nan
    log_ratio = state.log_ratio.copy()
    log_ratio[7] = -np.inf  # its gradient is not needed
    assert check_state(model, layout, state.position, state._replace(grad_ratio=gradient, log_ratio=log_ratio)) == 1


def test_a_wrong_joint_density_is_measured():
    model = MODELS["hierarchical"]()
    layout, state, clipped = evaluated(model)
    check_joint_logp(model, layout, state.position, *joint_of(state), clipped)
    wrong = state._replace(log_ratio=state.log_ratio + 0.25)
    with pytest.raises(RuntimeError, match=r"they differ by 0\.25 nats"):
        check_joint_logp(model, layout, wrong.position, *joint_of(wrong), clipped)
    check_joint_logp(model, layout, wrong.position, *joint_of(wrong), np.ones_like(clipped))  # nothing left to compare


def test_a_density_that_is_wrong_away_from_the_likeliest_draw_is_measured():
    """Unless evaluating costs too much: then the likeliest draw has to do."""
    model = MODELS["hierarchical"]()
    layout, state, clipped = evaluated(model)
    joint, magnitude = joint_of(state)
    wrong = np.where(joint == joint.max(), joint, joint + 0.25)
    with pytest.raises(RuntimeError, match=r"they differ by 0\.25 nats"):
        check_joint_logp(model, layout, state.position, wrong, magnitude, clipped)

    def costly(position):
        times.append(time.sleep(0.05))
        return joint[np.all(np.asarray(state.position) == position, axis=1)].item()

    times = []
    check_joint_logp(model, layout, state.position, wrong, magnitude, clipped, costly)
    assert len(times) == 1


def test_a_bound_that_is_lost_is_measured():
    """A density of zero to the model, where what was compiled has a number."""
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("bound", pt.switch(x > 0.5, 0.0, -np.inf))
    positions = np.linspace(-1.0, 1.0, 40)[:, None]
    joint = -0.5 * positions[:, 0] ** 2 - 0.5 * np.log(2.0 * np.pi)
    kept = joint - 9.0 * (positions[:, 0] <= 0.5)  # the likeliest is inside
    with pytest.raises(RuntimeError, match=r"model\.logp\(\) is -inf"):
        check_joint_logp(model, build_layout(model), positions, kept, np.abs(kept))


@pytest.mark.slow
def test_a_model_that_saturates_as_written_is_judged_by_its_stable_form():
    """With logits of hundreds, log(1 - sigmoid) as written is -inf or rounded; what is compiled is neither."""
    rng = np.random.default_rng(5)
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 100, shape=3)
        pm.Bernoulli("y", logit_p=rng.normal(size=(40, 3)) @ slope, observed=rng.integers(0, 2, 40))
    layout, state, clipped = evaluated(model, mode=Mode(linker="py", optimizer="fast_run"))
    as_written = model.compile_logp(mode="FAST_COMPILE")
    finite = [np.isfinite(as_written({"slope": row})) for row in np.asarray(state.position)]
    assert not all(finite)
    for rows in np.split(np.arange(len(finite)), len(finite) // 5):
        part = type(state)(*(np.asarray(leaf)[rows] for leaf in state))
        check_joint_logp(model, layout, part.position, *joint_of(part), clipped[rows])


def test_a_log_density_that_is_no_number_agrees_with_nothing():
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0)
        pm.Potential("nan", pt.sqrt(-1.0 - x**2))
    with pytest.raises(RuntimeError, match=r"model\.logp"):
        check_joint_logp(model, build_layout(model), np.zeros((1, 1)), np.array([-0.9]), np.ones(1))


def test_digits_that_a_nearly_singular_matrix_loses_are_no_wrong_compilation():
    """Factors of matrices are of ordinary precision in wide numbers, too; another backend rounds them otherwise."""
    points = np.linspace(0.0, 1.0, 30)
    distances = np.subtract.outer(points, points) ** 2
    with pm.Model() as model:
        length = pm.Normal("length", 1.0, 0.1)
        covariance = pt.exp(-0.5 * distances / length**2) + 1e-12 * np.eye(30)
        pm.MvNormal("y", np.zeros(30), cov=covariance, observed=np.random.default_rng(1).normal(size=30))
    as_written, layout = model.compile_logp(mode="FAST_COMPILE"), build_layout(model)
    positions = np.array([[1.0]])
    rounded = np.array([as_written({"length": 1.0 + 8 * np.finfo(float).eps})])
    assert abs(rounded - as_written({"length": 1.0})) > 10.0 * np.sqrt(np.finfo(float).eps) * abs(rounded)
    check_joint_logp(model, layout, positions, rounded, np.abs(rounded))
    with pytest.raises(RuntimeError, match="they differ by"):
        check_joint_logp(model, layout, positions, 1.1 * rounded, np.abs(rounded))


def test_counts_are_compared_where_they_are():
    """Half a nat is an error however much the next count would change the density."""
    with pm.Model() as model:
        k = pm.Poisson("k", 20.0)
        pm.Normal("y", k, 0.5, observed=[1.0, 2.0, 3.0, 4.0])
    value = np.array([model.compile_logp(mode="FAST_COMPILE")({"k": np.array(3)})])
    layout = build_layout(model)
    check_joint_logp(model, layout, np.array([[3.0]]), value, np.abs(value))
    with pytest.raises(RuntimeError, match=r"they differ by 0\.5 nats"):
        check_joint_logp(model, layout, np.array([[3.0]]), value + 0.5, np.abs(value))


def test_bounds_are_checked_as_the_model_says():
    """Of a Wald distribution with a negative mean the formula gives a number all the same."""
    with pm.Model(check_bounds=False) as model:
        x = pm.Normal("x", 0.0, 1.0)
        pm.Potential("y", pm.logp(pm.Wald.dist(mu=x - 1.0, lam=1.0), 2.0))
    terms = evaluate_terms(model, build_layout(model), np.zeros((1, 1)), model.potentials)
    assert np.isfinite(terms["y"]).all()


def test_conditions_that_are_added_are_refused():
    with pm.Model() as model:
        a, b = pm.Bernoulli("a", 0.5), pm.Bernoulli("b", 0.5)
        pm.Potential("both", 4.0 * (pt.eq(a, 1) + pt.eq(b, 1)))
    with pytest.raises(ValueError, match=r"adds conditions .* depending on the backend"):
        build_density(model, build_layout(model))
    with pm.Model() as model:
        a, b = pm.Bernoulli("a", 0.5), pm.Bernoulli("b", 0.5)
        pm.Potential("both", 4.0 * (pt.cast(pt.eq(a, 1), "int64") + pt.eq(b, 1)))
    build_density(model, build_layout(model))


def test_digits_that_are_lost_as_written_are_no_wrong_compilation():
    """The log likelihood of y = 0 is -softplus(logit), for which the form as written has log(1 - sigmoid(logit))."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 20.0)
        pm.Potential("saturated", 1000.0 * pt.log(1.0 - pt.sigmoid(x)))
    positions = np.array([[35.7], [36.3], [40.0]])
    joint = norm(0.0, 20.0).logpdf(positions[:, 0]) - 1000.0 * np.logaddexp(0.0, positions[:, 0])
    as_written = model.compile_logp(mode="FAST_COMPILE")
    lost = [abs(as_written({"x": x}) - value) for (x,), value in zip(positions, joint, strict=True)]
    assert min(lost) > 1.0
    for i in range(3):
        assert check_joint_logp(model, build_layout(model), positions[[i]], joint[[i]], np.abs(joint[[i]])) == 0.0
        wrong = joint[[i]] - 5.0
        with pytest.raises(RuntimeError, match="they differ by"):
            check_joint_logp(model, build_layout(model), positions[[0]] - 30.0, wrong, np.abs(joint[[i]]))


def test_a_difference_that_no_form_decides_is_measured():
    """1 - tanh(21) = 2 exp(-42) is zero in double precision, and in wide numbers has few digits left."""
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("lost", pt.log(1.0 - pt.tanh(x)))
    truth = norm.logpdf(21.0) + np.log(2.0) - 42.0
    assert model.compile_logp(mode="FAST_COMPILE")({"x": 21.0}) == -np.inf
    undecided = check_joint_logp(model, build_layout(model), np.array([[21.0]]), np.array([truth]), np.ones(1))
    assert 1e-3 < undecided < 0.1


@pytest.mark.parametrize("count", [10, 10**13])
def test_differences_are_held_against_the_terms_that_cancel(count):
    """log mu^y - mu - log y! is about -16 nats of terms of 3e14, each of which is rounded by 0.06 nats."""
    with pm.Model() as model:
        m = pm.Normal("m", np.log(count), 1e-6)
        pm.Poisson("y", pm.math.exp(m), observed=count)
    position, layout = np.array([[np.log(count)]]), build_layout(model)
    value = model.compile_logp(mode="FAST_COMPILE")({"m": position[0, 0]})
    size = measure_terms(model, layout, model.logp())(position[0])
    expected = [count * np.log(count), gammaln(count + 1.0), float(count)]
    assert size == pytest.approx(np.sqrt(np.sum(np.square(expected))), rel=0.2 if count < 100 else 1e-6)
    if count > 100:
        assert check_joint_logp(model, layout, position, np.array([value + 0.02]), np.array([20.0])) == 0.0
    else:
        with pytest.raises(RuntimeError, match=r"they differ by 0\.02 nats"):
            check_joint_logp(model, layout, position, np.array([value + 0.02]), np.array([20.0]))
