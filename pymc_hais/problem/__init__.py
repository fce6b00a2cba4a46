"""The model as compiled functions, and every check of it and of its reference before work."""
