"""The persistent-momentum kernel for PyMC's own SMC sampler: ``pm.sample_smc(kernel=HAIS)``."""

import multiprocessing
from functools import cached_property
from inspect import signature
from typing import Any

import numpy as np
from pymc.model import modelcontext
from pymc.smc.kernels import SMC_KERNEL, SMCSettings, SMCStats
from pytensor.compile.mode import get_mode
from pytensor.link.jax import JAXLinker
from pytensor.link.numba import NumbaLinker

from pymc_hais.core.messages import refuse_unknown
from pymc_hais.core.records import ParticleState, Segment
from pymc_hais.core.seeds import Seeds
from pymc_hais.core.weights import clean, log_mean_exp, normalise, systematic
from pymc_hais.density import discrete_names
from pymc_hais.inputs.arguments import check_integer, check_share
from pymc_hais.kernels import Hamiltonian
from pymc_hais.problem.building import build_problem
from pymc_hais.problem.problem import Compiler, Problem
from pymc_hais.tuning.metric import estimate_metric
from pymc_hais.tuning.pilot import next_beta, rank_correlation


class HAIS(SMC_KERNEL):
    """Hamiltonian annealed importance sampling as a kernel of ``pm.sample_smc``.

    Particles start as exact prior draws (never at an ``initval``) and are moved by the kernel of
    ``pm.sample_hais``: a partial refresh of the momentum, one leapfrog step, accept or flip.  Momenta travel with
    their particles through resampling and from one temperature to the next.  Each stage continues to tune the step
    size, and measures two metrics: each half of the particles moves in the metric of the other half.  A log-likelihood
    that is not a number counts as minus infinity.

    Temperatures, metrics and step sizes adapt to the particles that make the estimate, as in every adaptive SMC
    sampler: the estimate of Z is consistent as ``draws`` grow, not exactly unbiased (Beskos, Jasra, Kantas &
    Thiery 2016), and ``pm.sample_smc`` gives no standard error.  :func:`pymc_hais.sample_hais` has neither fault.

    Parameters
    ----------
    threshold : float
        Conditional effective sample size of each step in beta, as a share of the draws (0 to 1).  A higher one
        means more temperatures, each closer to the next.
    correlation_threshold : float
        A stage ends when the rank correlation of the particles' log-likelihoods with those at its start is no
        higher than this (0 to 1), at beta = 1 no higher than a tenth of it.
    max_moves : int
        The most transitions of a stage.
    target_accept : float
        Mean acceptance rate to which the step size is steered (0 to 1).
    damping : float
        The momentum's power decays as ``exp(-damping)`` per unit of simulation time.
    **kwargs
        Arguments that ``pm.sample_smc`` passes: ``draws``, ``model``, ``random_seed``, ``start``, ``compile_kwargs``.
        The rows of a ``start`` replace the prior draws; log Z is right only if they are prior draws.

    Raises
    ------
    TypeError
        An unknown argument.
    ValueError
        A setting out of range, an improper prior, minibatches, a likelihood of zero at every prior draw, or prior
        draws that do not follow the log prior.
    NotImplementedError
        Discrete free variables, or a ``pm.Simulator``.

    References
    ----------
    Sohl-Dickstein & Culpepper (2012), arXiv:1205.1925, section 3 (kernel); Zhou, Johansen & Aston (2016),
    section 3 (adaptive temperatures).
    """

    stats_dtypes_shapes: dict[str, tuple[type, list]] = {  # noqa: RUF012 - as PyMC's kernels declare it
        "log_marginal_likelihood": (float, []),
        "beta": (float, []),
        "accept_rate": (float, []),
        "step_size": (float, []),
        "n_moves": (int, []),
    }

    beta: float
    tempered_posterior: np.ndarray

    def __init__(
        self,
        *args: Any,
        threshold: float = 0.8,
        correlation_threshold: float = 0.5,
        max_moves: int = 100,
        target_accept: float = Hamiltonian.acceptance_target,
        damping: float = 2.0,
        **kwargs: Any,
    ) -> None:
        # PyMC's own settings are among them.
        settings = (*signature(HAIS.__init__).parameters, *signature(SMC_KERNEL.__init__).parameters)
        refuse_unknown("HAIS", kwargs, [name for name in settings if name not in ("self", "args", "kwargs")])
        check_share("threshold", threshold)
        check_share("correlation_threshold", correlation_threshold)
        check_share("target_accept", target_accept)
        check_integer("max_moves", max_moves, 1)
        self._kernel = Hamiltonian(damping=damping)
        self._model = modelcontext(kwargs.get("model"))
        self._backend, self._engine_kwargs = _choose_backend(kwargs.get("compile_kwargs"))
        _ = self._problem  # built before any worker starts: an error of the model is raised once, in this process
        super().__init__(*args, threshold=threshold, **kwargs)
        if self.draws < 20:  # which say nothing about a metric
            raise ValueError(f"`draws` must be at least 20, got {self.draws!r}.")
        self.correlation_threshold = correlation_threshold
        self.max_moves = max_moves
        self.target_accept = target_accept

    def __getstate__(self) -> dict[str, Any]:
        """Leave machine code and particles behind: another process compiles for itself."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_problem", "_state")}

    @cached_property
    def _problem(self) -> Problem:
        if discrete := discrete_names(self._model):
            raise NotImplementedError(
                f"HAIS follows gradients, and `{discrete[0]}` is discrete: use pm.sample_hais, which takes discrete "
                "variables."
            )
        # In a worker process the other cores are for the other chains.
        cores = None if multiprocessing.parent_process() is None else 1
        compiler = Compiler(self._kernel, self._backend, self._engine_kwargs, cores)
        return build_problem(self._model, "prior", compiler, Seeds((0,)))

    def initialize_population(self) -> dict[str, np.ndarray]:
        """Draw from the prior: unconstrained values (draws, ...) by value variable."""
        drawn = self._problem.reference.draw(self.draws, np.random.SeedSequence(int(self.rng.integers(2**31))))
        self._clipped = drawn.clipped
        return self._problem.layout.unflatten(drawn.positions)

    def _reset_state(self) -> None:
        super()._reset_state()
        self._clipped = np.zeros(self.draws, dtype=bool)

    def setup_kernel(self) -> None:
        """Evaluate the particles with their gradients, and give them momenta."""
        positions = self._problem.to_coordinates(self.tempered_posterior).astype(self._problem.layout.dtype)
        state = self._problem.engine.start(positions[None], [], self._draw_key()[None])
        # Draws beyond the range of floating point count with weight zero; the first resampling drops them.
        self._state = state._replace(log_ratio=np.where(self._clipped, -np.inf, np.asarray(state.log_ratio)))
        self._keys = (self._draw_key(), self._draw_key())
        self._n_moved = 0
        self.step_size = self.tempered_posterior.shape[1] ** -0.25
        self._publish()

    def _draw_key(self) -> np.ndarray:
        return self.rng.integers(2**32, size=2, dtype=np.uint32)

    def _publish(self) -> None:
        """Show the particles under the names that ``pm.sample_smc`` reads."""
        self._positions, log_reference, log_ratio = (
            np.asarray(leaf, np.float64)[0]
            for leaf in (self._state.position, self._state.log_reference, self._state.log_ratio)
        )
        self.tempered_posterior = self._problem.to_model(self._positions)
        self.prior_logp = log_reference - self._problem.log_jacobian(self.tempered_posterior)
        self.likelihood_logp = clean(log_ratio)

    def update_beta_and_weights(self) -> None:
        """Take the longest step in beta whose conditional ESS is ``threshold``, and weight by it."""
        self.iteration += 1
        before, self.beta = self.beta, next_beta(self.likelihood_logp, self.beta, self.threshold)
        self._log_weights = (self.beta - before) * self.likelihood_logp
        self.weights = np.exp(normalise(self._log_weights))
        self.log_marginal_likelihood += float(log_mean_exp(self._log_weights))

    def resample(self) -> None:
        """Resample by the weights; momenta and gradients go along."""
        self.resampling_indexes = systematic(self._log_weights, self.rng.random())
        self._state = self._problem.engine.take(self._state, self.resampling_indexes[None])
        self._publish()
        self.tempered_posterior_logp = self.prior_logp + self.beta * self.likelihood_logp

    def tune(self) -> None:
        """Measure the metric of each half of the particles, for the other half to move in.

        A metric measured on the particles that it moves makes the moves depend on their positions.  With 10 draws a
        dimension this made log Z too high by 0.6 nats (50 dimensions); with exchanged halves no bias was seen.
        Resampling keeps particles in order, so few lines of descent ever cross from one half to the other.
        """
        first, second = (estimate_metric(self._positions[half]) for half in self._halves())
        self._metrics = (second, first)

    def _halves(self) -> tuple[slice, slice]:
        return slice(None, self.draws // 2), slice(self.draws // 2, None)

    def mutate(self) -> None:
        """Move the particles until their log-likelihoods have decorrelated from those at the start of the stage."""
        # The last stage also decorrelates resampled copies.
        memory = self.correlation_threshold * (0.1 if self.beta == 1.0 else 1.0)
        before = self.likelihood_logp
        rates: list[float] = []
        while len(rates) < self.max_moves:
            rates += self._move(min(4, self.max_moves - len(rates)))  # between two measurements
            if rank_correlation(before, clean(np.asarray(self._state.log_ratio)[0])) <= memory:
                break
        self.accept_rate, self.n_moves = float(np.mean(rates)), len(rates)
        self._publish()
        self.tempered_posterior_logp = self.prior_logp + self.beta * self.likelihood_logp

    def _move(self, n_moves: int) -> list[float]:
        """Make a few transitions, then correct the step size; return their mean acceptance rates."""
        betas, step_sizes = np.full(n_moves + 1, self.beta), np.full(n_moves, self.step_size)
        kept = self._kernel.persistence(step_sizes)
        moved, rates = [], []
        for half, metric, key in zip(self._halves(), self._metrics, self._keys, strict=True):
            state = ParticleState(*(np.asarray(leaf)[:, half] for leaf in self._state))
            segment = Segment(self._n_moved, betas, step_sizes, kept, metric)
            state, trace = self._problem.engine.run_segment(state, [], segment, key[None])
            moved.append(state)
            rates.append(np.asarray(trace.acceptance_rate)[0].mean(axis=1))
        self._state = ParticleState(*(np.concatenate(leaves, axis=1) for leaves in zip(*moved, strict=True)))
        self._n_moved += n_moves
        rate = np.mean(rates, axis=0)
        self.step_size *= float(np.exp(2.0 * (rate.mean() - self.target_accept)))
        return rate.tolist()

    def sample_stats(self) -> SMCStats:
        """Return the statistics of a stage for ``pm.sample_smc``; log Z only for the last, as in PyMC's kernels."""
        return {
            "log_marginal_likelihood": self.log_marginal_likelihood if self.beta == 1.0 else np.nan,
            "beta": self.beta,
            "accept_rate": self.accept_rate,
            "step_size": self.step_size,
            "n_moves": self.n_moves,
        }

    def sample_settings(self) -> SMCSettings:
        """Return the settings that ``pm.sample_smc`` writes beside the statistics."""
        return {
            "_n_draws": self.draws,
            "_n_tune": 0,
            "threshold": self.threshold,
            "correlation_threshold": self.correlation_threshold,
            "max_moves": self.max_moves,
            "target_accept": self.target_accept,
            "damping": self._kernel.damping,
        }


def _choose_backend(compile_kwargs: dict[str, Any] | None) -> tuple[str | None, dict[str, Any]]:
    """Find the engine for the mode in which PyMC compiles; any other mode runs particle by particle."""
    kwargs = dict(compile_kwargs or {})
    mode = kwargs.pop("mode", None)
    linker = get_mode(mode).linker
    if isinstance(linker, JAXLinker):
        return "jax", kwargs
    if isinstance(linker, NumbaLinker):
        return "numba", kwargs
    return None, {**kwargs, "mode": mode}
