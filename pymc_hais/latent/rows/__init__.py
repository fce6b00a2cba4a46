"""Rows of normal variables that are integrated out exactly."""
