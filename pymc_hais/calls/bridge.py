"""bridge, savage_dickey: log Z, and Bayes factors of point nulls, from existing posterior draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
from xarray import DataTree

from pymc_hais.core.messages import quoted
from pymc_hais.core.seeds import Purpose
from pymc_hais.density import build_layout, discrete_names, find_model
from pymc_hais.density.compat import RandomState
from pymc_hais.density.points import locate, read_point
from pymc_hais.estimators import LogBayesFactor, LogZEstimate, divide, estimate_point_density, to_estimate
from pymc_hais.estimators.point_density import PointDensity
from pymc_hais.estimators.values import NORMAL_REACH
from pymc_hais.inputs.arguments import explain_unknown
from pymc_hais.inputs.draws import read_draws, read_positions
from pymc_hais.inputs.labels import observed_data_of
from pymc_hais.inputs.request import read
from pymc_hais.kernels import RandomWalk
from pymc_hais.opinions.bridging import bridge_draws, thin_rows
from pymc_hais.planning.building import compile_first
from pymc_hais.planning.mass import find_mass
from pymc_hais.results.findings.model import check_prior_mass
from pymc_hais.results.findings.others import BRIDGEABLE, check_bridge
from pymc_hais.results.report import log_findings, quantity_of
from pymc_hais.tuning import fit_reference


@explain_unknown
def bridge(
    model: pm.Model,
    idata: DataTree,
    *,
    random_seed: RandomState = None,
    cores: int | None = None,
    backend: str | None = None,
    compile_kwargs: dict[str, Any] | None = None,
) -> LogZEstimate:
    r"""Estimate the log marginal likelihood from posterior draws of any sampler, by bridge sampling.

    A Gaussian or Student-t is fitted, on the unconstrained space, to half of the draws and bridged to the other half by
    the optimal bridge; then the halves change roles, and the two estimates of Z are averaged.  The error counts the
    draws by their effective sample size.

    A bridge knows only the regions that its draws visited.  If a sampler missed a mode, the estimate is too low by the
    share of this mode in Z, and the draws do not show it.  :func:`sample_hais` reaches modes from the prior.  If the
    two estimates disagree, the larger one has found more of the posterior.

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
        With the finding "poor_draws", where the draws do not carry an estimate.

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
    given = dict(locals())
    model = find_model(model)
    if discrete := discrete_names(model):
        raise NotImplementedError(
            f"A bridge fits a density to the draws, and `{discrete[0]}` is discrete: sum it out of the likelihood, or "
            "use pm.sample_hais, which takes discrete variables."
        )
    # Nothing moves: no gradients are needed.
    runner = read("bridge", model, given | {"kernel": RandomWalk()}).runner()
    positions = read_positions(model, idata)
    reference = fit_reference(thin_rows(positions))
    problem, mass = compile_first(model, reference, runner).problem, find_mass(model, runner)
    rng = np.random.default_rng(runner.seeds.sequence(Purpose.ROUND))
    result = bridge_draws(problem, positions, rng)
    findings = (*check_bridge(result, positions.shape[0] * positions.shape[1]), *check_prior_mass(problem, mass))
    estimate = to_estimate(result.log_z, result.se, "bridge", findings=findings)
    log_findings(findings)
    estimate = divide(estimate, mass.estimate) if mass else estimate
    return replace(estimate, quantity=quantity_of(model), data=observed_data_of(model))


@explain_unknown
def savage_dickey(
    model: pm.Model,
    idata: DataTree,
    point: Mapping[str, Any],
    *,
    cores: int | None = None,
    backend: str | None = None,
    compile_kwargs: dict[str, Any] | None = None,
) -> LogBayesFactor:
    r"""Estimate the Bayes factor of a point null hypothesis from posterior draws of the model that contains it.

    The Savage-Dickey ratio is the posterior density at the point over the prior density there,
    :math:`p(\delta_0 \mid y) / p(\delta_0)`.  It is the Bayes factor of the model with :math:`\delta = \delta_0`
    against the model with :math:`\delta` free, if in the first model all other variables have the priors that they have
    in the second one given :math:`\delta_0`.

    The prior density is exact.  The posterior density is an importance-weighted mean over the draws, which are moved to
    the point on the unconstrained space.  There is no kernel and no bandwidth, and a point far from the draws can be
    tested if the posterior is nearly normal.

    Parameters
    ----------
    model : pymc.Model
        The model with the tested variables free.  Their priors must not depend on other free variables.
    idata : DataTree
        Draws of this model's posterior: the result of :func:`sample_hais` or ``pm.sample``, with all free variables.
    point : dict
        Name of a free variable -> the value to test, such as ``{"delta": 0.0}``.  A number stands for all elements of
        an array; elements that are NaN stay free, as in ``{"slopes": [0.0, np.nan, np.nan]}``.
    cores, backend, compile_kwargs
        As in :func:`sample_hais`.

    Returns
    -------
    LogBayesFactor
        In nats, above 0 if the data are likelier at the point.  ``np.exp`` of it is the Bayes factor.

    Raises
    ------
    ValueError
        If the ratio cannot be estimated: too few draws, chains that disagree, a point on the boundary of the
        support or too far from the draws, a variable that is not free or whose prior depends on others; or if ``idata``
        is not of this model.
    NotImplementedError
        Discrete free variables.

    See Also
    --------
    compare : Bayes factors from log Z of the two models, without these conditions.

    References
    ----------
    .. [1] Dickey, J. M. (1971). The weighted likelihood ratio, linear hypotheses on normal location parameters. Annals
       of Mathematical Statistics 42, 204-223.
    .. [2] Chen, M.-H. (1994). Importance-weighted marginal Bayesian posterior density estimation. Journal of the
       American Statistical Association 89, 818-824.

    Examples
    --------
    >>> import pymc as pm, pymc_hais
    >>> with pm.Model() as model:
    ...     delta = pm.Normal("delta", 0, 1)
    ...     y = pm.Normal("y", delta, 1, observed=[0.5, 1.5])
    ...     idata = pm.sample_hais()  # doctest: +SKIP
    >>> pymc_hais.savage_dickey(model, idata, {"delta": 0.0})  # doctest: +SKIP
    """
    given = dict(locals())
    model = find_model(model)
    if discrete := discrete_names(model):
        raise NotImplementedError(
            f"Draws are moved to the point along a regression, and `{discrete[0]}` is discrete: compare log Z of the "
            "two models instead."
        )
    positions = read_positions(model, idata)
    first = {name: values[0, 0] for name, values in read_draws(model, idata, "idata", 1).items()}
    values = read_point(model, point, {name: value.shape for name, value in first.items()})
    tested, coordinates, log_prior = locate(model, build_layout(model), values, first)
    # Nothing is drawn, and nothing moves: no gradients are needed.
    runner = read("savage_dickey", model, given | {"random_seed": 0, "kernel": RandomWalk()}).runner()
    reference = fit_reference(thin_rows(positions))
    problem = compile_first(model, reference, runner).problem
    density = estimate_point_density(problem.log_density, positions, tested, coordinates)
    _check_density(density, quoted(point))
    value, reach = density.value - log_prior, NORMAL_REACH * density.se
    return LogBayesFactor(value, density.se, value - reach, value + reach)


def _check_density(density: PointDensity, names: str) -> None:
    """Refuse a posterior density at a point that too few draws determine; ``names`` are the tested variables'."""
    if density.rhat > BRIDGEABLE.rhat or density.n_effective < BRIDGEABLE.effective:
        raise ValueError(
            f"The draws of {names} are worth {density.n_effective:.0f} independent ones, with R-hat = "
            f"{density.rhat:.2f}; needed are at least {BRIDGEABLE.effective:.0f}, and R-hat below {BRIDGEABLE.rhat}: "
            "pass more draws, or compare log Z of the two models."
        )
    if (
        density.n_counting < BRIDGEABLE.effective
        or density.pareto_k > BRIDGEABLE.pareto_k
        or density.gap > BRIDGEABLE.gap
    ):
        raise ValueError(
            f"The posterior density of {names} at the point cannot be estimated from these draws, whose mean is "
            f"{density.distance:.1f} standard deviations away: compare log Z of the two models instead."
        )
