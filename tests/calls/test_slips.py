"""Slips of a first hour: each is answered before any work by one message, which says what to pass instead."""

import importlib
import os
import subprocess
import sys

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from rich.theme import Theme

import pymc_hais
from pymc_hais.core.process import memory
from pymc_hais.engines import resolve_backend
from pymc_hais.references import build_prior
from tests.quick import QUICK, one_mean
from tests.toys import HAS_JAX


@pytest.fixture(autouse=True)
def no_work(monkeypatch):
    """Fail where something is compiled."""
    monkeypatch.setattr("pymc_hais.calls.sample.compile_integrated", lambda *_: pytest.fail("work has begun"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"draws": 10}, "`draws` must be a whole number of at least 100; got 10"),
        ({"draws": 200.0}, "`draws` must be a whole number of at least 100; got 200.0"),
        ({"chains": 0}, "`chains` must be a whole number of at least 1; got 0"),
        ({"chains": True}, "`chains` must be a whole number of at least 1; got True"),
        ({"cores": 0}, "`cores` must be a whole number of at least 1; got 0"),
        ({"target_se": -0.1}, "`target_se` must be a positive number of nats, or None for one round; got -0.1"),
        ({"target_se": "small"}, "`target_se` must be a positive number of nats, or None for one round; got 'small'"),
        ({"target_se": True}, "`target_se` must be a positive number"),
        ({"max_seconds": 0}, "`max_seconds` must be a positive number of seconds, or None for no limit; got 0"),
        ({"max_temperatures": 1}, "`max_temperatures` must be a whole number of at least 2; got 1"),
        ({"n_temperatures": -1}, "`n_temperatures` must be a whole number of at least 0; got -1"),
        ({"resample": "yes"}, "`resample` must be True or False; got 'yes'"),
        ({"resample": 1}, "`resample` must be True or False; got 1"),
        ({"random_seed": 1.5}, "`random_seed` must be a whole number, .* or None; got 1.5"),
        ({"random_seed": "7"}, "`random_seed` must be a whole number, .* or None; got '7'"),
        ({"random_seed": [1, 2.5]}, r"`random_seed` must be a whole number, .* or None; got \[1, 2.5\]"),
        ({"random_seed": -1}, "`random_seed` must be a whole number, not below 0, .* or None; got -1"),
        ({"schedule": "cosine"}, "`schedule` must be one of 'constant_speed'"),
        ({"kernel": pymc_hais.Hamiltonian}, r"`kernel` must be a pymc_hais.Hamiltonian\(...\)"),
        ({"kernel": []}, r"`kernel` must be a pymc_hais.Hamiltonian.* or None; got \[\]"),
        ({"constraints": {"mu": (1, 0)}}, r"`constraints` gives `mu` the bounds \(1, 0\): the lower must be below"),
        ({"backend": "torch"}, "Unknown backend 'torch'"),
        ({"backend": "c", "compile_kwargs": {"mode": "FAST_COMPILE"}}, "either `backend` or"),
        ({"var_names": "mu"}, r"`var_names` must be a list of names; got 'mu': pass \['mu'\]"),
        ({"var_names": ["mu"], "idata_kwargs": {"log_likelihood": True}}, "leave out `var_names`"),
        ({"var_names": 3}, "`var_names` must be a list of names; got 3"),
        ({"var_names": [3]}, r"`var_names` must be a list of names; got \[3\]"),
        (
            {"idata_kwargs": {"log_likelihood": "y"}},
            "`log_likelihood` of `idata_kwargs` must be True, False or a list of",
        ),
        (
            {"idata_kwargs": {"log_prior": 1.5}},
            "`log_prior` of `idata_kwargs` must be True, False or a list of names; got",
        ),
        (
            {"idata_kwargs": {"log_likelihood": ["z"]}},
            r"`log_likelihood` of `idata_kwargs` names \['z'\], which the model",
        ),
        ({"schedule": None}, "`schedule` needs at least the two betas 0 and 1; got None"),
        ({"schedule": [1.0, 0.0]}, r"`schedule` must increase strictly from 0 to 1; got \[1.0, 0.0\]"),
        ({"reference": xr.DataTree()}, "got DataTree with groups: none"),
        ({"idata_kwargs": True}, "`idata_kwargs` must be a dictionary, such as .*; got True"),
        ({"idata_kwargs": []}, "`idata_kwargs` must be a dictionary"),
        ({"idata_kwargs": {"log_lik": True}}, r"Unknown `idata_kwargs` \['log_lik'\]: pass some of .*'log_likelihood'"),
        ({"idata_kwargs": {"dims": {"nu": ["a"]}}}, r"gives dims to \['nu'\]; the variables are \['mu', 'y'\]"),
        ({"idata_kwargs": {"dims": ["a"]}}, r"`dims` of `idata_kwargs` must be a dictionary; got \['a'\]"),
        ({"compile_kwargs": {"foo": 1}}, r"Unknown `compile_kwargs` \['foo'\]: pm.compile takes .*'mode'"),
        ({"compile_kwargs": "JAX"}, "`compile_kwargs` must be a dictionary, such as .*; got 'JAX'.*backend=\"jax\""),
        ({"compile_kwargs": {"mode": "FOO"}}, "has the mode 'FOO', which PyTensor does not know: pass one of .*NUMBA"),
        ({"compile_kwargs": {"mode": 3}}, "has the mode 3, which PyTensor does not know: pass one of .*NUMBA"),
        ({"chains": 10**9}, r"200 in 1,000,000,000 chains.*: pass at most [1-9][\d,]* in all chains together"),
        ({"draws": 10**12}, r"`draws` = 1,000,000,000,000 in .* GiB, and this machine has .* GiB .*: pass at most"),
        ({"progressbar": "on"}, "progressbar"),
        ({"progressbar_theme": "dark"}, "`progressbar_theme` must be a rich.theme.Theme, or CSS text.*; got 'dark'"),
        ({"progressbar_theme": 3}, "`progressbar_theme` must be a rich.theme.Theme"),
    ],
)
def test_arguments_out_of_range(wrong, message):
    with pytest.raises(ValueError, match=message):
        pymc_hais.sample_hais(model=one_mean(), **{**QUICK, **wrong})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tune", 'has no argument `tune`: a pilot learns .* See "From pm.sample"'),
        ("target_accept", "has no argument `target_accept`: .*`target_se`"),
        ("initvals", "has no argument `initvals`: .*`modes`"),
        ("nuts_sampler", "has no argument `nuts_sampler`: there is one sampler"),
        ("n_temperature", r"has no argument `n_temperature`: did you mean `n_temperatures`\?"),
        ("wrong", "has no argument `wrong`: its arguments are draws, chains"),
    ],
)
def test_arguments_of_pm_sample_are_answered(name, message):
    with pytest.raises(TypeError, match=message):
        pymc_hais.sample_hais(model=one_mean(), **{name: 1})


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("bridge", "core", "cores"),
        ("compile", "kernels", "kernel"),
        ("extend", "draw", "draws"),
        ("fit", "steps", "n_steps"),
        ("log_likelihood", "chain", "chains"),
        ("savage_dickey", "core", "cores"),
        ("validate", "temperatures", "n_temperatures"),
    ],
)
def test_misspelt_arguments_of_other_functions_are_answered(name, wrong, right):
    message = rf"{name}\(\) has no argument `{wrong}`: did you mean `{right}`\?"
    with pytest.raises(TypeError, match=message):
        getattr(pymc_hais, name)(one_mean(), **{wrong: 1})


def test_a_function_that_does_not_sample_says_nothing_of_pm_sample():
    with pytest.raises(TypeError, match=r"fit\(\) has no argument `target_accept`: its arguments are model, data"):
        pymc_hais.fit(one_mean(), target_accept=0.9)


def test_memory_is_asked_for_where_there_are_many_particles(monkeypatch):
    """A million particles of one dimension are 10 ** 6 times 192 + 1,088 + 800 bytes: 2.08 GB."""
    monkeypatch.setattr("pymc_hais.calls.sample.compile_integrated", lambda *_: 1 / 0)
    monkeypatch.setattr("pymc_hais.core.process.memory", lambda: 17 * 10**8)
    with pytest.raises(ValueError, match=r"in 1 chains, of 1 dimensions each, take 1.9 GiB.* pass at most 408,653"):
        pymc_hais.sample_hais(10**6 + 1, model=one_mean(), chains=1)
    monkeypatch.setattr("pymc_hais.core.process.memory", lambda: 21 * 10**8)
    with pytest.raises(ZeroDivisionError):
        pymc_hais.sample_hais(10**6 + 1, model=one_mean(), chains=1)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({}, "Pass checkpoint='folder': "),
        ({"max_seconds": 60.0}, "Pass checkpoint='folder' in place of `max_seconds`: "),  # it takes none of both
        ({"checkpoint": "run"}, "goes on from here"),
    ],
)
def test_an_interrupted_call_says_what_to_do_next_time(options, advice, monkeypatch, tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("pymc_hais.calls.sample.compile_integrated", interrupt)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt) as caught:
        pymc_hais.sample_hais(model=one_mean(), **QUICK, **options)
    said = str(caught.value).splitlines()
    assert said[0] == "Interrupted before there was a result."
    assert advice in said[1]
    # The frames of a compiled program are not shown.
    assert caught.value.__suppress_context__


def test_the_machine_has_memory():
    found = memory()
    assert found is None or 2**27 < found < 2**50


def test_what_is_in_range_passes(monkeypatch):
    monkeypatch.setattr("pymc_hais.calls.sample.compile_integrated", lambda *_: 1 / 0)
    right = (
        {"random_seed": None},
        {"random_seed": np.int64(1)},
        {"random_seed": np.array(5)},
        {"max_seconds": float("inf")},
        {"random_seed": [1, 2]},
        {"random_seed": np.array([1, 2])},
        {"random_seed": np.random.default_rng(1)},
        {"random_seed": np.random.RandomState(1)},
        {"progressbar_theme": Theme()},
        {"progressbar_theme": "table { color: red }"},
        {"resample": np.bool_(False)},
        {"var_names": ("mu",)},
        {"idata_kwargs": {"dims": {"mu": []}}},
    )
    for options in right:
        with pytest.raises(ZeroDivisionError):
            pymc_hais.sample_hais(model=one_mean(), **{**QUICK, **options})


def test_a_model_in_the_wrong_place():
    model = one_mean()
    with pytest.raises(ValueError, match=r"first argument is `draws`; .*sample_hais\(model=model\)"):
        pymc_hais.sample_hais(model)
    with pytest.raises(ValueError, match=r"`model` must be a pm.Model; got 'm'"):
        pymc_hais.sample_hais(model="m")
    draws = xr.DataTree.from_dict({"/posterior": xr.Dataset({"mu": (("chain", "draw"), np.zeros((2, 5)))})})
    with pytest.raises(ValueError, match=r"must be a pm.Model; got a DataTree. Results come after the model: \(model"):
        pymc_hais.bridge(draws, model)

    class Bambi:
        """What is seen of a model of Bambi that has not been built."""

        backend = None

        def build(self):
            pass

        def __repr__(self):
            return "Formula: y ~ x\nFamily: gaussian\n"

    with pytest.raises(ValueError, match=r"got a Bambi. .* call build\(\), and pass its `.backend.model`"):
        pymc_hais.sample_hais(model=Bambi())
    with pytest.raises(TypeError, match=r"[Nn]o model"):
        pymc_hais.sample_hais()


def test_held_out_rows_in_the_wrong_place():
    with pytest.raises(ValueError, match=r"`model` must be a pm.Model; got a dict"):
        pymc_hais.log_likelihood({"y": np.zeros((3, 3))}, one_mean())
    with pytest.raises(ValueError, match="`data` must be a dictionary"):
        pymc_hais.log_likelihood(one_mean(), np.zeros((3, 3)))


def test_modes_that_are_backends_are_read_as_such():
    """As a mode of PyTensor they would be called for one particle after the other, for ever."""
    assert resolve_backend(None, {"mode": "NUMBA"}) == ("numba", {})
    assert resolve_backend(None, {"mode": "FAST_COMPILE"}) == (None, {"mode": "FAST_COMPILE"})


@pytest.mark.slow
@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
def test_a_forked_process_is_refused_and_does_not_hang(monkeypatch):
    module = importlib.import_module("pymc_hais.engines.jax")
    monkeypatch.setattr(module, "_process", os.getpid() + 1)
    with pytest.raises(RuntimeError, match=r"forked from one that has used JAX.*get_context\(\"forkserver\"\)"):
        module.JaxEngine(lambda x: x, [], 1)


@pytest.mark.exhaustive
@pytest.mark.skipif(not HAS_JAX or not hasattr(os, "fork"), reason="needs JAX, and a system that forks")
def test_a_fork_after_a_run_says_what_to_use_instead():
    script = """
import os, pymc_hais
from tests.quick import QUICK, one_mean
from tests.toys import HAS_JAX
if os.fork() == 0:
    os._exit(0)
print("before", flush=True)
pymc_hais.sample_hais(model=one_mean(), **QUICK)
if os.fork() == 0:
    os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr.count("being forked") == 1
    assert 'In pm.sample pass mp_ctx="forkserver"' in done.stderr


def test_a_custom_distribution_without_random_names_both_ways_out():
    with pm.Model() as model:
        pm.CustomDist("x", logp=lambda value: -(value**2))
    with pytest.raises(NotImplementedError, match=r"prior of `x`.* `random=` .*reference=\"gaussian\""):
        build_prior(model)


@pytest.mark.slow
def test_the_plots_are_there_after_an_import_of_the_package():
    """In a process of its own: here another test may have imported them."""
    script = """
import sys, pymc_hais
assert "arviz_plots" not in sys.modules, "slow to load"
assert "plots" in dir(pymc_hais)
assert pymc_hais.plots.plot_compare.__name__ == "plot_compare"
try:
    pymc_hais.plot
except AttributeError as error:
    assert "no attribute 'plot'" in str(error)
"""
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
