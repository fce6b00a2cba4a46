"""Coordinates in which hierarchies and chains are no funnels."""
