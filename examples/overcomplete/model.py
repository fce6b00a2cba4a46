"""The overcomplete linear model: x = A s without noise, with more sources s than dimensions of x.

The sources are independent mixtures of normals.  A row x leaves z = B s open, where the rows of B are an orthonormal
basis of the null space of A: s = A^+ x + B' z, and

    log p(x, z) = sum_i log f_i(s_i) - log det(A A') / 2.

Theis, Sohl-Dickstein & Bethge (2012), "Training sparse natural image models with a fast Gibbs sampler of an extended
state space", NIPS 25.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.linalg import null_space

from examples.overcomplete.sources import Source

#: Standard deviation of z in the reference, over that of the sources that x determines.
WIDTH = 1.5


def null_basis(a: np.ndarray) -> np.ndarray:
    """Return B (N - M, N), whose rows span the null space of A (M, N); refuse an A without full rank."""
    n_dims, n_sources = a.shape
    rank = np.linalg.matrix_rank(a)
    if n_sources < n_dims or rank < n_dims:
        raise ValueError(f"A (M, N) must have full row rank, with N >= M; got shape {a.shape} of rank {rank}.")
    return null_space(a).T


def log_joint(s, a, source: Source):
    """Return log p(x, z) of sources (..., N), as a PyTensor graph."""
    a = pt.as_tensor(a)
    log_volume = 0.5 * pt.linalg.slogdet(a @ a.T)[1]
    return (source.log_constant() + source.log_shape(s, pt)).sum(axis=-1) - log_volume


def spread(seen, n_dims: int, width: float = WIDTH):
    """Return the standard deviation of z in the reference: where x is large, the rest of the sources may be too."""
    return width * ((1.0 + (seen**2).sum()) / (1.0 + n_dims)) ** 0.5


def standard_normal(z, n: int):
    """Return the log density of n standard normal numbers from a vector of the same length, as a PyTensor graph."""
    return -0.5 * (z**2).sum() - 0.5 * n * np.log(2.0 * np.pi)


def build_model(a: np.ndarray, source: Source, x: np.ndarray | None = None, width: float = WIDTH) -> pm.Model:
    """Build the model of z given one row x (M,), 0 to be replaced if None; with N = M the density of x is closed.

    Its variable is z over its :func:`spread`.  The prior is only the reference that annealing starts from: the density
    of x given z divides by it.
    """
    basis, pull, n_dims = null_basis(a), np.linalg.pinv(a), len(a)

    def log_p(x, z, a):
        seen = pt.dot(pull, x)
        size = spread(seen, n_dims, width)
        s = seen + size * pt.dot(basis.T, z)
        return log_joint(s, a, source) + len(basis) * pt.log(size) - standard_normal(z, len(basis))

    if not len(basis):
        raise ValueError("With as many sources as dimensions nothing is hidden: call log_p_complete.")
    with pm.Model() as model:
        z = pm.Normal("z", 0.0, 1.0, shape=len(basis))
        pm.CustomDist("x", z, a, logp=log_p, observed=np.zeros(n_dims) if x is None else x, signature="(k),(m,n)->(m)")
    return model


def build_centred_model(a: np.ndarray, source: Source) -> pm.Model:
    """Build the model of one row whose reference is normal, as given with each row: ``centre`` and ``factor`` of z.

    They are data of the row (N - M,) and (N - M, N - M), the factor lower triangular.
    """
    basis, pull, n_dims = null_basis(a), np.linalg.pinv(a), len(a)
    n_hidden = len(basis)

    def log_p(x, z, a, centre, factor):
        s = pt.dot(pull, x) + pt.dot(basis.T, centre + pt.dot(factor, z))
        return log_joint(s, a, source) + pt.log(pt.diag(factor)).sum() - standard_normal(z, n_hidden)

    with pm.Model() as model:
        z = pm.Normal("z", 0.0, 1.0, shape=n_hidden)
        around = pm.Data("centre", np.zeros(n_hidden)), pm.Data("factor", np.eye(n_hidden))
        signature = "(k),(m,n),(k),(k,k)->(m)"
        pm.CustomDist("x", z, a, *around, logp=log_p, observed=np.zeros(n_dims), signature=signature)
    return model


def build_learnt_model(a: np.ndarray, source: Source) -> tuple[pm.Model, dict[str, str | None]]:
    """Return the model with A and the sources' own parameters as its data, and the constraints of what a fit learns.

    The hidden variable is s (N,).  Only its part in the null space of A counts: s - A^+ (A s - x).  So no null space
    has to be followed while A changes.  The mean of the gradient of log p(x, z) over the posterior is that of log p(x)
    for any coordinates z of the null space (Fisher's identity).
    """
    n_dims, n_sources = a.shape
    with pm.Model() as model:
        basis = pm.Data("A", a)
        own = {name: pm.Data(name, np.full(n_sources, getattr(source, name), dtype=float)) for name in source.learnt}
        s = pm.Normal("s", 0.0, 1.0, shape=n_sources)

        def log_p(x, s, basis, *own):
            learnt = type(source)(**{**vars(source), **dict(zip(source.learnt, own, strict=True))})
            pull = basis.T @ pt.linalg.inv(basis @ basis.T)
            whole = s + pt.dot(pull, x - pt.dot(basis, s))
            # What A sees of s is normal around A^+ x: chains would go off where the density does not hold it.
            return log_joint(whole, basis, learnt) + standard_normal(s - whole, n_dims) - standard_normal(s, n_sources)

        signature = "(n),(m,n)" + ",(n)" * len(own) + "->(m)"
        pm.CustomDist("x", s, basis, *own.values(), logp=log_p, observed=np.zeros(n_dims), signature=signature)
    return model, {"A": None, **source.learnt}


def generate(a: np.ndarray, source: Source, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw rows (n, M)."""
    return source.draw((n, a.shape[1]), rng) @ a.T


def log_p_complete(rows: np.ndarray, a: np.ndarray, source: Source) -> np.ndarray:
    """Return log p(x) of each row where A is square: s = A^-1 x."""
    s = np.linalg.solve(a, rows.T).T
    return log_joint(pt.as_tensor(s), a, source).eval()
