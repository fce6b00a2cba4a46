"""Starts that an optimiser finds."""
