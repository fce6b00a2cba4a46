"""Parts that kernels of discrete sites share: the sites, and moves of sites within a whole state."""

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np

from pymc_hais.core.records import PathFunctions
from pymc_hais.kernels.metropolis import build_evaluate_at


@dataclass(frozen=True, eq=False)
class SiteBlock:
    """The sites of one discrete variable, and how the conditional distribution of each is computed."""

    start: int  # where its S sites are in the flat vector
    stop: int
    colours: np.ndarray  # int (S,): 0 to C - 1: sites of one colour are independent of one another given all others
    # "gradient", "table" or "walk".  With "gradient" the density's gradient at a site is the log odds of 1
    # against 0, exactly.  With the others it is the sum of all terms that the site is in, so that a difference of two
    # is one of log densities: every value is tried ("table"), or one that is proposed ("walk").
    rule: str
    low: int = 0  # the least value
    n_values: int = 2  # how many there are; 0 where there is no end of them

    @property
    def n_sites(self) -> int:
        """S."""
        return self.stop - self.start

    @property
    def n_colours(self) -> int:
        """C."""
        return int(self.colours.max(initial=-1)) + 1

    @property
    def n_uniforms(self) -> int:
        """Uniform numbers of a sweep: a Metropolis step takes one to propose and one to accept."""
        return self.n_sites * (2 if self.rule == "walk" else 1)

    @property
    def is_single(self) -> bool:
        """Whether no two sites have one colour."""
        return self.n_colours == self.n_sites

    @property
    def n_evaluations(self) -> int:
        """Evaluations of the density that a sweep costs."""
        of_colour = {"gradient": 1, "walk": 2, "table": self.n_values}[self.rule]
        if self.rule == "table" and self.n_values == 2 and self.is_single:
            of_colour = 1
        return of_colour * self.n_colours

    @property
    def program(self) -> str:
        """Everything that a sweep over it depends on."""
        colours = hashlib.sha256(np.asarray(self.colours, np.int64).tobytes()).hexdigest()
        return f"{self.start} {self.stop} {self.rule} {self.low} {self.n_values} {colours}"


@runtime_checkable
class SiteKernel(Protocol):
    """Describes a transition of discrete sites, given the continuous dimensions.

    It leaves the path's density at beta invariant, and is written for one particle.
    """

    is_site_kernel: ClassVar[bool]

    @property
    def blocks(self) -> tuple[SiteBlock, ...]:
        """The sites of a model, once it is bound to one."""
        ...

    @property
    def is_tuned(self) -> bool:
        """Whether it depends on the scales of the particles."""
        ...

    @property
    def n_uniforms(self) -> int:
        """Uniform numbers that a transition takes."""
        ...

    @property
    def n_evaluations(self) -> int:
        """Evaluations of the density that a transition costs."""
        ...

    @property
    def program(self) -> str:
        """Everything that the built transition depends on."""
        ...

    def with_blocks(self, blocks: tuple[SiteBlock, ...]) -> Self:
        """Bind it to the sites of a model."""
        ...

    def build(self, xp: Any, path: PathFunctions, jit: Any, jit_density: Any, loop: Any) -> Any:
        """Build ``sweep(state, uniforms, beta, params, data) -> ParticleState``."""
        ...


def build_move(xp: Any, path: PathFunctions, block: SiteBlock, jit_density: Any) -> Any:
    """Build ``move(state, sites, beta, data) -> ParticleState`` with other values of a block's sites."""
    start, stop, evaluate_at = block.start, block.stop, jit_density(build_evaluate_at(path))

    def move(state, sites, beta, data):
        whole = xp.concatenate((state.position[:start], sites, state.position[stop:]))
        return evaluate_at(whole.astype(state.position.dtype), state.momentum, beta, data)

    return jit_density(move)
