"""Factors of matrices of blocks: by dense matrices, in numbers and as graphs, with the gradient of the determinant."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_hais.latent.rows.blocks import LinkedMode, factor_alone, factor_linked, square, triangle

RNG = np.random.default_rng(3)
N = 5


def dense(matrix, beside, width):
    """Return the symmetric matrix (N * width, N * width) of blocks, each column (N,)."""
    found = np.zeros((N, width, N, width))
    for t in range(N):
        for i, j in triangle(width):
            found[t, i, t, j] = found[t, j, t, i] = matrix[i, j][t]
        for i, j in square(width) if t and beside else []:
            found[t, i, t - 1, j] = found[t - 1, j, t, i] = beside[i, j][t]
    return found.reshape(N * width, N * width)


def random_blocks(width):
    """Return the entries of a random matrix with large diagonal entries, and a vector."""
    matrix = {(i, j): RNG.normal(size=N) + (5.0 * width if i == j else 0.0) for i, j in triangle(width)}
    beside = {place: np.append(0.0, RNG.normal(size=N - 1)) for place in square(width)}
    return matrix, beside, [RNG.normal(size=N) for _ in range(width)]


def flat(columns):
    return np.stack(columns, axis=-1).reshape(-1)


@pytest.mark.parametrize("is_linked", [False, True])
@pytest.mark.parametrize("width", [1, 3])
def test_factors_solve_like_dense_matrices(width, is_linked):
    matrix, beside, g = random_blocks(width)
    one = {place: entry[None] for place, entry in matrix.items()}
    between = {place: entry[None] for place, entry in beside.items()}
    right = [column[None] for column in g]
    found = factor_linked(np, one, between, right) if is_linked else factor_alone(np, one, right)
    whole = dense(matrix, beside if is_linked else {}, width)
    root = np.linalg.cholesky(whole)
    np.testing.assert_allclose(found.log_root[0], np.log(np.diag(root)).sum())
    np.testing.assert_allclose(flat(found.solved), np.linalg.solve(root, flat(g)))
    np.testing.assert_allclose(flat(found.back(right)), np.linalg.solve(root.T, flat(g)))
    np.testing.assert_allclose(flat(found.ahead(right)), root.T @ flat(g))
    np.testing.assert_allclose(flat(found.back(found.solved)), np.linalg.solve(whole, flat(g)))


@pytest.mark.parametrize("width", [1, 2])
def test_the_graph_has_the_numbers_and_the_gradient_is_the_inverse(width):
    matrix, beside, g = random_blocks(width)
    values = [*matrix.values(), *beside.values(), *g]
    symbols = [pt.dvector(shape=(N,)) for _ in values]
    n_own, n_beside = len(matrix), len(beside)
    log_root, *found = LinkedMode()(*symbols)
    slopes = pytensor.grad(log_root, symbols[: n_own + n_beside])
    outputs = [log_root, *found[:width], *slopes]
    log_root, *rest = pytensor.function(symbols, outputs, mode="FAST_COMPILE")(*values)
    whole = dense(matrix, beside, width)
    inverse = np.linalg.inv(whole).reshape(N, width, N, width)
    np.testing.assert_allclose(log_root, 0.5 * np.linalg.slogdet(whole)[1])
    np.testing.assert_allclose(flat(rest[:width]), np.linalg.solve(whole, flat(g)))
    for (i, j), slope in zip(matrix, rest[width:], strict=False):
        expected = [inverse[t, i, t, j] * (0.5 if i == j else 1.0) for t in range(N)]
        np.testing.assert_allclose(slope, expected)
    for (i, j), slope in zip(beside, rest[width + n_own :], strict=True):
        np.testing.assert_allclose(slope[1:], [inverse[t, i, t - 1, j] for t in range(1, N)])
