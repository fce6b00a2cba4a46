"""Time of the compiled densities against the same written by hand in JAX: value and both gradients, 500 particles."""

import argparse
import time
import warnings

import density_models
import density_structures
import jax
import jax.numpy as jnp
import numpy as np

from pymc_hais.density import build_density, build_layout
from pymc_hais.engines import compile_engine

warnings.filterwarnings("ignore", category=UserWarning)
jax.config.update("jax_enable_x64", True)

N_STEPS = 5


def find_cases() -> dict:
    return {
        name: build
        for module in (density_models, density_structures)
        for name, build in vars(module).items()
        if getattr(build, "__annotations__", {}).get("return") is density_models.Case
    }


def by_hand(density):
    """Values and gradients as a person would ask JAX for them."""
    prior = jax.value_and_grad(lambda x, data: density(x, data)[0])
    rest = jax.value_and_grad(lambda x, data: density(x, data)[1])

    def both(x, data):
        (log_prior, grad_prior), (log_rest, grad_rest) = prior(x, data), rest(x, data)
        return log_prior, log_rest, grad_prior, grad_rest

    return both


def walk(density):
    """Steps along the gradients: a program like a segment's, in which memory is claimed once and not at every step."""

    def program(x, data):
        def step(_, carry):
            x, total = carry
            log_prior, log_rest, grad_prior, grad_rest = jax.vmap(density, (0, None))(x, data)
            return x + 1e-9 * (grad_prior + grad_rest), total + log_prior + log_rest

        return jax.lax.fori_loop(0, N_STEPS, step, (x, jnp.zeros(len(x))))

    return program


class Compiled:
    """A density and the program that walks along it, with the seconds that each stage took."""

    def __init__(self, density, data, x, clock) -> None:
        self.args = (x, data)
        self.clock = clock
        begin = clock()
        self.program = jax.jit(walk(density)).lower(*self.args).compile()
        self.seconds = [clock() - begin]
        self.density = jax.jit(jax.vmap(density, (0, None)))

    def time(self, budget: float = 0.2) -> float:
        """Microseconds a particle and step."""
        begin, n_calls = self.clock(), 0
        while self.clock() - begin < budget:
            jax.block_until_ready(self.program(*self.args))
            n_calls += 1
        return 1e6 * (self.clock() - begin) / n_calls / N_STEPS / len(self.args[0])


def compile_model(model, n_particles: int, clock=time.perf_counter) -> Compiled:
    layout = build_layout(model)
    begin = clock()
    graph = build_density(model, layout)
    built = clock()
    engine = compile_engine(graph, "jax", {})
    linked = clock()
    x = jnp.asarray(np.random.default_rng(0).normal(0.0, 0.3, (n_particles, graph.layout.n_dims)))
    compiled = Compiled(lambda x, data: engine._density(x, *data), engine.data, x, clock)
    compiled.seconds = [built - begin, linked - built, *compiled.seconds]
    return compiled


def disagreement(ours, theirs) -> float:
    """The largest relative difference of the gradients, and of the values up to a constant."""
    differences = []
    for a, b in zip(ours.density(*ours.args), theirs.density(*theirs.args), strict=True):
        a, b = (np.asarray(value) - (np.asarray(value)[0] if value.ndim == 1 else 0.0) for value in (a, b))
        differences.append(np.max(np.abs(a - b)) / (1e-300 + np.max(np.abs(b))))
    return max(differences)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--particles", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--cpu", action="store_true", help="processor time, for a machine that is shared")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    compile_model(density_models.poisson()[0], 2)  # what is imported at first use
    print(f"{'':22s}  compiled  by hand  ratio  build  link   XLA  (hand)  difference")
    for name, build in find_cases().items():
        if options.names and name not in options.names:
            continue
        model, density, data = build()
        ours = compile_model(model, options.particles, clock)
        hand = Compiled(by_hand(density), tuple(map(jnp.asarray, data)), ours.args[0], clock)
        times = np.array([[ours.time(), hand.time()] for _ in range(options.repeats)])
        a, b, ratio = *np.median(times, axis=0), np.median(times[:, 0] / times[:, 1])
        spent = " ".join(f"{s:5.2f}" for s in (*ours.seconds, *hand.seconds))
        print(f"{name:22s}  {a:8.2f} {b:8.2f} {ratio:6.2f}  {spent}  {disagreement(ours, hand):.1e}", flush=True)


if __name__ == "__main__":
    main()
