"""Gaussian Markov random fields and their sparse precisions."""
