"""Gibbs sampling of discrete sites: each is drawn from its conditional distribution at beta, colour by colour.

Geman & Geman (1984, IEEE Trans. PAMI 6, 721-741).  Sites of one colour are independent given all others, so that they
are drawn together.  A site with too many values to try them all makes a Metropolis step instead.
"""

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from pymc_hais.core.records import Jit, Loop, PathFunctions, Xp
from pymc_hais.kernels.metropolis import build_choose, build_evaluate_at, build_repeat, identity, plain_loop

#: Differences of log densities are kept within this range: none of them is infinite, and NaN is the least.
_FAR = 1e30


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


@dataclass(frozen=True)
class Gibbs:
    """Draw every discrete site from its conditional distribution, once a transition.

    Used for the discrete variables of a model by default, after a transition of the continuous ones.  Where the log
    density is linear in each site of a colour, as in a Boltzmann machine, one gradient gives all conditionals;
    elsewhere the density is evaluated at every value.  Sites with more than 256 values, such as counts, make a
    Metropolis step by a random number of units, tuned by the pilot.

    Parameters
    ----------
    blocks : tuple of SiteBlock
        Found from the model; leave it out.

    Raises
    ------
    ValueError
        If ``blocks`` is anything else.
    """

    blocks: tuple[SiteBlock, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.blocks, tuple):
            raise ValueError(f"Gibbs finds its `blocks` in the model, and got {self.blocks!r}: call Gibbs().")

    @property
    def is_tuned(self) -> bool:
        """Whether a site makes Metropolis steps on the scale of the particles."""
        return any(block.rule == "walk" for block in self.blocks)

    @property
    def n_uniforms(self) -> int:
        """Uniform numbers of a transition."""
        return sum(block.n_uniforms for block in self.blocks)

    @property
    def n_evaluations(self) -> int:
        """Evaluations of the density of a transition."""
        return sum(block.n_evaluations for block in self.blocks)

    @property
    def program(self) -> str:
        """Everything that the built transition depends on."""
        return "Gibbs " + "; ".join(block.program for block in self.blocks)

    def with_blocks(self, blocks: tuple[SiteBlock, ...]) -> Self:
        """Bind it to the sites of a model."""
        return replace(self, blocks=blocks)

    def build(
        self,
        xp: Xp,
        path: PathFunctions,
        jit: Jit = identity,
        jit_density: Jit | None = None,
        loop: Loop = plain_loop,
    ) -> Any:
        """Build ``sweep(state, uniforms, beta, params, data) -> ParticleState`` of one particle."""

        def sweep(state, uniforms, beta, params, data):
            return state

        jit_density, first = jit_density or jit, 0
        for block in self.blocks:
            uniforms = slice(first, first + block.n_uniforms)
            visit = jit_density(_VISITS[block.rule](xp, path, block, jit, jit_density, loop))
            sweep = _follow(xp, sweep, visit, block, uniforms, jit, jit_density, loop)
            first += block.n_uniforms
        return sweep


def _follow(xp, before, visit, block, numbers, jit, jit_density, loop):
    """Build a sweep over a block's colours that follows another sweep."""
    start, stop, n_colours = numbers.start, numbers.stop, block.n_colours
    colours = xp.asarray(block.colours.astype(np.float64))
    before = jit_density(before)

    if n_colours == 1:

        def sweep(state, uniforms, beta, params, data):
            state = before(state, uniforms, beta, params, data)
            return visit(state, uniforms[start:stop], (colours == 0.0) * 1.0, beta, params, data)

        return sweep

    def one_more(carry, constants):
        colour, state = carry
        uniforms, beta, params, data = constants
        return colour + 1, visit(state, uniforms, (colours == colour) * 1.0, beta, params, data)

    run = build_repeat(n_colours, one_more, jit, jit_density, loop)

    def sweep_colours(state, uniforms, beta, params, data):
        state = before(state, uniforms, beta, params, data)
        return run((0, state), (uniforms[start:stop], beta, params, data))[1]

    return sweep_colours


def _build_move(xp: Xp, path: PathFunctions, block: SiteBlock, jit_density: Jit) -> Any:
    """Build ``move(state, sites, beta, data) -> ParticleState`` with other values of a block's sites."""
    start, stop, evaluate_at = block.start, block.stop, jit_density(build_evaluate_at(path))

    def move(state, sites, beta, data):
        whole = xp.concatenate((state.position[:start], sites, state.position[stop:]))
        return evaluate_at(whole.astype(state.position.dtype), state.momentum, beta, data)

    return jit_density(move)


def _build_gain(xp: Xp, path: PathFunctions, block: SiteBlock) -> Any:
    """Build ``gain(state, other, beta)``: by how much the log density of each site differs in another state.

    The block's part is taken before anything is computed, so that XLA leaves out what belongs to other blocks.
    """
    start, stop, gradient_at = block.start, block.stop, path.gradient

    def gain(state, other, beta):
        here = gradient_at(state.grad_reference[start:stop], state.grad_ratio[start:stop], beta)
        there = gradient_at(other.grad_reference[start:stop], other.grad_ratio[start:stop], beta)
        # fmax takes the number where the other is none: a value of density zero is never drawn.
        return xp.fmin(xp.fmax(there - here, -_FAR), _FAR)

    return gain


def _build_gradient_visit(xp, path, block, jit, jit_density, loop):
    """Build the visit of a colour by the gradient, which is the log odds: no value is tried."""
    start, stop, gradient_at = block.start, block.stop, path.gradient
    move = _build_move(xp, path, block, jit_density)

    def visit(state, uniforms, mask, beta, params, data):
        odds = gradient_at(state.grad_reference[start:stop], state.grad_ratio[start:stop], beta)
        sites = state.position[start:stop]
        # Never an impossible value, also where single precision has rounded a number to one.
        drawn = (uniforms > 1.0 / (1.0 + xp.exp(odds))) * 1.0
        # Where the odds are no number, as of a particle of weight zero, the site stays.
        moved = mask * (odds == odds)
        return move(state, sites + moved * (drawn - sites), beta, data)

    return visit


def _build_table_visit(xp, path, block, jit, jit_density, loop):
    """Build the visit that tries every value: it shifts all sites of the colour cyclically by one, two, ... values."""
    start, stop, low, n_values = block.start, block.stop, block.low, block.n_values
    move, gain_of = _build_move(xp, path, block, jit_density), jit(_build_gain(xp, path, block))

    def shifted(sites, mask, shift):
        turned = sites - low + mask * shift
        return low + turned - n_values * xp.floor(turned / n_values)

    shifted = jit(shifted)

    if n_values == 2 and block.is_single:
        choose = jit(build_choose(xp))

        def flip(state, uniforms, mask, beta, params, data):
            other = move(state, shifted(state.position[start:stop], mask, 1.0), beta, data)
            gain = xp.sum(mask * gain_of(state, other, beta))
            accepted = xp.sum(mask * uniforms) < 1.0 / (1.0 + xp.exp(-gain))
            return choose(accepted, other, state)

        return flip

    places, below = xp.asarray(np.eye(n_values)), xp.asarray(np.tri(n_values))

    def one_more(carry, constants):
        shift, gains, top = carry
        state, mask, beta, data = constants
        other = move(state, shifted(state.position[start:stop], mask, shift), beta, data)
        gain = gain_of(state, other, beta)
        return shift + 1, gains + places[shift][:, None] * gain, xp.maximum(top, gain)

    run = build_repeat(n_values, one_more, jit, jit_density, loop)

    def visit(state, uniforms, mask, beta, params, data):
        sites = state.position[start:stop]
        none = 0.0 * sites * beta
        _, gains, top = run((1, places[:, :1] * none, none), (state, mask, beta, data))
        cumulative = below @ xp.exp(gains - top)
        shift = xp.sum((uniforms * cumulative[n_values - 1] >= cumulative) * 1.0, 0)
        return move(state, shifted(sites, mask, shift), beta, data)

    return visit


def _build_walk_visit(xp, path, block, jit, jit_density, loop):
    """Build a Metropolis step by a number of units, up or down with equal odds, on the scale of the particles."""
    start, stop, n_sites = block.start, block.stop, block.n_sites
    move, gain_of = _build_move(xp, path, block, jit_density), jit(_build_gain(xp, path, block))

    @jit
    def width_of(metric):
        if metric.ndim == 1:
            return metric[start:stop]
        return xp.diag(metric)[start:stop]

    def visit(state, uniforms, mask, beta, params, data):
        sites = state.position[start:stop]
        two_sided = 2.0 * uniforms[:n_sites] - 1.0
        far = -width_of(params.metric) * xp.log(xp.fmax(xp.abs(two_sided), 1e-12))
        proposed = sites + mask * xp.sign(two_sided) * (1.0 + xp.floor(far))
        gain = gain_of(state, move(state, proposed, beta, data), beta)
        accepted = (uniforms[n_sites:] < xp.exp(xp.fmin(gain, 0.0))) * 1.0
        return move(state, sites + accepted * (proposed - sites), beta, data)

    return visit


_VISITS = {"gradient": _build_gradient_visit, "table": _build_table_visit, "walk": _build_walk_visit}
