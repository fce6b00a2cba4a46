"""Restricted Boltzmann machine of binary units: its log partition function by annealing, beside the exact sum.

p(v, h) = exp(v'W h + b'v + c'h) / Z, trained on handwritten digits and small enough to sum over all states of its
hidden units.  How to anneal to a larger one: Salakhutdinov & Murray (2008), "On the quantitative analysis of deep
belief networks".  Their path starts from an RBM without weights whose visible units have the data's base rates; it is
the one from ``base_rate_reference`` to the model with explicit hidden units.
"""

from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import expit, logit, logsumexp

import pymc_hais

HIDDEN = ("explicit", "summed out")
#: Units of the smaller layer that ``exact_log_z`` takes: a minute for 25 on one core.
MAX_UNITS = 25
#: So many units of the smaller layer are summed over in one operation.
CHUNK_UNITS = 10
#: Pixels of the digits are 0 to 16.
THRESHOLD = 7.5


@dataclass(frozen=True)
class Parameters:
    """Weights (V, H), biases of the visible units (V,) and of the hidden ones (H,)."""

    weights: np.ndarray
    visible_bias: np.ndarray
    hidden_bias: np.ndarray


# The model and where annealing starts --------------------------------------------------------------------


def build_model(parameters: Parameters, hidden: str = "explicit") -> pm.Model:
    """Build the unnormalised density of v and h, or with ``hidden="summed out"`` of v alone."""
    if hidden not in HIDDEN:
        raise ValueError(f"`hidden` must be one of {HIDDEN}; got {hidden!r}.")
    weights, visible_bias = parameters.weights, parameters.visible_bias
    with pm.Model() as model:
        v = pymc_hais.FlatDiscrete("v", shape=len(visible_bias))
        if hidden == "explicit":
            h = pymc_hais.FlatDiscrete("h", shape=len(parameters.hidden_bias))
            units = pt.dot(pt.dot(v, weights), h) + pt.dot(parameters.hidden_bias, h)
        else:
            # sum over h_j in {0, 1} of exp(h_j u) = 1 + e^u
            units = pt.softplus(pt.dot(v, weights) + parameters.hidden_bias).sum()
        pm.Potential("negative_energy", units + pt.dot(visible_bias, v))
    return model


def base_rates(data: np.ndarray) -> np.ndarray:
    """Return how often each unit is on in binary rows (n, V), as if there were one more row on and one off."""
    return (data.sum(axis=0) + 1.0) / (len(data) + 2.0)


def base_rate_reference(data: np.ndarray, n_hidden: int | None = None) -> dict:
    """Return the RBM without weights whose visible units have the rates of the data; None for hidden summed out."""
    rates = base_rates(data)
    reference = {"v": pm.Bernoulli.dist(p=rates, shape=len(rates))}
    return reference if n_hidden is None else reference | {"h": pm.Bernoulli.dist(p=0.5, shape=n_hidden)}


# Exact values --------------------------------------------------------------------------------------------


def log_unnormalised(v: np.ndarray, parameters: Parameters) -> np.ndarray:
    """Return the log of the sum over h of exp(-E(v, h)), for each row of v (n, V)."""
    inputs = v @ parameters.weights + parameters.hidden_bias
    return v @ parameters.visible_bias + np.logaddexp(0.0, inputs).sum(axis=-1)


def exact_log_z(parameters: Parameters) -> float:
    """Sum over all states of the smaller layer; the other is summed out in each."""
    if len(parameters.hidden_bias) <= len(parameters.visible_bias):
        weights, bias, other_bias = parameters.weights.T, parameters.hidden_bias, parameters.visible_bias
    else:
        weights, bias, other_bias = parameters.weights, parameters.visible_bias, parameters.hidden_bias
    if len(bias) > MAX_UNITS:
        raise ValueError(f"The smaller layer has {len(bias)} units; the exact sum takes up to {MAX_UNITS}.")
    first, second = all_states(min(CHUNK_UNITS, len(bias))), all_states(max(len(bias) - CHUNK_UNITS, 0))
    cut = first.shape[1]
    inputs, biases = other_bias + first @ weights[:cut], first @ bias[:cut]
    chunks = [
        logsumexp(biases + np.logaddexp(0.0, inputs + state @ weights[cut:]).sum(axis=1)) + state @ bias[cut:]
        for state in second
    ]
    return float(logsumexp(chunks))


def all_states(n_units: int) -> np.ndarray:
    """Return all (2^n, n) states of n units, 0 or 1."""
    return ((np.arange(2**n_units)[:, None] >> np.arange(n_units)) & 1).astype(float)


# Training ------------------------------------------------------------------------------------------------


def train(
    data: np.ndarray, n_hidden: int, n_epochs: int = 500, batch: int = 100, rate: float = 0.1, seed: int = 2008
) -> Parameters:
    """Maximise the likelihood of binary rows (n, V) by persistent contrastive divergence (Tieleman 2008).

    As many Gibbs chains as a batch has rows follow the parameters; the rate falls linearly to zero.
    """
    rng = np.random.default_rng(seed)
    weights, hidden_bias = 0.01 * rng.normal(size=(data.shape[1], n_hidden)), np.zeros(n_hidden)
    visible_bias = logit(base_rates(data))
    chains = rng.permutation(data)[:batch].astype(float)
    n_batches = max(len(data) // batch, 1)
    for step in range(n_epochs * n_batches):
        if step % n_batches == 0:
            order = rng.permutation(len(data))
        rows = data[order[step % n_batches :: n_batches]]
        h_rows = expit(rows @ weights + hidden_bias)
        h = rng.random((len(chains), n_hidden)) < expit(chains @ weights + hidden_bias)
        chains = (rng.random(chains.shape) < expit(h @ weights.T + visible_bias)).astype(float)
        h_chains = expit(chains @ weights + hidden_bias)
        now = rate * (1.0 - step / (n_epochs * n_batches))
        weights = weights + now * (rows.T @ h_rows / len(rows) - chains.T @ h_chains / len(chains))
        visible_bias = visible_bias + now * (rows.mean(axis=0) - chains.mean(axis=0))
        hidden_bias = hidden_bias + now * (h_rows.mean(axis=0) - h_chains.mean(axis=0))
    return Parameters(weights, visible_bias, hidden_bias)


def load_digits() -> np.ndarray:
    """Return scikit-learn's 1,797 digits, 8 x 8 pixels each, as rows (1797, 64) of 0 and 1."""
    try:
        from sklearn.datasets import load_digits as load
    except ImportError as error:
        raise ImportError("The digits need scikit-learn: python -m pip install scikit-learn") from error
    return (load().data > THRESHOLD).astype(float)


def main(n_hidden: int = 20) -> None:
    data = load_digits()
    parameters = train(data, n_hidden)
    exact, rows = exact_log_z(parameters), log_unnormalised(data, parameters).mean()
    print(f"{'hidden units':14s} {'log Z':>8s} {'se':>6s} {'exact':>8s} {'log p(v)':>9s} {'exact':>8s}")
    for hidden in HIDDEN:
        reference = base_rate_reference(data, n_hidden if hidden == "explicit" else None)
        model = build_model(parameters, hidden)
        idata = pm.sample_hais(model=model, reference=reference, random_seed=2008, progressbar=False)
        log_z = pymc_hais.log_marginal_likelihood(idata)
        likelihoods = f"{rows - log_z.value:9.3f} {rows - exact:8.3f}"
        print(f"{hidden:14s} {log_z.value:8.3f} {log_z.se:6.3f} {exact:8.3f} {likelihoods}")


if __name__ == "__main__":
    main()
