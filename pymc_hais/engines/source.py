"""The program of an engine, also for other processes: the graphs of a density, and how they are compiled."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle

from pymc_hais.core.protocols import Kernel
from pymc_hais.density import DensityGraph


@dataclass(frozen=True, eq=False)
class Source:
    """What an engine was compiled from, apart from the model, and ready for another process."""

    graph: DensityGraph  # in an empty model, which lets the user's own go
    backend: str
    compile_kwargs: dict[str, Any]
    kernel: Kernel | None

    @classmethod
    def of(cls, graph: DensityGraph, backend: str, compile_kwargs: dict[str, Any], kernel: Kernel | None) -> Source:
        """Part a graph from the model that it was built from."""
        return cls(graph.without_model(), backend, compile_kwargs, kernel)

    @functools.cached_property
    def content(self) -> bytes:
        """Return the program without its data: other data of the same shapes can be bound to it.

        Raises ValueError if a part of the model cannot leave this process.
        """
        bare = replace(self, graph=replace(self.graph, data_values=[]))
        try:
            return cloudpickle.dumps(bare)
        except Exception as error:  # whatever a user's own Op or mode raises
            raise ValueError(
                f"The model cannot be sent to another process: {error}. Define what it uses in an importable module, "
                "without open files or locks, or leave out `executor`."
            ) from error

    @classmethod
    def read(cls, content: bytes) -> Source:
        """Take back what :attr:`content` was written from, without its data."""
        source: Source = cloudpickle.loads(content)
        return source
