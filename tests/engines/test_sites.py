"""Discrete sites move alike on every engine, and the numbers that move them are uniform and their own."""

import numba
import numpy as np
import pytest
from scipy import stats

from pymc_hais.core import noise as noise_module
from pymc_hais.core.noise import INITIAL_STEP, build_noise, check_counters
from pymc_hais.engines.numba import NumbaEngine, _cache_key, _namespace
from pymc_hais.engines.python import PythonEngine
from pymc_hais.kernels import Composed, Gibbs, Hamiltonian, RandomWalk, SiteBlock
from pymc_hais.paths import Geometric
from tests.engines.test_kernels import DOUBLE, KEY, TOLERANCE, compiled_density
from tests.kernels.site_targets import alternate, boltzmann, one_by_one
from tests.marks import slow_but
from tests.populations import run_segment, state_of
from tests.statistical import assert_distribution, assert_mean, assert_uncorrelated
from tests.toys import HAS_JAX

needs_jax = pytest.mark.skipif(not HAS_JAX, reason="needs JAX")

# The engines ---------------------------------------------------------------------------------------------

N_PARTICLES, N_STEPS = 60, 12
LINKS = np.array([[0.0, 0.9, 0.0], [0.9, 0.0, -1.1], [0.0, -1.1, 0.0]])
LEVELS = np.array([-0.8, 0.1, 0.5, 1.4])
LOWEST = np.array([0, 0, 0, 0, 0, 1, 1, 0, 0])
MOST = np.array([1, 1, 1, 1, 1, 4, 4, np.inf, np.inf])


def build_zoo(xp):
    """Two normals x, binary sites b and f, sites c of four values from 1 on and counts n, all of which depend on x."""

    def density(z):
        x, b, f, c, n = z[:2], z[2:5], z[5:7], z[7:9], z[9:]
        level = xp.sum(((c - 1.0).reshape((-1, 1)) == np.arange(4.0)) * LEVELS, 1)
        slopes = LINKS @ b + x[0]
        # Terms of one site each, and those that neighbours share; the counts have a support.
        of_f, f_shared = f * (0.8 * x[1] - 0.3), 1.3 * f[0] * f[1]
        of_c, c_shared = level * x[1] - 0.1 * level**2, -0.7 * level[0] * level[1]
        of_n = xp.where(n < 0.0, -np.inf, n * (0.5 + 0.3 * x[0]) - (n + 0.5) * xp.log(xp.maximum(n, 0.0) + 1.0) + n)
        n_shared = -0.2 * (n[0] - n[1]) ** 2
        log_reference = -0.5 * xp.sum(x * x) - 0.4 * xp.sum(b)
        log_ratio = 0.5 * xp.sum(b * (slopes + x[0])) + xp.sum(of_f) + f_shared + xp.sum(of_c) + c_shared
        log_ratio = log_ratio + xp.sum(of_n) + n_shared - 0.1 * xp.sum(x**4)
        first = xp.sum(b) + 0.3 * xp.sum(n)
        of_x = xp.where(np.arange(2) == 0, first, 0.8 * xp.sum(f) + xp.sum(level)) - 0.4 * x**3
        none = 0.0 * z[2:]
        reference = xp.concatenate((-x, none[:3] - 0.4, none[3:]))
        ratio = xp.concatenate((of_x, slopes, of_f + f_shared, of_c + c_shared, of_n + n_shared))
        return log_reference, log_ratio, reference, ratio

    return density
