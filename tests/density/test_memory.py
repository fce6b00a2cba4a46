"""How much memory the graphs of small models with discrete variables take, which is for the process's peak to say."""

import resource
import sys
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from tests.processes import run_apart

Y = np.linspace(-2.0, 3.0, 10)
#: Gigabytes, and how much address space the process has before it gives up.
LIMIT, GIVES_UP = 1.5, 6 * 2**30


def build_mixture(y=Y):
    w = pm.Dirichlet("w", np.ones(2))
    mu = pm.Normal("mu", 0.0, 3.0, shape=2)
    pm.Normal("y", mu[pm.Categorical("z", w, shape=len(y))], 1.0, observed=y)


def build_known_means():
    w = pm.Dirichlet("w", np.ones(2))
    pm.Normal("y", pt.constant([0.0, 1.0])[pm.Categorical("z", w, shape=4)], 1.0, observed=Y[:4])


def build_scalar_sites():
    mu = pm.Normal("mu", 0.0, 3.0, shape=2)
    z = pm.Bernoulli("z", 0.4, shape=6)
    pm.Normal("y", pt.stack([mu[z[i]] for i in range(6)]), 1.0, observed=Y[:6])


def build_chain():
    state = [pm.Bernoulli("s0", 0.5)]
    for i in range(1, 4):
        state.append(pm.Bernoulli(f"s{i}", pt.constant([0.1, 0.8])[state[-1]]))
    pm.Normal("y", pt.constant([-1.0, 2.0])[pt.stack(state)], 1.0, observed=Y[:4])


def build_equal_branches():
    x = pm.Normal("x", shape=18)
    one = pt.constant(1.0)
    pm.Potential("same", sum(pt.switch(x[i] > 0, one, one) for i in range(18)))


def build_outliers():
    sigma = pm.HalfNormal("sigma", 1.0)
    z = pm.Bernoulli("z", 0.1, shape=10)
    pm.Normal("y", 0.0, pt.switch(pt.eq(z, 1), 10.0, sigma), observed=Y)


def build_selection():
    keep = pm.Bernoulli("keep", 0.5, shape=4)
    b = pm.Normal("b", 0.0, 1.0, shape=4)
    pm.Normal("y", pt.dot(np.vander(Y, 4), keep * b), 1.0, observed=Y)


def build_ising():
    s = pm.Bernoulli("s", 0.5, shape=8)
    pm.Potential("bonds", 0.3 * pt.sum((2 * s[1:] - 1) * (2 * s[:-1] - 1)))


def build_counts():
    n = pm.Poisson("n", 4.0, shape=3)
    p = pm.Beta("p", 2.0, 2.0)
    pm.Binomial("y", n, p, observed=[1, 2, 0])


def build_pairs():
    z = pm.Bernoulli("z", 0.4, shape=8)
    for i in range(7):
        pm.Potential(f"pair{i}", pt.switch(z[i] + z[i + 1] < 2, 0.0, -1.0))


MODELS = {name.removeprefix("build_"): build for name, build in list(globals().items()) if name.startswith("build_")}


def main(names):
    """Build the graphs of some models; print the peak of memory in GB."""
    from pymc_hais.core.seeds import Seeds
    from pymc_hais.density import build_density
    from pymc_hais.problem.building import bind_reference

    resource.setrlimit(resource.RLIMIT_AS, (GIVES_UP, GIVES_UP))
    for name in names:
        with pm.Model() as model:
            MODELS[name]()
        build_density(model, bind_reference(model, "prior", Seeds((1,)))[0])
    print(peak() / 1e9)


def peak():
    """Return the most memory in bytes that this program has had; what ru_maxrss tells begins with the parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        return 1024.0 * float(status.read_text().split("VmHWM:")[1].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1.0 if sys.platform == "darwin" else 1024.0)


def measure(*names):
    program = f"from tests.density.test_memory import main; main({names!r})"
    return float(run_apart(program).splitlines()[-1])


@pytest.mark.slow
def test_a_constant_that_many_switches_return_takes_little_memory():
    assert measure("equal_branches") < LIMIT


@pytest.mark.exhaustive
def test_ten_small_models_together_take_little_memory():
    assert len(MODELS) == 10
    assert measure(*MODELS) < LIMIT
