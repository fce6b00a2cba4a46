"""Models without a log Z, and data that no parameters allow: refused by name, most of them before any long work."""

import importlib
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.model.transform.optimization import freeze_dims_and_data
from pytensor.graph import Op

import pymc_hais
from pymc_hais.core.weights import log_sum_exp
from pymc_hais.inputs.arguments import check_integer


@pytest.fixture(autouse=True)
def no_work(monkeypatch):
    """Fail where a pilot begins."""
    monkeypatch.setattr("pymc_hais.calls.sample.choose", lambda *_: pytest.fail("work has begun"))


def refused(build, message, error=ValueError, **options):
    with pm.Model() as model:
        build()
    with pytest.raises(error, match=message):
        pm.sample_hais(model=model, progressbar=False, random_seed=1, **options)


def passes(build, **options):
    with pm.Model() as model:
        build()
    with pytest.raises(pytest.fail.Exception, match="work has begun"):
        pm.sample_hais(model=model, progressbar=False, random_seed=1, **options)


class Doubled(Op):
    """A black box without a gradient."""

    itypes = (pt.dscalar,)
    otypes = (pt.dscalar,)

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(2.0 * inputs[0])


def test_a_black_box_without_a_gradient_is_told_of_the_kernel_that_needs_none():
    def build():
        pm.Normal("y", Doubled()(pm.Normal("a")), 1.0, observed=[1.0, 2.0])

    refused(build, r"without a gradient \(.*Doubled\): pass kernel=pymc_hais.RandomWalk\(\)", NotImplementedError)


def test_a_black_box_that_jax_cannot_take_is_told_of_another_backend():
    pytest.importorskip("jax")

    def build():
        pm.Normal("y", Doubled()(pm.Normal("a")), 1.0, observed=[1.0, 2.0])

    message = r"backend='jax' cannot take the model \(.*Doubled\): leave `backend` out"
    refused(build, message, NotImplementedError, kernel=pymc_hais.RandomWalk(), backend="jax")


def test_gaps_that_came_into_a_container_are_named():
    def build():
        pm.Normal("y", pm.Normal("a"), 1.0, observed=pm.Data("d", [1.0, 2.0, 0.5]))
        pm.set_data({"d": [1.0, np.nan, np.nan]})

    refused(build, r"The data container `d` has missing values \(the first is element \(1,\)\)")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "value"),
    [
        (lambda: pm.Gamma("y", pm.HalfNormal("a"), 1.0, observed=[1.0, -2.0]), r"-2.0 \(element 1\)"),
        (lambda: pm.Gamma("y", pm.HalfNormal("a"), 1.0, observed=-2.0), "-2.0"),
        (lambda: pm.Bernoulli("y", pm.Beta("a", 1, 1), observed=2), "2"),
        (lambda: pm.Categorical("y", pm.Dirichlet("a", [1, 1, 1]), observed=[0, 3]), r"3 \(element 1\)"),
    ],
)
def test_an_observed_value_outside_of_the_support_is_named(build, value):
    refused(build, f"The observed value {value} of `y` has density zero at each of them: is it outside of the support")


UNBOUNDED = [
    (lambda: pm.Flat("x"), "`x`"),
    (lambda: pm.HalfFlat("x"), "`x`"),
    (lambda: (pm.Flat("z"), pm.Normal("y", pm.Flat("x"), 1.0, observed=[1.0, 2.0])), "`z`"),
    (lambda: pm.Normal("y", pm.Flat("x") + pm.Flat("z"), 1.0, observed=[1.0]), "a direction of `x` and `z`"),
    (lambda: pm.Potential("p", -(pm.Flat("x", shape=3)[:2] ** 2).sum()), "`x`"),
    # One observation does not bound its own noise: sigma ** -1 has no integral.
    (lambda: pm.Normal("y", 0.0, pm.HalfFlat("sigma"), observed=[1.0]), "`sigma`"),
]


@pytest.mark.few(2)
@pytest.mark.every(3)
@pytest.mark.parametrize(("build", "what"), UNBOUNDED)
def test_what_nothing_bounds_is_named(build, what):
    refused(build, f"Nothing bounds {what}: .* Give `.` a proper prior|Nothing bounds {what}: ", reference="gaussian")


GROWING = [
    (lambda: pm.Potential("p", pm.Flat("x") ** 2), "`x`"),
    (lambda: pm.Potential("p", 2.0 * pm.Flat("x")), "`x`"),
    (lambda: pm.Potential("p", (pm.Normal("z") + 0.1 * pm.Flat("x", shape=2) ** 4).sum()), "`x`"),
]


@pytest.mark.parametrize(("build", "what"), GROWING)
def test_a_potential_of_the_wrong_sign_is_told_of_its_sign(build, what):
    refused(build, rf"grows without bound along {what}, .* pm.Potential\(name, -energy\)")


@pytest.mark.few(2)
@pytest.mark.every(3)
@pytest.mark.parametrize(
    "build",
    [
        # Two modes: the density rises away from the middle, and falls further out.
        lambda: pm.Potential("p", 50.0 * (x := pm.Flat("x")) ** 2 - x**4),
        lambda: pm.Normal("y", pm.Flat("x"), 1.0, observed=[1.0]),
        lambda: pm.Normal("y", pm.Flat("x") + pm.Normal("z"), 1.0, observed=[1.0]),
        lambda: pm.Normal("y", 0.0, pm.HalfFlat("sigma"), observed=[1.0, 2.0, 0.5]),
        # A box: flat as far as the draws go, and no further.
        lambda: pm.Potential("box", pt.switch(abs(pm.Flat("x")) < 1000.0, 0.0, -np.inf)),
        # Tails like 1 / x ** 2 have an integral.
        lambda: pm.Potential("p", -pt.log1p(pm.Flat("x") ** 2)),
        lambda: pm.Normal("y", pm.Flat("x"), 1e-4, observed=[3e5]),
    ],
)
def test_what_has_an_integral_passes(build):
    passes(build, reference="gaussian")


def test_walls_bound_what_the_density_does_not():
    passes(lambda: pm.Flat("x"), constraints={"x": (0.0, 1.0)}, reference=pymc_hais.Box(0.0, 1.0))


def test_the_catalogue_counts_as_refusals_what_the_package_raises(monkeypatch):
    """An error of NumPy in a line of the package is a defect, whatever its class."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    is_refusal = importlib.import_module("catalogue").is_refusal
    with pytest.raises(ValueError, match="`draws`") as refused:
        check_integer("draws", 0, 1)
    with pytest.raises(ValueError, match="reduction") as raw:
        log_sum_exp(np.zeros(0))
    assert (is_refusal(refused.value), is_refusal(raw.value)) == (True, False)


def test_a_path_of_frozen_data_is_refused():
    with pm.Model() as model:
        pm.Normal("x", pm.Data("centre", 0.0), 1.0)
    with pytest.raises(ValueError, match=r"`centre` is frozen.*before freeze_dims_and_data"):
        pymc_hais.sample_hais(model=freeze_dims_and_data(model), path={"centre": (0.0, 1.0)}, progressbar=False)
