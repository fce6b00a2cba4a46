"""JAX with several devices: one of them is used, and the result is that of a process with one."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.toys import HAS_JAX

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")]

#: Two tiles of particles for each of two chains, on several threads.
PROGRAM = """
import sys, jax, numpy as np, pymc as pm, pymc_hais
with pm.Model():
    theta = pm.Normal("theta", pm.Normal("mu", 0.0, 5.0), pm.HalfNormal("tau", 5.0), shape=8)
    pm.Normal("y", theta, 10.0, observed=np.linspace(-3.0, 28.0, 8))
    idata = pm.sample_hais(1000, chains=2, cores=4, random_seed=3, backend="jax", progressbar=False)
log_z = pymc_hais.log_marginal_likelihood(idata).value
np.savez(sys.argv[1], n_devices=jax.device_count(), log_z=log_z, theta=idata["posterior"]["theta"].values)
"""


def run(n_devices, path):
    several = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={n_devices}", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", PROGRAM, str(path)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=os.environ | several, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(path) as result:
        assert result["n_devices"] == n_devices
        return result["log_z"], result["theta"]


def test_four_devices_give_what_one_gives(tmp_path):
    """To rounding: XLA splits loops into as many parts as it has threads, of which more devices have more."""
    (log_z, theta), (expected, draws) = (run(n, tmp_path / f"{n}.npz") for n in (4, 1))
    assert abs(log_z - expected) < 1e-9
    np.testing.assert_allclose(theta, draws, rtol=1e-8, atol=1e-8)
