"""Gaussian Markov random fields, pm.CAR and pm.ICAR: draws that follow their density, and the mass it has in PyMC.

Both are normal, with a precision tau (D - alpha W): W holds the weights of neighbours, and D their sums.  In
pm.ICAR alpha is one, and the sum of all elements has a precision of its own, which makes the density proper if the
map of the areas is connected.  In PyMC 6.4 the density lacks a constant, pm.CAR draws with the square of
its covariance, and pm.ICAR has no draws.
"""

import functools
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.multivariate import CARRV, ICARRV
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.sparse.basic import DenseFromSparse, as_sparse_or_tensor_variable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable
from scipy.sparse import csgraph, csr_array

from pymc_hais.density.compiling import compile_interpreted
from pymc_hais.density.markov.patterns import Pattern
from pymc_hais.density.sites.variables import distribution_of

#: Cache: variable -> its field, and the log mass of its density, which takes a compiled graph.
_masses: weakref.WeakKeyDictionary[Any, tuple[Any, float | None]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Markov:
    """A field whose neighbours are numbers; of pm.ICAR the scales, too."""

    weights: csr_array  # (n, n)
    tau: float | None = None  # known of pm.ICAR alone
    of_sum: float = 0.0  # precision of the sum of all elements

    @functools.cached_property
    def pattern(self) -> Pattern:
        """The places of the entries of its precision."""
        return Pattern.of(self.weights)

    @functools.cached_property
    def degrees(self) -> np.ndarray:
        """The sum of each area's weights (n,)."""
        return np.asarray(self.weights.sum(axis=0), dtype=np.float64).ravel()

    @functools.cached_property
    def entries(self) -> np.ndarray:
        """The weight of each pair of the pattern (E,)."""
        return np.asarray(self.weights[self.pattern.first, self.pattern.second], dtype=np.float64).ravel()

    def precision(self, alpha: Any, tau: Any) -> tuple[Any, Any]:
        """Return the diagonal (n,) of its precision, and the entries (E,) of the pairs, without that of the sum."""
        return tau * self.degrees, -tau * alpha * self.entries

    @functools.cached_property
    def is_positive_definite(self) -> bool:
        """Whether D - alpha W is known to be, for any alpha between -1 and 1."""
        is_symmetric = abs(self.weights - self.weights.T).max() == 0.0
        return is_symmetric and bool((self.weights.data >= 0.0).all() and (self.degrees > 0.0).all())

    @functools.cached_property
    def is_connected(self) -> bool:
        """Whether every area can be reached from every other one."""
        return csgraph.connected_components(self.weights, directed=False)[0] == 1

    @functools.cached_property
    def spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues (n,) and eigenvectors (n, n), in columns, of D - W."""
        values, vectors = np.linalg.eigh(np.diag(self.degrees) - self.weights.toarray())
        return values, vectors

    def log_density(self, x: np.ndarray, alpha: float, tau: float) -> float:
        """Return the normalised log density at a field (n,) of mean zero."""
        precision = tau * (np.diag(self.degrees) - alpha * self.weights.toarray()) + self.of_sum
        return float(-0.5 * (len(x) * np.log(2.0 * np.pi) - np.linalg.slogdet(precision)[1] + x @ precision @ x))


def find_markov(rv: TensorVariable) -> Markov | None:
    """Read a variable's neighbours; None for other distributions, and where they, or pm.ICAR's scales, may vary.

    Of pm.ICAR None, too, where areas are in several parts: then the density is improper.
    """
    op = distribution_of(rv) if rv.owner else None
    if not isinstance(op, CARRV | ICARRV) or rv.type.ndim != 1:
        return None
    parameters = op.dist_params(rv.owner)
    weights = _constant(parameters[isinstance(op, CARRV)])
    if weights is None:
        return None
    if isinstance(op, CARRV):
        field = _field(weights)
        return field if field.is_positive_definite else None
    sigma, sd_of_mean = (_number(one) for one in parameters[1:])
    if sigma is None or sd_of_mean is None:
        return None
    field = _field(weights, sigma**-2, (sd_of_mean * weights.shape[0]) ** -2)
    return field if field.is_positive_definite and field.is_connected else None


def find_couplings(rv: TensorVariable) -> list[Any]:
    """Return alpha and tau of a field as graphs of random variables; nothing for other distributions."""
    field = find_markov(rv)
    if field is None:
        return []
    if field.tau is not None:
        return [pt.constant(one, dtype=rv.dtype) for one in (1.0, field.tau)]
    _, _, *numbers = distribution_of(rv).dist_params(rv.owner)
    return numbers[:2]


def find_log_mass(rv: TensorVariable) -> float | None:
    """Return log of the integral of PyMC's density of a field; None where it is not known to be one number."""
    field = find_markov(rv)
    if field is None:
        return None
    known, mass = _masses.get(rv, (None, None))
    if known is field:
        return mass
    rng, size, *parameters = rv.owner.inputs
    x = pt.vector("x", dtype=rv.dtype, shape=(field.weights.shape[0],))
    masses = []
    for seed, (alpha, tau) in enumerate([(0.3, 1.7), (-0.4, 0.6)]):  # pm.CAR's parameters
        if field.tau is None:
            numbers = [pt.zeros_like(x), parameters[1], *(pt.constant(one, dtype=rv.dtype) for one in (alpha, tau))]
            parameters[:4] = numbers
        else:
            alpha, tau = 1.0, field.tau
        own = rv.owner.op.make_node(rng, size, *parameters).outputs[1]
        value = np.random.default_rng(seed).normal(size=x.type.shape).astype(x.dtype)
        (found,) = compile_interpreted([x], [pm.logp(own, x).sum()])(value)
        masses.append(float(found) - field.log_density(value, alpha, tau))
    first, second = masses
    mass = first if abs(first - second) <= 1e-8 * (abs(first) + field.weights.shape[0]) else None
    _masses[rv] = field, mass
    return mass


def draw_right(graph: FunctionGraph) -> None:
    """Let the random variables of a graph draw fields that follow their density."""
    for node in graph.toposort():
        kind = _RIGHT.get(type(node.op))
        if kind is not None:
            new = kind(**{name: getattr(node.op, name) for name in node.op.__props__}).make_node(*node.inputs)
            graph.replace_all(tuple(zip(node.outputs, new.outputs, strict=True)), import_missing=True)


def _constant(variable: Variable) -> Any:
    """Return the numbers of a constant, which may have been made dense, or have axes in front; None of no constant."""
    while variable.owner is not None and isinstance(variable.owner.op, DenseFromSparse | DimShuffle):
        (variable,) = variable.owner.inputs
    return variable.data if isinstance(variable, Constant) else None


def _number(variable: Variable) -> float | None:
    data = _constant(variable)
    return float(np.ravel(data)[0]) if data is not None and np.size(data) == 1 else None


def _field(data: np.ndarray | csr_array, tau: float | None = None, of_sum: float = 0.0) -> Markov:
    """Return the field of some neighbours; equal neighbours share one, as its pattern takes time."""
    weights = csr_array(data if data.ndim == 2 else np.reshape(data, data.shape[-2:]))
    parts = weights.data.astype(np.float64), weights.indices.astype(np.int32), weights.indptr.astype(np.int32)
    return _field_of(weights.shape, *(one.tobytes() for one in parts), tau, of_sum)


@functools.lru_cache(maxsize=8)
def _field_of(
    shape: tuple[int, int], data: bytes, indices: bytes, pointers: bytes, tau: float | None, of_sum: float
) -> Markov:
    parts = np.frombuffer(data), *(np.frombuffer(one, dtype=np.int32) for one in (indices, pointers))
    return Markov(csr_array(parts, shape=shape), tau, of_sum)


class RightCARRV(CARRV):
    """pm.CAR with draws that have its covariance, and as many parameters as there are draws."""

    def make_node(self, rng: Any, size: Any, mu: Any, W: Any, alpha: Any, tau: Any, valid: Any) -> Any:
        """Take parameters of any shape, which pm.CAR refuses."""
        return RandomVariable.make_node(self, rng, size, mu, as_sparse_or_tensor_variable(W), alpha, tau, valid)

    @classmethod
    def rng_fn(
        cls, rng: np.random.Generator, mu: np.ndarray, W: Any, alpha: np.ndarray, tau: np.ndarray, valid: Any, size: Any
    ) -> Any:
        """Draw by the factor of each precision."""
        field = _field(W)
        if not np.all(valid) or np.any(np.abs(alpha) >= 1.0) or np.any(np.asarray(tau) <= 0.0):
            raise ValueError("pm.CAR needs a symmetric W, -1 < alpha < 1 and tau > 0")
        shape = np.broadcast_shapes(tuple(size or ()), np.shape(mu)[:-1], np.shape(alpha), np.shape(tau))
        each = [np.broadcast_to(one, shape).ravel() for one in (alpha, tau)]
        z = rng.normal(size=(len(each[0]), field.weights.shape[0]))
        pattern = field.pattern
        factors = (pattern.factor(t * field.degrees, -t * a * field.entries) for a, t in zip(*each, strict=True))
        drawn = [pattern.solve_back(factor, one) for factor, one in zip(factors, z, strict=True)]
        return np.reshape(drawn, (*shape, -1)) + mu


class RightICARRV(ICARRV):
    """pm.ICAR with draws: of a normal distribution whose sum has a precision of its own."""

    @classmethod
    def rng_fn(
        cls, rng: np.random.Generator, W: np.ndarray, sigma: np.ndarray, zero_sum_stdev: np.ndarray, size: Any
    ) -> Any:
        """Draw by the eigenvectors of the neighbours: of the constant one the eigenvalue is the sum's."""
        values, vectors = _field(W).spectrum
        n = len(values)
        shape = np.broadcast_shapes(tuple(size or ()), np.shape(sigma), np.shape(zero_sum_stdev))
        z = rng.normal(size=(*shape, n))
        z[..., 1:] *= np.asarray(sigma)[..., None] / np.sqrt(values[1:])
        z[..., :1] *= np.asarray(zero_sum_stdev)[..., None] * np.sqrt(n)
        return z @ vectors.T


_RIGHT: dict[type, Any] = {CARRV: RightCARRV, ICARRV: RightICARRV}
