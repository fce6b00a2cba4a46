"""Resources and options of one call: seeds, compiler, workers, progress bar, time; and what its result lacks."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Self

from pymc_hais.core.process import one_blas_thread
from pymc_hais.core.protocols import Kernel
from pymc_hais.core.seeds import Branch, Place, Purpose, Seeds
from pymc_hais.problem.problem import Compiler
from pymc_hais.runner.checkpoint import locked, open_checkpoint, open_folder, take_identity
from pymc_hais.runner.executors import check_executor
from pymc_hais.runner.ledger import PILOT, Ledger
from pymc_hais.runner.progress import CallProgress
from pymc_hais.runner.timing import Clock
from pymc_hais.runner.workers import Workers
from pymc_hais.tuning import Recipe, Stopwatch

_log = logging.getLogger("pymc.hais")


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How many particles are annealed, along how many temperatures, and what ends the rounds."""

    draws: int
    chains: int
    target_se: float | None  # None: one round
    n_temperatures: int | None  # of the first round; None: a pilot decides
    max_temperatures: int
    estimators: tuple[str, ...]  # other methods to ask for log Z
    recipe: Recipe


class Call(NamedTuple):
    """The identity of a call, for its checkpoint."""

    function: str
    model: Any
    arguments: Mapping[str, Any]  # as given; those that change numbers of the result, the seed apart


@dataclass(frozen=True, kw_only=True)
class Compute:
    """Resources of a call: compiler, seed, workers, checkpoint, time limit and display."""

    call: Call
    compiler: Compiler  # of the kernel, with the constraints
    random_seed: Any
    executor: Any
    checkpoint: Any
    max_seconds: float | None
    progressbar: Any
    progressbar_theme: Any


@dataclass(kw_only=True)
class Runner:
    """Computes a call; a context manager that opens its executor and its checkpoint, with one thread of BLAS meanwhile.

    Raises on entry ValueError, OSError or RuntimeError, naming the argument, what is wrong with it, and what to pass
    instead.  Raises KeyboardInterrupt, with advice, where Ctrl-C leaves no result.
    """

    sampling: Sampling
    compute: Compute
    seeds: Seeds
    compiler: Compiler
    progress: CallProgress  # shown while it is entered
    clock: Clock
    workers: Workers  # do jobs, and keep finished ones in the checkpoint
    ledger: Ledger = field(default_factory=Ledger)
    used: Counter[Purpose] = field(default_factory=Counter)  # numbers of rounds whose random numbers are used
    is_strict: bool = False  # whether an error or Ctrl-C in an optional stage is raised
    account: str | None = None  # the stage that pays for everything; None: each stage for itself

    def __enter__(self) -> Self:
        """Open the executor and the checkpoint."""
        with ExitStack() as opened:
            opened.enter_context(one_blas_thread)
            opened.enter_context(self._open())
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *exception: Any) -> Any:
        """Unlock the checkpoint."""
        return self._opened.__exit__(*exception)

    @contextmanager
    def _open(self) -> Iterator[None]:
        asked, call = self.compute, self.compute.call
        check_executor(asked.executor)
        if asked.checkpoint is None:
            instead = "" if asked.max_seconds is None else " in place of `max_seconds`"
            with _advised(
                f"Pass checkpoint='folder'{instead}: what is finished is then kept, and the same call goes on from "
                "there."
            ):
                yield
            return
        identity = take_identity(call.function, call.model, self.seeds.entropy, call.arguments)
        folder = open_folder(asked.checkpoint)
        with locked(folder):
            kept = open_checkpoint(folder, identity, asked.random_seed is not None)
            self.workers.checkpoint = kept
            self.seeds = replace(self.seeds, entropy=tuple(map(int, kept.identity["random_seed"])))
            with _advised(f"The same call with checkpoint={str(asked.checkpoint)!r} goes on from here."):
                yield

    def with_sampling(self, **options: Any) -> Self:
        """Return a runner of the same call with other sampling options."""
        return replace(self, sampling=replace(self.sampling, **options))

    def branch(self, branch: Branch, *numbers: int) -> Self:
        """Return the runner of a run within this one, with random numbers of its own."""
        return replace(self, seeds=self.seeds.branch(branch, *numbers), used=Counter())

    def nested(self, branch: Branch, kernel: Kernel, **options: Any) -> Self:
        """Return the runner of a run that planning needs, which is complete or raises an error.

        It has random numbers and a kernel of its own, and everything is left to its pilot.
        """
        return replace(
            self.with_sampling(n_temperatures=None, recipe=Recipe(), **options).branch(branch),
            compiler=replace(self.compiler, kernel=kernel),
            is_strict=True,
            account=PILOT,
        )

    def next_round(self, rows: Sequence[int] = (0,)) -> Place:
        """Return the place of the next round's populations: every chain of some rows of data."""
        self.used[Purpose.ROUND] += 1
        return Place(Purpose.ROUND, self.used[Purpose.ROUND], rows, range(self.sampling.chains))

    def pay(self, stage: str, n_gradients: int) -> None:
        """Count evaluations of value and gradient."""
        self.ledger.gradients[self.account or stage] += n_gradients

    def paying(self, stage: str) -> Callable[[int], None]:
        """Return a function that counts the evaluations of a stage."""
        return partial(self.pay, stage)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Count the seconds of a stage, compiling apart."""
        watch = Stopwatch(self.compiler.clock)
        try:
            yield
        finally:
            self.ledger.seconds[self.account or stage] += watch.elapsed

    def attempt[T, U](
        self,
        what: str,
        stage: Callable[[], T],
        otherwise: U,
        severity: str = "warning",
        is_slow: bool = False,
        is_kept: bool = False,
    ) -> T | U:
        """Return the result of an optional stage, or ``otherwise`` if it fails or is interrupted.

        The finding about the missing part names ``what`` and has this severity.  A stage that ``is_slow`` is skipped
        once Ctrl-C was pressed.  The jobs of a stage that ``is_kept`` are in the checkpoint, if there is one: then its
        error is raised, because the same call goes on from there once the cause is mended.
        """
        if self.is_strict:
            return stage()
        if is_slow and self.ledger.is_interrupted:
            self.ledger.miss(what, "interrupted before", severity)
            return otherwise
        try:
            return stage()
        except KeyboardInterrupt:
            self.ledger.is_interrupted = True
            self.ledger.miss(what, "interrupted", severity)
        except Exception as error:  # the stages evaluate a user's model, on a user's executor
            if is_kept and self.workers.checkpoint is not None:
                raise
            _log.debug("%s failed", what, exc_info=error)
            first = str(error).split("\n")[0]
            self.ledger.miss(what, f"{type(error).__name__}: {first}" if first else type(error).__name__, severity)
        return otherwise

    def finish[T](self, stage: Callable[[], T]) -> T:
        """Return the result of a short stage that the result cannot lack; it is repeated once if it is interrupted."""
        try:
            return stage()
        except KeyboardInterrupt:
            self.ledger.is_interrupted = True
            return stage()


@contextmanager
def _advised(advice: str) -> Iterator[None]:
    """Replace the traceback of Ctrl-C, inside some compiled program, by advice on how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Interrupted before there was a result.\n{advice}") from None
