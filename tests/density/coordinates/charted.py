"""Models with their charts, and flat vectors drawn from the prior."""

import numpy as np

from pymc_hais.density import build_chart, build_layout
from pymc_hais.references import build_prior


def charted(model, n, normals=False):
    """Return the model, its layout and chart, and n flat vectors."""
    values, _ = build_prior(model).sample(n, 7)
    layout = build_layout(model, [value[0] for value in values])
    return model, layout, build_chart(model, layout, normals=normals), layout.flatten(values)


def neighbours(n, seed=1, n_more=4):
    """Return the weights of a chain of areas in an order by chance, and of a few pairs beside it."""
    rng = np.random.default_rng(seed)
    order, weights = rng.permutation(n), np.zeros((n, n))
    pairs = np.concatenate([np.stack([order[1:], order[:-1]], axis=1), rng.choice(n, (n_more, 2))])
    for one, other in pairs[pairs[:, 0] != pairs[:, 1]]:
        weights[one, other] = weights[other, one] = 1.0
    return weights
