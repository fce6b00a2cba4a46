"""Locally balanced flips of binary sites: which site to flip is drawn by how much the density would gain.

Zanella (2020, JASA 115, 852-865), with gains from the gradient as in Grathwohl, Swersky, Hashemi, Duvenaud & Maddison
(2021, "Oops I took a gradient", arXiv:2102.04509): a first-order guess of the gain of each flip is enough to propose
one, and the density itself judges it.
"""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from pymc_hais.core.records import PathFunctions
from pymc_hais.kernels.metropolis import build_choose, build_repeat, identity, plain_loop
from pymc_hais.kernels.sites import SiteBlock, build_move

#: How many times as many evaluations make another kernel worth a try.
_SAVING = 4
#: Guessed gains beyond this many nats are all as good.
_LARGEST_GAIN = 60.0


@dataclass(frozen=True)
class LocallyBalanced:
    """Flip a few binary sites, each proposed with a probability that grows with the square root of its gain.

    An alternative to :class:`Gibbs` for many sites that all interact, where Gibbs draws would evaluate the density once
    for every site: a flip costs one evaluation.

    Parameters
    ----------
    n_flips : int
        Flips of a transition.
    blocks : tuple of SiteBlock
        Found from the model; leave it out.

    Raises
    ------
    ValueError
        Without a flip, or for sites with other values than 0 and 1.
    """

    n_flips: int = 8
    blocks: tuple[SiteBlock, ...] = field(default=(), repr=False)

    is_site_kernel: ClassVar[bool] = True
    is_tuned: ClassVar[bool] = False
    uses_slopes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.n_flips, bool) or not isinstance(self.n_flips, int) or self.n_flips < 1:
            raise ValueError(f"n_flips is {self.n_flips!r}: pass an integer of at least 1.")

    @property
    def n_uniforms(self) -> int:
        """Uniform numbers of a transition."""
        return 2 * self.n_flips

    @property
    def n_evaluations(self) -> int:
        """Evaluations of the density of a transition."""
        return self.n_flips

    @property
    def program(self) -> str:
        """Everything that the built transition depends on."""
        return f"LocallyBalanced {self.n_flips} {[(block.start, block.stop) for block in self.blocks]}"

    def with_blocks(self, blocks: tuple[SiteBlock, ...]) -> Self:
        """Bind it to the sites of a model."""
        for block in blocks:
            if not block.is_binary:
                raise ValueError(
                    "LocallyBalanced() flips sites with the values 0 and 1 only, and the model has others: pass "
                    "kernel=Gibbs(), or leave `kernel` out."
                )
        return replace(self, blocks=blocks)

    def is_worth_a_try(self, blocks: tuple[SiteBlock, ...]) -> bool:
        """Whether it can take the place of Gibbs draws that cost several times as many evaluations."""
        is_binary = all(block.is_binary for block in blocks)
        return is_binary and sum(block.n_evaluations for block in blocks) >= _SAVING * self.n_flips

    def build(
        self, xp: Any, path: PathFunctions, jit: Any = identity, jit_density: Any = None, loop: Any = plain_loop
    ) -> Any:
        """Build the sweep; see :meth:`pymc_hais.kernels.sites.SiteKernel.build`."""
        return _build_sweep(xp, path, self.blocks, self.n_flips, jit, jit_density or jit, loop)


def _build_sweep(xp, path, blocks, n_flips, jit, jit_density, loop):
    whole = SiteBlock(blocks[0].start, blocks[-1].stop, np.ones((1, blocks[-1].stop - blocks[0].start), bool), "slope")
    start, stop = whole.start, whole.stop
    move, log_density, gradient_at = build_move(xp, path, whole, jit_density), path.log_density, path.gradient
    choose, places = jit(build_choose(xp)), xp.asarray(np.arange(whole.n_sites))

    @jit
    def chances(state, beta):
        slopes = gradient_at(state.grad_reference[start:stop], state.grad_ratio[start:stop], beta)
        gain = (1.0 - 2.0 * state.position[start:stop]) * slopes
        half = 0.5 * xp.fmin(xp.fmax(gain, -_LARGEST_GAIN), _LARGEST_GAIN)
        weights = xp.exp(half - xp.max(half))
        return weights / xp.sum(weights)

    @jit_density
    def flip(state, which, judge, beta, data):
        p = chances(state, beta)
        chosen = xp.minimum(xp.sum((xp.cumsum(p) <= which) * 1.0), places[-1])
        is_chosen = (places == chosen) * 1.0
        sites = state.position[start:stop]
        other = move(state, sites + is_chosen * (1.0 - 2.0 * sites), beta, data)
        gain = log_density(other.log_reference, other.log_ratio, beta)
        gain = gain - log_density(state.log_reference, state.log_ratio, beta)
        odds = xp.sum(is_chosen * chances(other, beta)) / xp.sum(is_chosen * p)
        accepted = judge < odds * xp.exp(xp.fmin(xp.fmax(gain, -1e3), 1e2))
        return choose(accepted, other, state)

    def one_more(carry, constants):
        n_done, state = carry
        uniforms, beta, data = constants
        return n_done + 1, flip(state, uniforms[n_done], uniforms[n_flips + n_done], beta, data)

    run = build_repeat(n_flips, one_more, jit, jit_density, loop)

    def sweep(state, uniforms, beta, params, data):
        return run((0, state), (uniforms, beta, data))[1]

    return sweep
