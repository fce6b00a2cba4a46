"""The skeletons of CONTRIBUTING.md, run as they stand on the page."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from pymc_hais.planning import choose
from pymc_hais.results.findings.finding import CHECKS
from tests.front_door import assert_right, estimate
from tests.goodness_of_fit.test_spread import draws_of, normal
from tests.kernels.targets import METRICS, MIX, is_seen, move, needs_jax, observables, skewed_toy
from tests.mutants import mutate
from tests.quick import TRUTH, one_mean, shared
from tests.results.plots.drawn import BACKENDS, close, needs, numbers
from tests.statistical import assert_mean

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
QUICK = {"draws": 200, "chains": 2}
TOY = skewed_toy(MIX)
STEP_SIZE = 0.8


@pytest.fixture
def skeleton(tmp_path, monkeypatch):
    """Import the code of a section from a file of its own, as an outsider's module."""
    monkeypatch.syspath_prepend(tmp_path)

    def load(section):
        (code,) = re.findall(
            rf"^## {section}\n.*?^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
        )
        assert code.count("\n") < 60
        name = section.lower().replace(" ", "_")
        (tmp_path / f"{name}.py").write_text(code, "utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return load


def test_the_density_is_the_models(skeleton):
    page = skeleton("The density")
    log_density = page.model.compile_logp()({"rate_log__": 0.0})
    np.testing.assert_allclose(page.log_prior + page.log_likelihood, log_density, rtol=1e-12)
    slope = page.model.compile_dlogp()({"rate_log__": 0.0})
    np.testing.assert_allclose(sum(page.gradients), slope, rtol=1e-12)


@pytest.mark.parametrize("n_steps", [1, 10])
def test_the_kernel_leaves_a_skewed_target_invariant(skeleton, n_steps):
    kernel = skeleton("A new kernel").GuidedWalk()
    x, v, rate = move(TOY, kernel.build, n_steps, STEP_SIZE, METRICS["dense"])
    assert 0.3 < rate < 0.9
    assert_mean(*observables(TOY, x, v))


@needs_jax
def test_without_its_flip_the_kernel_does_not(skeleton):
    wrong = mutate(skeleton("A new kernel"), ("momentum=-momentum", "momentum=momentum"))
    assert is_seen(TOY, wrong.GuidedWalk().build, STEP_SIZE, METRICS["dense"])


def test_the_kernel_finds_log_z(skeleton):
    found, _ = estimate(shared(one_mean), kernel=skeleton("A new kernel").GuidedWalk(), **QUICK)
    assert_right(found, TRUTH)
    assert found.se < 0.1


@pytest.mark.slow
def test_the_reference_finds_log_z(skeleton):
    reference = skeleton("A new reference").Logistic(np.array([1.0]), np.array([1.5]))
    found, idata = estimate(shared(one_mean), reference=reference, **QUICK)
    assert_right(found, TRUTH)
    assert found.se < 0.1
    assert idata["posterior"].attrs["reference"] == "a logistic distribution"


def test_the_finding_is_made_where_it_applies_and_only_there(skeleton, monkeypatch):
    monkeypatch.setitem(CHECKS, "the diagnosis of the steps", None)  # in the end it is not there again
    skeleton("A new finding")
    # Three steps, the last of which is hard; evenly spaced ones share it.
    uneven, even = [0.0, 0.001, 0.002, 1.0], np.linspace(0.0, 1.0, 33) ** 3
    found, _ = estimate(shared(one_mean), schedule=uneven, **QUICK)
    (finding,) = (one for one in found.findings if one.name == "hard_step")
    assert finding.severity == "warning"
    assert finding.message.startswith("Step 3 of 3 has ")
    found, _ = estimate(shared(one_mean), schedule=even, **QUICK)
    assert "hard_step" not in [one.name for one in found.findings]


def test_the_statistic_finds_a_shift_and_leaves_exact_draws_alone(skeleton):
    find_shift = skeleton("A new statistic of the final particles").find_shift
    density, _ = normal([1.0, 3.0])
    x = np.random.default_rng(0).normal(size=(4000, 2)) * [1.0, 3.0]
    assert find_shift(draws_of(x, density)[0]) is None  # five errors, two coordinates: one time in a million
    found = find_shift(draws_of(x + np.array([0.0, 0.6]), density)[0])
    assert found.dimension == 1
    assert found.back > found.accepted


def test_the_plot_draws_the_numbers_of_the_run(skeleton):
    plot = skeleton("A new plot").plot_tuning
    assert "plot_collection : PlotCollection" in plot.__doc__
    _, idata = estimate(shared(one_mean), **QUICK)
    for backend in BACKENDS:
        needs(backend)
        collection = plot(idata, backend=backend)
        for chain in range(2):
            path = idata["annealing"].sel(chain=chain)
            x, y = numbers(collection, "points", "tuning", chain=chain)
            np.testing.assert_allclose(x, path["step_size"])
            np.testing.assert_allclose(y, path["acceptance_rate"])
    assert "points" not in plot(idata, backend="none", visuals={"points": False}).viz.children
    close()
    with pytest.raises(ValueError, match="group `annealing`"):
        plot(None)


@pytest.mark.slow
def test_the_strategy_is_tried_and_taken_where_it_needs_less_work(skeleton, monkeypatch):
    monkeypatch.setattr(choose, "BY_PILOTS", list(choose.BY_PILOTS))
    module, from_prior = skeleton("A new strategy"), {"reference": "prior", **QUICK}

    def seen(**options):
        found, idata = estimate(shared(one_mean), **options)
        assert_right(found, TRUTH)
        attrs = idata["posterior"].attrs
        return idata, "n_leapfrog=4" in attrs["kernel"], attrs["reference_reason"]

    assert seen(**from_prior)[1:] == (False, "Chosen by the user.")  # so few temperatures are not worth a pilot
    monkeypatch.setattr(module, "LONG", 1)
    _, is_taken, reason = seen(**from_prior)
    assert not is_taken
    assert reason.startswith("With 4 leapfrog steps, ")
    monkeypatch.setattr(module, "is_cheaper", lambda *_: True)
    idata, is_taken, reason = seen(**from_prior)
    assert is_taken
    assert reason.startswith("With one leapfrog step, ")
    assert seen(**QUICK)[1]  # a fit, too, may follow
    assert seen(plan=idata, **QUICK)[1]
