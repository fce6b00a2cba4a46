"""Every distribution of PyMC, with each way to say its shape, free or observed: it is compiled, or refused in words.

A problem that is built has been evaluated at prior draws, and its density was compared with ``model.logp()`` there.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.integrate import quad
from scipy.stats import norm, t

import pymc_hais
from pymc_hais.core.seeds import Seeds
from pymc_hais.density import has_normal_fields
from pymc_hais.problem.building import build_problem
from pymc_hais.problem.problem import Compiler
from tests.distributions import OTHERS, REFUSED, SCALARS, WHOLE, N
from tests.front_door import assert_right, estimate
from tests.marks import slow_but

pytestmark = pytest.mark.filterwarnings("ignore")
AXES = {"shape": (N,), "size": (N,), "dims": ("n",)}

VECTORS = {
    "AR",
    "GARCH11",
    "GaussianRandomWalk",
    "MvNormal",
    "MvStudentT",
    "ZeroSumNormal",
}
FAST = {
    *("ZeroSumNormal", "CustomDist", "Multinomial"),
}


def shaped(how, name):
    """Return how a model says the shape of a variable: by data, where it depends on numbers in them."""
    if how == "data":
        container = pm.Data("container", np.arange(30.0))
        length = pt.sum(container < N)
        return {"shape": (length,)}
    return {how: (2,) if how == "size" and name in VECTORS else AXES[how]}


def check(model):
    """Build the problem of a default call; what is refused is refused by the package, in a sentence."""
    try:
        problem = build_problem(model, "prior", Compiler(), Seeds((1,)))
    except (ValueError, NotImplementedError) as error:
        assert_sentence(error)
        return None
    return problem


def assert_sentence(error):
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame.f_globals.get("__name__", ""))
        trace = trace.tb_next
    assert frames[-1].startswith("pymc_hais"), f"{type(error).__name__} of {frames[-1]}: {error}"
    assert len(str(error)) > 40, str(error)


def run(model):
    """Make a short default call."""
    try:
        idata = pymc_hais.sample_hais(
            model=model, draws=100, chains=2, progressbar=False, random_seed=1, target_se=None, max_temperatures=16
        )
    except (ValueError, NotImplementedError) as error:
        assert_sentence(error)
        return
    assert not np.isnan(pymc_hais.log_marginal_likelihood(idata).value)


def free(name, how):
    with pm.Model(coords={"n": range(N)}) as model:
        try:
            x = OTHERS[name](**shaped(how, name))
        except (ValueError, TypeError, NotImplementedError) as error:
            pytest.skip(f"PyMC does not take it: {error}")
        pm.Normal("y", pt.as_tensor(x).astype("float64").sum(), 5.0, observed=1.0)
    return model


CELLS = [(name, how) for name in sorted(OTHERS) for how in ("shape", "dims", "size", "data")]
FAST_CELLS = [(name, "dims") for name in sorted(FAST)] + [
    ("NormalMixture", "data"),
    ("Normal", "data"),
]


def most_of(names, fast):
    """Return all names but the fast ones and each 37th (a name has four ways): their tests are exhaustive."""
    return [name for number, name in enumerate(names) if number % 37 and name not in fast]


@pytest.mark.every(3)
@pytest.mark.few(2)
@pytest.mark.parametrize(("name", "how"), slow_but(FAST_CELLS, CELLS, most_of(CELLS, FAST_CELLS)))
def test_a_free_variable_is_compiled_or_refused(name, how):
    model = free(name, how)
    problem = check(model)
    if how == "dims" and name != "PolyaGamma":  # whose draws need a package
        assert (problem is None) == (name in REFUSED), "the table of supported distributions says otherwise"
    has_normal_fields(model)


@pytest.mark.every(2)
@pytest.mark.parametrize("name", slow_but((), sorted(OTHERS), most_of(sorted(OTHERS), {"ZeroSumNormal"})))
def test_a_default_call_answers_or_refuses(name):
    run(free(name, "dims"))


def observed(name, missing):
    if name == "PolyaGamma":
        pytest.importorskip("polyagamma")  # without which PyMC has neither its draws nor its density
    model = free(name, "shape")
    is_drawn = name not in ("Flat", "HalfFlat", "ICAR")  # by PyMC
    values = np.asarray(pm.draw(model["x"], random_seed=1)) if is_drawn else np.linspace(0.1, 1.0, N)
    if missing:
        mask = np.zeros(values.shape, dtype=bool)
        mask.flat[0] = True
        values = np.ma.masked_array(values, mask)
    with pm.Model(coords={"n": range(N)}) as model:
        level = pm.Normal("level", 0.0, 1.0)
        pm.Normal("z", level, 1.0, observed=0.5)
        try:
            OTHERS[name](observed=values, **({"shape": values.shape} if name in SCALARS else {}))
        except (ValueError, TypeError, NotImplementedError) as error:
            pytest.skip(f"PyMC does not take it: {error}")
    return model


OBSERVED = [(name, missing) for name in sorted(OTHERS) for missing in (False, True)]
FAST_OBSERVED = [("Censored", True)]


@pytest.mark.every(2)
@pytest.mark.parametrize(("name", "missing"), slow_but(FAST_OBSERVED, OBSERVED, most_of(OBSERVED, FAST_OBSERVED)))
def test_an_observed_variable_is_compiled_or_refused(name, missing):
    model = observed(name, missing)
    problem = check(model)
    is_refused = missing and name in REFUSED.keys() | WHOLE
    assert (problem is None) == is_refused, "the table of supported distributions says otherwise"
    has_normal_fields(model)


def test_missing_values_of_a_marginalised_density_are_named():
    """As a prior the draws of missing values, which know the discrete variable, differ from their density."""
    extras = pytest.importorskip("pymc_extras")
    values = np.r_[np.nan, np.nan, np.zeros(8)]
    with pm.Model() as model:
        mean = pm.Normal("mean", [-3.0, 3.0], 0.1, shape=2)
        which = pm.Bernoulli("which", 0.5)
        pm.Normal("y", mean[which], 1.0, observed=values)
    with pytest.raises(ValueError, match=r"pymc_extras\.marginalize has summed a discrete variable"):
        pymc_hais.sample_hais(model=extras.marginalize(model, ["which"]), reference="prior", progressbar=False)


CONSTANT = {
    "FlatDiscrete": (lambda: pymc_hais.FlatDiscrete("x", shape=10), 10 * np.log(2.0)),
    "Bernoulli": (lambda: pm.Bernoulli("x", np.full(10, 0.5)), 0.0),
    "Uniform": (lambda: pm.Uniform("x", 0.0, 2.0, shape=3), 0.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but({"FlatDiscrete"}, CONSTANT, {"Bernoulli"}))
def test_a_constant_energy_has_the_mass_of_the_prior(name):
    """Log Z is the constant, plus log 2 for each of N binary variables without a prior."""
    build, mass = CONSTANT[name]
    with pm.Model() as model:
        build()
        pm.Potential("energy", pt.as_tensor(1.5))
    found, _ = estimate(model, draws=100)
    assert found.value == pytest.approx(1.5 + mass, abs=1e-9)
    assert found.se < 1e-9


@pytest.mark.slow
def test_a_student_t_truncated_on_one_side_is_drawn():
    """By quadrature: P(x > 0) = 1/2, so that Z is the integral of 2 t(x; 4) N(1; x, 1) over x > 0."""
    with pm.Model() as model:
        x = pm.Truncated("x", pm.StudentT.dist(4.0), lower=0.0)
        pm.Normal("y", x, 1.0, observed=1.0)
    truth = np.log(quad(lambda x: 2.0 * t(4.0).pdf(x) * norm(x, 1.0).pdf(1.0), 0.0, 30.0)[0])
    found, _ = estimate(model)
    assert_right(found, truth)
    assert found.se < 0.1
