"""Models with their charts, and flat vectors drawn from the prior."""

from pymc_hais.model import build_chart, build_layout
from pymc_hais.references import build_prior


def charted(model, n, normals=False):
    """Return the model, its layout and chart, and n flat vectors."""
    values, _ = build_prior(model).sample(n, 7)
    layout = build_layout(model, [value[0] for value in values])
    return model, layout, build_chart(model, layout, normals=normals), layout.flatten(values)
