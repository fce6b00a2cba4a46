"""Every method of ``pymc_hais.learning`` on two models whose likelihood is known: how near, and how soon.

A restricted Boltzmann machine of 10 visible and 12 hidden units, whose states can be counted, and a complete product of
six Student-t experts (:mod:`examples.product_of_experts`), whose log Z is a formula.  Rows are exact draws at known
parameters.  What is measured is the divergence from that truth, in nats a row, with maximum likelihood by the exact
log Z beside.  Where ``converged`` says no, the steps ended first; on few rows an early end may well be nearer to the
truth than the optimum.  From the root of the repository::

    python -m examples.learning            # 10,000 rows
    python -m examples.learning --small    # 1,000 rows and few steps, about a minute

Methods that need the density of the visible units get the machine with its hidden units summed out, those with chains
both layers.  ``ExpectationMaximization`` has no place here: it is for rows that are observed.
"""

import argparse
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_hais
from examples import product_of_experts as experts
from examples import rbm
from pymc_hais import learning

matplotlib.use("Agg")
import matplotlib.pyplot as plt

N_VISIBLE, N_HIDDEN, N_EXPERTS = 10, 12, 6
MACHINE = ("W", "b", "c")


class Limits(NamedTuple):
    """At most so many steps of L-BFGS, along noisy gradients, and where each one anneals; at most so many seconds."""

    smooth: int
    noisy: int
    annealed: int
    seconds: float


LIMITS = {"small": Limits(60, 300, 20, 15.0), "full": Limits(400, 3000, 200, 120.0)}
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#8C6D1F", "#000000")


@dataclass(frozen=True)
class LikelihoodItself(learning.Method):
    """Minus the log-likelihood, of a model that has its log Z in it."""

    supports = frozenset({"real", "binary"})

    def objective(self, family, rows, extras):
        return -family.log_density(rows)


class Target(NamedTuple):
    """Something to be learnt: rows, first values, how to build the model, and how far values are from the truth."""

    title: str
    data: dict[str, np.ndarray]
    start: dict[str, np.ndarray]
    build: Callable[..., pm.Model]  # (start, form): "marginal", "joint" or "normalised"
    divergence: Callable[[dict[str, np.ndarray]], float]
    methods: dict[str, tuple[learning.Method, str]]  # with the form of the model that it takes


# The machine ---------------------------------------------------------------------------------------------


def build_machine(start: dict[str, np.ndarray], form: str) -> pm.Model:
    """Build the machine of the visible units, of both layers, or of the visible units with its log Z."""
    with pm.Model() as model:
        weights, visible_bias, hidden_bias = (pm.Data(name, start[name]) for name in MACHINE)
        v = pymc_hais.FlatDiscrete("v", 0, 1, shape=N_VISIBLE)

        def log_marginal(v):
            return v @ visible_bias + pt.softplus(v @ weights + hidden_bias).sum(axis=-1)

        if form == "joint":
            h = pymc_hais.FlatDiscrete("h", 0, 1, shape=N_HIDDEN)
            pm.Potential("negative_energy", v @ weights @ h + v @ visible_bias + h @ hidden_bias)
        else:
            pm.Potential("negative_energy", log_marginal(v))
        if form == "normalised":
            pm.Potential("minus_log_z", -pt.logsumexp(log_marginal(rbm.all_states(N_VISIBLE))))
    return model


def state_log_probabilities(values: dict[str, np.ndarray]) -> np.ndarray:
    """Return log p(v) of all states (2^V,)."""
    parameters = rbm.Parameters(*(values[name] for name in MACHINE))
    return rbm.log_unnormalised(rbm.all_states(N_VISIBLE), parameters) - rbm.exact_log_z(parameters)


def machine_target(n_rows: int) -> Target:
    rng = np.random.default_rng(12)
    truth = {
        "W": rng.normal(size=(N_VISIBLE, N_HIDDEN)),
        "b": rng.normal(scale=0.5, size=N_VISIBLE),
        "c": rng.normal(scale=0.5, size=N_HIDDEN),
    }
    start = {"W": 0.1 * rng.normal(size=(N_VISIBLE, N_HIDDEN)), "b": np.zeros(N_VISIBLE), "c": np.zeros(N_HIDDEN)}
    log_p, states = state_log_probabilities(truth), rbm.all_states(N_VISIBLE).astype(int)

    def draw(values, n, rng):
        return states[rng.choice(len(states), size=n, p=np.exp(state_log_probabilities(values)))]

    def divergence(values):
        return float(np.exp(log_p) @ (log_p - state_log_probabilities(values)))

    methods = {
        "pseudolikelihood": (learning.Pseudolikelihood(), "marginal"),
        "minimum probability flow": (learning.MinimumProbabilityFlow(), "marginal"),
        "ratio matching": (learning.RatioMatching(), "marginal"),
        "generalized score matching": (learning.GeneralizedScoreMatching(), "marginal"),
        "noise-contrastive": (learning.NoiseContrastive(), "marginal"),
    }
    title = f"Boltzmann machine, {N_VISIBLE} visible and {N_HIDDEN} hidden units"
    data = {"v": draw(truth, n_rows, rng)}
    return Target(title, data, start, build_machine, divergence, methods | with_draws(draw))


# The experts ---------------------------------------------------------------------------------------------


def build_experts(start: dict[str, np.ndarray], form: str) -> pm.Model:
    """Build the product of Student-t experts; without hidden variables the first two forms are one."""
    model = experts.build_model(start["phi"], "student")
    if form == "normalised":
        with model:
            pm.Potential("log_determinant", pt.linalg.slogdet(model["phi"])[1])
    return model


def experts_target(n_rows: int) -> Target:
    truth = experts.build_filters(N_EXPERTS, condition=9.0)
    test = experts.sample_experts(truth, "student", 50_000, seed=2)

    def log_density(phi):
        weight = experts.default_weights("student")
        return -weight * np.log1p((test @ phi.T) ** 2).sum(axis=1) - experts.exact_log_z(phi, "student")

    of_truth = log_density(truth)

    def divergence(values):
        return float(np.mean(of_truth - log_density(values["phi"])))

    def draw(values, n, rng):
        return experts.sample_experts(values["phi"], "student", n, seed=rng)

    methods = {
        "score matching": (learning.ScoreMatching(), "marginal"),
        "sliced score matching": (learning.ScoreMatching(sliced=True), "marginal"),
        "denoising score matching": (learning.DenoisingScoreMatching(0.1), "marginal"),
        "minimum probability flow": (learning.MinimumProbabilityFlow(), "marginal"),
        "noise-contrastive": (learning.NoiseContrastive(pymc_hais.StudentT(3.0)), "marginal"),
    }
    title = f"Complete product of {N_EXPERTS} Student-t experts"
    data, start = {"x": experts.sample_experts(truth, "student", n_rows)}, {"phi": np.eye(N_EXPERTS)}
    return Target(title, data, start, build_experts, divergence, methods | with_draws(draw))


# Learning ------------------------------------------------------------------------------------------------


def with_draws(draw: Callable) -> dict[str, tuple[learning.Method, str]]:
    """Return the methods that follow the likelihood by draws of the model: exact ones, or chains."""
    return {
        "self-contrastive, exact draws": (learning.SelfContrastive(draw), "marginal"),
        "contrastive divergence": (learning.ContrastiveDivergence(), "joint"),
        "persistent chains": (learning.StochasticMaximumLikelihood(), "joint"),
        "fast persistent chains": (learning.FastPersistentCD(), "joint"),
        "annealing at each step": (learning.MaximumLikelihood(), "joint"),
        "maximum likelihood": (LikelihoodItself(), "normalised"),
    }


class Curve(NamedTuple):
    """A fit as it went: seconds and divergences at some steps and in the end, and how it ended."""

    seconds: np.ndarray
    divergences: np.ndarray
    n_steps: int
    converged: bool


def learn(target: Target, method: learning.Method, form: str, limits: Limits) -> Curve:
    """Fit from the start, and score what was reached on the way when the clock has stopped."""
    model = target.build(target.start, form)
    reached, due = [], set(np.unique(np.geomspace(1, 5000, 60).astype(int)))
    n_steps = limits.noisy if method.follows_parameters else limits.smooth
    n_steps = limits.annealed if isinstance(method, learning.MaximumLikelihood) else n_steps
    begin = time.perf_counter()

    def keep(step, values, objective):
        if step in due:
            reached.append((time.perf_counter() - begin, {name: np.array(values[name]) for name in target.start}))

    result = pymc_hais.fit(
        model, target.data, list(target.start), method,
        n_steps=n_steps, max_seconds=limits.seconds, random_seed=1, callbacks=[keep], progressbar=False,
    )  # fmt: skip
    reached.append((time.perf_counter() - begin, {name: model[name].get_value() for name in target.start}))
    attrs = result["learning"].attrs
    seconds, divergences = zip(*((at, target.divergence(values)) for at, values in reached), strict=True)
    return Curve(np.array(seconds), np.array(divergences), attrs["n_steps"], bool(attrs["converged"]))


def show(target: Target, curves: dict[str, Curve]) -> None:
    print(f"\n{target.title}, {len(next(iter(target.data.values())))} rows")
    print(f"{'method':31s}{'nats a row':>11s}{'/ max. lik.':>12s}{'seconds':>9s}{'steps':>7s}  converged")
    best = curves["maximum likelihood"].divergences[-1]
    for name, curve in curves.items():
        last = curve.divergences[-1]
        print(
            f"{name:31s}{last:11.4f}{last / best:12.1f}{curve.seconds[-1]:9.1f}{curve.n_steps:7d}  "
            f"{'yes' if curve.converged else 'no'}"
        )


def draw_figure(found: list[tuple[Target, dict[str, Curve]]], path: Path) -> None:
    """Draw divergence against seconds, a curve a method, with maximum likelihood as a dotted line."""
    fig, axes = plt.subplots(len(found), 1, figsize=(8.6, 4.0 * len(found)), layout="constrained", squeeze=False)
    for ax, (target, curves) in zip(axes[:, 0], found, strict=True):
        for i, (name, curve) in enumerate(curves.items()):
            if name == "maximum likelihood":
                ax.axhline(curve.divergences[-1], color="#666666", linestyle=":", label=name)
                continue
            style = "-" if i < len(COLORS) else "--"
            ax.plot(curve.seconds, curve.divergences, style, color=COLORS[i % len(COLORS)], linewidth=1.6, label=name)
            ax.plot(curve.seconds[-1], curve.divergences[-1], "o", color=COLORS[i % len(COLORS)], markersize=5)
        ax.set(xscale="log", yscale="log", title=target.title, xlabel="seconds, compiling included")
        ax.set_ylabel("divergence from the truth\n(nats a row)")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    fig.savefig(path, dpi=130)
    plt.close(fig)
    print(f"\nSaved {path}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="1,000 rows and few steps")
    parser.add_argument("--image", type=Path, default=Path("learning.png"))
    arguments = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    logging.getLogger("pymc.hais").setLevel(logging.CRITICAL)  # the table says what has not converged
    n_rows, limits = (1000, LIMITS["small"]) if arguments.small else (10_000, LIMITS["full"])
    found = []
    for target in (machine_target(n_rows), experts_target(n_rows)):
        curves = {name: learn(target, method, form, limits) for name, (method, form) in target.methods.items()}
        show(target, curves)
        found.append((target, curves))
    draw_figure(found, arguments.image)


if __name__ == "__main__":
    main()
