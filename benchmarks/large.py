"""Time and peak memory of Gaussian-prior models with 1,000 and 10,000 dimensions, default settings."""

import resource
import subprocess
import sys
import time

from models import gaussian

import pymc_hais


def run(n_dims: int) -> None:
    model, truth = gaussian(n_dims)
    begin = time.perf_counter()
    idata = pymc_hais.sample_hais(model=model, random_seed=1, progressbar=False)
    estimate = pymc_hais.log_marginal_likelihood(idata)
    attrs = idata["posterior"].attrs
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{n_dims} dimensions: error {estimate.value - truth:+.3f} ± {estimate.se:.3f}, "
        f"{time.perf_counter() - begin:.0f} s (pilot {attrs['pilot_time']:.0f} s, {time.process_time():.0f} s of CPU), "
        f"peak {peak:.1f} GiB, T = {attrs['n_temperatures']}, reference {attrs.get('reference', 'prior')}"
    )
    for finding in estimate.findings:
        print(f"  {finding.severity}: {finding}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(int(sys.argv[1]))
    else:  # a process each, so that peaks do not add up
        for size in ("1000", "10000"):
            subprocess.run([sys.executable, __file__, size], check=True)
