"""A model at one point: its density without free variables, and the density of its prior."""
