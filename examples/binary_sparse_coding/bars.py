"""The bars experiment: images of horizontal and vertical bars, from which the bars are to be found.

2000 images of 6 x 6 pixels, of 12 bars, two of them in the mean.  Each E-step begins 20 fits, and it is counted how
many find all bars and reach the likelihood of the generating parameters.  A bar is found if a unit of its own has a
cosine of more than 0.9 with it.  The likelihood, not the prior, is flat at first, as if the images had more noise than
they have, and a little noise on the basis functions fades away.
``python -m examples.binary_sparse_coding.bars [--small] [--seed FIRST]``
"""

import argparse
import time
from collections.abc import Mapping

import numpy as np
from scipy.special import logsumexp

import pymc_hais
from examples.binary_sparse_coding.model import PARAMETERS, build_model, first_parameters, m_step, score
from pymc_hais import learning

WIDTH, HEIGHT, SIGMA = 6, 10.0, 2.0
N_UNITS = 2 * WIDTH
TRUTH = {"sigma": np.asarray(SIGMA), "pi": np.asarray(2.0 / N_UNITS)}
#: Exponent of the likelihood in the first step, and the share of the steps after which it is one.
FIRST_BETA, ANNEALED = 0.15, 0.6
#: Standard deviation of the noise on W in the first step; there is none once the exponent is one.
NOISE = 0.25 * SIGMA
#: The share of the annealed steps from which on a unit that holds another one gives it up.
#: How much of the other one it has then, at least; what it has beyond that, as a share of itself, at least; how much of
#: the square of this may be of numbers below zero; the cosine of what is the same; and how much a unit may take away.
PARTED, _HELD, _BEYOND, _BELOW, _SAME, _TAKEN = (0.4, 1.3), 0.7, 0.5, 0.2, 0.9, 0.4


def bars() -> np.ndarray:
    """Return the bars as columns (36, 12)."""
    lines = np.eye(WIDTH)
    across = np.repeat(lines[:, :, None], WIDTH, axis=2)
    return HEIGHT * np.concatenate([across, across.swapaxes(1, 2)]).reshape(N_UNITS, -1).T


def draw(n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw images (n, 36)."""
    states = rng.random((n, N_UNITS)) < TRUTH["pi"]
    return states @ bars().T + SIGMA * rng.normal(size=(n, WIDTH**2))


def log_likelihood(rows: np.ndarray, weights: np.ndarray, sigma: float, pi: float) -> np.ndarray:
    """Return log p(y) of each row, summed over all 2^12 states."""
    states = ((np.arange(2**N_UNITS)[:, None] >> np.arange(N_UNITS)) & 1).astype(float)
    means = states @ weights.T
    prior = states.sum(axis=1) * np.log(pi / (1.0 - pi)) + N_UNITS * np.log1p(-pi)
    squares = (rows**2).sum(axis=1)[:, None] - 2.0 * rows @ means.T + (means**2).sum(axis=1)
    log_p = prior - squares / (2.0 * sigma**2) - rows.shape[1] * np.log(sigma * np.sqrt(2.0 * np.pi))
    return logsumexp(log_p, axis=1)


def n_found(weights: np.ndarray) -> int:
    """Count the bars that have a unit of their own."""
    cosines = weights.T @ bars() / np.outer(np.linalg.norm(weights, axis=0), np.linalg.norm(bars(), axis=0))
    found = cosines > 0.9
    return int(np.sum(found.any(axis=0))) if np.all(found.sum(axis=1) <= 1) else 0


def part(weights: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return basis functions (D, H) that do not contain one another.

    A fit may end where a unit stands for two bars, and one or both of these bars also have a unit of their own.  Other
    bars then have no unit, and no small step leads away.  The part that such a unit has beyond the other one becomes
    its basis function, or noise if a third unit stands for that part.  A unit that subtracts another stops doing so.
    """
    squares = (weights**2).sum(axis=0)
    shares = weights.T @ weights / squares[:, None]  # (H, H): how much of the row's unit the column's has
    np.fill_diagonal(shares, 0.0)
    parted = weights.copy()
    taken, taker = np.unravel_index(np.argmin(shares), shares.shape)
    if shares[taken, taker] < -_TAKEN:
        parted[:, taker] -= shares[taken, taker] * weights[:, taken]
        return parted
    cosines = shares * np.sqrt(squares[:, None] / squares)
    first, twin = np.unravel_index(np.argmax(cosines), cosines.shape)
    if cosines[first, twin] > _SAME:
        parted[:, twin] = noise
        return parted
    beyond = np.sqrt(np.maximum(1.0 - (shares**2 * squares[:, None]) / squares, 0.0))
    pairs = np.argwhere((shares > _HELD) & (beyond > _BEYOND))
    for held, holder in pairs[np.argsort(-shares[tuple(pairs.T)])]:
        rest = weights[:, holder] - weights[:, held]
        # Else it is a bar, and a unit for half of it and of another one.
        if np.sum(np.minimum(rest, 0.0) ** 2) <= _BELOW * np.sum(rest**2):
            likeness = rest @ weights / (np.linalg.norm(rest) * np.sqrt(squares))
            likeness[holder] = 0.0
            parted[:, holder] = noise if likeness.max() > _SAME else rest
            break
    return parted


class AnnealedStep:
    """The M-step for a posterior p(s) p(y | s)^beta, which is that of noise sigma / sqrt(beta); beta rises to one.

    Where the prior is flattened too, as the exponent of an E-step does, units that stand for two bars are more common.
    """

    def __init__(self, n_steps: int, seed: int) -> None:
        self.n_steps, self.rng = ANNEALED * n_steps, np.random.default_rng(seed)
        self.step, self.before, self.noise = 0, None, np.zeros(())

    def __call__(self, sums: learning.Statistics, parameters: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the new parameters; the M-steps without some of the rows, which give errors, get the same noise."""
        new = m_step(sums, parameters)
        if self.before is None or not np.array_equal(parameters["W"], self.before):
            self.before = np.array(parameters["W"])
            self.step += 1
            size = NOISE * max(0.0, 1.0 - self.step / self.n_steps)
            self.noise = size * self.rng.normal(size=self.before.shape)
            if PARTED[0] * self.n_steps < self.step < PARTED[1] * self.n_steps:
                fresh = self.before.mean(axis=1) + HEIGHT / WIDTH * self.rng.normal(size=len(self.before))
                self.noise = self.noise + part(new["W"], fresh) - new["W"]
        # That of the next E-step.
        beta = min(1.0, FIRST_BETA + (1.0 - FIRST_BETA) * (self.step + 1) / self.n_steps)
        return new | {"W": new["W"] + self.noise, "sigma": new["sigma"] / np.sqrt(beta)}


def start(rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return first parameters, with the noise of the first exponent."""
    first = first_parameters(rows, N_UNITS, rng)
    return first | {"sigma": first["sigma"] / np.sqrt(FIRST_BETA)}


def strategies(
    n_steps: int, seed: int, n_sweeps: int = 60, n_burn: int = 10
) -> dict[str, learning.ExpectationMaximization]:
    """Return the four E-steps, each with an M-step for one fit."""
    sweeps = {"n_sweeps": n_sweeps, "n_burn": n_burn}
    e_steps = {
        "Enumeration": learning.Enumeration(),
        "Selection": learning.Selection(score, 8),
        "GibbsSampling": learning.GibbsSampling(**sweeps),
        "SelectAndSample": learning.SelectAndSample(score, 8, **sweeps),
    }
    return {
        name: learning.ExpectationMaximization(e_step=one, m_step=AnnealedStep(n_steps, seed))
        for name, one in e_steps.items()
    }


def main(small: bool = False, first: int = 0) -> None:
    n_rows, n_seeds, n_steps = (500, 4, 50) if small else (2000, 20, 50)
    print(f"{'E-step':16s} {'states':>7s} {'all bars':>9s} {'within 1%':>10s} {'both':>6s} {'cpu s a fit':>12s}")
    for name in strategies(n_steps, 0):
        outcomes, begin, states = [], time.process_time(), 0.0
        for seed in range(first, first + n_seeds):
            rng = np.random.default_rng(seed)
            rows = draw(n_rows, rng)
            model, method = build_model(*start(rows, rng).values()), strategies(n_steps, seed)[name]
            fitted = pymc_hais.fit(
                model, {"y": rows}, PARAMETERS, method, n_steps=n_steps, random_seed=seed, progressbar=False
            )
            values = {one: fitted["fitted"][one].values for one in PARAMETERS}
            truth = log_likelihood(rows, bars(), **TRUTH).mean()
            reached = log_likelihood(rows, values["W"], values["sigma"], values["pi"]).mean()
            outcomes.append((n_found(values["W"]) == N_UNITS, reached > truth - 0.01 * abs(truth)))
            states = float(fitted["learning"]["states_per_row"][-1])
        found, near = np.array(outcomes).T
        spent = (time.process_time() - begin) / n_seeds
        shares = f"{found.mean():9.2f} {near.mean():10.2f} {(found & near).mean():6.2f}"
        print(f"{name:16s} {states:7.0f} {shares} {spent:12.1f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.small, options.seed)
