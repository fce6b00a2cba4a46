"""The same bits as before: a change of the code's structure leaves every draw, weight and log Z as it was.

``python -m tests.test_golden`` records ``tests/golden.json`` anew, after a change that means to move draws.
"""

import hashlib
import json
import os
import platform
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pymc_hais
from pymc_hais import learning
from tests import bits
from tests.bits import SMALL
from tests.toys import HAS_JAX

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")]

FILE = Path(__file__).with_name("golden.json")
SEED = 1
ROWS = {"x": np.random.default_rng(2).normal(size=(3, 12))}
#: Variables that are held to the bit: draws, parameters, log weights and log Z; where they stand in a result.
KEPT = ("posterior/", "fitted/", "held_out/value", "sample_stats/log_weight", "log_marginal_likelihood/value")


def sample(model, seed, **call):
    return pymc_hais.sample_hais(model=model, random_seed=seed, **{**SMALL, **call})


def walk():
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        x = pm.GaussianRandomWalk("x", sigma=scale, init_dist=pm.Normal.dist(0.0, 1.0), steps=63)
        pm.Normal("y", x, 0.5, observed=np.sin(np.arange(64) / 9.0))
    return model


def resumed(seed):
    """Remove the second round of what a run has kept, and go on."""
    with tempfile.TemporaryDirectory() as folder:
        call = {"target_se": 1e-4, "max_temperatures": 64, "n_temperatures": 16, "checkpoint": folder}
        sample(bits.regression(), seed, **call)
        for path in Path(folder).glob("round_2*.npz"):
            path.unlink()
        return sample(bits.regression(), seed, **call)


def executed(seed):
    with ThreadPoolExecutor(2) as executor:
        return sample(bits.regression(), seed, executor=executor)


def fitted(seed):
    with pm.Model() as model:
        mu, width = pm.Data("mu", 0.0), pm.Data("width", 1.0)
        x = pm.Flat("x")
        pm.Potential("e", -0.5 * ((x - mu) / width) ** 2 - 0.1 * x**4)
    rows = {"x": np.random.default_rng(3).normal(1.0, 0.5, size=50)}
    method = learning.NoiseContrastive()
    given = {"mu": None, "width": "positive"}
    return pymc_hais.fit(model, rows, given, method, n_steps=20, random_seed=seed, progressbar=False)


def planned(seed):
    plan = sample(bits.regression(), 7)
    return sample(bits.regression(), seed, plan=plan)


CALLS = {
    "plain": lambda seed: sample(bits.regression(), seed),
    "default": lambda seed: pymc_hais.sample_hais(model=bits.regression(), random_seed=seed, progressbar=False),
    "rows": lambda seed: pymc_hais.log_likelihood(
        bits.one_row(), ROWS, random_seed=seed, progressbar=False, backend="jax", chains=2, target_se=None,
        max_temperatures=16,
    ),
    "discrete": lambda seed: sample(bits.sites(), seed, reference="prior"),
    "latent field": lambda seed: sample(walk(), seed),
    "plan": planned,
    "extend": lambda seed: pymc_hais.extend(
        sample(bits.regression(), seed), model=bits.regression(), chains=2, random_seed=seed, progressbar=False
    ),
    "modes": lambda seed: sample(bits.regression(), seed, modes={"w": np.zeros(3), "s": 1.0}),
    "executor": executed,
    "checkpoint resumed": resumed,
    "path": lambda seed: sample(bits.tempered(), seed, path={"power": (0.0, 1.0)}, reference="prior"),
    "ratio of models": lambda seed: sample(bits.regression(), seed, reference=bits.other_regression()),
    "prior mass": lambda seed: sample(bits.ordered(), seed),
    "fit": fitted,
}  # fmt: skip


def machine():
    """What bits depend on beside the code: the processor and the versions of the libraries."""
    flags = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")][:1]
    versions = [f"{name} {version(name)}" for name in ("jax", "jaxlib", "numpy", "scipy", "pytensor", "pymc")]
    said = [*versions, platform.machine(), *flags, os.environ.get("XLA_FLAGS", "")]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]


def digests(idata):
    """Return a digest of each array of draws, log weights and log Z of a result."""
    found = {}
    for name, group in sorted(idata.children.items()):
        for variable, values in sorted(group.data_vars.items()):
            if f"{name}/{variable}".startswith(KEPT) and values.dtype.kind in "biuf":
                found[f"{name}/{variable}"] = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]
    return found


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="the processor cannot be told")
@pytest.mark.parametrize("kind", CALLS)
def test_every_bit_is_as_it_was(kind):
    recorded = json.loads(FILE.read_text())
    if recorded["machine"] != machine():
        pytest.skip("another processor or other versions: record anew with `python -m tests.test_golden`")
    assert digests(CALLS[kind](SEED)) == recorded[kind]


def main():
    found = {kind: digests(call(SEED)) for kind, call in CALLS.items()}
    assert all(found.values())
    lines = [f'"{kind}": {json.dumps(one)}' for kind, one in {"machine": machine(), **found}.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
