"""Annealed importance sampling and sequential Monte Carlo: particles that go from the prior to the posterior."""

import os
from functools import partial

import numpy as np
import pymc as pm
from pymc.smc.kernels import IMH, MH

import pymc_hais
from peer_samplers.density import Density, on_rows
from peer_samplers.estimate import Estimate, average

N_RUNS = 4
#: Of blackjax: particles, moves at each temperature, leapfrog steps of a move.
N_PARTICLES, N_MOVES, N_LEAPFROG = 2000, 3, 10
#: The acceptance rate that its step size is adapted to.
ACCEPTANCE = 0.8
_COUNT = {"n_evaluations": (int, [])}


def hais(model: pm.Model, seed: int) -> Estimate:
    """Call ``pymc_hais.sample_hais`` as it is."""
    idata = pm.sample_hais(model=model, random_seed=seed, progressbar=False)
    found, attrs = pymc_hais.log_marginal_likelihood(idata), idata["posterior"].attrs
    gradients = int(attrs["n_gradients"] + attrs["n_gradients_pilot"])
    return Estimate(found.value, found.se, gradients, True, ", ".join(one.name for one in found.findings))


class _Counting:
    """A kernel of PyMC that tells how many densities it has evaluated at a temperature."""

    def sample_stats(self):
        return super().sample_stats() | {"n_evaluations": (self.n_steps - 1) * self.draws}


class CountingIMH(_Counting, IMH):
    """Independent proposals from a fitted normal: PyMC's default."""

    stats_dtypes_shapes = IMH.stats_dtypes_shapes | _COUNT


class CountingMH(_Counting, MH):
    """A random walk."""

    stats_dtypes_shapes = MH.stats_dtypes_shapes | _COUNT


def pymc_smc(model: pm.Model, seed: int, kernel: type) -> Estimate:
    """Call ``pm.sample_smc`` as it is, with 4 chains on all cores."""
    idata = pm.sample_smc(
        kernel=kernel,
        model=model,
        chains=N_RUNS,
        cores=os.cpu_count(),
        random_seed=seed,
        progressbar=False,
        compute_convergence_checks=False,
    )
    stats = idata["sample_stats"]
    log_z, counts = (
        [np.ravel(chain) for chain in stats[name].values] for name in ("log_marginal_likelihood", "n_evaluations")
    )
    evaluations = sum(int(np.sum(chain)) for chain in counts) + N_RUNS * stats.attrs["_n_draws"]
    return average([chain[-1] for chain in log_z], evaluations, has_gradients=False)


def blackjax_smc(model: pm.Model, seed: int) -> Estimate:
    """Run blackjax's adaptive tempered SMC with HMC moves, tuned between temperatures."""
    import jax

    density = Density(model)
    draws = density.draw(N_RUNS * N_PARTICLES, seed).reshape(N_RUNS, N_PARTICLES, -1)
    keys = jax.random.split(jax.random.key(seed), N_RUNS)
    run = jax.jit(build_blackjax(density)).lower(keys[0], draws[0]).compile()
    # One after the other: XLA itself uses all cores.
    log_z, n_temperatures = np.array([run(*one) for one in zip(keys, draws, strict=True)]).T
    gradients = int(sum(n_temperatures)) * N_PARTICLES * (N_MOVES * N_LEAPFROG + 1)
    return average(log_z, gradients, has_gradients=True)


def build_blackjax(density: Density):
    """Build one run: ``(key, particles) -> log Z, number of temperatures``."""
    import jax
    import jax.numpy as jnp
    from blackjax import hmc
    from blackjax.smc import adaptive_tempered, extend_params, resampling

    move = partial(hmc.build_kernel(), num_integration_steps=N_LEAPFROG)
    kernel = adaptive_tempered.build_kernel(
        density.log_prior, density.log_likelihood, move, hmc.init, resampling.systematic, target_ess=0.5
    )

    def step(carry):
        key, state, step_size, log_z, n = carry
        key, jitter, own = jax.random.split(key, 3)
        mean = state.weights @ state.particles
        scales = extend_params({"inverse_mass_matrix": state.weights @ (state.particles - mean) ** 2})
        # Particles of different step sizes do not all come back to where they began.
        steps = step_size * jax.random.uniform(jitter, (N_PARTICLES,), minval=0.7, maxval=1.3)
        state, info = kernel(own, state, N_MOVES, {"step_size": steps, **scales})
        rate = jnp.mean(info.update_info.acceptance_rate)
        return key, state, step_size * jnp.exp(rate - ACCEPTANCE), log_z + info.log_likelihood_increment, n + 1

    def run(key, particles):
        begin = key, adaptive_tempered.init(particles), density.n_dims**-0.25, 0.0, 0
        _, _, _, log_z, n = jax.lax.while_loop(lambda carry: carry[1].tempering_param < 1.0, step, begin)
        return log_z, n

    return run


class _Prior:
    """A model's prior as pocoMC asks for it, on the unconstrained vector."""

    def __init__(self, density: Density, seed: int) -> None:
        self.dim = density.n_dims
        self.bounds = np.tile([-np.inf, np.inf], (self.dim, 1))
        self.logpdf = on_rows(density.log_prior)
        self.rvs = partial(density.draw, seed=seed)


def pocomc(model: pm.Model, seed: int) -> Estimate:
    """Call pocoMC as it is: SMC preconditioned by a normalising flow."""
    from pocomc import Sampler

    density = Density(model)
    prior = _Prior(density, seed)
    sampler = Sampler(prior, on_rows(density.log_likelihood), n_dim=density.n_dims, vectorize=True, random_state=seed)
    sampler.run(progress=False)
    log_z, se = sampler.evidence()
    return Estimate(float(log_z), float(se), int(sampler.calls) + sampler.n_evidence, False)
