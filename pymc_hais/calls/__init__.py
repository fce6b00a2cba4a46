"""Public functions, one in each file."""
