"""Who computes a call: with which seeds, machine code, workers, progress bar and time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pymc_hais.core.protocols import Kernel
from pymc_hais.core.seeds import Branch, Place, Purpose, Seeds
from pymc_hais.engines import resolve_backend
from pymc_hais.jobs.checkpoint import open_checkpoint, open_folder, take_identity
from pymc_hais.jobs.executors import check_executor
from pymc_hais.jobs.locks import locked
from pymc_hais.jobs.progress import CallProgress
from pymc_hais.jobs.timing import TimeBudget
from pymc_hais.jobs.workers import Workers
from pymc_hais.model.compat import seeds_per_chain
from pymc_hais.problem.problem import Compiler
from pymc_hais.request.request import Output, Request, build_budget, check_request
from pymc_hais.tuning import Recipe


@dataclass(frozen=True)
class Call:
    """A checked request, and who computes it."""

    request: Request
    given: Request  # as the user gave it, which is what the call is
    seeds: Seeds
    compiler: Compiler  # of the kernel, with the constraints
    recipe: Recipe
    output: Output
    progress: CallProgress  # shown while it is entered
    budget: TimeBudget
    workers: Workers = field(default_factory=Workers)  # where jobs are done, and where finished ones are kept

    def asking(self, **numbers: Any) -> Self:
        """Ask for other numbers."""
        return replace(self, request=replace(self.request, **numbers))

    def round(self, number: int, rows: Sequence[int] = (0,)) -> Place:
        """Return where a round's populations are, from round 1: every chain of some rows of data."""
        return Place(Purpose.ROUND, number, rows, range(self.request.chains))

    def within(self, branch: Branch, kernel: Kernel, **numbers: Any) -> Self:
        """Make a run within this one: with random numbers and a kernel of its own, and everything left to its pilot."""
        return replace(
            self.asking(n_temperatures=None, **numbers),
            recipe=Recipe(),
            seeds=self.seeds.branch(branch),
            compiler=replace(self.compiler, kernel=kernel),
        )


def build_call(request: Request) -> Call:
    """Check a request, and make ready to compute it in this process.

    Raises ValueError, naming the argument, what was given and what to pass.  Raises ImportError for ``backend="jax"``
    without JAX.
    """
    own, kernel, sites, recipe, output = check_request(request)
    budget, (backend, options) = build_budget(request.max_seconds), resolve_backend(own.backend, own.compile_kwargs)
    entropy = tuple(int(seed) for seed in seeds_per_chain(random_state=request.random_seed, chains=own.chains))
    return Call(
        own,
        request,
        Seeds(entropy),
        Compiler(kernel, backend, options, request.cores, sites),
        recipe,
        output,
        CallProgress(request.progressbar, request.progressbar_theme),
        budget,
    )


@contextmanager
def share_out(call: Call) -> Iterator[Call]:
    """Hand the jobs of a call to an executor, and keep finished ones in a checkpoint, locked meanwhile.

    Raises ValueError, OSError or RuntimeError, naming the argument, what is wrong with it, and what to pass instead.
    Raises KeyboardInterrupt, with advice, where Ctrl-C leaves no result.
    """
    request = call.given
    check_executor(request.executor)
    workers = Workers(request.executor, None, request.cores)
    if request.checkpoint is None:
        with _told("Pass checkpoint='folder': what is finished is then kept, and the same call goes on from there."):
            yield replace(call, workers=workers)
        return
    of_log_z = request.others.get("sample_kwargs") or {}
    if request.max_seconds is not None or of_log_z.get("max_seconds") is not None:
        raise ValueError(
            "`checkpoint` takes no `max_seconds`, since a run that is cut short is not reproducible: leave one of them "
            "out. A call with a checkpoint may be interrupted or killed at any time, and goes on when it is made again."
        )
    identity = take_identity(request.function, request.model, call.seeds.entropy, request.numbers)
    with locked(open_folder(request.checkpoint)):
        kept = open_checkpoint(request.checkpoint, identity, request.random_seed is not None)
        entropy = tuple(map(int, kept.identity["random_seed"]))
        with _told(f"The same call with checkpoint={str(request.checkpoint)!r} goes on from here."):
            yield replace(call, workers=replace(workers, checkpoint=kept), seeds=Seeds(entropy))


@contextmanager
def _told(advice: str) -> Iterator[None]:
    """Say what to do about Ctrl-C before there is a result, instead of where in a compiled program it was."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Interrupted before there was a result.\n{advice}") from None
