"""What an engine is compiled from, apart from the model, and ready for another process."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import cloudpickle
import pymc as pm
import pytensor

from pymc_hais.model.density import DensityGraph
from pymc_hais.types import Kernel


@dataclass(frozen=True, eq=False)
class Source:
    """What an engine was compiled from.

    Attributes
    ----------
    graph : DensityGraph
        In an empty model, which lets the user's own go.
    backend : str
    compile_kwargs : dict
    kernel : Kernel or None
    float_x : str
        "float64" or "float32".
    """

    graph: DensityGraph
    backend: str
    compile_kwargs: dict[str, Any]
    kernel: Kernel | None
    float_x: str = field(default_factory=lambda: pytensor.config.floatX)

    @classmethod
    def of(cls, graph: DensityGraph, backend: str, compile_kwargs: dict[str, Any], kernel: Kernel | None) -> Source:
        """Part a graph from the model that it was built from."""
        empty = pm.Model(check_bounds=graph.model.check_bounds)
        return cls(replace(graph, model=empty), backend, compile_kwargs, kernel)

    def floats(self) -> AbstractContextManager[Any]:
        """Have PyTensor compute in the precision that the graph was built in."""
        return pytensor.config.change_flags(floatX=self.float_x)

    @functools.cached_property
    def content(self) -> bytes:
        """Everything but the data, which may be large and of which there may be others.

        Raises
        ------
        ValueError
            If a part of the model cannot leave this process.
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
