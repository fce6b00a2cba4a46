"""E-steps over the states of binary hidden variables."""
