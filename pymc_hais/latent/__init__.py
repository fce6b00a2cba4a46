"""Normal fields that a model holds: found in its graph, integrated out or moved along."""

import pymc_hais.density  # its coordinates import this package: imported first, they find it not yet begun
