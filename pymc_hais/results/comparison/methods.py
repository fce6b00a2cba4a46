"""One result: a table of what each method says of its log Z."""

import numpy as np
import pandas as pd
from xarray import DataTree

from pymc_hais.results.datatree import log_marginal_likelihood, opinions_group


def estimates(idata: DataTree) -> pd.DataFrame:
    """Tabulate log Z by every method that a run has: a second method that fails differently, and agrees, earns trust.

    Thermodynamic integration and stepping stones come with every run; ``sample_hais(estimators="all")`` asks for a
    bridge from a fit to the draws, linked importance sampling, and annealing back from the final particles as well.

    The last one is no bound on real data: its particles are only as good as the run that they come from.  On data that
    are simulated :func:`validate` has exact draws, and bounds.

    Parameters
    ----------
    idata : DataTree
        Result of :func:`sample_hais`.

    Returns
    -------
    DataFrame
        A row for each ``method``, the reported estimate first: ``value``, ``se``, ``lower`` and ``upper`` (95%) in
        nats, and ``agrees``, whether it differs from the first row by no more than the two 95% intervals allow.

    Raises
    ------
    ValueError
        If ``idata`` holds no estimate of log Z.

    References
    ----------
    .. [1] Gelman, A. and Meng, X.-L. (1998). Simulating normalizing constants: from importance sampling to bridge
       sampling to path sampling. Statistical Science 13, 163-185.
    .. [2] Xie, W., Lewis, P. O., Fan, Y., Kuo, L. and Chen, M.-H. (2011). Improving marginal likelihood estimation for
       Bayesian phylogenetic model selection. Systematic Biology 60, 150-160.
    .. [3] Meng, X.-L. and Wong, W. H. (1996). Simulating ratios of normalizing constants via a simple identity.
       Statistica Sinica 6, 831-860.
    .. [4] Neal, R. M. (2005). Estimating ratios of normalizing constants using linked importance sampling.
       arXiv:math/0511216.
    .. [5] Bennett, C. H. (1976). Efficient estimation of free energy differences from Monte Carlo data. Journal of
       Computational Physics 22, 245-268.
    """
    first = log_marginal_likelihood(idata)
    has_others = "estimates" in idata.children
    rows = idata["estimates"].to_dataset() if has_others else opinions_group(first, ())
    table = pd.DataFrame(
        {name: rows[name].values for name in ("value", "se", "lower", "upper")},
        index=pd.Index([str(name) for name in rows["method"].values], name="method"),
    )
    below, above = table["value"] - table["lower"], table["upper"] - table["value"]
    difference = table["value"] - first.value
    allowed = np.where(
        difference > 0, np.hypot(below, first.upper - first.value), np.hypot(above, first.value - first.lower)
    )
    table["agrees"] = np.abs(difference) <= allowed
    return table
