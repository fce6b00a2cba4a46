"""Populations annealed along a plan, round by round."""
