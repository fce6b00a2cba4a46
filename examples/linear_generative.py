"""Linear generative model x = Phi a + noise: the log-likelihood of data points, the causes a integrated out.

Model 1 of Sohl-Dickstein & Culpepper (2012), arXiv:1205.1925, with a Gaussian or a Laplace prior on the causes.  For
one point x, p(x) is the marginal likelihood of the model with x observed, so each point takes one run.  A Gaussian
prior has a closed form to compare with; and with Phi = 0 any prior gives p(x) = N(x; 0, sigma^2 I) (their Eq. 41).
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.stats import multivariate_normal

import pymc_hais

N_DIMS = 36
#: Standard deviation of the noise.
SIGMA = 0.1


def build_basis(n_dims: int = N_DIMS, n_causes: int = N_DIMS, seed: int = 2012) -> np.ndarray:
    """Draw a basis (D, L) with singular values between 0.3 and 0.9."""
    rng = np.random.default_rng(seed)
    left, right = np.linalg.qr(rng.normal(size=(n_dims, n_dims)))[0], np.linalg.qr(rng.normal(size=(n_causes,) * 2))[0]
    n = min(n_dims, n_causes)
    return left[:, :n] * np.geomspace(0.3, 0.9, n) @ right[:n]


def build_model(phi: np.ndarray, x: np.ndarray | None = None, prior: str = "gaussian") -> pm.Model:
    """Build the model of one point x (D,), 0 to be replaced if None; ``phi`` (D, L) may be learnt.

    ``prior`` is "gaussian", N(0, 1), or "laplace", exp(-|a|) / 2.
    """
    n_dims, n_causes = phi.shape
    x = np.zeros(n_dims) if x is None else x
    with pm.Model() as model:
        phi = pm.Data("phi", phi)
        a = pm.Normal("a", shape=n_causes) if prior == "gaussian" else pm.Laplace("a", 0.0, 1.0, shape=n_causes)
        pm.Normal("x", pt.dot(phi, a), SIGMA, observed=x)
    return model


def exact_log_likelihood(phi: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return log p(x) under the Gaussian prior, x ~ N(0, Phi Phi' + sigma^2 I)."""
    return multivariate_normal(np.zeros(len(phi)), phi @ phi.T + SIGMA**2 * np.eye(len(phi))).logpdf(x)


def generate(phi: np.ndarray, n: int, prior: str = "gaussian", seed: int = 1) -> np.ndarray:
    """Draw (n, D) points of the model."""
    rng = np.random.default_rng(seed)
    shape = (n, phi.shape[1])
    a = rng.normal(size=shape) if prior == "gaussian" else rng.laplace(size=shape)
    return a @ phi.T + SIGMA * rng.normal(size=(n, len(phi)))


def log_likelihood(phi: np.ndarray, x: np.ndarray, prior: str, **settings) -> pymc_hais.LogZEstimate:
    """Estimate log p(x) of one point."""
    idata = pm.sample_hais(model=build_model(phi, x, prior), random_seed=2012, progressbar=False, **settings)
    return pymc_hais.log_marginal_likelihood(idata)


def main() -> None:
    phi = build_basis()
    print(f"{'prior':10s} {'basis':8s} {'log p(x)':>9s} {'se':>6s} {'exact':>8s}")
    for x in generate(phi, 2):
        estimate = log_likelihood(phi, x, "gaussian")
        print(
            f"{'gaussian':10s} {'Phi':8s} {estimate.value:9.3f} {estimate.se:6.3f} {exact_log_likelihood(phi, x):8.3f}"
        )
    x = generate(phi, 1, "laplace")[0]
    estimate = log_likelihood(phi, x, "laplace")
    print(f"{'laplace':10s} {'Phi':8s} {estimate.value:9.3f} {estimate.se:6.3f} {'-':>8s}")
    nothing, x = np.zeros_like(phi), np.full(len(phi), SIGMA)
    estimate = log_likelihood(nothing, x, "laplace")
    exact = exact_log_likelihood(nothing, x)
    print(f"{'laplace':10s} {'0':8s} {estimate.value:9.3f} {estimate.se:6.3f} {exact:8.3f}")


if __name__ == "__main__":
    main()
