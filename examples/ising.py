"""The Ising model on a square lattice: its log partition function by annealing, beside the exact one.

p(sigma) = exp(J sum sigma_i sigma_j + B sum sigma_i) / Z over pairs of neighbours, sigma_i in {-1, 1}.  The transfer
matrix gives log Z of a small lattice (Kramers & Wannier 1941), and Onsager (1944) that of an infinite one.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.integrate import quad

import pymc_hais

#: Where an infinite lattice begins to order: sinh 2J = 1.
CRITICAL_COUPLING = 0.5 * np.log(1.0 + np.sqrt(2.0))
#: The transfer matrix has 2^size rows.
MAX_SIZE = 12


def build_model(size: int, coupling: float, field: float = 0.0, periodic: bool = True) -> pm.Model:
    """Build the unnormalised density of size x size spins, s in {0, 1}; periodic boundaries make the lattice a torus.

    A pair of neighbours counts once: on a torus of size 2 there are no others than those of the free lattice.
    """
    with pm.Model() as model:
        s = pymc_hais.FlatDiscrete("s", lower=0, upper=1, shape=(size, size))
        sigma = 2 * s - 1
        if _wraps(size, periodic):
            bonds = (sigma * (pt.roll(sigma, 1, axis=0) + pt.roll(sigma, 1, axis=1))).sum()
        else:
            bonds = (sigma[1:] * sigma[:-1]).sum() + (sigma[:, 1:] * sigma[:, :-1]).sum()
        pm.Potential("negative_energy", coupling * bonds + field * sigma.sum())
    return model


def exact_log_z(size: int, coupling: float, field: float = 0.0, periodic: bool = True) -> float:
    """Multiply the transfer matrices T(a, b) of neighbouring rows a, b: log tr T^size, or between two free rows."""
    if size > MAX_SIZE:
        raise ValueError(f"The transfer matrix of size {size} has 2^{size} rows; sizes up to {MAX_SIZE} can be exact.")
    rows = 2.0 * ((np.arange(2**size)[:, None] >> np.arange(size)) & 1) - 1.0
    wraps = _wraps(size, periodic)
    bonds = (rows * np.roll(rows, 1, axis=1)).sum(axis=1) if wraps else (rows[:, 1:] * rows[:, :-1]).sum(axis=1)
    own = coupling * bonds + field * rows.sum(axis=1)
    # Half of each row's own term belongs to the matrix on either side of it, which makes T symmetric.
    log_transfer = coupling * rows @ rows.T + 0.5 * (own[:, None] + own)
    scale, own_scale = log_transfer.max(), own.max()
    transfer = np.exp(log_transfer - scale)
    if wraps:
        eigenvalues = np.linalg.eigvalsh(transfer)
        powers = (eigenvalues / eigenvalues[-1]) ** size
        return float(size * (scale + np.log(eigenvalues[-1])) + np.log(powers.sum()))
    ends = np.exp(0.5 * (own - own_scale))
    weights = ends
    for _ in range(size - 1):
        weights = transfer @ weights
    return float(np.log(ends @ weights) + (size - 1) * scale + own_scale)


def onsager_free_energy(coupling: float) -> float:
    """Return log Z per site of an infinite lattice without a field."""
    modulus = 2.0 * np.sinh(2.0 * coupling) / np.cosh(2.0 * coupling) ** 2

    def integrand(angle: float) -> float:
        return np.log(0.5 * (1.0 + np.sqrt(max(1.0 - (modulus * np.sin(angle)) ** 2, 0.0))))

    integral, _ = quad(integrand, 0.0, 0.5 * np.pi)
    return float(np.log(2.0 * np.cosh(2.0 * coupling)) + integral / np.pi)


def _wraps(size: int, periodic: bool) -> bool:
    """Whether the last row has a bond to the first that is not there already."""
    return periodic and size > 2


def main(size: int = 8) -> None:
    print(f"{'coupling':>8s} {'log Z':>8s} {'se':>6s} {'exact':>8s} {'a site':>7s} {'infinite':>8s}")
    for coupling in (0.1, 0.3, CRITICAL_COUPLING, 0.6):
        idata = pm.sample_hais(model=build_model(size, coupling), random_seed=1944, progressbar=False)
        log_z, exact = pymc_hais.log_marginal_likelihood(idata), exact_log_z(size, coupling)
        print(
            f"{coupling:8.4f} {log_z.value:8.3f} {log_z.se:6.3f} {exact:8.3f} {exact / size**2:7.4f} "
            f"{onsager_free_energy(coupling):8.4f}"
        )


if __name__ == "__main__":
    main()
