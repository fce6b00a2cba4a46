"""The numbers of a visual, on whatever backend it was drawn, and what the backends are."""

import numpy as np
import pytest

BACKENDS = ("matplotlib", "plotly", "bokeh", "none")


def needs(backend):
    """Skip where a backend is not installed; figures of Matplotlib need no screen."""
    if backend != "none":
        pytest.importorskip(backend)
    if backend == "matplotlib":
        import matplotlib.pyplot as plt

        plt.switch_backend("Agg")


def close():
    """Forget Matplotlib's figures, which would warn when they become many."""
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.close("all")


def numbers(collection, name, variable, **sel):
    """Return x and y of a visual, as the backend holds them."""
    artist = collection.get_viz(name, variable, **sel)
    if hasattr(artist, "get_xydata"):
        pair = artist.get_xydata().T
    elif hasattr(artist, "get_offsets"):
        pair = np.asarray(artist.get_offsets()).T
    elif hasattr(artist, "data_source"):
        pair = artist.data_source.data["x"], artist.data_source.data["y"]
    elif isinstance(artist, dict):
        pair = artist["x"], artist["y"]
    else:
        pair = artist.x, artist.y
    return tuple(np.asarray(one, dtype=float) for one in pair)


def ends(collection, name, variable, upright=False, **sel):
    """Return lower and upper ends (2, N) of intervals, and their positions (N,)."""
    x, y = numbers(collection, name, variable, **sel)
    along, across = (y, x) if upright else (x, y)
    assert np.isnan(along[2::3]).all()
    return np.stack([along[::3], along[1::3]]), across[::3]
