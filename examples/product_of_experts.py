"""Complete products of experts: log Z of an energy that PyMC knows no prior for, beside its exact value.

E(x) = sum_l E_l(phi_l . x) with as many filters phi_l as dimensions: model 3 of Sohl-Dickstein & Culpepper (2012),
arXiv:1205.1925.  The substitution u = Phi x makes log Z a sum of one-dimensional integrals.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import gammaln

import pymc_hais

N_DIMS = 36
KINDS = ("laplace", "student")


def build_filters(n_dims: int = N_DIMS, condition: float = 4.0, seed: int = 2012) -> np.ndarray:
    """Draw filters (D, D) whose curvature Phi' Phi has a given condition number, in a random basis."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.normal(size=(n_dims, n_dims)))[0] for _ in range(2))
    scales = np.geomspace(condition**-0.25, condition**0.25, n_dims)
    return left * scales @ right


def default_weights(kind: str) -> float:
    """Return lambda: 1 for Laplace experts, 2 for Student-t ones (three degrees of freedom)."""
    return {"laplace": 1.0, "student": 2.0}[kind]


def energy(u, kind: str, weights):
    """Sum lambda |u| or lambda log(1 + u^2) over the experts, the last axis of u, as a PyTensor graph."""
    return (weights * (pt.abs(u) if kind == "laplace" else pt.log1p(u**2))).sum(axis=-1)


def build_model(phi: np.ndarray, kind: str, weights=None) -> pm.Model:
    """Build the unnormalised density exp(-E(x)), whose filters, and weights if they are given, may be learnt.

    ``phi`` (L, D) holds a filter in each row; ``kind`` is "laplace" or "student", ``weights`` lambda, a number or (L,).
    """
    with pm.Model() as model:
        x = pm.Flat("x", shape=phi.shape[1])
        weights = default_weights(kind) if weights is None else pm.Data("weights", weights)
        pm.Potential("experts", -energy(pt.dot(pm.Data("phi", phi), x), kind, weights))
    return model


def exact_log_z(phi: np.ndarray, kind: str, weights=None) -> float:
    """Integrate: -log|det Phi| plus the log of 2 / lambda, or of sqrt(pi) Gamma(lambda - 1/2) / Gamma(lambda).

    Student-t experts of lambda <= 1/2 are no density: inf.
    """
    lam = np.broadcast_to(default_weights(kind) if weights is None else weights, len(phi)).astype(float)
    student = np.where(lam > 0.5, 0.5 * np.log(np.pi) + gammaln(lam - 0.5) - gammaln(lam), np.inf)
    one = np.log(2.0 / lam) if kind == "laplace" else student
    return float(one.sum() - np.linalg.slogdet(phi)[1])


def sample_experts(phi: np.ndarray, kind: str, n: int, seed: int = 1) -> np.ndarray:
    """Draw (n, D) exact points with the default weights: u of independent experts, x = Phi^-1 u."""
    rng, shape = np.random.default_rng(seed), (n, len(phi))
    # lambda log(1 + u^2) with lambda = (df + 1) / 2 is a t variable divided by sqrt(df).
    u = rng.laplace(size=shape) if kind == "laplace" else rng.standard_t(3.0, size=shape) / np.sqrt(3.0)
    return np.linalg.solve(phi, u.T).T


def main() -> None:
    phi = build_filters()
    print(f"{'experts':10s} {'settings':28s} {'log Z':>8s} {'se':>6s} {'exact':>8s}")
    for kind in KINDS:
        model = build_model(phi, kind)
        report = {"draws": 200, "reference": "gaussian", **pymc_hais.paper_settings(2000)}
        for label, settings in {"default": {}, "the report's, 2000 steps": report}.items():
            idata = pm.sample_hais(model=model, random_seed=2012, progressbar=False, **settings)
            estimate = pymc_hais.log_marginal_likelihood(idata)
            exact = exact_log_z(phi, kind)
            print(f"{kind:10s} {label:28s} {estimate.value:8.3f} {estimate.se:6.3f} {exact:8.3f}")


if __name__ == "__main__":
    main()
