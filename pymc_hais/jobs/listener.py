"""How far jobs elsewhere are: datagrams of JSON, of which any may be lost."""

from __future__ import annotations

import json
import secrets
import socket
from typing import Any

import numpy as np

from pymc_hais.core.annealing import Report
from pymc_hais.jobs.worker import Address

__all__ = ["Listener", "Stopped"]

#: Bytes of a message, at most, and messages that are read at a time.
_LENGTH, _MANY = 512, 1000


class Stopped(Exception):
    """Nobody waits for the job any more."""


class Listener:
    """The progress of several jobs, gathered into one.

    Parameters
    ----------
    n_jobs : int
    report : callable
        Told the mean share that is done, the least beta under way and the last log Z heard.
    """

    def __init__(self, n_jobs: int, report: Report) -> None:
        self._report, self._token = report, secrets.token_hex(8)
        self._done, self._betas, self._log_z = np.zeros(n_jobs), np.full(n_jobs, np.nan), np.full(n_jobs, np.nan)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(("", 0))
        self._host = _own_address()

    def close(self) -> None:
        """Hear no more."""
        self._socket.close()

    def address(self, number: int) -> Address:
        """Say where the progress of one job is heard."""
        return Address(self._host, self._socket.getsockname()[1], self._token, number)

    def hears(self, number: int) -> Report:
        """Return what a thread of this process reports one job's progress to; it raises once nobody listens."""

        def report(fraction: float, beta: float, log_z: Any) -> None:
            if self._socket.fileno() < 0:
                raise Stopped
            self._note(number, fraction, beta, float(np.max(log_z)))

        return report

    def finish(self, number: int) -> None:
        """Count a job as done."""
        self._done[number], self._betas[number] = 1.0, np.nan

    def hear(self) -> None:
        """Read what has come, and report."""
        for _ in range(_MANY):
            try:
                message = self._socket.recv(_LENGTH)
            except OSError:
                break
            self._take(message)
        under_way = self._betas[np.isfinite(self._betas)]
        beta = float(under_way.min()) if under_way.size else float(self._done.min())
        known = self._log_z[np.isfinite(self._log_z)]
        self._report(float(self._done.mean()), beta, known if known.size else np.nan)

    def _take(self, message: bytes) -> None:
        try:
            token, number, *told = json.loads(message)
            fraction, beta, log_z = map(float, told)
        except (ValueError, TypeError):  # not from a worker of ours
            return
        if token == self._token and isinstance(number, int) and 0 <= number < len(self._done) and fraction >= 0.0:
            self._note(number, fraction, beta, log_z)

    def _note(self, number: int, fraction: float, beta: float, log_z: float) -> None:
        if self._done[number] < 1.0:
            self._done[number], self._betas[number], self._log_z[number] = min(fraction, 0.999), beta, log_z


def _own_address() -> str:
    """Return the address of this machine that others can reach; connecting a datagram socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
