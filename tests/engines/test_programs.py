"""The cache of compiled programs on disk, as users have it: the suite's own setting is another one."""

import os
import sys
import warnings

import numpy as np
import pytest

from tests.populations import run_segment, state_of
from tests.processes import run_apart
from tests.toys import HAS_JAX

if HAS_JAX:
    from pymc_hais.engines.programs import CACHE_VARIABLE, CheckedCache, cache_folder, compile_program

pytestmark = pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")

#: Compiles one program as the package does; prints how many entries were written, and the result.
PROGRAM = """
import warnings, jax, numpy as np
from pymc_hais.engines.programs import CheckedCache, compile_program
warnings.simplefilter("error")
put, written = CheckedCache.put, []
CheckedCache.put = lambda *args: (written.append(args), put(*args))
program = compile_program(lambda x: 2.0 * x + 1.0, (np.ones(3, np.float32),), jax.devices("cpu")[0])
print(len(written), float(program(np.full(3, 4.0, np.float32))[0]), jax.config.jax_compilation_cache_dir)
"""


#: What a release of JAX does that moves the module of its cache.
MOVED = """
import sys, jax._src
del jax._src.compilation_cache
sys.modules["jax._src.compilation_cache"] = None
"""


def run(folder, before=""):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment[CACHE_VARIABLE] = str(folder)
    written, value, setting = run_apart(before + PROGRAM, env=environment).split()
    assert (float(value), setting) == (9.0, "None")  # the user's own setting is untouched
    return int(written)


def entries(folder):
    return [path for path in folder.iterdir() if path.name.endswith("-cache")]


@pytest.mark.slow
def test_an_entry_serves_later_processes_and_one_cut_short_is_replaced(tmp_path):
    assert run(tmp_path, MOVED) == 0  # the cache of another JAX serves unchecked
    (entry,) = entries(tmp_path)
    whole = entry.read_bytes()
    entry.write_bytes(whole[: len(whole) // 2])  # its writer was killed
    assert run(tmp_path) == 1
    assert len(entry.read_bytes()) > len(whole) // 2
    assert run(tmp_path) == 0


class Folder:
    """JAX's cache, as far as it matters."""

    def __init__(self, folder):
        self.folder = folder

    def get(self, key):
        path = self.folder / f"{key}-cache"
        return path.read_bytes() if path.exists() else None

    def put(self, key, value):
        path = self.folder / f"{key}-cache"
        if not path.exists():
            path.write_bytes(value)


def test_any_damage_of_an_entry_is_seen_and_repaired(tmp_path):
    cache, path, rng = CheckedCache(Folder(tmp_path), tmp_path), tmp_path / "key-cache", np.random.default_rng(0)
    assert cache.get("key") is None
    value = rng.bytes(100)
    cache.put("key", value)
    assert cache.get("key") == value
    whole = path.read_bytes()
    flipped = [bytes([*whole[:i], whole[i] ^ 1, *whole[i + 1 :]]) for i in range(len(whole))]
    for damaged in [*(whole[:n] for n in range(len(whole))), *flipped, value]:  # the last as JAX would write it
        path.write_bytes(damaged)
        assert cache.get("key") is None
        cache.put("key", value)
        assert cache.get("key") == value


class Broken(Folder):
    """A disk that is full, or that denies access."""

    def get(self, key):
        raise PermissionError("denied")

    def put(self, key, value):
        (self.folder / f"{key}-cache").write_bytes(value[:3])
        raise OSError("No space left on device")


def test_a_disk_that_fails_costs_the_cache_and_nothing_else(tmp_path):
    cache = CheckedCache(Broken(tmp_path), tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.get("key") is None
        cache.put("key", b"value")
    assert not list(tmp_path.iterdir())  # no part is left


@pytest.mark.parametrize("off", ["off", "0", "False", "no"])
def test_the_variable_names_the_folder_or_turns_the_cache_off(tmp_path, monkeypatch, off):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "new" / "folder"))
    assert cache_folder() == tmp_path / "new" / "folder"
    assert cache_folder().is_dir()
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file" / "folder"))  # cannot be made
    assert cache_folder() is None
    monkeypatch.setenv(CACHE_VARIABLE, off)
    assert cache_folder() is None


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other folders")
def test_without_the_variable_it_is_the_user_s_folder_of_caches(tmp_path, monkeypatch):
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "pymc_hais"


@pytest.mark.parametrize(("flags", "level"), [("", 1), ("--xla_backend_optimization_level=0", None)])
def test_xla_optimises_at_its_first_level_unless_the_user_has_chosen_one(monkeypatch, flags, level):
    import jax

    given = []
    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setenv(CACHE_VARIABLE, "off")
    monkeypatch.setattr(jax.stages.Lowered, "compile", lambda self, compiler_options: given.append(compiler_options))
    compile_program(lambda x: x + 1.0, (np.zeros(2),), jax.devices("cpu")[0])
    assert given == [{"xla_backend_optimization_level": level} if level else {}]


def test_a_value_that_a_step_uses_often_is_computed_once():
    """XLA copies cheap operations into all that use them: the acceptance, the trace, and each part of the state."""
    import jax.numpy as jnp

    from pymc_hais.engines.jax import JaxEngine

    def density(x):
        level = x[0] * x[1]
        for number in (0.640625, 0.5772156, 0.6931471):
            level = (level + number) * level
        return -0.5 * jnp.sum(x * x), level, -x, jnp.ones_like(x)

    engine = JaxEngine(density, [], 2)
    engine.start(np.zeros((1, 4, 2)), (), np.zeros((1, 2), np.uint32))
    (program,) = engine._programs.values()
    assert program.as_text().count("constant(0.640625)") == 1


@pytest.mark.parametrize(("width", "n_programs"), [(8, 2), (9, 1)])
def test_scales_have_a_program_of_their_own_where_a_matrix_is_wider_than_the_density(width, n_programs):
    """Compiling a transition once more takes longer than moving with a diagonal matrix of 3 x 3 scales."""
    import jax.numpy as jnp

    from pymc_hais.engines.jax import JaxEngine

    def density(x):
        return -0.5 * jnp.sum(x * x), -jnp.sum(jnp.cosh(x)), -x, -jnp.sinh(x)

    engine, scales = JaxEngine(density, [], 3, width=width), np.array([0.3, 1.7, 0.8])
    ends = [segment_from_zero(engine, metric) for metric in (np.diag(scales), scales)]
    assert len(engine._programs) == n_programs
    np.testing.assert_allclose(*ends, rtol=1e-12)


def segment_from_zero(engine, metric):
    state = state_of(engine, np.zeros((4, 3)), np.zeros(2, np.uint32))
    settings = np.array([0.0, 0.5, 1.0]), np.full(2, 0.9), np.full(2, 0.5)
    return run_segment(engine, state, *settings, metric, np.zeros(2, np.uint32))[0].position
