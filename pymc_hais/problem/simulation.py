"""Data sets drawn from a model, with the values that they were drawn from."""

import numpy as np
from pytensor.graph.replace import clone_replace

from pymc_hais.core.messages import quoted
from pymc_hais.density import Layout, Model, build_outputs
from pymc_hais.density.compat import find_rng_nodes, reseed_rngs
from pymc_hais.density.compiling import compile_interpreted
from pymc_hais.references.prior import PriorSampler


def check_generative(model: Model) -> None:
    """Refuse a model from which no data can be drawn: without any, with a potential, or with missing values."""
    if not model.observed_RVs:
        raise ValueError("The model has no observed variable: there are no data to simulate.")
    if model.potentials:
        names = quoted(potential.name for potential in model.potentials)
        raise ValueError(
            f"The model has the pm.Potential {names}: no data can be drawn from it. Write it as a distribution, such "
            "as an observed pm.CustomDist with `random`."
        )
    partly = [rv.name for rv in model.observed_RVs if rv.name.endswith("_observed")]
    if partly:
        raise ValueError(f"`{partly[0].removesuffix('_observed')}` has missing values: simulate a model of whole data.")


def simulate(
    model: Model, layout: Layout, sampler: PriorSampler, n: int, seed: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Draw n sets of parameters from the prior, and data from each: flat vectors (n, D), and observed variables.

    Raises ValueError if fewer than n of the prior draws lie within the range of floating point.
    """
    # The parameters and the data must not share their random numbers.
    of_parameters, of_data = np.random.SeedSequence(seed).generate_state(2)
    values, clipped = sampler.sample(4 * n, int(of_parameters))
    usable = np.flatnonzero(~clipped)[:n]
    if usable.size < n:
        raise ValueError(
            f"Only {usable.size} of {4 * n} prior draws lie within the range of floating point: use a narrower prior."
        )
    positions = layout.flatten([value[usable] for value in values])
    named = build_outputs(model, layout, [rv.name for rv in model.free_RVs])(positions)
    given = [rv.type(name=rv.name) for rv in model.free_RVs]
    replaced = dict(zip(model.free_RVs, given, strict=True))
    draw = compile_interpreted(given, clone_replace(list(model.observed_RVs), replaced, rebuild_strict=False))
    reseed_rngs(find_rng_nodes(draw.maker.fgraph.outputs), int(of_data))
    drawn = [draw(*(np.asarray(named[rv.name][i], rv.dtype) for rv in model.free_RVs)) for i in range(n)]
    columns = zip(*drawn, strict=True)
    return positions, {rv.name: np.stack(column) for rv, column in zip(model.observed_RVs, columns, strict=True)}
