"""Time and peak memory, default settings: Gaussian models with 1,000 and 10,000 dimensions, and many rows.

``python benchmarks/large.py [dimensions N | rows N] ...``: the logistic regression of N rows has 10 coefficients.
"""

import resource
import subprocess
import sys
import time

from models import gaussian, logistic

import pymc_hais


def run(kind: str, size: int) -> None:
    if kind == "rows":
        model, truth = logistic(size, 10), None
    else:
        model, truth = gaussian(size)
    begin = time.perf_counter()
    idata = pymc_hais.sample_hais(model=model, random_seed=1, progressbar=False)
    estimate = pymc_hais.log_marginal_likelihood(idata)
    attrs = idata["posterior"].attrs
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    found = f"log Z {estimate.value:.4f}" if truth is None else f"error {estimate.value - truth:+.3f}"
    print(
        f"{size} {kind}: {found} ± {estimate.se:.4f}, "
        f"{time.perf_counter() - begin:.1f} s (pilot {attrs['pilot_time']:.1f} s, {time.process_time():.1f} s of CPU), "
        f"{attrs['n_gradients'] + attrs['n_gradients_pilot']:,} evaluations, peak {peak:.1f} GiB, "
        f"T = {attrs['n_temperatures']}, reference {attrs.get('reference', 'prior')}"
    )
    for finding in estimate.findings:
        print(f"  {finding.severity}: {finding}")


if __name__ == "__main__":
    given = sys.argv[1:] or ["dimensions", "1000", "dimensions", "10000", "rows", "10000", "rows", "100000"]
    if len(given) == 2:
        run(given[0], int(given[1]))
    else:  # a process each, so that peaks do not add up
        for kind, size in zip(given[::2], given[1::2], strict=True):
            subprocess.run([sys.executable, __file__, kind, size], check=True)
