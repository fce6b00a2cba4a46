"""``floatX=float32``: every engine samples small models in single precision, within its error of the truth.

In a process of its own, since PyTensor sets JAX's precision for the whole process.
"""

import json
import os

import numpy as np
import pytest

from tests.processes import run_apart
from tests.toys import HAS_JAX
from tests.truth import log_evidence_normal, log_evidence_regression

#: The process compiles for all engines.
pytestmark = pytest.mark.slow

Y = [1.2, 0.3, 2.5]
DESIGN = np.random.default_rng(5).normal(size=(8, 3))
ROWS = DESIGN @ np.array([1.0, -1.0, 0.5]) + np.random.default_rng(6).normal(size=8)
TRUTH = {
    "normal": log_evidence_normal(Y, 0.0, 3.0, 1.0),
    "regression": log_evidence_regression(DESIGN, ROWS, 2.0, 1.0),
    # Half of the logarithm of the ratio of the precisions' determinants.
    "parameters": 0.5 * 2 * np.log(1.0 / 4.0),
}
BACKENDS = [pytest.param("jax", marks=pytest.mark.skipif(not HAS_JAX, reason="needs JAX")), "c"]
BACKENDS.append(pytest.param("numba", marks=pytest.mark.slow))


def models():
    import pymc as pm

    with pm.Model() as normal:
        mu = pm.Normal("mu", 0.0, 3.0)
        pm.Normal("y", mu, 1.0, observed=Y)
    with pm.Model() as regression:
        w = pm.Normal("w", 0.0, 2.0, shape=3)
        pm.Normal("y", DESIGN.astype("float32") @ w, 1.0, observed=ROWS)
    with pm.Model() as parameters:
        precision = pm.Data("precision", np.eye(2, dtype="float32"))
        x = pm.Flat("x", shape=2)
        pm.Potential("energy", -0.5 * x @ precision @ x - np.log(2.0 * np.pi))
    path = {"path": {"precision": (np.eye(2), 4.0 * np.eye(2))}, "n_temperatures": 30, "target_se": None}
    return {"normal": (normal, {}), "regression": (regression, {}), "parameters": (parameters, path)}


def main(wanted):
    """Sample the models on the engines that tests ask for; print what was found, or the error."""
    import pymc_hais

    found, built = {}, models()
    options = {"draws": 100, "chains": 2, "max_temperatures": 64, "random_seed": 1, "progressbar": False}
    for backend, name in wanted:
        model, own = built[name]
        try:
            idata = pymc_hais.sample_hais(model=model, backend=backend, **{**options, **own})
            estimate = pymc_hais.log_marginal_likelihood(idata)
            dtypes = {str(variable.dtype) for variable in idata["posterior"].data_vars.values()}
            found[f"{backend} {name}"] = [estimate.value, estimate.se, *dtypes]
        except Exception as error:
            found[f"{backend} {name}"] = f"{type(error).__name__}: {str(error)[-300:]}"
    print(json.dumps(found))


@pytest.fixture(scope="module")
def found(request):
    given = [item.callspec.params for item in request.session.items if item.path == request.path]
    wanted = [(one["backend"], one["name"]) for one in given if HAS_JAX or one["backend"] != "jax"]
    program = f"from tests.calls.test_single_precision import main; main({wanted})"
    printed = run_apart(program, env={**os.environ, "PYTENSOR_FLAGS": "floatX=float32"})
    return json.loads(printed.splitlines()[-1])


@pytest.mark.every(9)
@pytest.mark.parametrize("name", TRUTH)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_small_model_in_single_precision(backend, name, found):
    result = found[f"{backend} {name}"]
    assert isinstance(result, list), result
    value, se, dtype = result
    assert dtype == "float32"
    assert abs(value - TRUTH[name]) <= 4.0 * se
