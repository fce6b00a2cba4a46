"""Bridge sampling from draws of NUTS (Meng & Wong 1996, Statistica Sinica 6, 831-860)."""

import os

import arviz as az
import numpy as np
import pymc as pm
from scipy.optimize import brentq
from scipy.special import log_expit, logsumexp
from scipy.stats import multivariate_normal

from peer_samplers.density import Density, on_rows
from peer_samplers.estimate import Estimate

N_CHAINS, N_DRAWS = 4, 1000


def bridge(model: pm.Model, seed: int) -> Estimate:
    """Sample with nutpie, fit a normal to the first half of the draws, and bridge it to the second."""
    import nutpie

    compiled = nutpie.compile_pymc_model(model)
    trace = nutpie.sample(
        compiled,
        chains=N_CHAINS,
        tune=N_DRAWS,
        draws=N_DRAWS,
        cores=os.cpu_count(),
        seed=seed,
        progress_bar=False,
        store_unconstrained=True,
    )
    draws = trace["sample_stats"]["unconstrained_draw"].values
    log_joint = on_rows(Density(model).log_joint)
    log_z, se = estimate(draws, log_joint, np.random.default_rng(seed))
    gradients = sum(int(trace[group]["n_steps"].sum()) for group in ("sample_stats", "warmup_sample_stats"))
    return Estimate(log_z, se, gradients, True)


def estimate(draws: np.ndarray, log_joint, rng: np.random.Generator) -> tuple[float, float]:
    """Estimate log Z and its standard error from draws (chains, draws, D)."""
    n_chains, n_draws, n_dims = draws.shape
    first, second = (half.reshape(-1, n_dims) for half in np.split(draws, 2, axis=1))
    normal = multivariate_normal(first.mean(axis=0), np.cov(first, rowvar=False))
    proposed = normal.rvs(len(second), random_state=rng).reshape(-1, n_dims)
    ratio, ratio_proposed = (log_joint(x) - normal.logpdf(x) for x in (second, proposed))
    by_chain = second.reshape(n_chains, n_draws // 2, n_dims)
    share = np.median([_ess(by_chain[..., i]) for i in range(n_dims)])
    share /= share + len(proposed)
    log_z = _solve(ratio, ratio_proposed, share)
    return log_z, _error(ratio - log_z, ratio_proposed - log_z, share, n_chains)


def _solve(ratio: np.ndarray, ratio_proposed: np.ndarray, share: float) -> float:
    """Find the fixed point of the optimal bridge; ratios are log joint density - log proposal's.

    Its own iteration takes ever longer the less the draws and the proposal overlap; the point is a root, and the only
    one.
    """
    odds = np.log(share) - np.log1p(-share)

    def gap(log_z: float) -> float:
        at_proposed = logsumexp(log_expit(ratio_proposed - log_z + odds)) - np.log(len(ratio_proposed))
        at_draws = logsumexp(log_expit(log_z - ratio - odds)) - np.log(len(ratio))
        return at_proposed - at_draws - odds

    both = np.concatenate([ratio, ratio_proposed])
    both = both[np.isfinite(both)]
    return float(brentq(gap, both.min() - 50.0, both.max() + 50.0))


def _error(ratio: np.ndarray, ratio_proposed: np.ndarray, share: float, n_chains: int) -> float:
    """Return the relative root mean square error (Fruhwirth-Schnatter 2004, Econometrics Journal 7, 143-167)."""
    odds = np.log(share) - np.log1p(-share)
    at_proposed, at_draws = log_expit(ratio_proposed + odds), log_expit(-ratio - odds)
    at_proposed, at_draws = (np.exp(values - values.max()) for values in (at_proposed, at_draws))
    n_effective = _ess(at_draws.reshape(n_chains, -1))
    variance = at_proposed.var() / at_proposed.mean() ** 2 / len(at_proposed)
    return float(np.sqrt(variance + at_draws.var() / at_draws.mean() ** 2 / n_effective))


def _ess(draws: np.ndarray) -> float:
    """Return the effective sample size of the mean of draws (chains, draws)."""
    return float(az.ess(draws, method="mean"))
