"""The displacements of tridiagonal matrices: graphs against numbers, and their gradients against differences."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_hais.latent.tridiagonal import Bands, Displacement, Tridiagonal

N = 7
RNG = np.random.default_rng(6)
OFF, GRADIENT, Z = RNG.normal(size=(3, N))
#: One diagonal that makes a positive matrix; one that does not, with pivots at their least value.
DIAGONALS = {"positive": 3.0 + RNG.random(N), "not": RNG.normal(size=N) - 3.0 * (np.arange(N) % 3 == 1)}


def build():
    inputs = [pt.vector(name, shape=(N,), dtype="float64") for name in ("diagonal", "off", "gradient", "z")]
    root, displacement, *_ = Displacement()(*inputs)
    return inputs, root, displacement


@pytest.mark.parametrize("kind", DIAGONALS)
def test_graphs_are_the_numbers_and_gradients_their_slopes(kind):
    """Of the displacement, as of a likelihood, and of the factor, as of a prior with its Jacobian."""
    inputs, root, displacement = build()
    total = (RNG.normal(size=N) * pt.tanh(displacement)).sum() + (RNG.normal(size=N) * pt.log(root)).sum()
    values = np.array([DIAGONALS[kind], OFF, GRADIENT, Z])
    function = pytensor.function(
        inputs, [root, displacement, total, *pytensor.grad(total, inputs)], mode="FAST_COMPILE"
    )
    found_root, found_way, _, *slopes = function(*values)
    factor = Tridiagonal().compute_factor(Bands(*values[:3, None]))
    np.testing.assert_allclose(found_root, factor.diagonal[0], rtol=1e-12)
    np.testing.assert_allclose(found_way, Tridiagonal().compute_displacement(factor, Z[None])[0], rtol=1e-12)
    is_least = DIAGONALS[kind] - np.append(0.0, factor.off[0, :-1]) ** 2 < 0.0
    assert is_least.any() == (kind == "not")
    moves = 1e-6 * np.eye(values.size).reshape(-1, *values.shape)
    expected = [(function(*(values + move))[2] - function(*(values - move))[2]) / 2e-6 for move in moves]
    np.testing.assert_allclose(np.ravel(slopes), expected, rtol=1e-5, atol=1e-6)


def test_of_the_rest_no_gradient_is_made_up():
    inputs, *_ = build()
    with pytest.raises(NotImplementedError, match="gradient is known"):
        pytensor.grad(Displacement()(*inputs)[2].sum(), inputs[0])
