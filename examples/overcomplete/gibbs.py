"""Blocked Gibbs sampling of z given x: precisions given the sources, then all of z given the precisions.

As a transition for annealing (:class:`SourceGibbs`), and for all rows at once as the E-step of a fit
(:class:`GibbsSweeps`).  With precisions l, the sources before x is seen are normal; given A s = x they are

    s = s0 + L^-1 A' (A L^-1 A')^-1 (x - A s0),  s0 ~ N(0, L^-1):  one linear system of M equations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from examples.overcomplete.model import WIDTH, null_basis, spread
from examples.overcomplete.sources import Source, StudentT
from pymc_hais.kernels.metropolis import build_accept, build_evaluate_at, identity, plain_loop


def log_mixture(s: Any, log_weights: Any, precisions: Any, xp: Any) -> tuple[Any, Any]:
    """Return log sum_k w_k exp(-l_k s^2 / 2) (..., N) and the probabilities of its terms (K, ..., N), one after one."""
    terms = log_weights - 0.5 * precisions * s**2
    top = terms.max(axis=0)
    shares = xp.cumsum(xp.exp(terms - top), axis=0)
    return top + xp.log(shares[-1]), shares


def choose(precisions: Any, shares: Any, uniform: Any, xp: Any) -> Any:
    """Draw a precision of each source: the first whose cumulative share is above uniform (..., N)."""
    is_passed = (uniform * shares[-1] >= shares[:-1]) * 1.0
    steps = precisions[1:] - precisions[:-1]
    return precisions[0] + xp.sum(steps * is_passed, axis=0)


@dataclass(frozen=True, eq=False)
class SourceGibbs:
    """The Gibbs draw as a transition of :func:`examples.overcomplete.model.build_model`, at any beta.

    Precisions are drawn for a finite mixture near each source's power f^beta, so the draw is reversible for the
    product of these mixtures; a Metropolis step makes it so for the density itself, whatever the path.

    Parameters
    ----------
    a : ndarray (M, N)
    source : Source
    width : float
        Standard deviation of z at beta = 0: that of ``build_model``.
    x : ndarray (M,), optional
        The row, for :func:`pymc_hais.sample_hais`.  Without, it is the row of :func:`pymc_hais.log_likelihood`.
    """

    a: np.ndarray
    source: Source
    width: float = WIDTH
    x: np.ndarray | None = None

    step_size: ClassVar[float] = 1.0  # there is nothing to tune
    constraints: ClassVar[None] = None
    n_sites: ClassVar[int] = 0
    uses_gradients: ClassVar[bool] = False
    keeps_gradients: ClassVar[bool] = True
    acceptance_target: ClassVar[float] = 1.0
    n_gradients: ClassVar[int] = 1

    @property
    def n_uniforms(self) -> int:
        """One for each precision, and two for each normal number that z has none for."""
        n_dims, n_sources = self.a.shape
        return int(n_sources + 2 * n_dims)

    @property
    def program(self) -> str:
        """Everything that the built transition depends on."""
        given = None if self.x is None else self.x.tolist()
        return f"SourceGibbs {self.a.tolist()} {self.source} {self.width} {given}"

    def persistence(self, step_sizes: np.ndarray | float) -> np.ndarray:
        """Return ones: the momentum is left alone."""
        return np.ones_like(step_sizes, dtype=float)

    def build(self, xp: Any, path: Any, jit: Any = identity, jit_density: Any = None, loop: Any = plain_loop) -> Any:
        """Build the transition; see :meth:`pymc_hais.core.protocols.Kernel.build`."""
        if jit is not identity and xp is np:
            raise NotImplementedError('SourceGibbs is not written for Numba: pass backend="jax".')
        accept, evaluate_at = build_accept(xp, np.inf), build_evaluate_at(path)
        draw, pull, basis = self._build_draw(xp), np.linalg.pinv(self.a), null_basis(self.a)

        def transition(state, noise, beta, params, data):
            x = self._row(data[1]) if self.x is None else self.x
            seen = pull @ x
            size = spread(seen, len(self.a), self.width)
            # Given x, |z|^2 is |s|^2 but for a constant: so the reference adds to all precisions.
            outer = (1.0 - beta) / size**2
            new, log_g, log_g_new = draw(x, seen + size * (state.position @ basis), noise, beta, outer)
            end = evaluate_at(basis @ new / size, state.momentum, beta, data)
            log_start = path.log_density(state.log_reference, state.log_ratio, beta) - log_g
            log_end = path.log_density(end.log_reference, end.log_ratio, beta) - log_g_new
            return accept(state, end, log_start, log_end, noise.uniform)

        return transition

    def _build_draw(self, xp: Any) -> Any:
        """Build ``draw(x, s, noise, beta, outer)``: new sources; log densities, which it is reversible for, of both."""
        a, (n_dims, n_sources), basis = self.a, self.a.shape, null_basis(self.a)
        # Orthonormal rows that A sees: normal numbers of z and of these make normal numbers of s.
        seen = np.linalg.svd(a, full_matrices=False)[2]

        def draw(x, s, noise, beta, outer):
            log_weights, precisions = self.source.mixture(beta, xp)
            log_g, shares = log_mixture(s, log_weights, precisions, xp)
            ones = np.ones((1, n_sources))
            tau = choose(precisions * ones, shares, noise.sites[:n_sources], xp) + outer
            first, second = noise.sites[n_sources : n_sources + n_dims], noise.sites[n_sources + n_dims :]
            rest = xp.sqrt(-2.0 * xp.log(1.0 - first)) * xp.cos(2.0 * np.pi * second)
            start = (noise.normal @ basis + rest @ seen) / xp.sqrt(tau)
            new = start + (a.T @ xp.linalg.solve((a / tau) @ a.T, x - a @ start)) / tau
            log_g_new, _ = log_mixture(new, log_weights, precisions, xp)
            total = xp.sum(log_g) - 0.5 * outer * xp.sum(s**2)
            return new, total, xp.sum(log_g_new) - 0.5 * outer * xp.sum(new**2)

        return draw

    def _row(self, data: tuple) -> Any:
        rows = [one for one in data if one.shape == (len(self.a),)]
        if len(rows) != 1:
            raise ValueError(
                f"SourceGibbs looks for one row of shape {(len(self.a),)} among the model's data, found {len(rows)}: "
                "use the model of build_model, and pass `x` to sample_hais."
            )
        return rows[0]


@dataclass(frozen=True)
class GibbsSweeps:
    """An E-step for :class:`pymc_hais.learning.ExpectationMaximization`: Gibbs sweeps of the sources of all rows.

    Attributes
    ----------
    source : Source
    n_sweeps : int
        A row is met once in many steps, between which A moves: the more sweeps, the less its sources lag behind.
    """

    source: Source
    n_sweeps: int = 2

    def __call__(
        self, rows: np.ndarray, hidden: np.ndarray, parameters: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        """Move the sources (m, N) of rows (m, M); what A sees of them is what x says."""
        a = np.asarray(parameters["A"])
        source = replace(self.source, **{name: np.asarray(parameters[name]) for name in self.source.learnt})
        s = hidden + (rows - hidden @ a.T) @ np.linalg.pinv(a).T
        if a.shape[0] == a.shape[1]:
            return s
        sweep = sweep_exactly if isinstance(source, StudentT) else sweep_by_mixture
        for _ in range(self.n_sweeps):
            s = sweep(rows, s, a, source, rng)
        return s


def sweep_exactly(
    rows: np.ndarray, s: np.ndarray, a: np.ndarray, source: StudentT, rng: np.random.Generator
) -> np.ndarray:
    """Draw precisions given the sources (m, N) of rows (m, M), and new sources given the precisions."""
    return draw_sources(rows, a, source.draw_precisions(s, rng), rng)


def sweep_by_mixture(
    rows: np.ndarray, s: np.ndarray, a: np.ndarray, source: Source, rng: np.random.Generator
) -> np.ndarray:
    """Do so for a mixture near the density of the sources; a Metropolis step makes up for what it is off by."""
    log_weights, precisions = (np.asarray(one)[:, None] for one in source.mixture(1.0, np))
    log_g, shares = log_mixture(s, log_weights, precisions, np)
    new = draw_sources(rows, a, choose(precisions, shares, rng.random(s.shape), np), rng)
    log_g_new, _ = log_mixture(new, log_weights, precisions, np)
    change = source.log_shape(new, np) - log_g_new - source.log_shape(s, np) + log_g
    taken = np.log(rng.random(len(s))) < change.sum(axis=1)
    return np.where(taken[:, None], new, s)


def draw_sources(rows: np.ndarray, a: np.ndarray, tau: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw the sources (m, N) of rows (m, M) given their precisions (m, N)."""
    n_dims, n_sources = a.shape
    start = rng.normal(size=tau.shape) / np.sqrt(tau)
    # One product of matrices for the systems of all rows.
    outer = (a[:, None] * a).reshape(n_dims**2, n_sources)
    system = ((1.0 / tau) @ outer.T).reshape(-1, n_dims, n_dims)
    return start + (np.linalg.solve(system, (rows - start @ a.T)[..., None])[..., 0] @ a) / tau
