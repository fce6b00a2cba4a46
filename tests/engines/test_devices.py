"""JAX with several devices: one of them is used, and the result is that of a process with one."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pymc_hais
from tests.toys import HAS_JAX

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")]

PROGRAM = "import sys; from tests.engines.test_devices import main; main(sys.argv[1])"


def run():
    """Anneal two tiles of particles for each of two chains, on several threads; return log Z and the draws."""
    with pm.Model():
        theta = pm.Normal("theta", pm.Normal("mu", 0.0, 5.0), pm.HalfNormal("tau", 5.0), shape=8)
        pm.Normal("y", theta, 10.0, observed=np.linspace(-3.0, 28.0, 8))
        idata = pm.sample_hais(1000, chains=2, cores=4, random_seed=3, backend="jax", progressbar=False)
    return pymc_hais.log_marginal_likelihood(idata).value, idata["posterior"]["theta"].values


def main(path):
    import jax

    log_z, theta = run()
    np.savez(path, n_devices=jax.device_count(), log_z=log_z, theta=theta)


def test_four_devices_give_what_one_gives(tmp_path):
    """To rounding: XLA splits loops into as many parts as it has threads, of which more devices have more."""
    several = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "found.npz")]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=os.environ | several, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    import jax

    if (jax.device_count(), jax.default_backend()) != (1, "cpu"):
        pytest.skip("this process has other devices than one CPU")
    expected, draws = run()
    with np.load(tmp_path / "found.npz") as found:
        assert found["n_devices"] == 4
        assert abs(found["log_z"] - expected) < 1e-9
        np.testing.assert_allclose(found["theta"], draws, rtol=1e-8, atol=1e-8)
