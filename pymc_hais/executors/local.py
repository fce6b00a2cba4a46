"""Chains on the threads of this process.

A chain is a whole, independent computation with its own seeds and its own stream of noise, so the results are
the same whatever the number of threads.  Compiled segments release the interpreter lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

__all__ = ["execute"]


def execute[Result](run_chain: Callable[[int, Callable[[], None]], Result], chains: int, workers: int) -> list[Result]:
    """Run ``run_chain(chain, check)`` for every chain (or block of rows), at most ``workers`` at a time.

    ``check`` is to be called between segments: it raises when the user has interrupted, so that no
    thread outlives the call.

    Raises
    ------
    KeyboardInterrupt
        After every thread has stopped.
    """
    stopped = threading.Event()

    def check() -> None:
        if stopped.is_set():
            raise KeyboardInterrupt

    if workers == 1:
        return [run_chain(chain, check) for chain in range(chains)]
    with ThreadPoolExecutor(workers, thread_name_prefix="hais") as pool:
        futures = [pool.submit(run_chain, chain, check) for chain in range(chains)]
        try:
            return [future.result() for future in futures]
        except BaseException:
            stopped.set()
            for future in futures:
                future.cancel()
            raise
