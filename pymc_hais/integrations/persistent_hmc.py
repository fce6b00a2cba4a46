"""The persistent-momentum kernel as a step method of PyMC: ``pm.sample(step=PersistentHMC())``."""

import time
from dataclasses import field
from functools import cached_property
from inspect import signature
from typing import Any

import numpy as np
import pymc as pm
from pymc.blocking import RaveledVars, StatsType
from pymc.exceptions import SamplingError
from pymc.model import ValueGradFunction, modelcontext
from pymc.step_methods import NUTS
from pymc.step_methods.arraystep import GradientSharedStep
from pymc.step_methods.compound import Competence, StepMethodState
from pymc.step_methods.hmc.quadpotential import PotentialState, QuadPotentialDiagAdapt
from pymc.step_methods.state import dataclass_state
from pymc.step_methods.step_sizes import DualAverageAdaptation, StepSizeState
from pymc.util import RandomGenerator, get_value_vars_from_user_vars
from pymc.vartypes import discrete_types

from pymc_hais.core.messages import quoted, refuse_unknown
from pymc_hais.core.records import KernelInfo, KernelParams, Noise, ParticleState
from pymc_hais.inputs.arguments import check_integer, check_positive, check_share
from pymc_hais.kernels import Hamiltonian
from pymc_hais.kernels.paths import Geometric

#: Of the path and of the density: a step has its data inside.
_NO_DATA: tuple[tuple, tuple] = ((), ())


@dataclass_state
class PersistentHMCState(StepMethodState):
    """What a chain needs besides its point to continue where it stopped."""

    momentum: np.ndarray
    step_size: float
    step_adapt: StepSizeState
    potential: PotentialState
    tune: bool
    divergences: int
    beta: float = field(metadata={"frozen": True})
    target_accept: float = field(metadata={"frozen": True})
    n_transitions: int = field(metadata={"frozen": True})
    kernel: Hamiltonian = field(metadata={"frozen": True})


class PersistentHMC(GradientSharedStep):
    """Hamiltonian Monte Carlo with a momentum that persists, on the prior, the posterior or in between.

    Samples the density proportional to ``exp(varlogp + beta * datalogp)``, where potentials belong to ``datalogp``.
    A transition keeps the share ``c = exp(-damping * step_size * n_leapfrog / 2)`` of the momentum, renews the rest,
    makes ``n_leapfrog`` kick-drift-kick steps, and accepts the end or returns with the momentum reversed; an energy
    that is not finite is a rejection.  It is the transition of ``pm.sample_hais`` at a fixed beta.  During warm-up
    PyMC's dual averaging adapts the step size, and PyMC's windowed variances, in windows of doubling length, a diagonal
    metric; after it both are frozen.

    Parameters
    ----------
    vars : list, optional
        Continuous variables to sample; all variables of the model by default.
    beta : float
        0 is the prior, 1 the posterior.
    damping : float
        The momentum's power decays as ``exp(-damping)`` per unit of simulation time.
    n_leapfrog : int
        Leapfrog steps of a transition.
    n_transitions : int
        Transitions between recorded draws: one moves about half a standard deviation.
    target_accept : float
        Mean acceptance rate that the adaptation aims for (0 to 1).
    step_scale : float
        Initial step size, times the number of dimensions to the power 1/4.
    model : pymc.Model, optional
    **kwargs
        Arguments of every step method of PyMC: ``blocked``, ``rng``, ``dtype``.

    Raises
    ------
    ValueError
        A ``beta`` outside [0, 1] or another setting out of range; ``beta`` other than 1 for a part of the variables,
        since the others would be sampled at 1.
    NotImplementedError
        Discrete variables, naming them.

    References
    ----------
    Horowitz (1991); Sohl-Dickstein & Culpepper (2012), arXiv:1205.1925, section 3.
    """

    name = "persistent_hmc"
    default_blocked = True
    stats_dtypes_shapes: dict[str, tuple[type, list]] = {  # noqa: RUF012 - as PyMC's step methods declare it
        "acceptance_rate": (np.float64, []),
        "diverging": (bool, []),
        "divergences": (np.int64, []),
        "energy": (np.float64, []),
        "energy_error": (np.float64, []),
        "model_logp": (np.float64, []),
        "n_steps": (np.int64, []),
        "step_size": (np.float64, []),
        "step_size_bar": (np.float64, []),
        "process_time_diff": (np.float64, []),
        "perf_counter_diff": (np.float64, []),
        "perf_counter_start": (np.float64, []),
    }
    _state_class = PersistentHMCState

    def __init__(
        self,
        vars: Any = None,
        *,
        beta: float = 1.0,
        damping: float = 2.0,
        n_leapfrog: int = 1,
        n_transitions: int = 10,
        target_accept: float = 0.9,
        step_scale: float = 0.25,
        model: pm.Model | None = None,
        initial_point: Any = None,
        compile_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(beta, int | float | np.integer | np.floating) or not 0.0 <= beta <= 1.0:
            raise ValueError(f"`beta` must lie in [0, 1], from the prior to the posterior, got {beta!r}.")
        own = [name for name in signature(PersistentHMC.__init__).parameters if name not in ("self", "kwargs")]
        refuse_unknown("PersistentHMC", kwargs, [*own, "blocked", "rng", "dtype"])  # which PyMC passes to every step
        check_share("target_accept", target_accept)
        check_integer("n_transitions", n_transitions, 1)
        check_positive("step_scale", step_scale, "metric units", None)
        model = modelcontext(model)
        vars = model.value_vars if vars is None else get_value_vars_from_user_vars(vars, model)
        _check_variables(model, vars, beta)
        initial_point = model.initial_point() if initial_point is None else initial_point
        function = _compile(model, vars, beta, initial_point, compile_kwargs or {})
        super().__init__(vars, model=model, logp_dlogp_func=function, initial_point=initial_point, **kwargs)
        self.beta, self.target_accept, self.n_transitions = float(beta), float(target_accept), int(n_transitions)
        self.kernel = Hamiltonian(n_leapfrog=n_leapfrog, damping=damping)
        self._start = np.concatenate([np.ravel(initial_point[var.name]) for var in vars])
        self._first_step_size = step_scale / self._start.size**0.25
        self.momentum = np.zeros(self._start.size)
        self._evaluated: ParticleState | None = None
        self.divergences = 0
        self.tune = True
        self.reset_tuning()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the transition, a closure, behind."""
        return {name: value for name, value in self.__dict__.items() if name != "_transition"}

    @cached_property
    def _transition(self) -> Any:
        return self.kernel.build(np, Geometric().build(np, self._density))

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Start a chain: a new generator, a fresh momentum, and no tuning of an earlier chain."""
        super().setup_chain(rng, tune, draws)
        self.momentum = self.rng.standard_normal(self.momentum.size)
        self._evaluated = None
        self.divergences = 0
        self.tune = tune > 0
        self.reset_tuning()

    def reset_tuning(self) -> None:
        """Reset the adapted step size and metric."""
        n_dims = self._start.size
        self.step_size = self._first_step_size
        # The numbers are those of PyMC's own HMC, but for the windows: they double, since one draw is more like the
        # draw before than NUTS's.  Without the early update PyMC would wait for windows that double away from it.
        self.step_adapt = DualAverageAdaptation(self.step_size, self.target_accept, gamma=0.05, k=0.75, t0=10)
        self.potential = QuadPotentialDiagAdapt(
            n_dims,
            self._start,
            np.ones(n_dims),
            initial_weight=10,
            adaptation_window_multiplier=2,
            early_update=True,
            rng=self.rng,
        )

    def _density(self, position: np.ndarray, data: tuple) -> tuple[Any, float, np.ndarray, np.ndarray]:
        """Return the whole tempered density as the reference, with a log ratio of zero."""
        logp, gradient = self._logp_dlogp_func([position])
        # Some backends return their own buffers, which the next call overwrites.
        return float(logp), 0.0, np.array(gradient), np.zeros_like(gradient)

    def astep(self, q0: RaveledVars) -> tuple[RaveledVars, StatsType]:
        """Make ``n_transitions`` transitions."""
        wall, process = time.perf_counter(), time.process_time()
        state = self._state_at(q0)
        self.step_size = float(self.step_adapt.current(self.tune))
        scales = np.sqrt(self.potential.velocity(np.ones(q0.data.size)))
        params = KernelParams(self.step_size, scales, self.kernel.persistence(self.step_size))
        infos: list[KernelInfo] = []
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            for _ in range(self.n_transitions):
                noise = Noise(self.rng.standard_normal(q0.data.size), self.rng.random())
                state, info = self._transition(state, noise, 0.0, params, _NO_DATA)
                infos.append(info)
        self.momentum, self._evaluated = state.momentum, state
        stats = self._adapt(state, infos)
        stats["perf_counter_start"] = wall
        stats["perf_counter_diff"] = time.perf_counter() - wall
        stats["process_time_diff"] = time.process_time() - process
        return RaveledVars(np.array(state.position), q0.point_map_info), [stats]

    def _state_at(self, q0: RaveledVars) -> ParticleState:
        """Join point and momentum, and evaluate the density if it is not known already."""
        known = self._evaluated
        # Another step method may have moved the variables that this one takes as given.
        if known is None or self.shared or not np.array_equal(known.position, q0.data):
            position = np.array(q0.data)
            known = ParticleState(position, self.momentum, *self._density(position, _NO_DATA))
        if not np.isfinite(known.log_reference):
            raise SamplingError(
                f"The log density at the start is {known.log_reference}. model.debug() tells which term it comes from."
            )
        return known._replace(momentum=self.momentum)

    def _adapt(self, state: ParticleState, infos: list[KernelInfo]) -> dict[str, Any]:
        """Learn from the transitions of one draw, during warm-up; return its statistics."""
        acceptance = float(np.mean([info.acceptance_rate for info in infos]))
        diverging = any(bool(info.is_divergent) for info in infos)
        errors = np.nan_to_num([float(info.energy_error) for info in infos], nan=np.inf, posinf=np.inf, neginf=-np.inf)
        self.step_adapt.update(acceptance, self.tune)
        self.potential.update(state.position, state.grad_reference, self.tune)
        if diverging and not self.tune:
            self.divergences += 1
        return {
            "acceptance_rate": acceptance,
            "diverging": diverging,
            "divergences": self.divergences,
            "energy": float(0.5 * np.sum(state.momentum**2) - state.log_reference),
            "energy_error": float(errors[np.argmax(np.abs(errors))]),
            "model_logp": float(state.log_reference),
            "n_steps": self.n_transitions * self.kernel.n_leapfrog,
            "step_size": self.step_size,
            "step_size_bar": float(self.step_adapt.current(False)),
        }

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Competence:
        """Never be chosen automatically."""
        return Competence.INCOMPATIBLE

    @staticmethod
    def _progressbar_config(n_chains: int = 1) -> tuple[list, dict]:
        """Show divergences, step size and gradient evaluations, as NUTS does."""
        return NUTS._progressbar_config(n_chains)

    @staticmethod
    def _make_progressbar_update_functions() -> tuple:
        # The columns are those of NUTS, which reads the gradient evaluations from this field.
        (update,) = NUTS._make_progressbar_update_functions()
        return (lambda stats: update({**stats, "tree_size": stats["n_steps"]}),)


def _check_variables(model: pm.Model, vars: list[Any], beta: float) -> None:
    discrete = [model.values_to_rvs[var].name for var in vars if var.dtype in discrete_types]
    if discrete:
        raise NotImplementedError(
            f"PersistentHMC follows gradients, and {quoted(discrete)} are discrete. Pass it "
            "the continuous variables as `vars`; PyMC finds step methods for the others."
        )
    if beta != 1.0 and set(vars) != set(model.value_vars):
        raise ValueError(
            f"`beta` is {beta} for some of the variables, but PyMC would sample the others at 1, and both together "
            "have no target. Let PersistentHMC sample all variables, or keep beta = 1."
        )


def _compile(
    model: pm.Model, vars: list[Any], beta: float, initial_point: dict[str, np.ndarray], compile_kwargs: dict[str, Any]
) -> ValueGradFunction:
    """Compile ``varlogp + beta * datalogp`` and its gradient on the flat vector of ``vars``."""
    if beta == 0.0:
        # Not 0 * datalogp: where the likelihood is zero that would be no number, and the prior has mass there.
        with model:
            function = ValueGradFunction(
                [model.varlogp], vars, model=model, initial_point=initial_point, ravel_inputs=True, **compile_kwargs
            )
        function.set_extra_values({})
    else:
        function = model.logp_dlogp_function(
            vars, tempered=beta != 1.0, ravel_inputs=True, initial_point=initial_point, **compile_kwargs
        )
        if beta != 1.0:
            function.set_weights(np.array([beta]))
    return function
