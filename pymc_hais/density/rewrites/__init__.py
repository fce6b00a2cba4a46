"""Rewrites of log densities into equal ones that cost less, for PyTensor's rewriting machinery."""
