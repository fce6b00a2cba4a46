"""Wall time per particle and step over that of a bare batched value-and-gradient, and engine against engine."""

import argparse
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from models import experts, logistic

from pymc_hais.core.annealing import SEGMENT_LENGTH
from pymc_hais.core.records import Segment
from pymc_hais.core.seeds import Purpose, Seeds
from pymc_hais.problem.building import build_problem
from pymc_hais.problem.problem import Compiler

warnings.filterwarnings("ignore", category=UserWarning)


def bare_time(problem, positions: np.ndarray) -> float:
    """Seconds a particle of the model's own compiled value and gradient, batched."""
    engine = problem.engine
    function = jax.jit(jax.vmap(lambda x, data: engine._density(x, *data), (0, None)))
    batch = jnp.asarray(positions)
    jax.block_until_ready(function(batch, engine.data))
    begin = time.perf_counter()
    for _ in range(SEGMENT_LENGTH):
        jax.block_until_ready(function(batch, engine.data))
    return (time.perf_counter() - begin) / SEGMENT_LENGTH / len(positions)


def step_time(problem, positions: np.ndarray, metric: np.ndarray) -> float:
    """Seconds a particle and step of one annealing segment."""
    keys, inputs = np.array([[1, 2]], dtype=np.uint32), problem.inputs([0])
    state = problem.engine.start(positions[None].copy(), inputs, keys)
    betas = np.full(SEGMENT_LENGTH + 1, 0.5)
    settings = [np.full(SEGMENT_LENGTH, value) for value in (0.1, 0.9)]
    segment = Segment(0, betas, *settings, metric)
    state, _ = problem.engine.run_segment(state, inputs, segment, keys)
    begin = time.perf_counter()
    problem.engine.run_segment(state, inputs, segment._replace(start=SEGMENT_LENGTH), keys)
    return (time.perf_counter() - begin) / SEGMENT_LENGTH / len(positions)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--particles", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    for name, model in {"logistic 500 x 20": logistic(), "experts, 36 dimensions": experts()}.items():
        begin = time.perf_counter()
        problem = build_problem(model, "prior", Compiler(backend="jax"), Seeds((1,)))
        stream = Seeds((1,)).stream(Purpose.CHECK)
        positions = np.array(problem.draw([0], [stream], options.particles).state.position[0])
        n_dims = positions.shape[1]
        step_time(problem, positions, np.ones(n_dims))
        compile_time = time.perf_counter() - begin
        numba = build_problem(model, "prior", Compiler(backend="numba"), Seeds((1,)))
        print(f"{name}: model to first segment {compile_time:.1f} s with JAX")
        for metric in (np.full(n_dims, 0.1), 0.1 * np.eye(n_dims)):
            bare, step, other = np.array(
                [
                    (
                        bare_time(problem, positions),
                        step_time(problem, positions, metric),
                        step_time(numba, positions, metric),
                    )
                    for _ in range(options.repeats)
                ]
            ).T
            kind = "dense" if metric.ndim == 2 else "diagonal"
            print(
                f"  {kind:8s} bare {1e6 * np.median(bare):6.2f} us, step {1e6 * np.median(step):6.2f} us, "
                f"step / bare {np.median(step / bare):.2f}, numba / JAX {np.median(other / step):.2f}"
            )


if __name__ == "__main__":
    main()
