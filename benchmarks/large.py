"""Time and peak memory of Gaussian-prior models with 1,000 and 10,000 dimensions."""

import resource
import subprocess
import sys
import time

from models import gaussian

import pymc_hais

#: Memory does not depend on the number of temperatures; without a cap these runs take long.
BUDGET = {1000: 256, 10_000: 32}


def run(n_dims: int) -> None:
    model, truth = gaussian(n_dims)
    begin = time.perf_counter()
    idata = pymc_hais.sample_hais(model=model, random_seed=1, progressbar=False, max_temperatures=BUDGET[n_dims])
    estimate = pymc_hais.log_marginal_likelihood(idata)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{n_dims} dimensions: error {estimate.value - truth:+.3f} ± {estimate.se:.3f}, "
        f"{time.perf_counter() - begin:.0f} s, peak {peak:.1f} GiB, T = {idata['posterior'].attrs['n_temperatures']}"
    )
    for finding in estimate.findings:
        print(f"  {finding.severity}: {finding}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(int(sys.argv[1]))
    else:  # a process each, so that peaks do not add up
        for size in ("1000", "10000"):
            subprocess.run([sys.executable, __file__, size], check=True)
