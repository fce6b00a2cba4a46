"""bridge: log Z for people who have posterior draws already."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_hais.core.seeds import Purpose
from pymc_hais.estimators import LogZEstimate, divide, to_estimate
from pymc_hais.kernels import RandomWalk
from pymc_hais.model import discrete_names, find_model
from pymc_hais.opinions.bridging import bridge_draws, thin_rows
from pymc_hais.planning.mass import build_first_problem
from pymc_hais.request.request import Request
from pymc_hais.results.checks.model import check_prior_mass
from pymc_hais.results.checks.opinions import check_bridge
from pymc_hais.results.datatree import observed_data_of
from pymc_hais.results.draws import read_positions
from pymc_hais.results.report import log_findings, quantity_of
from pymc_hais.runner.runner import build_runner
from pymc_hais.tuning import fit_reference

if TYPE_CHECKING:
    import pymc as pm
    from xarray import DataTree


def bridge(
    model: pm.Model,
    idata: DataTree,
    *,
    random_seed: Any = None,
    cores: int | None = None,
    backend: str | None = None,
    compile_kwargs: dict[str, Any] | None = None,
) -> LogZEstimate:
    r"""Estimate the log marginal likelihood from posterior draws of any sampler, by bridge sampling.

    A Gaussian or Student-t is fitted, on the unconstrained space, to half of the draws and bridged to the other half by
    the optimal bridge; then the halves change roles, and the two estimates of Z are averaged.  The error counts the
    draws by their effective sample size.

    A bridge knows only the regions that its draws visited: where a sampler missed a mode, the estimate is low by the
    share of it, and nothing in the draws can tell.  :func:`sample_hais` reaches modes from the prior; where the two
    disagree, the larger one has seen more.

    Parameters
    ----------
    model : pymc.Model
    idata : DataTree
        Draws of this model's posterior: the result of ``pm.sample`` or :func:`sample_hais`, with all free variables.
    random_seed : int, sequence of int, RandomState or Generator, optional
        For the draws of the fitted reference.
    cores, backend, compile_kwargs
        As in :func:`sample_hais`.

    Returns
    -------
    LogZEstimate
        With the findings "chains_disagree", "few_draws", "poor_overlap" or "not_posterior", where the draws do not
        carry an estimate.

    Raises
    ------
    ValueError
        If ``idata`` is not of this model: no draws of a free variable, another shape or other observed data.
    NotImplementedError
        Discrete free variables.

    References
    ----------
    .. [1] Meng, X.-L. and Wong, W. H. (1996). Simulating ratios of normalizing constants via a simple identity.
       Statistica Sinica 6, 831-860.
    .. [2] Fruhwirth-Schnatter, S. (2004). Estimating marginal likelihoods for mixture and Markov switching models using
       bridge sampling techniques. The Econometrics Journal 7, 143-167.
    .. [3] Gronau, Q. F. et al. (2017). A tutorial on bridge sampling. Journal of Mathematical Psychology 81, 80-97.

    Examples
    --------
    >>> import pymc as pm, pymc_hais
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, observed=[0.5, 1.5])
    ...     idata = pm.sample()  # doctest: +SKIP
    >>> pymc_hais.bridge(model, idata)  # doctest: +SKIP
    """
    model = find_model(model)
    if discrete := discrete_names(model):
        raise NotImplementedError(
            f"A bridge fits a density to the draws, and `{discrete[0]}` is discrete: sum it out of the likelihood, or "
            "use pm.sample_hais, which takes discrete variables."
        )
    request = Request(
        function="bridge",
        model=model,
        random_seed=random_seed,
        cores=cores,
        backend=backend,
        compile_kwargs=compile_kwargs,
        kernel=RandomWalk(),  # nothing moves: no gradients are needed
    )
    runner = build_runner(request)
    positions = read_positions(model, idata)
    n_chains, n_draws, n_dims = positions.shape
    reference = fit_reference(thin_rows(positions.reshape(-1, n_dims)))
    problem = build_first_problem(model, reference, runner)
    rng = np.random.default_rng(runner.seeds.sequence(Purpose.ROUND))
    result = bridge_draws(problem, positions, rng)
    findings = (*check_bridge(result, n_chains * n_draws), *check_prior_mass(problem))
    estimate = to_estimate(result.log_z, result.se, "bridge", findings=findings)
    log_findings(findings)
    estimate = divide(estimate, problem.prior_mass.estimate) if problem.prior_mass else estimate
    return replace(estimate, quantity=quantity_of(model), data=observed_data_of(model))
