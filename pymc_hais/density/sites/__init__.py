"""Discrete variables: their sites, what depends on one, and the log odds of its values."""
