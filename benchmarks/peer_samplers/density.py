"""A model as its peers ask for it: JAX functions of a flat vector, draws of the prior, a function on the unit cube."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pymc.sampling.jax
import pytensor.tensor as pt
from pymc.model.transform.conditioning import remove_value_transforms
from pymc.model.transform.optimization import freeze_dims_and_data
from pytensor.graph.replace import clone_replace

from pymc_hais.density.layout import build_layout, on_position
from pymc_hais.references.prior import build_prior

# PyMC asks for 100 devices of JAX when it is imported, and then every call costs twice as much.
os.environ["XLA_FLAGS"] = os.environ["XLA_FLAGS"].replace("--xla_force_host_platform_device_count=100", "")


class NoPriorTransform(Exception):
    """Says that a prior has no inverse distribution function in closed form."""


class Density:
    """A model on its flat unconstrained vector (D,), as PyMC's own JAX functions."""

    def __init__(self, model: pm.Model) -> None:
        self.layout = build_layout(model)
        self._model = model
        frozen = freeze_dims_and_data(model)
        position, terms = on_position(frozen, self.layout, [frozen.varlogp, frozen.datalogp])
        self._terms = pymc.sampling.jax.get_jaxified_graph([position], terms)

    @property
    def n_dims(self) -> int:
        """D."""
        return self.layout.n_dims

    def log_prior(self, x):
        """Return the log density of the prior, with the transforms' Jacobians."""
        return self._terms(x)[0]

    def log_likelihood(self, x):
        """Return the log density of the observed variables and the potentials."""
        value = self._terms(x)[1]
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    def log_joint(self, x):
        """Return ``model.logp()``."""
        return self.log_prior(x) + self.log_likelihood(x)

    def draw(self, n: int, seed: int) -> np.ndarray:
        """Draw from the prior: (n, D)."""
        return self.layout.flatten(build_prior(self._model).sample(n, seed)[0])


def on_rows(function):
    """Evaluate a JAX function at each row of a matrix of any length."""
    compiled = jax.jit(jax.vmap(function))

    def evaluate(x: np.ndarray) -> np.ndarray:
        # Every new length would be compiled anew.
        n = 2 ** int(np.ceil(np.log2(max(len(x), 1))))
        return np.asarray(compiled(np.resize(x, (n, x.shape[1]))))[: len(x)]

    return evaluate


def on_unit_cube(model: pm.Model):
    """Compile the log likelihood as a function of (D,) uniform numbers, through the inverse distribution functions.

    That is what nested samplers explore.  Parents come before their children, so that a hierarchy is no obstacle.

    Returns
    -------
    callable, int
        The function, by Numba since it is called a point at a time, and D.
    """
    _check_quantiles(model)
    plain = remove_value_transforms(freeze_dims_and_data(model))
    shapes = [np.shape(plain.initial_point()[plain.rvs_to_values[rv].name]) for rv in plain.free_RVs]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    cube, values = pt.vector("cube", shape=(int(ends[-1]),)), {}
    for rv, shape, end in zip(plain.free_RVs, shapes, ends, strict=True):
        uniform = cube[int(end) - int(np.prod(shape)) : int(end)].reshape(shape)
        values[rv] = clone_replace([pm.icdf(rv, uniform)], values, rebuild_strict=False)[0]
    inner = {plain.rvs_to_values[rv]: value for rv, value in values.items()}
    inner = {variable: variable.type.filter_variable(value) for variable, value in inner.items()}
    function = pm.compile([cube], clone_replace([plain.datalogp], inner, rebuild_strict=False)[0], mode="NUMBA")
    function.trust_input = True

    def log_likelihood(u: np.ndarray) -> float:
        value = float(function(u))
        return -np.inf if np.isnan(value) else value

    return log_likelihood, int(ends[-1])


def _check_quantiles(model: pm.Model) -> None:
    try:
        for rv in model.free_RVs:
            pm.icdf(rv, 0.5)
    except NotImplementedError as error:
        raise NoPriorTransform("no prior transform") from error
