"""A problem that can be annealed: rows of data in, evaluated particles out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from pymc_hais.core.annealing import Start
from pymc_hais.core.protocols import Engine, Kernel
from pymc_hais.core.records import Particles, ParticleState
from pymc_hais.core.seeds import Stream
from pymc_hais.core.weights import clean
from pymc_hais.density import (
    Chart,
    DensityGraph,
    Layout,
    Meetings,
    Model,
    ModelIdentity,
    Preparation,
    Sites,
    identify,
    is_concave_in,
    is_log_concave,
    unnormalised_priors,
)
from pymc_hais.engines import compile_engine
from pymc_hais.engines.base import COSTLY, CompileClock
from pymc_hais.kernels import Block, Composed, Gibbs, Hamiltonian, LinearConstraints, SiteBlock
from pymc_hais.references import (
    AnnealedModel,
    BoundReference,
    Draws,
    Enumerated,
    Fitted,
    Independent,
    join_parts,
    share_draws,
    with_data,
)

#: Positions that are evaluated at a time outside a run: always as many, so that nothing compiles twice.
CHUNK = 500


@dataclass(frozen=True)
class Compiler:
    """How graphs become an engine."""

    kernel: Kernel = field(default_factory=Hamiltonian)  # of the continuous dimensions
    backend: str | None = None  # "jax", "numba" or "c"
    compile_kwargs: dict[str, Any] = field(default_factory=dict)
    cores: int | None = None  # limits the threads of the engine
    sites: Gibbs | None = None  # of the discrete dimensions; chosen by the package by default
    normals: bool = False  # whether independent normal variables may be fields of a chart
    clock: CompileClock = field(default_factory=CompileClock, compare=False)  # of all its engines

    def __call__(self, graph: DensityGraph) -> Engine:
        """Compile a model's graphs with the kernel."""
        engine = compile_engine(graph, self.backend, self.compile_kwargs, self._compose(graph))
        if self.cores is not None:
            engine.set_cores(self.cores)
        self.clock.seconds += engine.clock.seconds
        engine.clock = self.clock
        return engine

    def _compose(self, graph: DensityGraph) -> Kernel:
        """Bind the kernels to the dimensions of a model."""
        if not graph.rules:
            return self.kernel
        of_sites = tuple(
            SiteBlock(v.start, v.stop, rule.colours, rule.rule, v.low, v.n_values)
            for rule in graph.rules
            for v in [rule.variable]
        )
        n_continuous, n_dims = graph.layout.n_continuous, graph.layout.n_dims
        sites = Block((self.sites or Gibbs()).with_blocks(of_sites), n_continuous, n_dims)
        continuous = (Block(self.kernel, 0, n_continuous),) if n_continuous else ()
        return Composed((*continuous, sites))


@dataclass(frozen=True)
class Problem:
    """A compiled model, its reference, and the rows of data; each row has its log Z."""

    model: Any  # of one row, where there are rows
    layout: Layout
    reference: BoundReference
    engine: Engine
    fitted: Fitted | None = None  # mixed with the reference; None on a path that does not take one
    #: The map from the particles' coordinates to the model's flat vector; None if they are the same.
    chart: Chart | None = None
    sites: Sites | None = None  # of the chart
    #: Observed variables or data containers that differ from row to row (R, ...); empty for the model as it is (R = 1).
    rows: Mapping[str, np.ndarray] = field(default_factory=dict)
    log_z_reference: float = 0.0  # log Z at beta = 0, where the path's density is not normalised there
    meetings: Meetings = field(default_factory=Meetings)  # which discrete sites depend on one another
    preparation: Preparation | None = None  # of the data that may vary, for :meth:`with_data`
    #: Nats between the compiled density and ``model.logp()``, where not even wide numbers tell which is right; else 0.
    undecided: float = 0.0
    #: What the model was when it was compiled; None for rows and other problems than annealing one model.
    identity: ModelIdentity | None = None

    @property
    def n_rows(self) -> int:
        """R."""
        return len(next(iter(self.rows.values()))) if self.rows else 1

    @property
    def label(self) -> str:
        """Name what the particles start from."""
        return self.fitted.label(self.reference.label) if self.fitted else self.reference.label

    @property
    def is_prior(self) -> bool:
        """Whether all particles start from the prior."""
        return self.reference.is_prior and (self.fitted is None or self.fitted.share_of_other == 1.0)

    @property
    def is_near(self) -> bool:
        """Whether importance draws have shown that the start is so near the target that it hardly needs annealing."""
        return self.is_exact or (self.fitted is not None and self.fitted.counting > 0.0)

    @property
    def is_exact(self) -> bool:
        """Whether the start is the posterior itself, a table of all states of the discrete variables."""
        return isinstance(self.reference, Independent) and isinstance(self.reference.reference, Enumerated)

    @property
    def is_costly(self) -> bool:
        """Whether the density has so many terms that JAX moves few particles together on a CPU.

        Other engines do not say: they move all of them together, or one.
        """
        return 1 < self.engine.grain(CHUNK) <= COSTLY

    @property
    def fixes_predictors(self) -> bool:
        """Whether variables behind a linear predictor have coordinates that hardly differ from a standard normal."""
        return self.chart is not None and self.chart.fixes_predictors

    @cached_property
    def is_one_hill(self) -> bool:
        """Whether the density is proven to be log-concave, in the particles' coordinates or in those of the model."""
        source, chart = self.engine.source, self.chart
        if source is None:
            return False
        if chart is not None and chart.tails:  # in these coordinates a concave density need not be concave
            return is_concave_in(self.model, self.layout, self.layout.owners)
        return is_log_concave(source.graph, self.engine.data)

    @property
    def is_integral(self) -> bool:
        """Whether log Z, times the mass it was divided by, is the integral of ``exp(model.logp())``.

        Prior draws alone give the mean likelihood, whatever the mass of the prior's density is; between two models it
        is a ratio; and the density of a periodic variable repeats for ever.
        """
        if isinstance(self.reference, AnnealedModel) or any(self.layout.is_periodic):
            return False
        return not (self.is_prior and unnormalised_priors(self.model))

    def with_fit(self, fitted: Fitted, sites: Sites | None) -> Self:
        """Start from a mixture with a fit, in the coordinates of other sites, without compiling the density again."""
        engine = self.engine.along(fitted.path, sites.arrays if sites else ())
        return replace(self, engine=engine, fitted=fitted, sites=sites)

    def with_sites(self, sites: Sites) -> Self:
        """Keep the fit, in the coordinates of other sites."""
        assert self.fitted is not None
        return self.with_fit(self.fitted, sites)

    def with_data(self, model: Model, values: Mapping[str, np.ndarray]) -> Self:
        """Take a model with other data of the same shapes in the containers that may vary, without compiling again."""
        assert self.preparation is not None  # compiled for it
        sites = self.sites.arrays if self.sites else ()
        return replace(
            self,
            model=model,
            identity=self.identity and replace(identify(model), density=self.identity.density),
            reference=with_data(self.reference, values),
            engine=self.engine.along(self.engine.path, (*sites, *self.preparation(values))),
            chart=self.chart and self.chart.with_data(values),
        )

    def to_model(self, positions: np.ndarray, with_fields: bool = True) -> np.ndarray:
        """Return the model's flat vectors (..., D) of coordinates, as :meth:`Chart.to_model`."""
        if self.chart is None or self.sites is None:
            return positions
        flat = positions.reshape(-1, positions.shape[-1])
        return self.chart.to_model(flat, self.sites, with_fields).reshape(positions.shape)

    def to_coordinates(self, x: np.ndarray, with_fields: bool = True) -> np.ndarray:
        """Return the particles' coordinates (n, D) of flat vectors, as :meth:`Chart.to_coordinates`."""
        return x if self.chart is None or self.sites is None else self.chart.to_coordinates(x, self.sites, with_fields)

    def log_jacobian(self, x: np.ndarray) -> np.ndarray | float:
        """Return log of dx / dz (n,) at flat vectors."""
        return 0.0 if self.chart is None or self.sites is None else self.chart.log_jacobian(x, self.sites)

    def inputs(self, rows: Sequence[int] | np.ndarray) -> list[np.ndarray]:
        """Return what the engine takes for populations of some rows of data."""
        chosen = np.asarray(rows)
        own = [self.fitted.centres[chosen].astype(self.layout.dtype)] if self.fitted else []
        return [*(value[chosen] for value in self.rows.values()), *own]

    def draw(self, rows: Sequence[int], streams: Sequence[Stream], n: int) -> Particles:
        """Draw and evaluate n particles for each of B populations, given the row of each."""
        return self.start(rows, streams, n).evaluate(self.engine)

    def start(self, rows: Sequence[int], streams: Sequence[Stream], n: int) -> Start:
        """Draw n particles for each of B populations, given the row of each."""
        drawn = [self._draw(row, n, stream.draws) for row, stream in zip(rows, streams, strict=True)]
        return self.start_at(rows, streams, Draws(*map(np.stack, zip(*drawn, strict=True))))

    def start_at(self, rows: Sequence[int], streams: Sequence[Stream], draws: Draws) -> Start:
        """Take draws (B, P, ...) in the particles' coordinates for those of B populations, given the row of each."""
        positions = draws.positions.astype(self.layout.dtype)
        return Start(
            positions=positions,
            alive=~draws.clipped & are_inside(self.engine.kernel.constraints, positions),
            clipped=draws.clipped,
            ancestors=draws.families,
            parts=draws.parts,
            inputs=self.inputs(rows),
            keys=np.stack([stream.key for stream in streams]),
            rngs=[stream.rng for stream in streams],
        )

    def evaluate(self, x: np.ndarray, row: int = 0) -> ParticleState:
        """Evaluate flat vectors (P, D) at beta = 0, for one row of data; the state is in float64."""
        with np.errstate(all="ignore"):  # of what is beyond the range of floating point, in other coordinates
            positions = self.to_coordinates(x).astype(self.layout.dtype)
        state = self.engine.start(positions[None], self.inputs([row]), np.zeros((1, 2), dtype=np.uint32))
        return ParticleState(*(np.asarray(leaf, np.float64)[0] for leaf in state))

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """Return ``model.logp()`` (n,) at flat vectors (n, D), NaN and infinity as -inf; for the first row of data."""
        states = [self.evaluate(chunk) for chunk in in_chunks(x)]
        return np.concatenate([joint_of(state) for state in states])[: len(x)] - self.log_jacobian(x)

    def _draw(self, row: int, n: int, seeds: np.random.SeedSequence) -> Draws:
        """Draw n positions, in the particles' coordinates, for one row."""
        of_own, counting, of_fit = seeds.spawn(3)
        fitted = self.fitted

        def draw_own(n: int) -> Draws:
            own = self.reference.draw(n, of_own)
            return own._replace(positions=self.to_coordinates(own.positions))

        if fitted is None or fitted.share_of_other == 1.0:
            return draw_own(n)
        shares = np.array([fitted.share_of_other, 1.0 - fitted.share_of_other])
        (n_own, n_near), is_sure = share_draws(shares, n, np.random.default_rng(counting))
        parts = [draw_own(int(n_own))] if n_own else []
        if n_near:
            parts.append(Draws.independent(fitted.draw(row, int(n_near), np.random.default_rng(of_fit))))
        return join_parts(parts, is_sure)


def in_chunks(x: np.ndarray, grain: int = CHUNK) -> list[np.ndarray]:
    """Cut positions (n, D) into pieces of ``CHUNK``, the last filled up to a multiple of the grain with its end.

    The grain is the engine's: see :meth:`pymc_hais.core.protocols.Engine.grain`.
    """
    n = max(1, -(-len(x) // grain)) * grain
    filled = np.concatenate([x, np.repeat(x[-1:], n - len(x), axis=0)])
    return np.split(filled, range(CHUNK, n, CHUNK))


def joint_of(state: ParticleState) -> np.ndarray:
    """Return the log density of the target at evaluated particles, NaN and infinity as -inf."""
    with np.errstate(invalid="ignore"):  # where the reference has no density nothing is known of the target
        return clean(np.asarray(state.log_reference, np.float64) + np.asarray(state.log_ratio, np.float64))


def are_inside(constraints: LinearConstraints | None, positions: np.ndarray) -> np.ndarray:
    """Whether each of the positions (B, P, D) keeps the constraints, (B, P)."""
    return np.ones(positions.shape[:-1], dtype=bool) if constraints is None else constraints.contains(positions)
