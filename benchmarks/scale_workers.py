"""Runs on other processes: throughput, bytes, memory, checkpoints and lost workers.  Sections of ``scale.py``."""

import contextlib
import io
import logging
import multiprocessing
import os
import pickle
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from statistics import median

import psutil
from cases import build
from models import gaussian

import pymc_hais
from pymc_hais.engines.transport import pack, unpack
from pymc_hais.runner.checkpoint import Checkpoint

#: A public case whose round costs about 0.4 seconds of processor time a chain of 1,000 particles.
CASE = "brownian32"


def processes(n: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(n, mp_context=multiprocessing.get_context("spawn"))


@contextlib.contextmanager
def dask(n: int) -> Iterator[Executor]:
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=n, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        yield client.get_executor()


def cpu_seconds() -> float:
    """Of this process and of those that it started, as far as they live."""
    own = psutil.Process()
    times = []
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times.append(process.cpu_times())
    return sum(one.user + one.system for one in times)


def timed(model, **kwargs) -> dict[str, float]:
    """Call once: seconds of the call and of its round, and processor seconds."""
    begin, cpu = time.perf_counter(), cpu_seconds()
    idata = pymc_hais.sample_hais(model=model, random_seed=1, target_se=None, progressbar=False, **kwargs)
    attrs = idata["posterior"].attrs
    found = {"s": time.perf_counter() - begin, "cpu": cpu_seconds() - cpu, "round": attrs["sampling_time"]}
    found["moves"] = attrs["n_temperatures"] * attrs["particles"] * attrs["chains"]
    return found | {"log_z": pymc_hais.log_marginal_likelihood(idata).value}


def line(name: str, runs: list[dict[str, float]], whole: float) -> str:
    """Return the median time of several runs, and their speed divided by the speed of the plain call."""
    seconds, in_round, cpu = (median(run[key] for run in runs) for key in ("s", "round", "cpu"))
    return f"| {name} | {seconds:.1f} | {in_round:.1f} | {cpu:.1f} | {whole / in_round:.2f} |"


def workers(chains: int, repeats: int) -> None:
    """Throughput of the round on one and two workers, over that of two threads of a plain call."""
    model, _, _ = build(CASE)
    print(f"{CASE}, {chains} x 1000 particles, one round; medians of {repeats}, interleaved after a first call each")
    print("| where | s | round s | CPU s | speed |\n| --- | --- | --- | --- | --- |")
    timed(model, chains=4, cores=2)  # compiles in this process, and leaves the programs on disk
    with contextlib.ExitStack() as stack:
        pools = {f"{n} spawned processes": stack.enter_context(processes(n)) for n in (1, 2)}
        pools |= {f"{n} Dask processes": stack.enter_context(dask(n)) for n in (1, 2)}
        pools["2 threads as executor"] = stack.enter_context(ThreadPoolExecutor(2))
        ways = {name: {"executor": pool} for name, pool in pools.items()}
        plain = {"plain call, 2 threads": {"cores": 2}, "plain call, 1 thread": {"cores": 1}}
        firsts = {name: timed(model, chains=chains, **way) for name, way in ways.items() if "threads" not in name}
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in (*plain, *ways)}
        for _ in range(repeats):
            for name, way in (plain | ways).items():
                runs[name].append(timed(model, chains=chains, **way))
    whole = median(run["round"] for run in runs["plain call, 2 threads"])
    for name, several in runs.items():
        print(line(name, several, whole), flush=True)
    for name, first in firsts.items():
        print(line(f"{name}, the first call", [first], whole), flush=True)
    values = {name: several[0]["log_z"] for name, several in runs.items()}
    print("log Z:", ", ".join(f"{name} {value!r}" for name, value in values.items()))


class Weighed(Executor):
    """One thread behind an executor that weighs what a process elsewhere would be sent, and would send back."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self.sent: dict[str, list[int]] = {}
        self.returned: dict[str, list[int]] = {}

    def submit(self, function: Callable, /, *args, **kwargs) -> Future:
        content = pickle.dumps((function, args, kwargs), protocol=5)
        named, given, others = pickle.loads(content)
        kind = function.__name__
        if kind != "hais_hello" and "the model" not in self.sent:
            # Threads of this process know the model already; a process elsewhere is sent it once.
            engine = unpack(given[0])
            self.sent["the model"], self.returned["the model"] = [len(pickle.dumps(pack(engine), protocol=5))], [0]

        def perform():
            result = named(*given, **others)
            self.returned.setdefault(kind, []).append(len(pickle.dumps(result, protocol=5)))
            return result

        self.sent.setdefault(kind, []).append(len(content))
        return self._pool.submit(perform)


def weigh(sizes: tuple[int, ...]) -> None:
    """Bytes of a job and of its result, by dimensions; 1,000 particles a tile."""
    print("| D | task | sent kB | returned kB | per particle and dimension |\n| --- | --- | --- | --- | --- |")
    for n_dims in sizes:
        executor = Weighed()
        settings = {"n_temperatures": 32, "reference": "prior", "random_seed": 1, "progressbar": False}
        pymc_hais.sample_hais(model=gaussian(n_dims)[0], chains=2, target_se=None, executor=executor, **settings)
        for kind, sent in executor.sent.items():
            back = executor.returned[kind]
            each = (max(sent) + max(back)) / 1000 / n_dims
            shown = f"{each:.1f} bytes" if kind == "hais_anneal" else ""
            print(f"| {n_dims} | {kind} | {max(sent) / 1e3:.1f} | {max(back) / 1e3:.1f} | {shown} |", flush=True)


def peak() -> float:
    """MiB that this process has had at most; ``getrusage`` would count what its parent had."""
    status = Path("/proc/self/status").read_text("utf-8")
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 2**10


def warm_up() -> float:
    """Import what a worker imports, and evaluate something in JAX."""
    import jax.numpy as jnp

    import pymc_hais.runner.executors  # noqa: F401

    jnp.ones(3).sum().block_until_ready()
    return peak()


def memory_of(n_dims: int, chains: int) -> tuple[float, ...]:
    """Run once with one worker: MiB of the worker before its first job and at most, and of the driver."""
    before_here = warm_up()
    with processes(1) as pool:
        before = pool.submit(warm_up).result()
        settings = {"n_temperatures": 32, "reference": "prior", "random_seed": 1, "progressbar": False}
        pymc_hais.sample_hais(model=gaussian(n_dims)[0], chains=chains, target_se=None, executor=pool, **settings)
        return before, pool.submit(peak).result(), before_here, peak()


def memory(sizes: tuple[int, ...]) -> None:
    """Memory of a worker and of the driver: before the first job, and at most."""
    print("| D | chains | worker MiB | at most | more, in arrays of 1,000 x D | driver MiB | at most |")
    print("| --- " * 7 + "|")
    for n_dims in sizes:
        for chains in (4, 16) if n_dims < 5000 else (2,):
            with processes(1) as pool:  # a driver of its own, whose peak is that of this run alone
                before, most, here, most_here = pool.submit(memory_of, n_dims, chains).result()
            arrays = (most - before) * 2**20 / (8 * 1000 * n_dims)
            numbers = f"{before:.0f} | {most:.0f} | {arrays:.1f} | {here:.0f} | {most_here:.0f}"
            print(f"| {n_dims} | {chains} | {numbers} |", flush=True)


def checkpoints(chains: int, repeats: int) -> None:
    """Time of keeping populations, counted directly and as the difference of calls; and bytes on disk."""
    model, _, _ = build(CASE)
    spent = []
    keep = Checkpoint.keep

    def timed_keep(self: Checkpoint, *args) -> None:
        begin = time.perf_counter()
        keep(self, *args)
        spent.append(time.perf_counter() - begin)

    Checkpoint.keep = timed_keep
    timed(model, chains=4)
    runs: dict[str, list[dict[str, float]]] = {"without": [], "2 threads as executor": [], "with a checkpoint": []}
    kept, sizes = [], []
    with ThreadPoolExecutor(2) as pool:
        for _ in range(repeats):
            runs["without"].append(timed(model, chains=chains, cores=2))
            runs["2 threads as executor"].append(timed(model, chains=chains, executor=pool))
            with tempfile.TemporaryDirectory() as folder:
                spent.clear()
                runs["with a checkpoint"].append(timed(model, chains=chains, cores=2, checkpoint=folder))
                kept.append(sum(spent))
                sizes.append(sum(path.stat().st_size for path in Path(folder).iterdir()))
    print(f"{CASE}, {chains} x 1000 particles, medians of {repeats}\n| call | s | round s | CPU s | speed |")
    print("| --- | --- | --- | --- | --- |")
    for name, several in runs.items():
        print(line(name, several, median(run["round"] for run in runs["without"])))
    seconds, whole = median(kept), median(run["s"] for run in runs["with a checkpoint"])
    print(f"keeping: {seconds:.2f} s, {seconds / whole:.2%} of the call; {median(sizes) / 2**20:.1f} MiB on disk")
    Checkpoint.keep = keep


class _Killer(threading.Thread):
    """Kill one process after so many seconds, without a warning to it."""

    def __init__(self, pid: int, seconds: float) -> None:
        super().__init__(daemon=True)
        self._pid, self._seconds = pid, seconds

    def run(self) -> None:
        time.sleep(self._seconds)
        os.kill(self._pid, signal.SIGKILL)


def killed(chains: int) -> None:
    """Seconds that a worker's death costs in the middle of a round, and how often a loss was told of."""
    model, _, _ = build(CASE)
    told = io.StringIO()
    logger = logging.getLogger("pymc.hais")
    logger.addHandler(handler := logging.StreamHandler(told))
    handler.setLevel(logging.WARNING)
    logger.setLevel(logging.WARNING)
    print("| executor | undisturbed s | one killed s | round s | losses told | same log Z |\n" + "| --- " * 6 + "|")
    for name, make in {"2 spawned processes": processes, "2 Dask processes": dask}.items():
        with make(2) as pool:
            timed(model, chains=chains, executor=pool)
            calm = timed(model, chains=chains, executor=pool)
            pids = {pool.submit(os.getpid).result() for _ in range(20)}
            told.truncate(0)
            _Killer(min(pids), calm["s"] - 0.6 * calm["round"]).start()
            disturbed = timed(model, chains=chains, executor=pool)
        losses = told.getvalue().count("was lost")
        same = disturbed["log_z"] == calm["log_z"]
        rounds = f"{calm['round']:.1f} and {disturbed['round']:.1f}"
        print(f"| {name} | {calm['s']:.1f} | {disturbed['s']:.1f} | {rounds} | {losses} | {same} |", flush=True)
    logger.removeHandler(handler)
