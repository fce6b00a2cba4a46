"""Discrete variables: their sites, what depends on one, and the log odds of its values."""

from pymc_hais.density.sites import operations  # which registers its rules
