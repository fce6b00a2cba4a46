"""Displacements by banded matrices against dense ones and differences; and whose density is one of neighbours."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.sparse import csr_array

from pymc_hais.density import build_layout
from pymc_hais.density.containers import freeze_with_inputs
from pymc_hais.density.markov.markov import Markov, find_couplings, find_markov
from pymc_hais.latent.banded import Banded
from pymc_hais.latent.fields import find_fields
from tests.density.coordinates.charted import neighbours

RNG = np.random.default_rng(6)


@pytest.mark.parametrize(("n", "of_sum"), [(2, 0.0), (9, 0.3)])
def test_graphs_are_the_numbers_and_gradients_their_slopes(n, of_sum):
    """Of the displacement, as of a likelihood, and of the factor, as of a Jacobian."""
    banded = Banded(Markov(csr_array(neighbours(n)), of_sum=of_sum))
    pattern = banded.pattern
    inputs = [pt.vector(name, shape=(size,)) for name, size in zip("aogz", (n, len(pattern.first), n, n), strict=True)]
    root, displacement = banded.write_displacement(inputs[:3], inputs[3])
    weights = RNG.normal(size=n)
    total = (weights * pt.tanh(displacement)).sum() + 0.7 * pt.log(root).sum()
    slopes = pytensor.grad(total, inputs)
    function = pytensor.function(inputs, [root, displacement, total, *slopes], mode="FAST_COMPILE")
    off = RNG.normal(size=len(pattern.first))
    values = [np.full(n, 0.0), off, *RNG.normal(size=(2, n))]
    matrix = np.zeros((n, n))
    matrix[pattern.first, pattern.second] = matrix[pattern.second, pattern.first] = off
    values[0] = np.abs(matrix).sum(axis=0) + RNG.uniform(0.1, 1.0, n)
    matrix += np.diag(values[0]) + of_sum
    found_root, found_way, _, *found = function(*values)
    factor = banded.compute_factor([one[None] for one in values[:3]])
    assert 2.0 * np.log(found_root).sum() == pytest.approx(np.linalg.slogdet(matrix)[1], abs=1e-10)
    assert np.log(factor.diagonal).sum() == pytest.approx(np.log(found_root).sum(), abs=1e-10)
    displacement = banded.compute_displacement(factor, values[3][None])
    np.testing.assert_allclose(found_way, displacement[0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(banded.compute_coordinates(factor, displacement)[0], values[3], rtol=1e-10, atol=1e-12)
    # The displacement of zero is the Newton step, and those of units have the inverse as their covariance.
    newton = banded.compute_displacement(factor, np.zeros((1, n)))[0]
    np.testing.assert_allclose(newton, np.linalg.solve(matrix, values[2]), rtol=1e-9, atol=1e-12)
    units = np.stack([banded.compute_displacement(factor, unit[None])[0] - newton for unit in np.eye(n)])
    np.testing.assert_allclose(units.T @ units, np.linalg.inv(matrix), rtol=1e-9, atol=1e-12)

    def end(i, move):
        return function(*(one + move if j == i else one for j, one in enumerate(values)))[2]

    # Along three directions that no element is left out of: a wrong slope of any of them is seen.
    for i, one in enumerate(values):
        for direction in RNG.uniform(0.5, 1.0, (3, one.size)) * RNG.choice([-1.0, 1.0], (3, one.size)):
            move = 1e-6 * direction
            np.testing.assert_allclose(
                found[i] @ direction, (end(i, move) - end(i, -move)) / 2e-6, rtol=1e-5, atol=1e-6
            )


@pytest.mark.parametrize("is_intrinsic", [False, True])
def test_the_precision_is_that_of_the_density_of_pymc(is_intrinsic):
    """Minus the second derivatives of ``pm.logp``, without those of the sum."""
    weights, numbers = neighbours(12), {"alpha": 0.7, "tau": 2.3}
    with pm.Model():
        if is_intrinsic:
            rv = pm.ICAR("x", W=weights.astype(int), sigma=0.4, zero_sum_stdev=0.05)
        else:
            rv = pm.CAR("x", mu=np.zeros(12), W=weights, **numbers)
    x = pt.vector("x", shape=(12,))
    expected = -pytensor.gradient.hessian(pm.logp(rv, x).sum(), x)
    markov, couplings = find_markov(rv), [float(one.eval(mode="FAST_COMPILE")) for one in find_couplings(rv)]
    diagonal, off = markov.precision(*couplings)
    found = np.diag(diagonal) + markov.of_sum
    for i, j in ((0, 1), (1, 0)):
        places = (markov.pattern.first, markov.pattern.second)
        found[places[i], places[j]] += off
    np.testing.assert_allclose(
        found, expected.eval({x: RNG.normal(size=12)}, mode="FAST_COMPILE"), rtol=1e-9, atol=1e-9
    )


def test_a_matrix_that_is_not_positive_definite_has_no_numbers():
    banded = Banded(Markov(csr_array(neighbours(5))))
    n_pairs = len(banded.pattern.first)
    for diagonal in (-np.ones(5), np.full(5, np.nan), np.full(5, np.inf)):
        factor = banded.compute_factor([diagonal[None], np.ones((1, n_pairs)), np.ones((1, 5))])
        assert not np.isfinite(factor.diagonal).any() or not np.isfinite(factor.diagonal[:, :-1]).all()


W = neighbours(20)
COUNTS = np.arange(20) % 6


def car(**kwargs):
    return pm.CAR("x", **{"mu": np.zeros(20), "W": W, "alpha": pm.Beta("a", 4, 1), "tau": pm.Gamma("t", 2, 1)} | kwargs)


def icar(**kwargs):
    return pm.ICAR("x", **{"W": W.astype(int)} | kwargs)


def counted(x):
    pm.Poisson("y", pm.math.exp(pm.Normal("m") + x), observed=COUNTS)


#: Models, and whether their areas are a field.
MODELS = {
    "CAR": (lambda: counted(car()), True),
    "CAR, fixed": (lambda: counted(car(alpha=0.5, tau=1.0)), True),  # the mean moves
    "nothing moves": (lambda: pm.Poisson("y", pm.math.exp(car(alpha=0.5, tau=1.0)), observed=COUNTS), False),
    "scaled ICAR": (lambda: counted(icar() * pm.HalfNormal("s")), True),
    "several rows for an area": (
        lambda: pm.Normal("y", pm.Normal("m") + car()[np.arange(30) % 20], 1.0, observed=np.arange(30.0)),
        True,
    ),
    "sums of areas": (lambda: pm.Normal("y", pm.math.dot(W, car()), 1.0, observed=COUNTS), False),
    "a child of the areas": (lambda: counted(pm.Normal("c", car(), 1.0, shape=20)), False),
    "ICAR in two parts": (
        lambda: counted(icar(W=np.kron(np.eye(2), neighbours(10)).astype(int)) * pm.HalfNormal("s")),
        False,
    ),
    "ICAR of unknown scale": (lambda: counted(icar(sigma=pm.HalfNormal("s"))), False),
}


@pytest.mark.parametrize("name", MODELS)
def test_which_areas_are_a_field_is_read_from_the_graph(name):
    build, is_field = MODELS[name]
    with pm.Model() as model:
        build()
    frozen, _ = freeze_with_inputs(model, [])
    found = find_fields(frozen, build_layout(model), normals=True)
    assert [one.owners for one in found] == ([("x",)] if is_field else [])
