"""Densities of several hills: each adds variables to a model and returns the log Z of its part."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import logsumexp
from scipy.stats import norm
from scipy.stats import t as student_t

#: The least share of the prior draws to which each hill is the likeliest one.
LEAST_BASIN = 0.01
#: Draws that measure these shares.
_DRAWS = 20_000
#: Half width of the uniform prior.
_HALF = 10.0


def hills(rng: np.random.Generator) -> tuple[str, float]:
    """Add 2 to 6 hills of unlike width, shape and mass within a box, or under a normal prior."""
    n_hills, n_dims = int(rng.integers(2, 7)), int(rng.choice([1, 2, 3, 4, 6, 8, 10, 14, 20]))
    is_normal = bool(rng.random() < 0.4)
    widest, scale = 1.0, 4.0
    while True:
        shares = _shares(rng, n_hills)
        centres = (
            rng.normal(0.0, 0.8 * scale, (n_hills, n_dims)) if is_normal else rng.uniform(-7, 7, (n_hills, n_dims))
        )
        widths = widest * np.exp(-rng.uniform(0.0, 4.0 / np.sqrt(n_dims), n_hills))
        dfs = np.where(rng.random(n_hills) < (0.0 if is_normal else 0.3), 6.0, np.inf)
        bends = np.where((rng.random(n_hills) < 0.3) & np.isinf(dfs) & (n_dims > 1) & (not is_normal), 0.5, 0.0)
        x = rng.normal(0.0, scale, (_DRAWS, n_dims)) if is_normal else rng.uniform(-_HALF, _HALF, (_DRAWS, n_dims))
        z = [_standardise(x, *hill) for hill in zip(centres, widths, bends, strict=True)]
        log_f = [_log_density(one, w, df) for one, w, df in zip(z, widths, dfs, strict=True)]
        likeliest = np.argmax(np.log(shares)[:, None] + np.array(log_f), axis=0)
        if np.bincount(likeliest, minlength=n_hills).min() >= LEAST_BASIN * _DRAWS:
            break
    position = pm.Normal("x", 0.0, scale, shape=n_dims) if is_normal else pm.Uniform("x", -_HALF, _HALF, shape=n_dims)
    terms = [
        np.log(share) + _symbolic(position, centre, width, bend, df, n_dims)
        for share, centre, width, bend, df in zip(shares, centres, widths, bends, dfs, strict=True)
    ]
    pm.Potential("hills", pt.logsumexp(pt.stack(terms)))
    masses = [
        _overlap(centre, width, bend, df, scale if is_normal else None)
        for centre, width, bend, df in zip(centres, widths, bends, dfs, strict=True)
    ]
    # With a normal prior a hill's share of Z is its share here times its overlap with the prior.
    return f"{n_hills} hills in {n_dims} dimensions", float(logsumexp(np.log(shares) + masses))


def spike(rng: np.random.Generator) -> tuple[str, float]:
    """Add one variable with a wide hill and a spike of at least 1% of its uniform prior."""
    share, width = float(rng.uniform(0.1, 0.8)), float(rng.uniform(0.0012, 0.004))
    at, hill, wide = float(rng.uniform(0.05, 0.95)), float(rng.uniform(0.3, 0.7)), float(rng.uniform(0.08, 0.2))
    c = pm.Uniform("c", 0.0, 1.0)
    pm.Potential(
        "spike",
        pt.logaddexp(
            np.log1p(-share) + pm.logp(pm.Normal.dist(hill, wide), c),
            np.log(share) + pm.logp(pm.Normal.dist(at, width), c),
        ),
    )
    inside = [norm.cdf(1.0, m, s) - norm.cdf(0.0, m, s) for m, s in ((hill, wide), (at, width))]
    return f"a spike of {share:.0%}", float(np.log((1.0 - share) * inside[0] + share * inside[1]))


def labels(rng: np.random.Generator) -> tuple[str, float]:
    """Add a normal mixture of two means that can be switched: integrated on a grid."""
    n, weight = int(rng.integers(8, 40)), float(rng.choice([0.5, rng.uniform(0.3, 0.5)]))
    gap, spread = float(rng.uniform(1.5, 5.0)), float(rng.uniform(2.0, 5.0))
    y = np.where(rng.random(n) < weight, -0.5 * gap, 0.5 * gap) + rng.normal(size=n)
    mu = pm.Normal("mu", 0.0, spread, shape=2)
    pm.NormalMixture("y", w=[weight, 1.0 - weight], mu=mu, sigma=1.0, observed=y)
    grid = np.linspace(-6.0 * spread, 6.0 * spread, 1201)
    f = norm.pdf(y[:, None], grid, 1.0)  # (n, G)
    total = norm.logpdf(grid, 0.0, spread)[:, None] + norm.logpdf(grid, 0.0, spread)
    for row in f:
        total += np.log(weight * row[:, None] + (1.0 - weight) * row + 1e-300)
    return f"two labels of {n} rows", float(logsumexp(total) + 2.0 * np.log(grid[1] - grid[0]))


def phase(rng: np.random.Generator) -> tuple[str, float]:
    """Add a sine wave of unknown frequency and uniform phase, which wraps: integrated on a grid."""
    n, noise = int(rng.integers(8, 25)), float(rng.uniform(0.3, 1.0))
    t = np.sort(rng.uniform(0.0, 6.0, n))
    y = np.sin(rng.uniform(0.5, 4.0) * t + rng.choice([0.05, rng.uniform(0.0, 2.0 * np.pi)])) + rng.normal(
        0.0, noise, n
    )
    frequency, shift = pm.Uniform("frequency", 0.3, 5.0), pm.Uniform("phase", 0.0, 2.0 * np.pi)
    pm.Normal("y", pt.sin(frequency * t + shift), noise, observed=y)
    f = 0.3 + 4.7 * (np.arange(1500) + 0.5) / 1500
    p = 2.0 * np.pi * (np.arange(600) + 0.5) / 600
    total = np.zeros((f.size, p.size))
    for when, value in zip(t, y, strict=True):
        total += norm.logpdf(value, np.sin(f[:, None] * when + p), noise)
    return f"a phase of {n} rows", float(logsumexp(total) - np.log(total.size))


#: Each kind of scene, and how often it is taken.
SCENES = {hills: 6.0, spike: 1.5, labels: 1.5, phase: 1.5}


def _shares(rng: np.random.Generator, n: int) -> np.ndarray:
    while True:
        shares = rng.dirichlet(np.ones(n))
        if shares.min() >= 0.01 and (n == 2 or shares.max() <= 0.6):
            return shares


def _standardise(x: np.ndarray, centre: np.ndarray, width: float, bend: float) -> np.ndarray:
    z = (x - centre) / width
    if bend:
        z[:, 1] = z[:, 1] - bend * (z[:, 0] ** 2 - 1.0)  # its Jacobian is one
    return z


def _log_density(z: np.ndarray, width: float, df: float) -> np.ndarray:
    one = norm.logpdf(z) if np.isinf(df) else student_t.logpdf(z, df)
    return np.sum(one, axis=1) - z.shape[1] * np.log(width)


def _symbolic(
    x: pt.TensorVariable, centre: np.ndarray, width: float, bend: float, df: float, n_dims: int
) -> pt.TensorVariable:
    z = (x - centre) / width
    if bend:
        z = pt.concatenate([z[:1], (z[1] - bend * (z[0] ** 2 - 1.0))[None], z[2:]])
    one = pm.Normal.dist() if np.isinf(df) else pm.StudentT.dist(nu=df)
    return pt.sum(pm.logp(one, z)) - n_dims * np.log(width)


def _overlap(centre: np.ndarray, width: float, bend: float, df: float, scale: float | None) -> float:
    """Return log of the integral of the prior times the density of a hill."""
    if scale is not None:
        return float(np.sum(norm.logpdf(centre, 0.0, np.hypot(scale, width))))
    volume = -len(centre) * np.log(2.0 * _HALF)
    if bend:  # within the box but for tails beyond five standard deviations
        return volume
    cdf = norm.cdf if np.isinf(df) else lambda z: student_t.cdf(z, df)
    inside = cdf((_HALF - centre) / width) - cdf((-_HALF - centre) / width)
    return float(volume + np.sum(np.log(inside)))
