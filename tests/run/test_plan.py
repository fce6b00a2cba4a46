"""A plan in a file: both directions, through a file, and how large it is."""

from dataclasses import fields, replace

import numpy as np
import pymc as pm
import pytest

from pymc_hais.core.files import read_record, write_record
from pymc_hais.core.records import Ladder, Schedule
from pymc_hais.density import Layout, ModelIdentity, Sites, identify_as_written
from pymc_hais.estimators import LogZEstimate, Tail
from pymc_hais.kernels import Gibbs, Hamiltonian, LinearConstraints, RandomWalk
from pymc_hais.planning import follow as plan_reuse
from pymc_hais.references import Box, Fitted, Gaussian, Gaussians, Mixture, StudentT
from pymc_hais.run.plan import Origin, Own, Plan, Promise, Start, Tables, decode_plan, encode_plan
from pymc_hais.run.row_evidence import PriorMass
from pymc_hais.tuning import Pilot, Recipe

IDENTITY = ModelIdentity("floatX", {"a": "normal"}, {"a": "1"}, {"a": "2"}, {"y": "3"}, "4", ("a file",))
LAYOUT = Layout(("a", "b_log__"), ("a", "b"), ((), (2,)), ("", "log"), (False, False))


def build_plan(n_dims=3, n_stages=4, n_steps=8, metrics=None, **replaced):
    rng = np.random.default_rng(0)
    factor = np.linalg.cholesky(np.eye(n_dims) + 0.1) if n_dims < 10 else rng.random(n_dims)
    metrics = tuple(metrics or [factor if i % 2 else rng.random(n_dims) for i in range(n_stages)])
    betas = np.geomspace(1e-3, 1.0, n_stages)
    columns = betas, np.full(n_stages, 0.2), 1.0 + np.arange(n_stages), 0.5 + np.arange(n_stages)
    ladder = Ladder(
        Schedule(np.linspace(0.0, 1.0, n_steps + 1)),
        rng.random(n_steps),
        np.sort(rng.integers(n_stages, size=n_steps)),
        metrics,
        rng.random(n_steps),
        8,
        0.5,
    )
    fitted = Fitted(StudentT(5.0, np.zeros(n_dims), np.ones(n_dims)), rng.random((1, n_dims)), 0.1, 0.2, "x")
    mass = PriorMass(LogZEstimate(-0.7, 0.01, -0.72, -0.68, 0.001, per_chain=(-0.7, -0.69)), IDENTITY)
    start = {"reference": "prior", "label": "the prior", "fitted": fitted, "mass": mass}
    start |= {"sites": Sites(rng.random(n_dims), rng.random(n_dims))}
    start |= {name: replaced.pop(name) for name in start if name in replaced}
    entries = {
        "pilot": Pilot(*columns, metrics, -3.25, 1000, np.zeros((0, n_dims)), 0.5, True),
        "lengths": np.array([n_steps]),
        "recipe": Recipe(8),
        "reason": "Why not.",
        "start": Start(**start),
        "kernel": Hamiltonian(damping=np.inf),
        "site_kernel": None,
        "tail": Tail(1.5, 0.01, 40),
        "seconds_per_gradient": 1e-6,
        "n_confirming": 40.0,
        "origin": Origin(LAYOUT, IDENTITY, ladder, Promise(rng.random(n_steps), rng.random(n_steps)), 3),
    }
    return Plan(**(entries | replaced))


def same(a, b):
    """Whether two things have the same type and content, whatever they are made of."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Mixture):
        np.testing.assert_allclose(a.shares, b.shares, rtol=1e-15)
        return same(a.parts, b.parts)
    if hasattr(a, "__dataclass_fields__"):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return a == b


GAUSSIAN = Gaussian(np.arange(3.0), np.eye(3))
SEVERAL = Fitted(GAUSSIAN, np.zeros((1, 3)), 0.1, beside=Gaussians((GAUSSIAN, GAUSSIAN), (0.4, 0.6)), share_beside=0.3)
CASES = {
    "fit": {},
    "bare": {"fitted": None, "sites": None, "mass": None},
    "untuned": {"pilot": None, "kernel": Hamiltonian(step_size=0.2), "recipe": Recipe(0, 0.5, Schedule([0.0, 1.0]))},
    "Gaussian": {"reference": GAUSSIAN},
    "box": {"reference": Box(np.full(3, -np.inf), np.ones(3), np.ones(3))},
    "mixture": {"reference": Mixture(["prior", StudentT(3.0, np.zeros(3), np.ones(3))], [0.25, 0.75])},
    "modes": {"reference": Mixture(["prior", Gaussians([GAUSSIAN, GAUSSIAN])])},
    "fit with others": {"fitted": SEVERAL},
    "own": {"reference": Own("Mine", "my reference"), "kernel": Own("Kernel", "Kernel()")},
    "sites": {"reference": Tables(None, (np.full((2, 2), 0.5),)), "site_kernel": Gibbs()},
    "both": {"reference": Tables(GAUSSIAN, (np.ones((1, 3)) / 3, np.eye(2))), "site_kernel": Gibbs()},
    "walls": {"kernel": RandomWalk(constraints=LinearConstraints(np.eye(3), np.ones(3)))},
    "drift": {"kernel": Hamiltonian("drift-kick-drift", 3, 0.5, 0.1)},
}


@pytest.mark.parametrize("name", CASES)
def test_a_plan_comes_back_from_a_file_as_it_was(name, tmp_path):
    plan = build_plan(**CASES[name])
    write_record(tmp_path / "plan", *encode_plan(plan))
    read = decode_plan(*read_record(tmp_path / "plan"))
    assert same(plan, read)
    assert same(read, decode_plan(*encode_plan(read)))


def test_metrics_that_serve_several_times_are_written_once():
    plan = build_plan(n_stages=6)
    arrays, facts = encode_plan(plan)
    assert {name: array.shape for name, array in arrays.items() if "metrics" in name} == {
        "pilot.metrics": (3, 3),
        "pilot.metrics.1": (3, 3),
    }
    read = decode_plan(arrays, facts)
    assert all(one is other for one, other in zip(read.pilot.metrics, read.origin.ladder.metrics, strict=True))
    assert read.pilot.metrics[1] is read.pilot.metrics[3]


def test_a_thousand_dimensions_take_less_than_two_megabytes():
    arrays, _ = encode_plan(build_plan(n_dims=1000, n_stages=100, n_steps=2000))
    assert sum(array.nbytes for array in arrays.values()) < 2_000_000


def test_another_format_is_refused():
    arrays, facts = encode_plan(build_plan())
    with pytest.raises(ValueError, match=r"format 99.*reads 5"):
        decode_plan(arrays, facts | {"version": 99})


def test_the_mass_of_a_prior_of_another_kind_is_measured_again(monkeypatch):
    """Also where all numbers in it are the same."""

    def prior(kind):
        with pm.Model() as model:
            kind("x", 0.0, 1.0, shape=2, transform=pm.distributions.transforms.ordered)
        return model

    monkeypatch.setattr(plan_reuse, "find_mass", lambda *_: "measured")
    known = identify_as_written(prior(pm.Normal))
    start = build_plan().start
    start = replace(start, mass=start.mass._replace(identity=known))
    assert plan_reuse._mass(start, prior(pm.Normal), None) is start.mass
    assert plan_reuse._mass(start, prior(pm.Laplace), None) == "measured"
    unknown = start.mass._replace(identity=replace(known, unreadable=("a file",)))
    assert plan_reuse._mass(replace(start, mass=unknown), prior(pm.Normal), None) == "measured"
