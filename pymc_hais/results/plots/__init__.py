"""Plots of one family a file, on any backend of arviz-plots; Matplotlib is the default (the ``plots`` extra)."""
