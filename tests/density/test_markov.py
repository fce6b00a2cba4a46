"""Fields of areas: draws that follow the density, and the mass that PyMC's density has."""

import numpy as np
import pymc as pm
import pytest
from pytensor.sparse import as_sparse_variable
from scipy.sparse import csr_matrix

from pymc_hais.density import improper_priors, known_log_mass, unnormalised_priors
from pymc_hais.references import build_prior

N = 7
EDGES = [(0, 3), (3, 5), (5, 1), (1, 6), (6, 2), (2, 4), (4, 0), (3, 1)]


def weights(value=1.0):
    found = np.zeros((N, N))
    for one, other in EDGES:
        found[one, other] = found[other, one] = value
    return found


W = weights()
D = np.diag(W.sum(axis=0))


MEAN = {"CAR": np.arange(N) * 1.0, "ICAR": np.zeros(N)}


def car(**kwargs):
    pm.CAR("x", **{"mu": MEAN["CAR"], "W": W, "alpha": np.float64(0.8), "tau": np.float64(1.5)} | kwargs)


def icar(**kwargs):
    pm.ICAR("x", **{"W": W.astype(int)} | kwargs)


def modelled(build):
    with pm.Model() as model:
        build()
    return model


CAR, ICAR = 1.5 * (D - 0.8 * W), D - W + (0.001 * N) ** -2.0
MODELS = {
    "CAR": (car, CAR),
    "CAR of other weights": (lambda: car(W=weights(0.3)), 0.3 * CAR),
    "CAR of a sparse matrix": (lambda: car(W=as_sparse_variable(csr_matrix(W))), CAR),
    "ICAR": (icar, ICAR),
    "ICAR of a scale": (lambda: icar(sigma=0.5, zero_sum_stdev=0.1), 4.0 * (D - W) + (0.1 * N) ** -2.0),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_mass_is_that_of_pymc(name):
    build, precision = MODELS[name]
    model = modelled(build)
    assert unnormalised_priors(model) == ["x"]
    at = np.random.default_rng(1).normal(size=N)
    exact = 0.5 * np.linalg.slogdet(precision)[1] - 0.5 * N * np.log(2.0 * np.pi) - 0.5 * at @ precision @ at
    found = float(model.compile_logp(mode="FAST_COMPILE")({"x": at + MEAN[name.split()[0]]}))
    assert known_log_mass(model) == pytest.approx(found - exact, abs=1e-8)


@pytest.mark.every(2)
@pytest.mark.few(3)
@pytest.mark.parametrize("name", MODELS)
def test_draws_have_the_covariance_of_the_density(name):
    build, precision = MODELS[name]
    (draws,), clipped = build_prior(modelled(build)).sample(20_000, 3)
    assert not clipped.any()
    covariance = np.linalg.inv(precision)
    centred = draws - MEAN[name.split()[0]]
    scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    # Each entry has a standard error of at most sqrt(2 / n) in these units.
    assert np.abs((centred.T @ centred / len(centred) - covariance) / scale).max() < 6.0 * np.sqrt(2.0 / len(centred))


def test_neighbours_are_decomposed_once(monkeypatch):
    """The eigenvectors of 1,921 areas take a second, and a call draws from the prior a dozen times."""
    decompose, made = np.linalg.eigh, []
    monkeypatch.setattr(np.linalg, "eigh", lambda matrix: made.append(matrix) or decompose(matrix))
    for seed in (1, 2):
        build_prior(modelled(lambda: icar(W=W[::-1, ::-1].astype(int)))).sample(3, seed)
    assert len(made) == 1


def test_parameters_differ_from_draw_to_draw():
    """The squared length in units of the precision has the mean N, and tau scales it, draw by draw."""
    with pm.Model() as model:
        tau = pm.Gamma("tau", 2.0, 1.0)
        pm.CAR("x", mu=np.zeros(N), W=W, alpha=pm.Beta("alpha", 2.0, 2.0), tau=tau)
    sampler = build_prior(model)
    assert sampler.batch_size > 1
    values = dict(zip(sampler.names, sampler.sample(5000, 4)[0], strict=True))
    taus, alphas = np.exp(values["tau"]), 1.0 / (1.0 + np.exp(-values["alpha"]))
    x = values["x"]
    lengths = taus * (np.einsum("ni,ij,nj->n", x, D, x) - alphas * np.einsum("ni,ij,nj->n", x, W, x))
    assert lengths.mean() == pytest.approx(N, abs=6.0 * np.sqrt(2.0 * N / len(x)))
    for group in (taus < np.median(taus), alphas < np.median(alphas)):
        assert lengths[group].mean() == pytest.approx(N, abs=6.0 * np.sqrt(4.0 * N / len(x)))


@pytest.mark.parametrize(
    "build",
    [
        lambda: icar(W=np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3)).astype(int)),
        lambda: icar(sigma=pm.HalfNormal("sigma")),
    ],
    ids=["in two parts", "of unknown scale"],
)
def test_what_is_improper_stays_so(build):
    model = modelled(build)
    assert list(improper_priors(model)) == ["x"]
    assert known_log_mass(model) is None
