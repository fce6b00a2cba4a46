"""A plan's record: both directions, through a file, and how large it is."""

from dataclasses import fields, replace

import numpy as np
import pymc as pm
import pytest

from pymc_hais.core.files import read_record, write_record
from pymc_hais.estimators import LogZEstimate, Tail
from pymc_hais.kernels import Gibbs, Hamiltonian, LinearConstraints, LocallyBalanced, RandomWalk
from pymc_hais.model import ModelIdentity, Sites, Structure, identify
from pymc_hais.problem.problem import PriorMass
from pymc_hais.references import Box, Fitted, Gaussian, Gaussians, Mixture, StudentT
from pymc_hais.run import plan_reuse
from pymc_hais.run.choice import Learnt
from pymc_hais.run.plan_record import PlanRecord, decode_record, encode_record
from pymc_hais.run.recorded import Own, Tables
from pymc_hais.tuning import Pilot, Stage
from pymc_hais.types import Plan, Schedule

IDENTITY = ModelIdentity("floatX", {"a": "normal"}, {"a": "1"}, {"a": "2"}, {"y": "3"}, "4", ("a file",))


def build_record(n_dims=3, n_stages=4, n_steps=8, metrics=None, **replaced):
    rng = np.random.default_rng(0)
    factor = np.linalg.cholesky(np.eye(n_dims) + 0.1) if n_dims < 10 else rng.random(n_dims)
    metrics = metrics or [factor if i % 2 else rng.random(n_dims) for i in range(n_stages)]
    betas = np.geomspace(1e-3, 1.0, n_stages)
    stages = tuple(
        Stage(beta, 0.2, 1.0 + i, 0.5 + i, metric)
        for i, (beta, metric) in enumerate(zip(betas.tolist(), metrics, strict=True))
    )
    plan = Plan(
        Schedule(np.linspace(0.0, 1.0, n_steps + 1)),
        rng.random(n_steps),
        np.sort(rng.integers(n_stages, size=n_steps)),
        tuple(metrics),
        rng.random(n_steps),
        8,
        0.5,
    )
    entries = {
        "learnt": Learnt(plan, rng.random(n_steps), rng.random(n_steps)),
        "pilot": Pilot(stages, -3.25, 1000, np.zeros((500, n_dims)), 0.5, True),
        "tail": Tail(1.5, 0.01, 40),
        "reference": "prior",
        "label": "the prior",
        "fitted": Fitted(StudentT(5.0, np.zeros(n_dims), np.ones(n_dims)), rng.random((1, n_dims)), 0.1, 0.2, "x"),
        "sites": Sites(rng.random(n_dims), rng.random(n_dims)),
        "prior_mass": PriorMass(LogZEstimate(-0.7, 0.01, -0.72, -0.68, 0.001, per_chain=(-0.7, -0.69)), 77),
        "prior_identity": IDENTITY,
        "kernel": Hamiltonian(damping=np.inf),
        "site_kernel": None,
        "schedule": "constant_speed",
        "structure": Structure(("a", "b"), ((), (2,)), ("", "log")),
        "identity": IDENTITY,
        "n_rounds": 3,
        "seconds_per_gradient": 1e-6,
        "reason": "Why not.",
    }
    return PlanRecord(**(entries | replaced))


def same(a, b):
    """Whether two things have the same type and content, whatever they are made of."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    if hasattr(a, "__dataclass_fields__"):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return a == b


def assert_same(record, other):
    for field in fields(PlanRecord):
        ours, theirs = getattr(record, field.name), getattr(other, field.name)
        if field.name == "pilot" and ours is not None:  # its positions are not needed any more
            assert theirs.positions.shape == (0, ours.positions.shape[1])
            assert same(
                [getattr(ours, f.name) for f in fields(Pilot) if f.name != "positions"],
                [getattr(theirs, f.name) for f in fields(Pilot) if f.name != "positions"],
            )
        elif field.name == "reference" and isinstance(ours, Mixture):
            assert same(list(ours.parts), list(theirs.parts))
            np.testing.assert_allclose(ours.shares, theirs.shares, rtol=1e-15)
        else:
            assert same(ours, theirs), field.name


GAUSSIAN = Gaussian(np.arange(3.0), np.eye(3))
CASES = {
    "fit": {},
    "bare": {"fitted": None, "sites": None, "prior_mass": None, "prior_identity": None},
    "untuned": {"pilot": None, "kernel": Hamiltonian(step_size=0.2), "schedule": "fixed"},
    "Gaussian": {"reference": GAUSSIAN},
    "box": {"reference": Box(np.full(3, -np.inf), np.ones(3), np.ones(3))},
    "mixture": {"reference": Mixture(["prior", StudentT(3.0, np.zeros(3), np.ones(3))], [1.0, 2.0])},
    "modes": {"reference": Mixture(["prior", Gaussians([GAUSSIAN, GAUSSIAN])])},
    "own": {"reference": Own("Mine", "my reference"), "kernel": Own("Kernel", "Kernel()")},
    "sites": {"reference": Tables(None, (np.full((2, 2), 0.5),)), "site_kernel": LocallyBalanced(n_flips=3)},
    "both": {"reference": Tables(GAUSSIAN, (np.ones((1, 3)) / 3, np.eye(2))), "site_kernel": Gibbs()},
    "walls": {"kernel": RandomWalk(constraints=LinearConstraints(np.eye(3), np.ones(3)))},
    "drift": {"kernel": Hamiltonian("drift-kick-drift", 3, 0.5, 0.1)},
}


@pytest.mark.parametrize("name", CASES)
def test_a_record_comes_back_from_a_file_as_it_was(name, tmp_path):
    record = build_record(**CASES[name])
    write_record(tmp_path / "plan", *encode_record(record))
    read = decode_record(*read_record(tmp_path / "plan"))
    assert_same(record, read)
    assert_same(read, decode_record(*encode_record(read)))


def test_metrics_that_serve_several_times_are_written_once():
    arrays, _ = encode_record(build_record(n_stages=6))
    assert len(arrays["scales"]) == 3
    assert arrays["factors"].shape == (1, 6)  # one lower triangle of 3 x 3
    assert arrays["plan_metric"].tolist() == arrays["stage_metric"].tolist()


def test_a_thousand_dimensions_take_less_than_two_megabytes():
    arrays, _ = encode_record(build_record(n_dims=1000, n_stages=100, n_steps=2000))
    assert sum(array.nbytes for array in arrays.values()) < 2_000_000


def test_another_format_is_refused():
    arrays, facts = encode_record(build_record())
    with pytest.raises(ValueError, match=r"format 99.*reads 2"):
        decode_record(arrays, facts | {"version": 99})


def test_the_mass_of_a_prior_of_another_kind_is_measured_again(monkeypatch):
    """Also where all numbers in it are the same."""

    def prior(kind):
        with pm.Model() as model:
            kind("x", 0.0, 1.0, shape=2, transform=pm.distributions.transforms.ordered)
        return model

    monkeypatch.setattr(plan_reuse, "find_mass", lambda *_: "measured")
    known = identify(prior(pm.Normal), with_density=True)
    record = build_record(prior_identity=known)
    assert plan_reuse._mass(record, prior(pm.Normal), None) is record.prior_mass
    assert plan_reuse._mass(record, prior(pm.Laplace), None) == "measured"
    unknown = build_record(prior_identity=replace(known, unreadable=("a file",)))
    assert plan_reuse._mass(unknown, prior(pm.Normal), None) == "measured"
