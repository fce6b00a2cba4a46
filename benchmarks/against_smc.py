"""A conjugate regression with 50 correlated coefficients: pm.sample_smc and sample_hais, errors and times."""

import time

import numpy as np
import pymc as pm
from models import conjugate_regression

import pymc_hais


def main(repeats: int = 3) -> None:
    model, truth = conjugate_regression()
    print(f"exact log Z {truth:.3f}")
    ratios = []
    for seed in range(1, repeats + 1):
        begin = time.perf_counter()
        smc = pm.sample_smc(
            model=model, chains=4, random_seed=seed, progressbar=False, compute_convergence_checks=False
        )
        smc_time = time.perf_counter() - begin
        per_chain = np.asarray(smc.sample_stats["log_marginal_likelihood"].values, dtype=object)
        per_chain = np.array([float(np.asarray(chain).ravel()[-1]) for chain in per_chain])

        begin = time.perf_counter()
        idata = pymc_hais.sample_hais(model=model, random_seed=seed, progressbar=False)
        hais_time = time.perf_counter() - begin
        estimate = pymc_hais.log_marginal_likelihood(idata)
        ratios.append(hais_time / smc_time)
        print(
            f"seed {seed}: sample_smc errors {np.round(per_chain - truth, 2)} in {smc_time:.1f} s; sample_hais "
            f"{estimate.value - truth:+.3f} ± {estimate.se:.3f} in {hais_time:.1f} s (time ratio {ratios[-1]:.2f})"
        )
    print(f"median time ratio {np.median(ratios):.2f}")


if __name__ == "__main__":
    main()
