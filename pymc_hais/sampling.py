"""sample_hais: the whole trip on one screen."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import pymc as pm
from pymc.model import modelcontext
from pymc.progress_bar import default_progress_theme
from xarray import DataTree

from pymc_hais.engines import resolve_backend
from pymc_hais.inference_data import to_datatree
from pymc_hais.model import build_outputs
from pymc_hais.problem import build_problem
from pymc_hais.progress import AnnealingProgress
from pymc_hais.report import attributes, log_outcome
from pymc_hais.rounds import learn, run_rounds
from pymc_hais.settings import build_settings

__all__ = ["sample_hais"]

_log = logging.getLogger("pymc.hais")


def sample_hais(
    draws: int = 1000,
    *,
    chains: int = 4,
    reference: str = "prior",
    target_se: float | None = 0.1,
    max_temperatures: int = 10_000,
    random_seed: Any = None,
    model: pm.Model | None = None,
    var_names: Sequence[str] | None = None,
    cores: int | None = None,
    backend: str | None = None,
    compile_kwargs: dict[str, Any] | None = None,
    progressbar: Any = True,
    progressbar_theme: Any = default_progress_theme,
    idata_kwargs: dict[str, Any] | None = None,
) -> DataTree:
    r"""Draw from the posterior and estimate the log marginal likelihood by Hamiltonian annealed importance sampling.

    Particles start as exact prior draws and are annealed to the posterior through
    :math:`p(\theta)\,p(y \mid \theta)^\beta`, with a Hamiltonian momentum that persists from one temperature to the
    next.  A pilot run first learns the temperatures, step sizes and metrics; the main run, with fresh
    particles, keeps them frozen, so that its estimate of Z is unbiased.

    Parameters
    ----------
    draws : int, default 1000
        Particles per chain, and posterior draws per chain.
    chains : int, default 4
        Independent populations.  Each gives its own estimate of log Z.
    reference : "prior"
        Where the annealing starts.
    target_se : float or None, default 0.1
        Rounds with twice the temperatures (or more) follow until the standard error of log Z, in nats, is below
        this and no finding says that it cannot be trusted.  None makes one round.
    max_temperatures : int, default 10000
        The budget: no round has more intermediate distributions than this.
    random_seed : int, sequence of int, RandomState or Generator, optional
        As in :func:`pymc.sample_smc`.  The same seed gives the same result whatever ``cores`` is.
    model : pymc.Model, optional
        Needed outside a ``with model:`` block.
    var_names : sequence of str, optional
        Variables and deterministics to keep in the posterior group; all by default.
    cores : int, optional
        Chains to run at the same time; all processors by default.
    backend : {"jax", "numba", "c"}, optional
        JAX if it is installed and the model's graph allows, else Numba, by default.
    compile_kwargs : dict, optional
        Passed to :func:`pymc.compile`; ``{"mode": ...}`` takes any PyTensor mode.
    progressbar : bool or str, default True
    progressbar_theme : rich.theme.Theme or str, optional
        As in :func:`pymc.sample`.
    idata_kwargs : dict, optional
        ``coords`` and ``dims`` for the result; ``log_likelihood=True`` or ``log_prior=True`` to compute those
        groups; ``include_transformed=True`` to keep the unconstrained values.

    Returns
    -------
    DataTree
        ``posterior`` (equally weighted draws), ``sample_stats`` (log weights, acceptance, and each chain's
        ``log_marginal_likelihood``), ``annealing`` (per temperature), ``log_marginal_likelihood`` (value, standard
        error and 95% interval: see :func:`pymc_hais.log_marginal_likelihood`), ``observed_data`` and ``constant_data``.

    Raises
    ------
    ValueError
        Arguments out of range, an improper prior, minibatches, prior draws that do not follow the prior's own
        density, a likelihood of zero at every prior draw, or a NaN gradient.
    NotImplementedError
        Discrete free variables or a ``pm.Simulator``.
    ImportError
        ``backend="jax"`` without JAX.

    References
    ----------
    .. [1] Sohl-Dickstein, J. and Culpepper, B. J. (2012). Hamiltonian annealed importance sampling for partition
       function estimation. arXiv:1205.1925.
    .. [2] Neal, R. M. (2001). Annealed importance sampling. Statistics and Computing 11, 125-139.
    .. [3] Syed, S., Bouchard-Cote, A., Chern, K. and Doucet, A. (2024). Optimised annealed sequential Monte Carlo
       samplers. arXiv:2408.12057.

    Examples
    --------
    >>> import pymc as pm, pymc_hais
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, observed=[0.5, 1.5])
    ...     idata = pm.sample_hais(random_seed=1)
    >>> pymc_hais.log_marginal_likelihood(idata)  # doctest: +SKIP
    """
    model = modelcontext(model)
    settings = build_settings(
        draws, chains, cores, target_se, max_temperatures, reference, random_seed, idata_kwargs, var_names
    )
    backend, compile_kwargs = resolve_backend(backend, compile_kwargs)
    begin = time.perf_counter()

    problem = build_problem(model, backend, compile_kwargs, settings.seeds.probe())
    outputs = build_outputs(model, problem.layout, var_names, settings.output.include_transformed)
    problem.engine.set_cores(settings.workers)

    def progress(title: str, n_bars: int, n_steps: int | None) -> AbstractContextManager[Any]:
        return AnnealingProgress(title, n_bars, n_steps, progressbar, progressbar_theme)

    _log.info(f"Annealing {settings.chains} x {settings.draws} particles from the prior ({problem.engine.name})")
    pilot = learn(problem, settings, progress)
    outcome = run_rounds(problem, pilot, settings, progress)
    log_outcome(outcome, settings)

    posterior = outputs(outcome.run.positions)
    attrs = attributes(problem.engine, pilot, outcome, settings, time.perf_counter() - begin)
    return to_datatree(model, posterior, outcome, attrs, settings.output)
