"""The JAX form of a density."""
